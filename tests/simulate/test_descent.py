"""Exact gradient descent against plain NumPy, finite differences, and the flow it approaches."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from simulate.plain_training import loss_and_gradient, train

import odekit.simulate as sim
from odekit.errors import InputError
from odekit.simulate import loops
from odekit.simulate.descent import LayerDescent, moments_gradient
from odekit.simulate.full_batch import Work
from odekit.solution import Status

CASES = list(itertools.product(("merged", "separate"), ("zero", "all")))
COVARIANCE = np.diag([0.5, 0.3, 0.2])


def layer(family, blocks, H=4, D=3, R=2):
    return sim.Layer(family, blocks, H, D, R if family == "separate" else 1)


def start(made, scale=0.4, seed=0):
    """Every block nonzero, so that nothing is tested at zero only."""
    rng = np.random.default_rng(seed)
    return made.unpack(scale * rng.standard_normal(made.size))


@pytest.mark.parametrize(("family", "blocks"), CASES)
@pytest.mark.parametrize("momentum", [0.0, 0.8])
def test_loss_curves_equal_plain_numpy(family, blocks, momentum):
    made = layer(family, blocks)
    data = sim.sequences(60, COVARIANCE, 7, seed=1)
    y0 = start(made)
    plain, last = train(y0, data.x, data.y, 0.05, 100, momentum=momentum)
    run = sim.gradient_descent(made, (data.x, data.y), y0=y0, lr=0.05, steps=100, momentum=momentum)
    assert run.status is Status.success
    np.testing.assert_array_equal(run.t, np.arange(101))
    # 100 steps away from saddles: rounding stays within some hundred ulp, and 1e-12 is asked.
    np.testing.assert_allclose(run.loss, plain, rtol=1e-12)
    for name, value in last.items():
        np.testing.assert_allclose(run[name][-1], value, rtol=1e-9, atol=1e-12)
    # Training on the features one by one is the third way to the same curve.
    single = sim.sgd(
        made, y0=y0, lr=0.05, steps=100, data=data,
        optimiser=sim.Optimiser("heavy ball", momentum) if momentum else "gd",
    )  # fmt: skip
    np.testing.assert_allclose(single.loss, plain, rtol=1e-12)


@pytest.mark.parametrize("normalise", [True, False])
def test_full_statistics_are_exact_while_zero_blocks_leak(normalise):
    """A small set not closed under y -> -y: the zero blocks move, and the run follows them."""
    made = layer("merged", "all")
    data = sim.sequences(25, COVARIANCE, 7, seed=2)
    y0 = sim.initial(made, 0.3, 0)
    assert not y0["u"][:, :-1].any()
    assert not y0["A"][:, :, -1].any()
    lr = 0.1 if normalise else 0.1 / 49
    plain, last = train(y0, data.x, data.y, lr, 100, normalise=normalise)
    run = sim.gradient_descent(made, (data.x, data.y), y0=y0, lr=lr, steps=100, normalise=normalise)
    np.testing.assert_allclose(run.loss, plain, rtol=1e-12)
    leaked = np.abs(last["A"][:, :, -1]).max()
    assert leaked > 1e-3
    assert np.abs(run["A"][-1][:, :, -1]).max() == pytest.approx(leaked, rel=1e-9)
    small = layer("merged", "zero")
    reduced = sim.gradient_descent(
        small, data.statistics().reduced(), y0=sim.initial(small, 0.3, 0), lr=lr, steps=100
    )
    assert not np.allclose(reduced.loss, run.loss, rtol=1e-6)  # the reduced model cannot follow


@pytest.mark.parametrize("family", ["merged", "separate"])
def test_zero_blocks_stay_zero_on_a_closed_set(family):
    data = sim.sequences(50, COVARIANCE, 7, seed=3, closed=True)
    large, small = layer(family, "all"), layer(family, "zero")
    y0 = sim.initial(large, 0.3, 0)
    run = sim.gradient_descent(large, data.statistics().symmetrised(), y0=y0, lr=0.1, steps=500)
    assert not run["u"][:, :, :-1].any()
    key = "A" if family == "merged" else "K"
    assert not run[key][..., -1].any()
    reduced = sim.gradient_descent(
        small, data.statistics("reduced"), y0=sim.initial(small, 0.3, 0), lr=0.1, steps=500
    )
    np.testing.assert_allclose(run.loss, reduced.loss, rtol=1e-11)
    # From the sequences themselves the moments cancel up to rounding, and so do the blocks.
    rounded = sim.gradient_descent(large, (data.x, data.y), y0=y0, lr=0.1, steps=100)
    assert np.abs(rounded["u"][:, :, :-1]).max() < 1e-15
    assert np.abs(rounded[key][..., -1]).max() < 1e-15


@pytest.mark.parametrize(("family", "blocks"), CASES)
def test_gradients_equal_finite_differences(family, blocks):
    made = layer(family, blocks)
    moments = sim.sequences(30, COVARIANCE, 7, seed=4).statistics(made.kind)
    theta = made.pack(start(made))
    _, grad = moments_gradient(made, moments, theta)
    for i in range(theta.size):
        shift = np.zeros_like(theta)
        shift[i] = 1e-6
        up = moments_gradient(made, moments, theta + shift)[0]
        down = moments_gradient(made, moments, theta - shift)[0]
        # Central differences: rounding eps/h = 1e-10, truncation h^2.
        assert grad[i] == pytest.approx((up - down) / 2e-6, abs=2e-9)


@pytest.mark.parametrize(("family", "blocks"), CASES)
def test_plain_numpy_itself_agrees_with_finite_differences(family, blocks):
    made = layer(family, blocks, H=2)
    data = sim.sequences(10, COVARIANCE, 5, seed=5)
    for attention in ("linear", "softmax") if blocks == "all" else ("linear",):
        state = start(made)
        _, grad = loss_and_gradient(state, data.x, data.y, attention)
        for name, value in state.items():
            for index in np.ndindex(value.shape):
                shifted = []
                for step in (1e-6, -1e-6):
                    moved = {k: v.copy() for k, v in state.items()}
                    moved[name][index] += step
                    shifted.append(loss_and_gradient(moved, data.x, data.y, attention)[0])
                assert grad[name][index] == pytest.approx(
                    (shifted[0] - shifted[1]) / 2e-6, abs=2e-9
                )


def test_the_population_loss_is_the_closed_form():
    """tr(L) - 2 tr(A L^2) + tr(B A L A^T), B = (1 + 1/N) L^2 + tr(L) L / N."""
    made, L, N = layer("separate", "zero"), COVARIANCE, 7
    y0 = start(made)
    A = np.einsum("h,hri,hrj->ij", y0["v"], y0["K"], y0["Q"])
    B = (1 + 1 / N) * L @ L + np.trace(L) / N * L
    expected = np.trace(L) - 2 * np.trace(A @ L @ L) + np.trace(B @ A @ L @ A.T)
    run = sim.gradient_descent(made, sim.Population({"Lambda": L, "N": N}), y0=y0, lr=0.01, steps=1)
    assert run.loss[0] == pytest.approx(expected, rel=1e-13)


def test_descent_approaches_the_flow_with_error_proportional_to_lr():
    """Halving lr at fixed time halves the distance: ratios tend to 2, order to 1."""
    made = layer("merged", "zero")
    population = sim.Population({"Lambda": COVARIANCE, "N": 7})
    y0, end = start(made, 0.2), 8.0
    finals = []
    rates = [0.04 / 2**k for k in range(5)] + [0.04 / 2**11]
    for lr in rates:
        steps = round(end / lr)
        run = sim.gradient_descent(made, population, y0=y0, lr=lr, steps=steps, save_at=[steps])
        finals.append(made.pack(run.final))
    # The finest run, Richardson-extrapolated with the one before, stands in for the flow.
    errors = [np.linalg.norm(f - finals[-1]) for f in finals[:-1]]
    orders = np.log2(np.array(errors[:-1]) / np.array(errors[1:]))
    assert np.all(np.abs(orders - 1) < 0.05), orders
    assert abs(orders[-1] - 1) < abs(orders[0] - 1) + 0.01


def test_saved_steps_are_those_of_the_whole_run():
    made = layer("merged", "all")
    moments = sim.sequences(30, COVARIANCE, 7, seed=6).statistics()
    every = sim.gradient_descent(made, moments, y0=start(made), lr=0.05, steps=60)
    some = sim.gradient_descent(
        made, moments, y0=start(made), lr=0.05, steps=60, save_at=[0, 7, 31, 60]
    )
    np.testing.assert_array_equal(some.t, [0, 7, 31, 60])
    np.testing.assert_array_equal(some.loss, every.loss[[0, 7, 31, 60]])
    np.testing.assert_array_equal(some["A"], every["A"][[0, 7, 31, 60]])
    default = sim.gradient_descent(made, moments, y0=start(made), lr=0.01, steps=5000)
    assert default.t.size == 1001
    assert default.t[-1] == 5000


@pytest.mark.parametrize(("family", "blocks"), CASES)
def test_a_stretch_may_begin_at_any_step(family, blocks):
    """The loops keep the features' coefficients from step to step: the first must make them."""
    made = layer(family, blocks)
    moments = sim.sequences(30, COVARIANCE, 7, seed=6).statistics(made.kind)
    problem = LayerDescent(made, moments, start(made), True, False)
    work = Work.begin(problem.theta, 0.01, 0.0, np.zeros(0, dtype=np.int64), 1.0, 1.0)
    work.span[:] = 37, 40, 0
    assert problem.advance(work) == loops.RUNNING
    theta = problem.theta
    for _ in range(3):
        theta = theta - 0.01 * problem.gradient(theta)
    np.testing.assert_allclose(work.theta, theta, rtol=1e-13, atol=1e-15)
    assert work.memory[0] == pytest.approx(problem.loss(theta), rel=1e-13)


