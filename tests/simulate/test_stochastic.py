"""Mini-batch training: softmax against plain NumPy, optimisers, streams, resuming."""

from __future__ import annotations

import numpy as np
import pytest
from simulate.plain_training import adamw, loss_and_gradient, train

import odekit.simulate as sim
from odekit.errors import InputError
from odekit.simulate import loops
from odekit.solution import Status

COVARIANCE = np.diag([0.5, 0.3, 0.2])
PARAMS = {"Lambda": COVARIANCE, "N": 7}


def layer(family="merged", blocks="all", H=4, D=3, R=2):
    return sim.Layer(family, blocks, H, D, R if family == "separate" else 1)


def start(made, scale=0.4, seed=0):
    rng = np.random.default_rng(seed)
    return made.unpack(scale * rng.standard_normal(made.size))


@pytest.mark.parametrize("family", ["merged", "separate"])
@pytest.mark.parametrize(("D", "P"), [(3, 60), (4, 37), (1, 9), (5, 130)])
def test_softmax_curves_equal_plain_numpy(family, D, P):
    """Numbers of features with every remainder modulo four, lanes full and not."""
    made = layer(family, D=D)
    data = sim.sequences(P, np.eye(D) / D, 6, seed=1)
    y0 = start(made)
    plain, last = train(y0, data.x, data.y, 0.1, 100, attention="softmax")
    run = sim.gradient_descent(
        made, (data.x, data.y), y0=y0, lr=0.1, steps=100, attention="softmax"
    )
    np.testing.assert_allclose(run.loss, plain, rtol=1e-11)
    for name, value in last.items():
        np.testing.assert_allclose(run[name][-1], value, rtol=1e-8, atol=1e-11)


def test_softmax_sees_only_the_tokens_in_use():
    """Sequences of different lengths, against each trained alone at its own length."""
    made = layer()
    data = sim.sequences(24, COVARIANCE, [2, 4, 7], seed=2)
    assert set(data.lengths) == {2, 4, 7}
    y0 = start(made)
    run = sim.sgd(made, y0=y0, lr=0.1, steps=1, data=data, optimiser="gd", attention="softmax")
    loss, grads = 0.0, {name: np.zeros_like(value) for name, value in y0.items()}
    for n in (2, 4, 7):
        rows = data.lengths == n
        at = [*range(n), 7]
        part, grad = loss_and_gradient(y0, data.x[rows][:, at], data.y[rows][:, at], "softmax")
        loss += part * rows.mean()
        for name in grads:
            grads[name] += grad[name] * rows.mean()
    assert run.loss[0] == pytest.approx(loss, rel=1e-13)
    for name, grad in grads.items():
        np.testing.assert_allclose(run[name][1], y0[name] - 0.1 * grad, rtol=1e-12, atol=1e-14)
    linear = sim.sgd(made, y0=y0, lr=0.1, steps=30, data=data, optimiser="gd")
    exact = sim.gradient_descent(made, data.statistics(), y0=y0, lr=0.1, steps=30)
    np.testing.assert_allclose(linear.loss, exact.loss, rtol=1e-12)


