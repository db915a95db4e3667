"""Training of derived losses: own Gaussian tensors, finite differences, the flow itself."""

from __future__ import annotations

import numpy as np
import pytest

import odekit as ok
import odekit.simulate as sim
from odekit.errors import InputError
from odekit.simulate.batch_loss import BatchGradient
from odekit.simulate.flow_descent import FlowDescent
from odekit.simulate.full_batch import run as drive
from odekit.simulate.record import Checkpoint
from odekit.solution import Status

L = np.array([[0.6, 0.1], [0.1, 0.4]])


def own_loss():
    """Two-layer linear network on noisy labels, with weight decay: nothing odekit ships."""
    D, H = ok.dims("D H")
    Lam = ok.parameter("Lambda", (D, D), symmetric=True)
    teacher = ok.parameter("teacher", (D,))
    x = ok.gaussian("x", (D,), covariance=Lam)
    noise = ok.gaussian("eps", (), covariance=0.25)
    a, W = ok.weight("a", (H,)), ok.weight("W", (H, D))
    prediction = ok.einsum("h,hd,d->", a, W, x)
    target = ok.einsum("d,d->", teacher, x) + noise.as_expression()
    return ok.expected_loss(prediction, target, scale=0.5) + 0.05 * ok.einsum("hd,hd->", W, W)


PARAMS = {"Lambda": L, "teacher": np.array([1.0, -0.5])}


def start(seed=0):
    rng = np.random.default_rng(seed)
    return {"a": rng.standard_normal(3), "W": rng.standard_normal((3, 2))}


def draws(count, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 2)) @ np.linalg.cholesky(L).T
    return {"x": x, "eps": 0.5 * rng.standard_normal(count)}


def plain_loss(state, data):
    r = (data["x"] @ state["W"].T) @ state["a"] - data["x"] @ PARAMS["teacher"] - data["eps"]
    return 0.5 * np.mean(r**2) + 0.05 * np.sum(state["W"] ** 2)


def test_sample_gradients_equal_finite_differences():
    loss, data, state = own_loss(), draws(50), start()
    value, grad = sim.sample_gradient(loss, state, data, PARAMS)
    assert value == pytest.approx(plain_loss(state, data), rel=1e-13)
    for name in state:
        for index in np.ndindex(state[name].shape):
            sides = []
            for step in (1e-6, -1e-6):
                moved = {k: v.copy() for k, v in state.items()}
                moved[name][index] += step
                sides.append(plain_loss(moved, data))
            assert grad[name][index] == pytest.approx((sides[0] - sides[1]) / 2e-6, abs=2e-9)


def broadcast_loss():
    """Terms without data, several outputs, a diagonal, and a weight that the loss lacks."""
    D = ok.dims("D")
    D = D[0] if isinstance(D, tuple) else D
    x = ok.gaussian("x", (D,), covariance=ok.identity(D))
    U, b = ok.weight("U", (D, D)), ok.weight("b", (D,))
    prediction = ok.einsum("ij,j->i", U, x) + ok.einsum("ii,i,i->i", U, b, b)
    return ok.expected_loss(prediction, ok.einsum("i->i", x), scale=0.5)


MODELS = {
    "own": (own_loss, start(), PARAMS, {}),
    "broadcast": (
        broadcast_loss,
        {"U": np.array([[0.3, -0.2], [0.5, 0.1]]), "b": np.array([0.4, -0.7])},
        {},
        {"D": 2},
    ),
    **{
        f"transformer, {tasks}, {blocks}": (
            lambda tasks=tasks, blocks=blocks: (
                ok.models.linear_transformer(tasks=tasks, blocks=blocks).loss
            ),
            {
                name: 0.3 * np.random.default_rng(k).standard_normal((2, 2))
                for k, name in enumerate(("p2", "q1", "p1", "q2")[: 2 if blocks != "all" else 4])
            },
            {"Lambda": L, "N": 3},
            {"D": 2},
        )
        for tasks, blocks in (("iid", "all"), ("diagonal", "restricted"), ("scalar", "all"))
    },
}


@pytest.mark.parametrize("name", MODELS)
def test_the_batch_gradient_equals_the_gradient_term_by_term(name):
    """Features and reverse mode against the derivative of every term on every sample."""
    make, state, params, sizes = MODELS[name]
    loss = make()
    batch = BatchGradient(loss, loss.weights)
    drawn = ok.sample(batch.random, {**params, **sizes}, size=40, seed=3)
    value, grad = sim.sample_gradient(loss, state, drawn, params)
    for _ in range(2):  # the second call runs on the first one's plan
        found, slopes = batch(state, batch.features(drawn, params), params)
        assert found == pytest.approx(value, rel=1e-12)
        for weight, slope in grad.items():
            np.testing.assert_allclose(slopes[weight], slope, rtol=1e-11, atol=1e-14)