def test_long_runs_are_split_without_a_trace(monkeypatch):
    made = layer("separate", "zero")
    population = sim.Population({"Lambda": COVARIANCE, "N": 7})
    whole = sim.gradient_descent(made, population, y0=start(made), lr=0.1, steps=1000)
    monkeypatch.setattr("odekit.simulate.full_batch._CALL_STEPS", loops.KEPT_EVERY)
    split = sim.gradient_descent(made, population, y0=start(made), lr=0.1, steps=1000)
    np.testing.assert_array_equal(whole.loss, split.loss)
    np.testing.assert_array_equal(whole["K"], split["K"])


def test_a_diverging_run_keeps_its_last_good_state():
    made = layer("merged", "zero")
    population = sim.Population({"Lambda": COVARIANCE, "N": 7})
    y0 = start(made)
    with pytest.warns(sim.EdgeOfStabilityWarning, match="edge of stability"):
        run = sim.gradient_descent(made, population, y0=y0, lr=60.0, steps=1000)
    assert run.status is Status.blow_up
    assert "last good state" in run.message
    last = int(run.t[-1])
    assert last < 1000
    assert np.isfinite(run.loss[-1])
    # The state is the one that plain steps reach: replayed, not invented.
    theta = made.pack(y0)
    moments = sim.population_statistics(COVARIANCE, 7)
    for _ in range(last):
        theta = theta - 60.0 * moments_gradient(made, moments, theta)[1]
    np.testing.assert_allclose(made.pack(run.final), theta, rtol=1e-9)
    assert run.loss[-1] == pytest.approx(moments_gradient(made, moments, theta)[0], rel=1e-9)


