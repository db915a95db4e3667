"""Sensitivities against closed forms, finite differences and asymptotic laws."""

import numpy as np
import pytest
import sympy as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import odekit as ok

TIGHT = ok.Tolerance(relative=1e-11)
SPECTRUM = np.array([0.6, 0.4])


def decay():
    x, k = sp.symbols("x k", positive=True)
    return x, k, ok.vector_field({x: -k * x}, parameters=(k,), loss=x**2)


def start(scale=0.05, seed=0, heads=2, dim=2):
    draw = np.random.default_rng(seed)
    return {
        "v": scale * draw.normal(size=heads),
        "K": scale * draw.normal(size=(heads, 1, dim)),
        "Q": scale * draw.normal(size=(heads, 1, dim)),
    }


# -- closed forms --------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "LSODA", "Radau", "Rodas5P", "CompiledDOP853"])
def test_exponential_decay_has_its_closed_form(method):
    x, k, field = decay()
    t = np.linspace(0.0, 3.0, 7)
    found = ok.sensitivities(
        field,
        {"x": 2.0},
        t,
        {"k": 0.7},
        to=["k", "x", "log scale"],
        method=method,
        tolerance=TIGHT,
        events=[ok.Crossing("x", 1.0), ok.Crossing(x * k, 0.5)],
    )
    decayed = np.exp(-0.7 * t)
    np.testing.assert_allclose(found["x", "k"], -t * 2 * decayed, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found["x", "x"], decayed, rtol=1e-8)
    np.testing.assert_allclose(found["x", "log scale"], 2 * decayed, rtol=1e-8)
    np.testing.assert_allclose(found.loss[:, 1], 4 * decayed**2, rtol=1e-8)
    # x = level at t = ln(2 / level) / k; the second level is one of x k, so that of x is .5 / k.
    first, second = (e for e in found.events)
    at = np.log(2 / 1.0) / 0.7
    np.testing.assert_allclose(first.time, [-at / 0.7, 1 / 1.4, 1 / 0.7], rtol=1e-8)
    at = np.log(2 * 0.7 / 0.5) / 0.7
    np.testing.assert_allclose(second.time, [(1 / 0.7 - at) / 0.7, 1 / 1.4, 1 / 0.7], rtol=1e-8)
    # On the level the state cannot move (first), or moves as .5 / k (second).
    np.testing.assert_allclose(first.state["x"], np.zeros(3), atol=1e-8)
    np.testing.assert_allclose(second.state["x"], [-0.5 / 0.49, 0, 0], rtol=1e-8, atol=1e-8)
    assert found.event_times.shape == (2, 3)


def test_white_merged_attention_rises_as_its_closed_form_says():
    # tr(A) / sqrt(D) = w^2 obeys a logistic law with rate 2 sqrt(D) and end sqrt(D) / c.
    dim, context, first = 2, 20, 0.03
    c = 1 + (1 + dim) / context
    y0 = {"v": np.array([first]), "U": first * np.eye(dim)[None] / np.sqrt(dim)}
    flow = ok.models.attention_merged().flow
    weight = next(w for w in flow.states if w.name == "v")
    half = ok.Crossing(ok.einsum("h,h->", weight, weight), np.sqrt(dim) / (2 * c))
    found = ok.sensitivities(
        flow,
        y0,
        np.linspace(0, 8, 33),
        {"Lambda": np.eye(dim), "N": context},
        to=["log scale", "N"],
        events=half,
        tolerance=TIGHT,
    )
    t = found.t
    end, rate = np.sqrt(dim) / c, 2 * np.sqrt(dim)
    share = end / first**2 - 1
    square = end / (1 + share * np.exp(-rate * t))
    v = np.sqrt(square)
    # d ln(square) / d ln(first^2) = (1 + 1/share) e / (1/share + e), e = exp(-rate t).
    e = share * np.exp(-rate * t)
    by_scale = v * (end / first**2) * np.exp(-rate * t) / (1 + e)
    np.testing.assert_allclose(found["v", "log scale"][:, 0], by_scale, rtol=1e-7)
    # dc/dN = -(1 + D) / N^2 and d(end)/dc = -end / c; share moves with end.
    end_by_n = end / c * (1 + dim) / context**2
    square_by_n = end_by_n * (square / end - square**2 / end * np.exp(-rate * t) / first**2)
    np.testing.assert_allclose(found["v", "N"][:, 0], square_by_n / (2 * v), rtol=1e-6, atol=1e-9)
    # Half-rise at ln(share) / rate at a fixed level.
    moved = -2 * (share + 1) / share / rate
    assert found.events[0].event.t == pytest.approx(np.log(share) / rate, rel=1e-8)
    assert found.events[0].time[0] == pytest.approx(moved, rel=1e-7)


