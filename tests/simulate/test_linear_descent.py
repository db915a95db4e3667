"""Exact descent of deep linear networks and p, q transformers from sufficient statistics."""

from __future__ import annotations

import numpy as np
import pytest

import odekit as ok
import odekit.simulate as sim
from odekit.errors import InputError
from odekit.simulate.descent import LinearDescent
from odekit.simulate.flow_descent import FlowDescent
from odekit.solution import Status

L = np.array([[0.6, 0.1, 0.0], [0.1, 0.4, 0.05], [0.0, 0.05, 0.3]])
TEACHER = np.array([[1.0, -0.5, 0.2], [0.3, 0.8, -0.4]])
WIDTHS = {1: (3, 2), 2: (3, 4, 2), 4: (3, 5, 1, 3, 2)}
BLOCKS = ["restricted", "all"]


def chain(depth, scale=0.7):
    model = ok.models.deep_linear(depth)
    rng = np.random.default_rng(depth)
    shapes = zip(WIDTHS[depth][1:], WIDTHS[depth], strict=False)
    y0 = {f"W{k + 1}": scale * rng.standard_normal(shape) for k, shape in enumerate(shapes)}
    return model, y0


def inputs(count=50, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 3)) @ np.linalg.cholesky(L).T
    return x, x @ TEACHER.T + 0.1 * rng.standard_normal((count, 2))


def transformer(blocks, scale=0.4, d=2, **options):
    model = ok.models.linear_transformer(blocks=blocks, **options)
    rng = np.random.default_rng(1)
    names = ("p2", "q1") if blocks == "restricted" else ("p2", "q1", "p1", "q2")
    return model, {name: scale * rng.standard_normal((d, d)) for name in names}


def tasks(count=40, d=2, N=5, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, N + 1, d)) * np.sqrt(np.arange(1, d + 1) / d)
    W = rng.standard_normal((count, d, d))
    return x, np.einsum("pij,pnj->pni", W, x)


def plain_chain(state, x, y):
    """Loss and gradients of a deep linear network, one layer after the other."""
    layers = [state[f"W{k + 1}"] for k in range(len(state))]
    hidden = [x]
    for W in layers:
        hidden.append(hidden[-1] @ W.T)
    back = 2 * (hidden[-1] - y) / len(x)
    loss, grads = np.sum((hidden[-1] - y) ** 2) / len(x), {}
    for k in range(len(layers), 0, -1):
        grads[f"W{k}"] = back.T @ hidden[k - 1]
        back = back @ layers[k - 1]
    return loss, grads


def plain_transformer(state, x, y, count=None):
    """Loss and gradients of the layer ``(p1 G_xx + p2 G_yx) q1 x_q + ...`` as tokens [x; y]."""
    P, tokens, d = x.shape
    z = np.concatenate([x, y], axis=2)
    z[:, -1, d:] = 0
    whole = "p1" in state
    if not whole:
        z[:, -1] = 0  # the restricted blocks do not see the query's own token
    n = tokens - 1 if count is None else count
    G = np.einsum("pna,pnb->pab", z, z) / n
    p = np.concatenate([state["p1"] if whole else np.zeros((d, d)), state["p2"]], axis=1)
    q = np.concatenate([state["q1"], state["q2"] if whole else np.zeros((d, d))], axis=0)
    query = x[:, -1]
    up = np.einsum("pab,bl,pl->pa", G, q, query)
    r = up @ p.T - y[:, -1]
    gp = 2 / P * r.T @ up
    gq = 2 / P * np.einsum("pi,ia,pab,pl->bl", r, p, G, query)
    grads = {"p2": gp[:, d:], "q1": gq[:d]}
    if whole:
        grads |= {"p1": gp[:, :d], "q2": gq[d:]}
    return np.sum(r**2) / P, grads


def plain_run(step, state, data, lr, steps, momentum=0.0):
    state = {name: value.copy() for name, value in state.items()}
    velocity = {name: np.zeros_like(value) for name, value in state.items()}
    losses = []
    for _ in range(steps + 1):
        loss, grads = step(state, *data)
        losses.append(loss)
        if len(losses) == steps + 1:
            break
        for name in state:
            velocity[name] = momentum * velocity[name] - lr * grads[name]
            state[name] += velocity[name]
    return np.array(losses), state


