"""Grokking of modular addition by a quadratic network."""

import numpy as np
import pytest

import odekit as ok
from odekit.simulate import (
    AdditionTask,
    addition_gradient,
    addition_start,
    first_step,
    fourier_concentration,
    random_concentration,
    train_addition,
)


def dense_loss(state, pairs, labels, loss):
    """The same loss from one-hot vectors, a pair at a time."""
    p = state["W2"].shape[1]
    total = 0.0
    for (a, b), c in zip(pairs, labels, strict=True):
        x = np.zeros(2 * p)
        x[a] += 1
        x[p + b] += 1
        f = (x @ state["W1"]) ** 2 @ state["W2"]
        if loss == "mse":
            total += ((f - np.eye(p)[c]) ** 2).mean()
        else:
            total += np.log(np.exp(f).sum()) - f[c]
    return total / len(pairs)


@pytest.mark.parametrize("loss", ["mse", "cross-entropy"])
def test_loss_and_gradient(loss):
    # A small fraction: some residues occur in no training pair, and get no gradient.
    state, sets = addition_start(7, 5, 0), AdditionTask(7, 0.2).draw(1)
    rng = np.random.default_rng(0)
    value, _, gradient = addition_gradient(state, sets.train, sets.train_labels, loss)
    assert value == pytest.approx(dense_loss(state, sets.train, sets.train_labels, loss), rel=1e-13)
    size = np.sqrt(sum((g**2).sum() for g in gradient.values()))
    absent = np.setdiff1d(np.arange(7), sets.train[:, 0])
    assert absent.size and not gradient["W1"][absent].any()
    for name in state:
        d = rng.standard_normal(state[name].shape)
        d /= np.linalg.norm(d)

        def at(e, name=name, d=d):
            moved = {**state, name: state[name] + e * d}
            return addition_gradient(moved, sets.train, sets.train_labels, loss)[0]

        # Fourth-order central difference: error h^4 f^(5)/30, rounding 1e-16/h.
        h = 1e-3
        slope = (8 * (at(h) - at(-h)) - (at(2 * h) - at(-2 * h))) / (12 * h)
        assert abs(slope - np.vdot(gradient[name], d)) < 1e-8 * size


def test_split_is_a_partition_and_knows_commuted_pairs():
    sets = AdditionTask(11, 0.4).draw(3)
    train, test = (set(map(tuple, part.tolist())) for part in (sets.train, sets.test))
    assert len(train) == int(0.4 * 121) and not train & test and len(train | test) == 121
    np.testing.assert_array_equal(sets.test.sum(axis=1) % 11, sets.test_labels)
    for (a, b), half in zip(sets.test.tolist(), sets.commuted, strict=True):
        assert half == ((b, a) in train)


def test_one_step_of_each_optimiser():
    task = AdditionTask(7, 0.5)
    for optimiser, lr in (("heavy ball", 2.0), ("adamw", 0.1)):
        run = train_addition(task, seed=4, width=5, steps=1, optimiser=optimiser, lr=lr)
        sets = task.draw(int(np.random.SeedSequence(4).generate_state(1)[0]))
        start = addition_start(7, 5, 4)
        loss = "mse" if optimiser == "heavy ball" else "cross-entropy"
        _, _, g = addition_gradient(start, sets.train, sets.train_labels, loss)
        for name in start:
            if optimiser == "heavy ball":
                expected = start[name] - lr * g[name]
            else:  # the first step of Adam is the gradient's sign
                expected = start[name] * (1 - lr * 0.5) - lr * np.sign(g[name])
                expected = np.where(np.abs(g[name]) > 1e-5, expected, run[name][1])
            # epsilon / |g| = 1e-8 / 1e-5 of a step of lr
            np.testing.assert_allclose(run[name][1], expected, atol=1e-3 * lr)


def test_concentration_of_one_wave_and_of_noise():
    p = 31
    wave = np.cos(2 * np.pi * np.outer(np.arange(p), [1, 4, 9]) / p + 0.3)
    assert fourier_concentration(wave) == pytest.approx(1.0, abs=1e-12)
    # The share of the largest of 15 has standard deviation below .08: 8 standard errors.
    noise = np.random.default_rng(0).standard_normal((p, 20000))
    assert fourier_concentration(noise) == pytest.approx(random_concentration(p), abs=0.005)


def test_bad_input_is_named():
    with pytest.raises(ok.InputError, match="fraction"):
        AdditionTask(31, 1.0)
    with pytest.raises(ok.InputError, match="decay"):
        train_addition(AdditionTask(7), seed=0, steps=1, decay=0.1)
    with pytest.raises(ok.InputError, match="p odd"):
        fourier_concentration(np.ones((4, 2)))


def test_generalisation_comes_late_and_not_for_random_labels():
    run = train_addition(AdditionTask(), seed=0, steps=900)
    fitted = first_step(run, "accuracy", 0.99)
    general = first_step(run, "test accuracy", 0.95)
    assert fitted is not None and general is not None and general > 4 * fitted
    assert run["new"][-1] > 0.95
    assert fourier_concentration(run["W1"][-1, :31]) > 0.5
    control = train_addition(AdditionTask(random_labels=True), seed=0, steps=600)
    assert first_step(control, "accuracy", 0.99) is not None
    # 481 test pairs at chance 1/31: mean .032, four standard deviations .032.
    assert control["test accuracy"].max() < 0.065
    assert fourier_concentration(control["W1"][-1, :31]) < 0.25