def test_a_users_model_trains_on_a_fixed_set_as_in_plain_numpy():
    loss, data, state = own_loss(), draws(40), start()
    run = sim.sgd(loss, y0=state, params=PARAMS, lr=0.05, steps=60, data=data, optimiser="gd")
    theta = {k: v.copy() for k, v in state.items()}
    for k in range(60):
        assert run.loss[k] == pytest.approx(plain_loss(theta, data), rel=1e-12)
        r = (data["x"] @ theta["W"].T) @ theta["a"] - data["x"] @ PARAMS["teacher"] - data["eps"]
        hidden = data["x"] @ theta["W"].T
        ga = r @ hidden / 40
        gW = np.outer(theta["a"], r @ data["x"] / 40) + 0.1 * theta["W"]
        theta = {"a": theta["a"] - 0.05 * ga, "W": theta["W"] - 0.05 * gW}
    np.testing.assert_allclose(run["W"][-1], theta["W"], rtol=1e-10)


def test_a_users_model_agrees_with_its_flow():
    loss, y0 = own_loss(), start()
    flow = ok.gradient_flow(loss, time_scale=1)
    solution = ok.solve(flow, y0, 12.0, PARAMS)
    runs = [
        sim.sgd(loss, y0=y0, params=PARAMS, lr=0.05, steps=200, batch=32, seed=seed,
                save_at=np.arange(201))
        for seed in range(3)
    ]  # fmt: skip
    assert sim.compare(solution, runs).passed
    exact = sim.gradient_descent(flow, sim.Population(PARAMS), y0=y0, lr=0.05, steps=200)
    assert sim.compare(solution, exact).passed
    wrong = ok.solve(flow, y0, 12.0, PARAMS | {"teacher": np.array([1.1, -0.5])})
    assert not sim.compare(wrong, runs).passed


@pytest.mark.parametrize("family", ["merged", "separate"])
def test_the_loss_of_a_published_model_is_simulated_without_its_layer(family):
    """Two routes to one law: the loss's own tensors, and the attention loops."""
    make = getattr(ok.models, f"attention_{family}")
    model = make()
    y0 = sim.initial(model, 0.4, 0, heads=2, dim=2, rank=2)
    params = {"Lambda": L, "N": 4}
    drawn = ok.sample(
        sorted(
            {
                t
                for part in model.loss.samples
                for e in (part.prediction, part.target)
                for t in e.tensors(deep=True)
                if t.kind == "gaussian"
            },
            key=lambda t: t.order,
        ),
        params, size=64, seed=1,
    )  # fmt: skip
    x = np.concatenate([drawn["x"], drawn["x_q"][:, None]], axis=1)
    y = np.einsum("pd,pnd->pn", drawn["w"], x)
    through_loss = sim.sgd(
        model.loss, y0=y0, params=params, lr=0.05, steps=50, data=drawn, optimiser="gd"
    )
    through_layer = sim.gradient_descent(model, (x, y), y0=y0, lr=0.05, steps=50)
    np.testing.assert_allclose(through_loss.loss, through_layer.loss, rtol=1e-11)


@pytest.mark.parametrize("momentum", [0.0, 0.7])
@pytest.mark.parametrize("family", ["merged", "separate"])
def test_the_flows_own_steps_equal_the_closed_form(family, momentum):
    """Population descent by the compiled flow and by sufficient statistics, step by step."""
    model = getattr(ok.models, f"attention_{family}")()
    y0 = sim.initial(model, 0.4, 0, heads=2, dim=2, rank=2)
    data = sim.Population({"Lambda": L, "N": 4})
    closed = sim.gradient_descent(model, data, y0=y0, lr=0.1, steps=200, momentum=momentum)
    flow = FlowDescent(model, data, y0, 200)
    own = drive(
        flow, flow.theta, lr=0.1, momentum=momentum, steps=200, at=np.arange(201),
        checkpoint=Checkpoint(None, ""),
    )  # fmt: skip
    np.testing.assert_allclose(own.loss, closed.loss, rtol=1e-11)
    for name, values in flow.unpack(own.states).items():
        np.testing.assert_allclose(values, closed[name], rtol=1e-9, atol=1e-13)
    model_loss = model.flow.loss_value(y0, data.params)
    assert closed.loss[0] == pytest.approx(model_loss, rel=1e-13)


