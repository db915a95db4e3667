"""The finite-dimension equivalent: its moments, its limit, its border."""

from __future__ import annotations

import numpy as np
import pytest

from odekit.errors import InputError
from odekit.theory import finite_equivalent, learning_curve, population_moments


def pool(k, d, seed=0):
    tasks = np.random.default_rng(seed).standard_normal((k, d))
    return tasks * np.sqrt(d) / np.linalg.norm(tasks, axis=1, keepdims=True)


def test_moments_are_those_of_sampled_contexts():
    d, length, noise, count = 3, 4, 0.3, 200_000
    tasks = pool(2, d)
    rng = np.random.default_rng(1)
    w = tasks[rng.integers(2, size=count)]
    x = rng.standard_normal((count, length + 1, d)) / np.sqrt(d)
    y = np.einsum("nld,nd->nl", x, w) + np.sqrt(noise) * rng.standard_normal((count, length + 1))
    seen, labels = x[:, :-1], y[:, :-1]
    h = np.column_stack(
        [d / length * np.einsum("nl,nld->nd", labels, seen), (labels**2).mean(axis=1)]
    )
    target, second = population_moments(tasks, context=length, noise=noise)
    cross = d * y[:, -1, None, None] * x[:, -1, :, None] * h[:, None, :]
    square = h[:, :, None] * h[:, None, :]
    for sampled, exact in ((cross, target), (square, second)):
        error = sampled.std(axis=0) / np.sqrt(count)
        # 28 entries in all: 4.5 standard errors are passed by chance once in 5000 runs
        assert np.all(np.abs(sampled.mean(axis=0) - exact) < 4.5 * error)


@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize("tau", [0.4, 3.0])
@pytest.mark.parametrize("kappa", [0.5, 2.0, None])
def test_tends_to_the_limit_as_the_dimension_grows(kappa, tau, ridge):
    gaps = []
    for d in (25, 400):
        tasks = None if kappa is None else pool(int(kappa * d), d)
        equivalent = finite_equivalent(
            tasks,
            context=5 * d,
            samples=int(tau * d * d),
            noise=0.1,
            ridge=ridge,
            dim=d,
            fluctuations=False,
        )
        limit = learning_curve(5, kappa or np.inf, tau, 0.1, ridge)
        gaps.append(np.abs(np.subtract(equivalent, limit) / limit))
    # the difference is of order 1/d: a sixteenth, with room for the pool's own fluctuation
    assert np.all(gaps[1] < 0.024)
    assert gaps[1].max() < 0.5 * gaps[0].max()


def test_small_ridge_meets_ridgeless():
    d = 12
    for samples in (60, 150, 165, 900):
        sizes = {"context": 30, "samples": samples, "noise": 0.2}
        bare = finite_equivalent(pool(9, d), **sizes)
        small = finite_equivalent(pool(9, d), **sizes, ridge=1e-13)
        np.testing.assert_allclose(small, bare, rtol=1e-5)
        bare = finite_equivalent(pool(9, d), **sizes, fluctuations=False)
        small = finite_equivalent(pool(9, d), **sizes, ridge=1e-13, fluctuations=False)
        np.testing.assert_allclose(small, bare, rtol=1e-6)


@pytest.mark.parametrize("tau", [0.5, 1.5])
def test_fluctuations_are_of_order_one_over_the_dimension(tau):
    sizes = []
    for d in (12, 48):
        setting = {"context": 4 * d, "samples": int(tau * d * (d + 1)), "noise": 0.2, "dim": d}
        bare = finite_equivalent(None, **setting, fluctuations=False).icl
        sizes.append(finite_equivalent(None, **setting).icl / bare - 1)
    # a quarter, up to the next order
    assert 0.15 < sizes[1] / sizes[0] < 0.4
    assert sizes[0] > 0


def test_population_training_is_the_least_squares_fit():
    d = 6
    tasks = pool(4, d)
    target, second = population_moments(tasks, context=20, noise=0.1)
    best = 1.1 - np.trace(np.linalg.solve(second, target.T) @ target) / d
    idg = finite_equivalent(tasks, context=20, samples=10**12, noise=0.1).idg
    assert idg == pytest.approx(best, rel=1e-9)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"samples": 12}, "peak of double descent"),
        ({"samples": 0}, "samples"),
        ({"context": 0}, "context"),
        ({"noise": -1.0}, "noise"),
        ({"ridge": -1.0}, "ridge"),
        ({"tasks": None}, "dim="),
        ({"tasks": np.ones((2, 3)) * 2}, "squared norm"),
        ({"tasks": np.ones(3)}, "shape"),
        ({"dim": 4}, "contradicts"),
    ],
)
def test_bad_input_is_named(change, named):
    arguments = {"tasks": np.ones((2, 3)), "context": 5, "samples": 9, "noise": 0.1} | change
    with pytest.raises(InputError, match=named):
        finite_equivalent(arguments.pop("tasks"), **arguments)