def test_exponentials_are_accurate_to_two_ulp():
    s = -np.concatenate([np.linspace(0, 40, 4001), [699.0, 744.0, 1e6, np.nan]])
    s = np.append(s, np.zeros(-s.size % 8))
    work, power = s.copy(), np.empty_like(s)
    loops.exponentials(work, np.zeros(8), 8, s.size // 8, power, power.view(np.int64))
    finite = np.isfinite(s) & (s > -690)
    np.testing.assert_allclose(work[finite], np.exp(s[finite]), rtol=2 * np.finfo(float).eps)
    assert np.isnan(work[np.isnan(s)]).all()
    assert np.all(work[s < -700] < 1e-300)


@pytest.mark.parametrize("family", ["merged", "separate"])
def test_adamw_equals_the_published_algorithm(family):
    made = layer(family)
    data = sim.sequences(40, COVARIANCE, 7, seed=3)
    y0 = start(made)
    rule = sim.Optimiser("adamw", momentum=0.8, second=0.95, epsilon=1e-6, decay=0.1)
    run = sim.sgd(made, y0=y0, lr=0.01, steps=60, data=data, optimiser=rule)
    plain = adamw(y0, [(data.x, data.y)] * 60, 0.01, 0.8, 0.95, 1e-6, 0.1)
    for name, value in plain.items():
        np.testing.assert_allclose(run[name][-1], value, rtol=1e-9, atol=1e-12)


def test_mini_batches_of_a_set_visit_each_sequence_once_an_epoch():
    """With lr so small that nothing moves, the batch losses of an epoch average to the whole."""
    made = layer()
    data = sim.sequences(48, COVARIANCE, 7, seed=4)
    y0 = start(made)
    run = sim.sgd(made, y0=y0, lr=1e-300, steps=11, data=data, batch=8, seed=5)
    whole = loss_and_gradient(y0, data.x, data.y)[0]
    assert run.loss[:6].mean() == pytest.approx(whole, rel=1e-12)
    assert run.loss[6:].mean() == pytest.approx(whole, rel=1e-12)
    assert not np.allclose(run.loss[:6], run.loss[6:])


@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_fresh_batches_follow_the_population_on_average(attention):
    """Losses of untrained weights on 400 fresh batches against one large independent set."""
    made = layer()
    y0 = start(made)
    run = sim.sgd(
        made, y0=y0, params=PARAMS, lr=1e-300, steps=399, batch=20, seed=6, attention=attention
    )
    large = sim.sequences(100_000, COVARIANCE, 7, seed=7)
    test = sim.sgd(
        made, y0=y0, lr=1e-300, steps=0, data=large, optimiser="gd", attention=attention
    ).loss[0]
    error = run.loss.std(ddof=1) * np.sqrt(1 / 400 + 20 / 100_000)
    assert abs(run.loss.mean() - test) < 4.5 * error  # normal: once in 150,000 draws


def test_the_same_seed_gives_the_same_run_and_another_does_not():
    made = layer("separate", "zero")
    runs = [
        sim.sgd(made, y0=start(made), params=PARAMS, lr=0.05, steps=50, batch=16, seed=seed)
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(runs[0].loss, runs[1].loss)
    assert not np.array_equal(runs[0].loss, runs[2].loss)
    assert runs[0].stats["configuration"]["seed"] == 1


@pytest.mark.parametrize("attention", ["linear", "softmax"])
@pytest.mark.parametrize("optimiser", ["heavy ball", "adamw"])
def test_an_interrupted_run_goes_on_to_the_same_end(tmp_path, attention, optimiser):
    made = layer()
    call = {
        "y0": start(made), "params": PARAMS, "lr": 0.01, "steps": 2500, "batch": 16, "seed": 3,
        "attention": attention, "optimiser": optimiser,
    }  # fmt: skip
    whole = sim.sgd(made, **call)
    path = tmp_path / "run.npz"

    def stop(step, loss):
        assert np.isfinite(loss)
        if step > 1000:
            raise KeyboardInterrupt

    part = sim.sgd(made, **call, checkpoint=path, progress=stop)
    assert part.status is Status.interrupted
    assert 1000 < part.t[-1] < 2500
    rest = sim.sgd(made, **call, checkpoint=path)
    np.testing.assert_array_equal(rest.t, whole.t)
    np.testing.assert_array_equal(rest.loss, whole.loss)
    np.testing.assert_array_equal(rest["u"], whole["u"])
    again = sim.sgd(made, **call, checkpoint=path)  # a finished run is read, not repeated
    np.testing.assert_array_equal(again.loss, whole.loss)
    with pytest.raises(InputError, match="belongs to a run with another configuration"):
        sim.sgd(made, **(call | {"seed": 4}), checkpoint=path)
    path.write_bytes(b"torn")
    with pytest.raises(InputError, match="cannot be read"):
        sim.sgd(made, **call, checkpoint=path)


@pytest.mark.parametrize("attention", ["linear", "softmax"])
def test_a_diverging_run_keeps_its_last_good_state(attention):
    made = layer()
    call = {"y0": start(made), "params": PARAMS, "batch": 16, "seed": 3, "attention": attention}
    run = sim.sgd(made, **call, lr=30.0, steps=2000)
    assert run.status in (Status.nan, Status.blow_up)
    last = int(run.t[-1])
    assert last < 1999
    before = sim.sgd(made, **call, lr=30.0, steps=last, save_at=[last])
    for name in ("u", "A"):
        assert np.isfinite(run[name]).all()
        np.testing.assert_array_equal(run[name][-1], before[name][-1])


def test_bad_settings_are_refused():
    made, small = layer(), layer("merged", "zero")
    call = {"y0": start(made), "params": PARAMS, "lr": 0.1, "steps": 2, "batch": 4}
    for change, words in (
        ({"optimiser": "newton"}, "optimiser must be"),
        ({"batch": 0}, "batch must be"),
        ({"batch": None}, "batch is needed"),
        ({"seed": -1}, "seed must be"),
        ({"params": None}, "Give params"),
        ({"params": 3}, "params must map"),
        ({"checkpoint": 3}, "checkpoint must be a path"),
        ({"progress": 3}, "progress must be a function"),
        ({"params": {"Lambda": COVARIANCE}}, "are Lambda and N"),
        ({"params": {"Lambda": np.eye(2), "N": 7}}, "D=2"),
        ({"params": {"Lambda": COVARIANCE, "N": 0}}, "context must be"),
        ({"data": 3}, "data must be"),
        ({"data": sim.sequences(3, COVARIANCE, 7, seed=0)}, "has 3 sequences"),
    ):
        with pytest.raises(InputError, match=words):
            sim.sgd(made, **(call | change))
    with pytest.raises(InputError, match='states of blocks="all"'):
        sim.sgd(small, **(call | {"y0": start(small), "attention": "softmax"}))
    with pytest.raises(InputError, match="no sufficient statistics"):
        sim.gradient_descent(
            made, sim.Population(PARAMS), y0=start(made), lr=0.1, steps=1, attention="softmax"
        )
    with pytest.raises(InputError, match="no momentum"):
        sim.Optimiser("sgd", momentum=0.5)