@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("depth", WIDTHS)
def test_deep_linear_curves_equal_plain_numpy(depth, momentum):
    model, y0 = chain(depth)
    data = inputs()
    plain, last = plain_run(plain_chain, y0, data, 0.03, 100, momentum)
    run = sim.gradient_descent(model, data, y0=y0, lr=0.03, steps=100, momentum=momentum)
    assert run.status is Status.success
    np.testing.assert_allclose(run.loss, plain, rtol=1e-11)
    for name, value in last.items():
        np.testing.assert_allclose(run[name][-1], value, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("momentum", [0.0, 0.8])
@pytest.mark.parametrize("blocks", BLOCKS)
def test_transformer_curves_equal_plain_numpy(blocks, momentum):
    model, y0 = transformer(blocks)
    data = tasks()
    plain, last = plain_run(plain_transformer, y0, data, 0.01, 100, momentum)
    run = sim.gradient_descent(model, data, y0=y0, lr=0.01, steps=100, momentum=momentum)
    np.testing.assert_allclose(run.loss, plain, rtol=1e-11)
    for name, value in last.items():
        np.testing.assert_allclose(run[name][-1], value, rtol=1e-8, atol=1e-11)


CASES = [*((chain, depth) for depth in WIDTHS), *((transformer, blocks) for blocks in BLOCKS)]


@pytest.mark.parametrize(("make", "option"), CASES)
def test_gradients_equal_finite_differences(make, option):
    model, y0 = make(option)
    problem = LinearDescent(model, inputs() if make is chain else tasks(), y0, True)
    theta = problem.theta
    found = problem.gradient(theta)
    for i in range(theta.size):
        shift = np.zeros_like(theta)
        shift[i] = 1e-6
        slope = (problem.loss(theta + shift) - problem.loss(theta - shift)) / 2e-6
        assert found[i] == pytest.approx(slope, abs=2e-9)
    for name, value in problem.unpack(theta).items():
        np.testing.assert_array_equal(value, y0[name])


@pytest.mark.parametrize(
    ("make", "option", "options", "params"),
    [
        (chain, 1, {}, {"Lambda": L, "T": TEACHER}),
        (chain, 4, {}, {"Lambda": L, "T": TEACHER}),
        *(
            (transformer, "restricted", {"tasks": law}, {"Lambda": L[:2, :2], "N": 3})
            for law in ("iid", "diagonal", "scalar")
        ),
        (
            transformer,
            "restricted",
            {"tasks": "general", "normalise": "N+1"},
            {"Lambda": L[:2, :2], "N": 3, "Omega": np.array([[1.0, 0.3], [0.3, 0.5]])},
        ),
    ],
)
def test_the_population_in_closed_form_is_the_derived_loss(make, option, options, params):
    """Loss and gradient of the closed-form moments, against the loss that the engine derives."""
    model, y0 = make(option, **options)
    moments = sim.linear_statistics(model, sim.Population(params))
    closed = LinearDescent(model, moments, y0, True)
    assert closed.loss(closed.theta) == pytest.approx(
        model.loss.value(y0, params), rel=1e-12, abs=1e-14
    )
    derived = FlowDescent(model, sim.Population(params), y0, 1)
    slopes = derived.unpack(derived.gradient(derived.theta))
    for name, slope in closed.unpack(closed.gradient(closed.theta)).items():
        np.testing.assert_allclose(slope, slopes[name], rtol=1e-11, atol=1e-13)
    run = sim.gradient_descent(model, sim.Population(params), y0=y0, lr=0.02, steps=40)
    assert run.loss[0] == pytest.approx(model.loss.value(y0, params), rel=1e-12)
    assert run.field is model.flow


@pytest.mark.parametrize(
    ("make", "option", "params"),
    [
        (chain, 2, {"Lambda": L, "T": TEACHER}),
        (transformer, "restricted", {"Lambda": L[:2, :2], "N": 4}),
        pytest.param(transformer, "all", {"Lambda": L[:2, :2], "N": 4}, marks=pytest.mark.slow),
    ],
)
def test_descent_on_the_population_agrees_with_the_flow(make, option, params):
    model, y0 = make(option)
    run = sim.gradient_descent(model, sim.Population(params), y0=y0, lr=0.02, steps=300)
    flow = ok.solve(model.flow, y0, 13.0, params)
    report = sim.compare(flow, run)
    assert report.passed, str(report)
    assert report.order == pytest.approx(1, abs=0.1)


def test_samples_of_the_models_own_law_have_the_population_as_their_mean():
    """20 sets of 5,000: each entry within 5 standard errors (Student's t, once in 12,000)."""
    model, _ = transformer("restricted", normalise="N+1")
    params = {"Lambda": np.diag([0.5, 1.0]), "N": 5}
    exact = sim.linear_statistics(model, sim.Population(params))
    sets = [sim.linear_statistics(model, tasks(5000, seed=seed)) for seed in range(20)]
    for name in ("C", "c"):
        found = np.array([getattr(one, name) for one in sets])
        error = found.std(axis=0, ddof=1) / np.sqrt(20)
        assert np.all(np.abs(found.mean(axis=0) - getattr(exact, name)) < 5 * error + 1e-12)


def test_lengths_mixtures_and_test_curves():
    model, y0 = transformer("all")
    x, y = tasks(30)
    lengths = np.repeat([2, 5, 3], 10)
    mixed = sim.linear_statistics(model, (x, y), lengths=lengths)
    parts = []
    for n in (2, 5, 3):
        rows = lengths == n
        at = [*range(n), 5]
        parts.append(sim.linear_statistics(model, (x[rows][:, at], y[rows][:, at])))
    joined = (1 / 3) * parts[0] + parts[1] * (1 / 3) + parts[2] * (1 / 3)
    for name in ("C", "c", "y2"):
        np.testing.assert_allclose(getattr(mixed, name), getattr(joined, name), rtol=1e-12)
    run = sim.gradient_descent(model, joined, y0=y0, lr=0.01, steps=30, save_at=[0, 10, 30])
    np.testing.assert_array_equal(run.t, [0, 10, 30])
    test = tasks(25, seed=9)
    curve = sim.loss_curve(model, run, test)
    for k in range(3):
        state = {name: run[name][k] for name in y0}
        assert curve[k] == pytest.approx(plain_transformer(state, *test)[0], rel=1e-12)
    assert sim.coefficients(model, run.states).shape == (3, 2, 20)
    assert joined.minimum() <= run.loss[-1]


def test_the_divisor_is_the_models_own():
    model, y0 = transformer("restricted", normalise="N+1")
    data = tasks()
    run = sim.gradient_descent(model, data, y0=y0, lr=0.01, steps=1)
    assert run.loss[0] == pytest.approx(plain_transformer(y0, *data, count=6)[0], rel=1e-13)
    raw = sim.gradient_descent(model, data, y0=y0, lr=0.01, steps=1, normalise=False)
    assert raw.loss[0] == pytest.approx(plain_transformer(y0, *data, count=1)[0], rel=1e-13)


def test_the_edge_of_stability_and_divergence():
    model, y0 = chain(2)
    data = inputs()
    with pytest.warns(sim.EdgeOfStabilityWarning):
        run = sim.gradient_descent(model, data, y0=y0, lr=1.5, steps=400)
    assert run.status in (Status.blow_up, Status.nan)
    last = int(run.t[-1])
    before = plain_run(plain_chain, y0, data, 1.5, last)[1]
    np.testing.assert_allclose(run["W1"][-1], before["W1"], rtol=1e-8)


def test_named_starts():
    wide = ok.models.deep_linear(3, widths=(200, 300, 250, 150))
    for rule, deviations in (
        ("equal", (0.1, 0.1, 0.1)),
        ("fan", 0.1 / np.sqrt([200, 300, 250])),
    ):
        y0 = sim.initial(wide, 0.1, 0, rule=rule)
        for W, deviation in zip(y0.values(), deviations, strict=True):
            # 37,500 entries and more: the standard deviation is known to half a per cent.
            assert W.std() == pytest.approx(deviation, rel=0.02)
    network = ok.models.deep_linear(3, widths=(3, 5, 4, 3))
    y0 = sim.initial(network, 0.2, 1, rule="balanced")
    for before, after in (("W1", "W2"), ("W2", "W3")):
        np.testing.assert_allclose(y0[after].T @ y0[after], y0[before] @ y0[before].T, atol=1e-15)
    np.testing.assert_allclose(np.linalg.svd(y0["W1"], compute_uv=False), 0.2, rtol=1e-13)
    data = inputs()[0], inputs()[0]
    run = sim.gradient_descent(network, data, y0=y0, lr=1e-4, steps=2000, save_at=[2000])
    drift = run["W2"][-1].T @ run["W2"][-1] - run["W1"][-1] @ run["W1"][-1].T
    assert np.abs(drift).max() < 1e-4  # conserved by the flow, by descent up to lr
    layer = ok.models.linear_transformer(dim=3)
    y0 = sim.initial(layer, 0.2, 1, rule="balanced")
    np.testing.assert_allclose(y0["p2"].T @ y0["p2"], y0["q1"] @ y0["q1"].T, atol=1e-15)
    whole = sim.initial(ok.models.linear_transformer(blocks="all"), 0.2, 1, dim=2)
    assert {name: value.shape for name, value in whole.items()} == dict.fromkeys(
        ("p2", "q1", "p1", "q2"), (2, 2)
    )
    for model, rule, words in (
        (ok.models.deep_linear(), None, "widths are symbolic"),
        (ok.models.linear_transformer(), None, "dim is symbolic"),
        (network, "value", "rule must be one of equal, fan, balanced"),
        (ok.models.linear_transformer(dim=2, blocks="all"), "balanced", "product of two"),
    ):
        with pytest.raises(InputError, match=words):
            sim.initial(model, 0.1, 0, rule=rule)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"data": 3}, "data must be"),
        ({"data": (np.ones((4, 3)), np.ones((5, 2)))}, "expected \\(P, D0\\)"),
        ({"data": (np.ones((4, 2)), np.ones((4, 2)))}, "must be the same"),
        ({"data": sim.Population({"Lambda": L})}, "takes Lambda, T, got Lambda"),
        ({"data": sim.Population({"Lambda": L, "T": np.eye(2)})}, "expected \\(outputs, 3\\)"),
        ({"data": sim.Population({"Lambda": -L, "T": TEACHER})}, "negative eigenvalue"),
        ({"y0": {"W1": np.ones((4, 3))}}, "lacks the state 'W2'"),
        ({"y0": {"W1": np.ones((4, 3)), "W2": np.ones((2, 5))}}, "must be the same"),
        ({"y0": {"W1": np.ones((4, 3)), "W3": np.ones((2, 4))}}, "Unknown state 'W3'"),
        ({"y0": {"W1": np.ones(3), "W2": np.ones((2, 4))}}, "expected a matrix"),
        ({"y0": 3}, "must map state names"),
    ],
)
def test_bad_input_is_one_line(change, words):
    model, y0 = chain(2)
    call = {"data": inputs(), "y0": y0, "lr": 0.1, "steps": 3} | change
    with pytest.raises(InputError, match=words) as caught:
        sim.gradient_descent(model, call.pop("data"), **call)
    assert "\n" not in str(caught.value)