# -- asymptotic laws -----------------------------------------------------------------------------


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    ratio=st.floats(min_value=0.2, max_value=0.8),
    power=st.integers(min_value=4, max_value=7),
    seed=st.integers(min_value=0, max_value=99),
)
def test_a_plateau_of_modes_ends_later_by_one_over_its_growth_rate(ratio, power, seed):
    # Near zero p and q of a mode grow as exp(s^2 t) whatever the other does, so the time at which
    # one passes a level moves by -1/s^2 with the logarithm of the scale. Corrections: p q = 1e-4
    # at the level, and p - q, which decays while p + q grows, leaves (scale / level)^2 = 1e-4.
    s = np.array([1.0, ratio])
    draw = np.random.default_rng(seed)
    scale = 10.0**-power
    y0 = {n: scale * (1 + draw.random(2)) for n in ("p", "q")}
    found = ok.sensitivities(
        ok.models.modes(dim=2).flow,
        y0,
        [1.5 * np.log(1 / scale) / ratio**2],
        {"s": s, "N": 1000},
        to="log scale",
        events=[ok.Crossing("p[0]", 0.01), ok.Crossing("p[1]", 0.01)],
        method="Tsit5",
    )
    np.testing.assert_allclose(found.event_times[:, 0], -1 / s**2, rtol=5e-4)


def test_the_first_plateau_of_separate_attention_is_as_long_as_one_over_the_scale():
    # Three factors: the plateau lasts tau / (lambda^2 v0), so d t / d ln(scale) = -t.
    y0 = start(scale=1e-3)
    found = ok.sensitivities(
        ok.models.attention_separate().flow,
        y0,
        [2e4],
        {"Lambda": np.diag(SPECTRUM), "N": 20},
        to="log scale",
        events=ok.Crossing("loss", 0.8),
    )
    event = found.events[0]
    assert event.time[0] == pytest.approx(-event.event.t, rel=0.01)


# -- finite differences --------------------------------------------------------------------------


def differences(solve, step):
    """Central differences at a step and at twice it, and what they are good for.

    The error of the smaller is a third of their difference (their leading error is quadratic),
    if rounding and the solver's own error, both over the step, stay below it.
    """
    near = (solve(step) - solve(-step)) / (2 * step)
    far = (solve(2 * step) - solve(-2 * step)) / (4 * step)
    return (4 * near - far) / 3, np.abs(near - far)


