"""In-context regression by softmax attention and an MLP."""

import numpy as np
import pytest

import odekit as ok
from odekit.simulate import (
    Optimiser,
    RegressionNetwork,
    SequenceLaw,
    Sequences,
    draw_tasks,
    regression_gradient,
    regression_prediction,
    sequences,
    train_regression,
)

DIM, CONTEXT = 3, 5
NETS = [
    RegressionNetwork(DIM, heads=2, hidden=4, scale=1.7),
    RegressionNetwork(DIM, heads=1, hidden=0),
    RegressionNetwork(DIM, heads=3, hidden=1, scale=0.3),
]


def law(**settings):
    settings = {"covariance": np.eye(DIM) / DIM, "context": CONTEXT, "noise": 0.1} | settings
    return SequenceLaw(**settings)


def plain_prediction(net, theta, x, y, length):
    """The formulas for one sequence, written out: no batch, no compiled code, complex weights."""
    weights, at = {}, 0
    for name, shape in net.shapes.items():
        weights[name] = theta[at : at + np.prod(shape, dtype=int)].reshape(shape)
        at += weights[name].size
    query = np.append(net.scale * x[-1], 1.0)
    tokens = [np.append(net.scale * x[m], y[m]) for m in range(length)]
    parts = [query]
    for h in range(net.heads):
        powers = [np.exp(query @ weights["A"][:, h] @ token) for token in tokens]
        parts.append(sum(p * t for p, t in zip(powers, tokens, strict=True)) / sum(powers))
    f = np.concatenate(parts)
    z = weights["W"].T @ f
    return weights["r"] @ f + weights["w"] @ (z / (1 + np.exp(-z)))


def plain_loss(net, theta, data):
    errors = [
        (plain_prediction(net, theta, x, y, n) - y[-1]) ** 2
        for x, y, n in zip(data.x, data.y, data.lengths, strict=True)
    ]
    return sum(errors) / len(errors)


@pytest.mark.parametrize("net", NETS, ids=lambda net: f"H{net.heads}-M{net.hidden}")
@pytest.mark.parametrize("context", [CONTEXT, (1, 2, CONTEXT)])
def test_loss_and_gradient_equal_a_plain_implementation(net, context):
    theta = 1.5 * net.start(1)
    data = law(context=context).draw(7, np.random.default_rng(2))
    loss, gradient = regression_gradient(net, theta, data)
    assert loss == pytest.approx(plain_loss(net, theta, data), rel=1e-13)
    plain = [
        plain_prediction(net, theta, x, y, n)
        for x, y, n in zip(data.x, data.y, data.lengths, strict=True)
    ]
    np.testing.assert_allclose(regression_prediction(net, theta, data), plain, atol=1e-13)
    # The loss is analytic in the weights: an imaginary step gives each derivative to rounding.
    step = 1e-30
    for i in range(net.size):
        moved = theta.astype(complex)
        moved[i] += 1j * step
        slope = plain_loss(net, moved, data).imag / step
        assert abs(slope - gradient[i]) < 1e-12 * np.linalg.norm(gradient), i


def test_gradient_is_the_difference_of_losses():
    net = RegressionNetwork(8, heads=4, hidden=32, scale=8**0.5)
    rng = np.random.default_rng(3)
    data = sequences(600, np.eye(8) / 8, 16, seed=4, noise=0.1)  # more than one strip of rows
    theta = net.start(5)
    loss, gradient = regression_gradient(net, theta, data)
    residual = regression_prediction(net, theta, data) - data.y[:, -1]
    assert loss == pytest.approx(np.mean(residual**2), rel=1e-13)
    for name in net.shapes:  # a direction within each weight, so that no small one hides
        direction = np.zeros_like(theta)
        view = net.unpack(direction)[name]
        view[...] = rng.standard_normal(view.shape)
        direction /= np.linalg.norm(direction)

        def at(e, d=direction):
            return regression_gradient(net, theta + e * d, data)[0]

        # Fourth order: error h^4 f^(5)/30, rounding 1e-16/h.
        slope = (8 * (at(1e-3) - at(-1e-3)) - (at(2e-3) - at(-2e-3))) / 12e-3
        assert abs(slope - gradient @ direction) < 1e-10 * np.linalg.norm(gradient), name