def test_statistics_of_another_model_are_refused():
    network, y0 = chain(1)
    layer, _ = transformer("restricted")
    with pytest.raises(InputError, match="are of restricted features"):
        sim.gradient_descent(network, sim.linear_statistics(layer, tasks()), y0=y0, lr=0.1, steps=1)
    with pytest.raises(InputError, match="Cannot add"):
        sim.linear_statistics(layer, tasks()) + sim.linear_statistics(network, inputs())
    with pytest.raises(InputError, match="no deep_linear"):
        sim.linear_statistics(ok.models.attention_merged(), tasks())
    with pytest.raises(InputError, match="no context"):
        sim.linear_statistics(network, inputs(), lengths=np.ones(50))
    with pytest.raises(InputError, match='holds for blocks="restricted"'):
        sim.linear_statistics(transformer("all")[0], sim.Population({"Lambda": np.eye(2), "N": 3}))
    with pytest.raises(InputError, match="The model has N=4, the population has N=5"):
        sim.linear_statistics(
            ok.models.linear_transformer(dim=2, context=4),
            sim.Population({"Lambda": np.eye(2), "N": 5}),
        )
    with pytest.raises(InputError, match="at least 0"):
        sim.linear_statistics(network, inputs()) * -1
    with pytest.raises(InputError, match="not symmetric"):
        sim.LinearStatistics(features="inputs", C=[[1.0, 2.0], [0.0, 1.0]], c=[[1.0, 0]], y2=1.0)
