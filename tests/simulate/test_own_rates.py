"""A learning rate for each state: every trainer against plain NumPy, and the flow that follows."""

from __future__ import annotations

import numpy as np
import pytest
from simulate.plain_training import loss_and_gradient

import odekit as ok
import odekit.simulate as sim
from odekit.errors import InputError

L = np.diag([0.6, 0.4])
PARAMS = {"Lambda": L, "N": 4}
STEPS = 60


def plain(state, rates, data, attention, momentum):
    state = {name: value.copy() for name, value in state.items()}
    velocity = {name: np.zeros_like(value) for name, value in state.items()}
    losses = []
    for _ in range(STEPS + 1):
        loss, grad = loss_and_gradient(state, *data, attention)
        losses.append(loss)
        for name in state:
            velocity[name] = momentum * velocity[name] - rates[name] * grad[name]
            state[name] = state[name] + velocity[name]
    return np.array(losses)


@pytest.mark.parametrize("momentum", [0.0, 0.6])
@pytest.mark.parametrize(
    ("family", "blocks", "attention"),
    [
        ("merged", "zero", "linear"),
        ("separate", "all", "linear"),
        ("separate", "all", "softmax"),
    ],
)
def test_layers_with_rates_of_their_own_equal_plain_numpy(family, blocks, attention, momentum):
    layer = sim.Layer(family, blocks, 3, 2)
    y0 = layer.unpack(0.4 * np.random.default_rng(0).standard_normal(layer.size))
    rates = {name: 0.08 / (k + 1) for k, name in enumerate(y0)}
    data = sim.sequences(40, L, 4, seed=1)
    expected = plain(y0, rates, (data.x, data.y), attention, momentum)
    call = {"y0": y0, "lr": rates, "steps": STEPS}
    run = sim.gradient_descent(
        layer, (data.x, data.y), attention=attention, momentum=momentum, **call
    )
    np.testing.assert_allclose(run.loss, expected, rtol=1e-11)
    assert run.stats["configuration"]["lr"] == rates
    rule = sim.Optimiser("heavy ball", momentum) if momentum else "gd"
    one_by_one = sim.sgd(layer, data=data, attention=attention, optimiser=rule, **call)
    np.testing.assert_allclose(one_by_one.loss, expected, rtol=1e-11)


def test_equal_rates_are_one_rate():
    layer = sim.Layer("merged", "zero", 3, 2)
    y0, moments = sim.initial(layer, 0.4, 0), sim.population_statistics(L, 4)
    one = sim.gradient_descent(layer, moments, y0=y0, lr=0.1, steps=40)
    each = sim.gradient_descent(layer, moments, y0=y0, lr={"v": 0.1, "U": 0.1}, steps=40)
    np.testing.assert_array_equal(one.loss, each.loss)
    assert each.stats["lr"] == 0.1


def test_adamw_scales_step_and_decay():
    """Without a gradient only the decay acts: each state shrinks by 1 - its own rate * decay."""
    layer = sim.Layer("merged", "all", 2, 2)
    y0 = layer.unpack(np.random.default_rng(0).standard_normal(layer.size))
    flat = sim.Sequences(
        np.zeros((4, 5, 2)), np.zeros((4, 5)), np.full(4, 4), np.ones(4, dtype=bool)
    )
    rates = {"u": 0.1, "A": 0.02}
    rule = sim.Optimiser("adamw", decay=0.5)
    run = sim.sgd(layer, y0=y0, lr=rates, steps=3, data=flat, optimiser=rule)
    for name, rate in rates.items():
        np.testing.assert_allclose(run[name][-1], y0[name] * (1 - 0.5 * rate) ** 3, rtol=1e-13)


@pytest.fixture(scope="module")
def two_rates():
    """A flow whose layers run at 2 and 6 units of time for a unit of learning rate."""
    model = ok.models.deep_linear(2)
    W1, W2 = model.weights
    flow = ok.gradient_flow(model.loss, model.weights, time_scale={W1: 2, W2: 6})
    rng = np.random.default_rng(0)
    y0 = {"W1": 0.4 * rng.standard_normal((3, 2)), "W2": 0.4 * rng.standard_normal((2, 3))}
    params = {"Lambda": L, "T": np.array([[1.0, 0.3], [-0.2, 0.8]])}
    return model, flow, y0, params, ok.solve(flow, y0, 24.0, params)