def test_a_diverging_flow_keeps_its_last_good_state():
    flow = ok.gradient_flow(own_loss())
    with pytest.warns(sim.EdgeOfStabilityWarning):
        run = sim.gradient_descent(flow, sim.Population(PARAMS), y0=start(), lr=9.0, steps=500)
    assert run.status is Status.blow_up
    assert np.isfinite(run["W"]).all()
    assert np.isfinite(run.loss).all()


def test_derived_runs_resume(tmp_path):
    loss, path = own_loss(), tmp_path / "run.npz"
    call = {"y0": start(), "params": PARAMS, "lr": 0.02, "steps": 300, "batch": 8, "seed": 2}
    whole = sim.sgd(loss, **call)

    def stop(step, value):
        if step >= 128:
            raise KeyboardInterrupt

    part = sim.sgd(loss, **call, checkpoint=path, progress=stop)
    assert part.status is Status.interrupted
    rest = sim.sgd(loss, **call, checkpoint=path)
    np.testing.assert_array_equal(rest.loss, whole.loss)


def test_bad_derived_input_is_refused():
    loss = own_loss()
    call = {"y0": start(), "params": PARAMS, "lr": 0.02, "steps": 3, "batch": 8}
    for change, words in (
        ({"y0": {"a": np.ones(3)}}, "lacks the state 'W'"),
        ({"y0": {"a": np.ones(3), "W": np.ones((2, 2))}}, "expected"),
        ({"params": {"Lambda": L}}, "teacher"),
        ({"data": {"x": np.ones((9, 2))}}, "lacks the Gaussian tensors eps"),
        ({"data": 3}, "maps each Gaussian tensor"),
        ({"attention": "softmax"}, "attention models only"),
        ({"batch": None}, "batch is needed"),
    ):
        with pytest.raises(InputError, match=words):
            sim.sgd(loss, **(call | change))
    with pytest.raises(InputError, match="no expected loss"):
        sim.sgd(object(), **call)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["merged", "separate"])
def test_the_whole_layer_trains_on_its_population(family):
    """blocks="all": the flow in block tensors, the states of the whole layer outside.

    Started with every block nonzero; the gradient of one step equals the mean over samples that
    the features of `full` statistics give, within 5 standard errors of 20 independent sets.
    """
    model = getattr(ok.models, f"attention_{family}")(blocks="all")
    rank = 2 if family == "separate" else 1
    made = sim.Layer(family, "all", 2, 2, rank)
    rng = np.random.default_rng(0)
    y0 = made.unpack(0.4 * rng.standard_normal(made.size))
    params = {"Lambda": L, "N": 4}
    lr = 0.1
    run = sim.gradient_descent(model, sim.Population(params), y0=y0, lr=lr, steps=1)
    assert set(run.states) == set(y0)
    exact = made.pack({name: (y0[name] - run[name][1]) / lr for name in y0})
    sets = []
    for seed in range(20):
        moments = sim.sequences(10_000, L, 4, seed=seed).statistics()
        step = sim.gradient_descent(model, moments, y0=y0, lr=lr, steps=1)
        gradient = made.pack({name: (y0[name] - step[name][1]) / lr for name in y0})
        sets.append(np.append(gradient, step.loss[0]))
    mean, error = np.mean(sets, axis=0), np.std(sets, axis=0, ddof=1) / np.sqrt(20)
    assert np.all(np.abs(mean - np.append(exact, run.loss[0])) < 5 * error)


def test_whole_layer_runs_are_compared_with_a_flow_in_blocks():
    model = ok.models.attention_merged(blocks="all", heads=2, dim=2)
    small = ok.models.attention_merged(heads=2, dim=2)
    y0 = model.lift(sim.initial(small, 0.5, 0))
    params = {"Lambda": L, "N": 4}
    flow = ok.solve(model.flow, model.unpack(y0), 10.0, params)
    runs = [
        sim.sgd(model, y0=y0, params=params, lr=0.02, steps=200, batch=64, seed=seed,
                save_at=np.arange(201))
        for seed in range(3)
    ]  # fmt: skip
    assert sim.compare(flow, runs).passed
    exact = sim.gradient_descent(model, sim.Population(params), y0=y0, lr=0.02, steps=200)
    assert sim.compare(flow, exact).passed
    # On the population the zero blocks stay zero: the whole layer follows the reduced model.
    reduced = sim.gradient_descent(
        small, sim.Population(params), y0=model.restrict(y0), lr=0.02, steps=200
    )
    np.testing.assert_allclose(exact.loss, reduced.loss, rtol=1e-12)
    assert np.abs(exact["u"][:, :, :-1]).max() < 1e-15