def test_the_edge_of_stability_is_found_and_measured():
    """One head at D = 1 has sharpness 4 at its end: lr just above 2/4 rises, just below not."""
    made = sim.Layer("merged", "zero", 1, 1)
    moments = sim.Statistics(kind="reduced", C=np.array([[1.0]]), c=np.array([1.0]), y2=1.5)
    # Loss 1.5 - 2 p + p^2 with p = v u: the Hessian at v = u = 1 is 2 [[1, 1], [1, 1]].
    y0 = {"v": np.array([1.02]), "U": np.array([[[1.0]]])}
    calm = sim.gradient_descent(made, moments, y0=y0, lr=0.48, steps=200)
    assert not calm.stats["edge"]["detected"]
    with pytest.warns(sim.EdgeOfStabilityWarning):
        shaky = sim.gradient_descent(made, moments, y0=y0, lr=0.52, steps=200)
    edge = shaky.stats["edge"]
    assert edge["detected"]
    assert edge["limit"] == pytest.approx(2 / 0.52)
    assert edge["sharpness"][0] == pytest.approx(4.0, rel=0.1)
    assert edge["windows"][0][0] < 10
    # Heavy ball has the higher limit 2 (1 + momentum) / lr: the same rate is stable there.
    ball = sim.gradient_descent(made, moments, y0=y0, lr=0.52, steps=200, momentum=0.5)
    assert not ball.stats["edge"]["detected"]