def test_a_flow_with_several_time_scales_is_compared(two_rates):
    model, flow, y0, params, solution = two_rates
    rates = {"W1": 0.03, "W2": 0.01}  # 0.06 of the flow's time a step, for both
    exact = sim.gradient_descent(model, sim.Population(params), y0=y0, lr=rates, steps=300)
    own = sim.gradient_descent(flow, sim.Population(params), y0=y0, lr=rates, steps=300)
    np.testing.assert_allclose(own.loss, exact.loss, rtol=1e-11)
    report = sim.compare(solution, exact)
    assert report.passed, str(report)
    curve = report.curves[0]
    assert curve.t[-1] == pytest.approx(18.0)
    assert report.order == pytest.approx(1, abs=0.1)
    remainder = np.abs(curve.learning_rate - curve.first_order).max()
    assert remainder < 0.15 * np.abs(curve.learning_rate).max()
    seeds = [
        sim.sgd(model, y0=y0, params=params, lr=rates, steps=300, batch=32, seed=seed,
                save_at=np.arange(301))
        for seed in range(3)
    ]  # fmt: skip
    assert sim.compare(solution, seeds).passed
    # The same training under a flow with one time scale for both layers does not agree.
    other = ok.solve(model.flow, y0, 24.0, params)
    with pytest.raises(InputError, match=r"0\.06 for W1, 0\.02 for W2"):
        sim.compare(other, exact)


def test_one_rate_does_not_follow_several_time_scales(two_rates):
    model, _, y0, params, solution = two_rates
    run = sim.gradient_descent(model, sim.Population(params), y0=y0, lr=0.03, steps=10)
    with pytest.raises(InputError, match="in proportion"):
        sim.compare(solution, run)


def test_the_edge_of_stability_is_that_of_the_slowed_weights():
    """One head at D = 1 ends at v = u = 1, where the Hessian is 2 [[1, 1], [1, 1]].

    With rates r and s the scaled Hessian's largest eigenvalue is 2 (r + s) / max(r, s), the limit
    2 / max(r, s).
    """
    layer = sim.Layer("merged", "zero", 1, 1)
    moments = sim.Statistics(kind="reduced", C=np.array([[1.0]]), c=np.array([1.0]), y2=1.5)
    y0 = {"v": np.array([1.02]), "U": np.array([[[1.0]]])}
    calm = sim.gradient_descent(layer, moments, y0=y0, lr={"v": 0.9, "U": 0.08}, steps=200)
    assert not calm.stats["edge"]["detected"]
    with pytest.warns(sim.EdgeOfStabilityWarning):
        shaky = sim.gradient_descent(layer, moments, y0=y0, lr={"v": 0.9, "U": 0.12}, steps=200)
    edge = shaky.stats["edge"]
    assert edge["detected"]
    assert edge["limit"] == pytest.approx(2 / 0.9)
    assert edge["sharpness"][0] == pytest.approx(2 * (0.9 + 0.12) / 0.9, rel=0.1)


@pytest.mark.parametrize(
    ("lr", "words"),
    [
        ({"v": 0.1}, "lr lacks the state 'U'"),
        ({"v": 0.1, "U": 0.1, "W": 0.1}, "Unknown state in lr 'W'"),
        ({"v": 0.1, "U": -0.1}, "lr\\['U'\\] must be a positive"),
        ({"v": 0.1, "U": "fast"}, "lr\\['U'\\] must be a positive"),
    ],
)
def test_bad_rates_are_refused(lr, words):
    layer = sim.Layer("merged", "zero", 3, 2)
    call = {"y0": sim.initial(layer, 0.4, 0), "lr": lr, "steps": 4}
    with pytest.raises(InputError, match=words):
        sim.gradient_descent(layer, sim.population_statistics(L, 4), **call)
    with pytest.raises(InputError, match=words):
        sim.sgd(layer, params=PARAMS, batch=4, **call)