@pytest.mark.parametrize(
    ("label", "step"),
    [
        ("Lambda[0, 1]", 2e-5),
        pytest.param("Lambda[0, 0]", 2e-5, marks=pytest.mark.slow),
        pytest.param("log scale", 2e-4, marks=pytest.mark.slow),
        pytest.param("v[1]", 2e-6, marks=pytest.mark.slow),
    ],
)
def test_separate_attention_agrees_with_finite_differences(label, step):
    field, y0 = ok.models.attention_separate().flow, start()
    params = {"Lambda": np.diag(SPECTRUM), "N": 20}
    times = np.array([40.0, 80.0, 200.0, 320.0])
    events = [ok.Crossing("loss", 0.8), ok.Crossing("K[0, 0, 1]", 0.2), ok.Plateau()]
    found = ok.sensitivities(field, y0, times, params, to=label, events=events, tolerance=TIGHT)

    def solve(move):
        moved = {n: y0[n] + move * found.initial[n][0] for n in y0}
        values = dict(params)
        if "Lambda" in found.parameters:
            values["Lambda"] = params["Lambda"] + move * found.parameters["Lambda"][0]
        run = ok.solve(field, moved, times, values, events=events, tolerance=TIGHT)
        states = [run[n].reshape(len(times), -1) for n in y0]
        return np.concatenate([*(s.ravel() for s in states), run.loss, [e.t for e in run.events]])

    expected, doubt = differences(solve, step)
    ours = np.concatenate(
        [*(found[n].ravel() for n in y0), found.loss.ravel(), found.event_times.ravel()]
    )
    # Achieved errors at this tolerance are about 1e-8 of the quantities themselves.
    size = np.concatenate(
        [
            np.ones(found.run.states["v"].size + 2 * found.run.states["K"].size + len(times)),
            [e.event.t for e in found.events],
        ]
    )
    assert np.all(np.abs(ours - expected) <= doubt + 3e-9 * size / step)
    # And the difference is small against the derivatives, or nothing was tested.
    assert np.median(np.abs(ours - expected) / np.maximum(np.abs(expected), 1e-3)) < 1e-4


def test_stiff_methods_agree_on_robertson():
    a, b, c, k1, k2, k3 = sp.symbols("a b c k1 k2 k3", positive=True)
    slow, square, fast = k1 * a, k2 * b**2, k3 * b * c
    field = ok.vector_field(
        {a: fast - slow, b: slow - fast - square, c: square}, parameters=(k1, k2, k3)
    )
    params = {"k1": 0.04, "k2": 3e7, "k3": 1e4}
    runs = [
        ok.sensitivities(
            field,
            {"a": 1.0, "b": 0.0, "c": 0.0},
            [1.0, 1e2, 1e4],
            params,
            to=["k1", "k2", "k3"],
            method=method,
            tolerance=ok.Tolerance(relative=1e-9),
        )
        for method in ("LSODA", "Rodas5P")
    ]
    for name in "abc":
        np.testing.assert_allclose(runs[0][name], runs[1][name], rtol=1e-5)
    # Mass is conserved whatever the rates.
    total = sum(runs[1][name] for name in "abc")
    assert np.max(np.abs(total)) < 1e-8 * np.max(np.abs(runs[1]["a"]))


# -- what comes with it --------------------------------------------------------------------------


def test_tangents_between_outputs_and_of_intermediates():
    flow = ok.models.attention_merged().flow
    draw = np.random.default_rng(3)
    y0 = {"v": 0.1 * draw.normal(size=2), "U": 0.1 * draw.normal(size=(2, 2, 2))}
    params = {"Lambda": np.diag(SPECTRUM), "N": 20}
    found = ok.sensitivities(flow, y0, 30.0, params, to=["eigenvalues(Lambda)", "N"])
    assert found.labels == ("eigenvalue 0 of Lambda", "eigenvalue 1 of Lambda", "N")
    middle = found.at(12.3)
    sparse = ok.sensitivities(flow, y0, [12.3], params, to=["eigenvalues(Lambda)", "N"])
    for name in ("v", "U"):
        np.testing.assert_allclose(middle[name], sparse[name][0], rtol=1e-5, atol=1e-8)
    product = np.einsum("kmh,khij->kmij", found["v"], found.trajectory["U"])
    product += np.einsum("kh,kmhij->kmij", found.trajectory["v"], found["U"])
    np.testing.assert_allclose(found.value("A"), product, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found.value("loss"), found.loss)
    assert found.trajectory.at(12.3)["v"].shape == (2,)
    assert "d loss at the end" in found._repr_html_()
    assert "eigenvalue 1 of Lambda" in repr(found)