def test_the_order_of_context_tokens_does_not_matter():
    net = NETS[0]
    x, y = law().draw(20, np.random.default_rng(0))
    order = [3, 1, 4, 0, 2, 5]
    theta = net.start(0)
    np.testing.assert_allclose(
        regression_prediction(net, theta, (x, y)),
        regression_prediction(net, theta, (x[:, order], y[:, order])),
        rtol=1e-12,
    )


def test_small_key_query_weights_and_no_mlp_are_linear_attention():
    # softmax(s) = (1 + s - mean s)/l + O(s^2): two heads of opposite sign leave a bilinear form.
    net = RegressionNetwork(DIM, heads=2, hidden=0)
    x, y = law().draw(50, np.random.default_rng(1))
    small, theta = 1e-4, np.zeros(net.size)
    weights = net.unpack(theta)
    gamma = np.random.default_rng(2).standard_normal((DIM, DIM))
    weights["A"][:DIM, 0, :DIM], weights["A"][:DIM, 1, :DIM] = small * gamma, -small * gamma
    label = [2 * DIM + 1, 3 * DIM + 2]  # entries of r that read each head's averaged label
    weights["r"][label] = 0.5 / small, -0.5 / small
    centred = x[:, :-1] - x[:, :-1].mean(axis=1, keepdims=True)
    moment = np.einsum("bl,bld->bd", y[:, :-1], centred) / CONTEXT
    linear = np.einsum("bd,de,be->b", x[:, -1], gamma, moment)
    # The even orders cancel between the heads; the third is left.
    np.testing.assert_allclose(regression_prediction(net, theta, (x, y)), linear, atol=1e-6)


def test_a_law_with_a_pool_draws_its_tasks_equally_often():
    tasks = draw_tasks(4, DIM, 0)
    drawn = law(pool=tasks, noise=0.0).draw(4000, np.random.default_rng(1))
    distance = np.abs(np.einsum("bld,kd->kbl", drawn.x, tasks) - drawn.y).max(axis=2)
    assert (distance.min(axis=0) < 1e-12).all()
    share = np.bincount(distance.argmin(axis=0), minlength=4) / 4000
    assert np.abs(share - 0.25).max() < 4 * np.sqrt(0.25 * 0.75 / 4000)
    again = sequences(10, np.eye(DIM) / DIM, CONTEXT, seed=3, pool=tasks)
    assert again.y.shape == (10, CONTEXT + 1)
    tests = law(pool=tasks, fixed=np.ones(DIM), in_context=0.5).tests(5, 0)
    assert set(tests) == {"in-context", "in-weight"}


def test_runs_repeat_and_record_their_settings():
    net, tasks = NETS[0], draw_tasks(2, DIM, 0)
    probe = law(pool=tasks).draw(40, np.random.default_rng(9))
    one, two = (
        train_regression(
            net,
            law(pool=tasks),
            seed=3,
            steps=30,
            batch=8,
            tests={"idg": probe},
            save_at=[0, 7, 30],
        )
        for _ in "ab"
    )
    np.testing.assert_array_equal(one["idg"], two["idg"])
    assert one.t.tolist() == [0, 7, 30]
    assert one["W"].shape == (3, 12, 4)
    start = net.start(3)
    np.testing.assert_array_equal(one["A"][0], net.unpack(start)["A"])
    error = np.mean((regression_prediction(net, start, probe) - probe.y[:, -1]) ** 2)
    assert one["idg"][0] == pytest.approx(error, rel=1e-14)
    other = train_regression(net, law(pool=draw_tasks(2, DIM, 1)), seed=3, steps=1, batch=8)
    assert other.configuration["law"] != one.configuration["law"]
    assert one.configuration["batch"] == 8


