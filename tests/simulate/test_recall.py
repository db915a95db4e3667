"""Associative recall by an attention-only network."""

from itertools import product
from math import log

import numpy as np
import pytest

import odekit as ok
from odekit.simulate import (
    RecallNetwork,
    RecallTask,
    first_step,
    label_count_plateau,
    recall_gradient,
    recall_loss,
    train_recall,
)

SMALL = RecallTask(pairs=2, keys=3, labels=2)


def directional(f, h=1e-2):
    # Fourth-order central difference: error h^4 f^(5)/30, rounding 1e-16/h.
    return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_gradient_is_the_derivative_of_the_loss(layers):
    net = RecallNetwork(layers=layers)
    theta, rng = net.start(0), np.random.default_rng(1)
    data = net.task.draw(9, rng)
    loss, gradient = recall_gradient(net, theta, *data)
    assert loss == recall_loss(net, theta, *data)[0]
    size = np.linalg.norm(gradient)
    for name in net.shapes:  # a direction within each weight, so that no small one hides
        direction = np.zeros_like(theta)
        view = net.unpack(direction)[name]
        view[...] = rng.standard_normal(view.shape)
        direction /= np.linalg.norm(direction)
        slope = directional(lambda e, d=direction: recall_loss(net, theta + e * d, *data)[0])
        assert abs(slope - gradient @ direction) < 1e-8 * size, name


def test_sequences_hold_distinct_keys_and_the_right_answer():
    task = RecallTask()
    tokens, answer = task.draw(500, np.random.default_rng(0))
    keys, labels = tokens[:, 0:-1:2], tokens[:, 1:-1:2]
    assert tokens.shape == (500, 17)
    assert all(len(set(row)) == 8 for row in keys.tolist())
    assert keys.max() < 16 <= labels.min() and labels.max() < 20
    place = keys == tokens[:, -1:]
    assert (place.sum(axis=1) == 1).all()
    np.testing.assert_array_equal(labels[place], answer)


def test_plateau_equals_the_sum_over_every_labelling():
    task = RecallTask(pairs=3, keys=4, labels=3)
    entropy = hits = 0.0
    for labels in product(range(3), repeat=3):
        share = np.bincount(labels, minlength=3) / 3
        entropy -= sum(s * log(s) for s in share if s) / 27
        hits += share.max() / 27
    assert label_count_plateau(task) == pytest.approx((entropy, hits), rel=1e-14)


def test_plateau_of_the_reference_task():
    # Independent enumeration, to all the digits it was written down with.
    entropy, accuracy = label_count_plateau(RecallTask())
    assert entropy == pytest.approx(1.165379163332, abs=1e-12)
    assert accuracy == pytest.approx(0.442260742188, abs=1e-12)


def test_one_layer_ignores_the_order_of_tokens_moved_with_their_positions():
    # One look from the query sums over tokens: which of them are neighbours is not in the sum.
    net = RecallNetwork(task=SMALL, layers=1, dim=6, width=4)
    theta = net.start(2)
    tokens, answer = SMALL.draw(20, np.random.default_rng(0))
    swap = [2, 3, 0, 1, 4]
    moved = theta.copy()
    net.unpack(moved)["position"][...] = net.unpack(theta)["position"][swap]
    one, two = (recall_loss(net, th, tk, answer)[0] for th, tk in
                ((theta, tokens), (moved, tokens[:, swap])))  # fmt: skip
    assert one == pytest.approx(two, rel=1e-13)


def test_runs_repeat_and_record_their_settings():
    net = RecallNetwork(task=SMALL, dim=6, width=4)
    one, two = (train_recall(net, seed=3, steps=30, save_at=[0, 7, 30], test=50) for _ in "ab")
    np.testing.assert_array_equal(one["loss"], two["loss"])
    assert one.t.tolist() == [0, 7, 30]
    assert one["query2"].shape == (3, 6, 4)
    assert one.configuration["lr"] == 1e-3
    np.testing.assert_array_equal(one["embedding"][0], net.unpack(net.start(3))["embedding"])


@pytest.mark.parametrize("optimiser, lr", [("adam", 1e-2), ("heavy ball", 0.1)])
def test_a_tiny_task_is_learned(optimiser, lr):
    net = RecallNetwork(task=RecallTask(pairs=2, keys=3, labels=2), dim=12, width=8)
    run = train_recall(net, seed=0, steps=1000, optimiser=optimiser, lr=lr, test=400)
    assert run["accuracy"][0] < 0.6
    assert run["accuracy"][-1] > 0.99
    assert first_step(run, "accuracy", 0.99) is not None


def test_bad_input_is_named():
    with pytest.raises(ok.InputError, match="distinct keys"):
        RecallTask(pairs=9, keys=8)
    net = RecallNetwork(task=SMALL)
    with pytest.raises(ok.InputError, match="optimiser"):
        train_recall(net, seed=0, steps=1, optimiser="sgd")
    run = train_recall(net, seed=0, steps=1, test=5)
    with pytest.raises(ok.InputError, match="holds no 'W1'"):
        run["W1"]
    with pytest.raises(ok.InputError, match="not 'query1'"):
        first_step(run, "query1", 1.0)


@pytest.mark.slow
def test_two_layers_fall_off_the_plateau_and_one_stays():
    entropy, accuracy = label_count_plateau(RecallTask())
    net = RecallNetwork()
    run = train_recall(net, seed=0, steps=4000)
    assert run.seconds < 60
    early = (run.t >= 1000) & (run.t <= 2000)
    # The plateau lies above the exact level of a predictor that knows the counts, and near it:
    # the logits of one look at the context are affine in the counts, not logarithmic.
    assert entropy - 0.02 < np.median(run["loss"][early]) < entropy + 0.08
    rise = first_step(run, "accuracy", 0.55)
    top = first_step(run, "accuracy", 0.99)
    assert rise is not None and top is not None and top - rise <= 500
    control = train_recall(RecallNetwork(layers=1), seed=0, steps=4000)
    # 1024 test sequences: three standard deviations of an accuracy near .44 are .047.
    assert control["accuracy"].max() < accuracy + 0.047
    assert control["loss"][1:].min() > entropy - 0.05