def test_the_trajectory_is_that_of_a_plain_run():
    y0, params = start(), {"Lambda": np.diag(SPECTRUM), "N": 20}
    times, flow = np.linspace(0, 300, 11), ok.models.attention_separate().flow
    run = ok.solve(flow, y0, times, params)
    found = ok.sensitivities(flow, y0, times, params, to="N").trajectory
    np.testing.assert_allclose(found.loss, run.loss, rtol=1e-6)
    assert set(found.states) == set(run.states)
    assert found.stats["method"] == run.stats["method"]
    np.testing.assert_allclose(found.value("A"), run.value("A"), atol=1e-6)


def test_any_direction_can_be_asked_for():
    y0, params = start(), {"Lambda": np.diag(SPECTRUM), "N": 20}
    flow = ok.models.attention_separate().flow
    both = ok.Direction("both", states={"v": y0["v"]}, params={"Lambda": np.eye(2)})
    found = ok.sensitivities(
        flow, y0, [50.0], params, to=[both, "Lambda[0, 0]", "Lambda[1, 1]", "v"], tolerance=TIGHT
    )
    parts = found["K", "Lambda[0, 0]"] + found["K", "Lambda[1, 1]"]
    parts = parts + sum(y0["v"][h] * found["K", f"v[{h}]"] for h in range(2))
    np.testing.assert_allclose(found["K", "both"], parts, rtol=1e-7, atol=1e-9)


def test_a_failed_run_keeps_what_it_reached():
    x = sp.Symbol("x")
    field = ok.vector_field({x: x**2})
    found = ok.sensitivities(field, {"x": 1.0}, [0.5, 2.0], to="x", throw=False)
    assert not found.trajectory.status.ok
    assert found["x", "x"][0] == pytest.approx(4.0, rel=1e-6)  # x = x0 / (1 - x0 t)
    with pytest.raises(ok.SolveError) as raised:
        ok.sensitivities(field, {"x": 1.0}, [0.5, 2.0], to="x")
    assert set(raised.value.solution.states) == {"x"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"to": "kk"}, "kk.*k"),
        ({"to": []}, "at least one"),
        ({"to": ["k", "k"]}, "called 'k'"),
        ({"to": "x[3]"}, "not an entry"),
        ({"to": 3.0}, "names"),
        ({"to": "eigenvalues(k)"}, "no square parameter"),
        ({"to": ok.Direction("odd", params={"k": np.ones(2)})}, "shape"),
        ({"to": "k", "events": ok.Crossing(lambda t, y: y["x"], 1.0)}, "no exact derivative"),
        ({"to": "k", "rtol": 1e-3}, "rtol"),
    ],
)
def test_bad_requests_are_refused(options, message):
    _, _, field = decay()
    with pytest.raises(ok.InputError, match=message):
        ok.sensitivities(field, {"x": 1.0}, [1.0], {"k": 1.0}, **options)


def test_equal_eigenvalues_have_no_derivative_of_their_own():
    with pytest.raises(ok.InputError, match="equal eigenvalues"):
        ok.sensitivities(
            ok.models.attention_separate().flow,
            start(),
            [1.0],
            {"Lambda": np.eye(2), "N": 20},
            to="eigenvalues(Lambda)",
        )


@pytest.mark.slow
@pytest.mark.parametrize("power", [4, 6, 8])
def test_tiny_starts_are_resolved(power):
    # The drop moves by minus its own time, so tangents of the moving weights outgrow those of the
    # others by many decades; steps must not stall on rounding in the small ones.
    scale = 10.0**-power
    y0 = start(scale=scale, seed=3, heads=4, dim=4)
    params = {"Lambda": np.diag([0.4, 0.3, 0.2, 0.1]), "N": 31}
    found = ok.sensitivities(
        ok.models.attention_separate().flow,
        y0,
        [60 / scale],
        params,
        to="log scale",
        events=ok.Crossing("loss", 0.8),
    )
    event = found.events[0]
    assert event.time[0] == pytest.approx(-event.event.t, rel=1e-3)
    assert abs(event.time[0]) > 1 / scale