def test_a_whole_set_by_plain_steps_is_gradient_descent():
    net, data = NETS[0], law().draw(12, np.random.default_rng(0))
    run = train_regression(
        net, data, seed=1, steps=5, batch=None, optimiser="gd", lr=0.05, schedule="constant"
    )
    theta = net.start(1)
    for step in range(6):
        loss, gradient = regression_gradient(net, theta, data)
        assert run["loss"][step] == pytest.approx(loss, rel=1e-12)
        theta = theta - 0.05 * gradient
    falling = train_regression(net, data, seed=1, steps=2, batch=None, optimiser="gd", lr=0.05)
    theta = net.start(1)
    for rate in (0.05, 0.025):
        theta = theta - rate * regression_gradient(net, theta, data)[1]
    np.testing.assert_allclose(falling["w"][-1], net.unpack(theta)["w"], rtol=1e-12)


def test_a_small_set_is_interpolated_and_one_task_is_learned():
    net = RegressionNetwork(DIM, heads=2, hidden=16, scale=DIM**0.5)
    data = law().draw(20, np.random.default_rng(0))
    keen = Optimiser("adamw", decay=0.0)
    run = train_regression(net, data, seed=0, steps=1500, batch=20, optimiser=keen, lr=1e-2)
    assert run["loss"][-1] < 1e-6
    one = law(pool=draw_tasks(1, DIM, 0), noise=0.0)
    run = train_regression(net, one, seed=0, steps=1500, batch=32, optimiser=keen, lr=1e-2)
    assert run["loss"][-1] < 1e-3


def test_a_diverging_run_keeps_what_was_finite():
    net, data = NETS[0], law().draw(12, np.random.default_rng(0))
    options = {"seed": 0, "steps": 400, "batch": 12, "optimiser": "gd", "lr": 1e9}
    run = train_regression(net, data, save_at=np.arange(401), **options)
    assert 0 < len(run.t) < 401
    assert np.isfinite(run["loss"]).all()
    with pytest.raises(ok.SolveError, match="before the first record; lower lr"):
        train_regression(net, data, save_at=[400], **options)


def test_bad_input_is_named():
    net, data = NETS[0], law().draw(4, np.random.default_rng(0))
    theta = net.start(0)
    cases = {
        "hidden must be": lambda: RegressionNetwork(3, hidden=-1),
        "heads must be": lambda: RegressionNetwork(3, heads=0),
        "scale must be": lambda: RegressionNetwork(3, scale=0),
        r"theta has shape \(2,\)": lambda: regression_gradient(net, [1.0, 2.0], data),
        "theta holds NaN": lambda: regression_gradient(net, np.nan * theta, data),
        "network has dim=2": lambda: regression_prediction(RegressionNetwork(2), theta[:0], data),
        "schedule must be": lambda: train_regression(net, data, seed=0, schedule="cosine"),
        "optimiser must be": lambda: train_regression(net, data, seed=0, optimiser="lion"),
        "lr must be": lambda: train_regression(net, data, seed=0, lr=0),
        "steps must be": lambda: train_regression(net, data, seed=0, steps=1.5),
        "data set has 4": lambda: train_regression(net, data, seed=0, batch=5),
        "batch is needed": lambda: train_regression(net, law(), seed=0, batch=None),
        "data must be": lambda: train_regression(net, 3, seed=0),
        '"loss" is the measure': lambda: train_regression(
            net, data, seed=0, batch=4, tests={"loss": data}
        ),
        "whole numbers from 1 to N=5": lambda: regression_prediction(
            net, theta, Sequences(data.x, data.y, data.lengths + 1, data.in_context)
        ),
        "y has shape": lambda: regression_gradient(net, theta, (data.x, data.y[:, 1:])),
        r"pool has shape \(2, 2\)": lambda: law(pool=np.ones((2, 2))),
        "not both": lambda: law(pool=np.ones((2, DIM)), task=2 * np.eye(DIM)),
    }
    for words, call in cases.items():
        with pytest.raises(ok.InputError, match=words) as caught:
            call()
        assert "\n" not in str(caught.value)