def test_sharpness_equals_the_exact_hessian():
    def gradient(theta):
        return np.array([4 * theta[0] + theta[1], theta[0] + 2 * theta[1]])

    expected = np.linalg.eigvalsh([[4, 1], [1, 2]])[-1]
    assert sim.sharpness(gradient, np.array([0.3, -0.2])) == pytest.approx(expected, rel=1e-8)
    spectrum = np.linspace(0.1, 3.0, 500)
    assert sim.sharpness(lambda x: spectrum * x, np.ones(500)) == pytest.approx(3.0, rel=2e-3)


def test_test_curves_follow_other_data():
    made = layer("merged", "all")
    train_set, test_set = (sim.sequences(40, COVARIANCE, 7, seed=s) for s in (7, 8))
    run = sim.gradient_descent(made, train_set.statistics(), y0=start(made), lr=0.05, steps=20)
    curve = sim.loss_curve(made, run, (test_set.x, test_set.y))
    for k in (0, 11, 20):
        state = {name: run[name][k] for name in ("u", "A")}
        plain = loss_and_gradient(state, test_set.x, test_set.y)[0]
        assert curve[k] == pytest.approx(plain, rel=1e-12)


def test_runs_are_deterministic_and_say_what_they_were():
    made = layer("separate", "all")
    moments = sim.sequences(30, COVARIANCE, 7, seed=9).statistics()
    first, second = (
        sim.gradient_descent(made, moments, y0=start(made), lr=0.05, steps=200) for _ in range(2)
    )
    np.testing.assert_array_equal(first.loss, second.loss)
    configuration = first.stats["configuration"]
    assert configuration["lr"] == 0.05
    assert {"numpy", "numba", "odekit", "python"} <= set(configuration["versions"])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lr": -1.0}, "lr must be a positive"),
        ({"lr": np.nan}, "lr must be a positive"),
        ({"steps": 2.5}, "steps must be a whole"),
        ({"steps": 1e30}, "steps must be a whole"),
        ({"lr": [0.1]}, "lr must be a positive"),
        ({"checkpoint": 3}, "checkpoint must be a path"),
        ({"progress": 3}, "progress must be a function"),
        ({"momentum": 1.0}, "momentum must be"),
        ({"save_at": [3, 2]}, "increase strictly"),
        ({"save_at": [0, 99]}, "from 0 to steps=10"),
        ({"attention": "hard"}, "attention must be"),
        ({"data": 3}, "data must be"),
        ({"data": sim.Population({"Lambda": COVARIANCE})}, "takes Lambda and N"),
        ({"data": sim.Population({"Lambda": -COVARIANCE, "N": 7})}, "negative eigenvalue"),
        ({"data": sim.population_statistics(np.eye(2), 7)}, "D=2"),
    ],
)
def test_bad_input_is_one_line(change, words):
    made = layer("merged", "zero")
    good = {
        "data": sim.Population({"Lambda": COVARIANCE, "N": 7}), "y0": start(made), "lr": 0.1,
        "steps": 10,
    }  # fmt: skip
    call = good | change
    with pytest.raises(InputError, match=words) as caught:
        sim.gradient_descent(made, call.pop("data"), **call)
    assert "\n" not in str(caught.value)


def test_wrong_states_are_named():
    made = layer("merged", "zero")
    population = sim.Population({"Lambda": COVARIANCE, "N": 7})
    y0 = start(made)
    for bad, words in (
        ({"v": y0["v"]}, "lacks the state 'U'"),
        (y0 | {"W": y0["v"]}, "Unknown state 'W'"),
        (y0 | {"U": y0["U"][:, :2]}, "has shape"),
        (y0 | {"v": y0["v"] * np.nan}, "NaN"),
        (y0 | {"v": y0["v"] * 1j}, "complex"),
    ):
        with pytest.raises(InputError, match=words):
            sim.gradient_descent(made, population, y0=bad, lr=0.1, steps=10)
    with pytest.raises(InputError, match="states lack 'U'"):
        sim.coefficients(made, {"v": y0["v"]})
    with pytest.raises(InputError, match="run must be a Solution"):
        sim.loss_curve(made, 3, population)
    with pytest.raises(InputError, match="A weight of statistics holds"):
        sim.population_statistics(COVARIANCE, 7) * "half"
    with pytest.raises(InputError, match="Reduced statistics train the reduced model only"):
        large = layer("merged", "all")
        sim.gradient_descent(
            large, sim.population_statistics(COVARIANCE, 7), y0=start(large), lr=0.1, steps=1
        )
