"""The gradient flow of Gamma, at finite size and in the limit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.linalg import expm

from odekit.errors import InputError
from odekit.theory import learning_curve, linear_flow, population_flow, population_moments

INF = float("inf")


def test_agrees_with_the_matrix_exponential():
    rng = np.random.default_rng(0)
    root = rng.standard_normal((4, 6))
    S, v, start = root.T @ root, root.T @ rng.standard_normal((4, 2)), rng.standard_normal((6, 2))
    for ridge in (0.0, 0.3):
        found = linear_flow(S, v, [0.0, 0.7, 3.0], ridge=ridge, start=start)
        # d/dt (Gamma, 1) is linear: one exponential of the augmented matrix
        for column in range(2):
            augmented = np.zeros((7, 7))
            augmented[:6, :6], augmented[:6, 6] = -(S + ridge * np.eye(6)), v[:, column]
            for t, gamma in zip((0.0, 0.7, 3.0), found, strict=True):
                exact = expm(t * augmented) @ np.append(start[:, column], 1)
                np.testing.assert_allclose(gamma[:, column], exact[:6], atol=1e-11)


def test_ends_at_the_solution_of_least_norm_or_at_ridge():
    rng = np.random.default_rng(1)
    features, y = rng.standard_normal((5, 9)), rng.standard_normal(5)
    S, v = features.T @ features, features.T @ y
    np.testing.assert_allclose(linear_flow(S, v, INF)[0], np.linalg.pinv(features) @ y, atol=1e-10)
    ridged = np.linalg.solve(S + 0.2 * np.eye(9), v)
    np.testing.assert_allclose(linear_flow(S, v, [INF], ridge=0.2)[0], ridged, atol=1e-12)


@pytest.mark.parametrize("kappa", [0.3, 1.0, 2.5, INF])
@pytest.mark.parametrize("ridge", [0.0, 0.4])
def test_population_flow_ends_at_the_learning_curve(kappa, ridge):
    found = population_flow(8.0, kappa, 0.1, [0.0, INF], ridge=ridge)
    end = learning_curve(8.0, kappa, INF, 0.1, ridge)
    np.testing.assert_allclose([found.icl[1], found.idg[1]], end, rtol=1e-12)
    # at the start Gamma = 0 predicts 0
    np.testing.assert_allclose([found.icl[0], found.idg[0]], [1.1, 1.1], rtol=1e-14)


@pytest.mark.parametrize("kappa", [0.4, 2.0])
def test_population_flow_is_an_average_over_the_spectral_density(kappa):
    q, rho, t, c = 1.1 / 6, 0.1, 1.7, 1 / kappa
    low, high = (1 - np.sqrt(c)) ** 2, (1 + np.sqrt(c)) ** 2

    def average(function):
        def weighted(s):
            return function(s) * np.sqrt((high - s) * (s - low)) / (2 * np.pi * c * s)

        return quad(weighted, low, high, epsabs=1e-12, limit=200)[0]

    def learned(s):
        return s / (s + q) * -np.expm1(-(s + q) * t)

    found = population_flow(6.0, kappa, rho, [t])
    icl = 1 + rho + average(lambda s: -2 * learned(s) + (1 + q) * learned(s) ** 2)
    idg = rho + average(lambda s: s - 2 * s * learned(s) + (s + q) * learned(s) ** 2)
    assert found.icl[0] == pytest.approx(icl, abs=1e-9)
    assert found.idg[0] == pytest.approx(idg, abs=1e-9)


def test_population_flow_is_the_limit_of_the_flow_at_finite_dimension():
    d, rho, times = 300, 0.2, np.array([0.3, 1.0, 5.0])
    tasks = np.random.default_rng(2).standard_normal((d // 2, d))
    tasks *= np.sqrt(d) / np.linalg.norm(tasks, axis=1, keepdims=True)
    target, second = population_moments(tasks, context=4 * d, noise=rho)
    found = population_flow(4.0, 0.5, rho, times)
    gammas = linear_flow(second, target.T, times).transpose(0, 2, 1)
    for name, pool in (("icl", None), ("idg", tasks)):
        A, B = population_moments(pool, context=4 * d, noise=rho, dim=d)
        errors = [1 + rho + (np.sum(g * (g @ B)) - 2 * np.sum(g * A)) / d for g in gammas]
        # differences are of order 1/d
        np.testing.assert_allclose(errors, getattr(found, name), rtol=0.02)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: linear_flow(np.ones((2, 3)), np.ones(2), 1.0), "square"),
        (lambda: linear_flow([[1.0, 1.0], [0.0, 1.0]], np.ones(2), 1.0), "symmetric"),
        (lambda: linear_flow(-np.eye(2), np.ones(2), 1.0), "semidefinite"),
        (lambda: linear_flow(np.eye(2), np.ones(3), 1.0), "rows"),
        (lambda: linear_flow(np.eye(2), np.ones(2), -1.0), "times"),
        (lambda: linear_flow(np.eye(2), np.ones(2), 1.0, ridge=-1), "ridge"),
        (lambda: linear_flow(np.eye(2), np.ones(2), 1.0, start=np.ones(3)), "start"),
        (lambda: population_flow(0, 1, 0.1, 1.0), "alpha"),
        (lambda: population_flow(1, 1, -0.1, 1.0), "noise"),
        (lambda: population_flow(1, 1, 0.1, -1.0), "times"),
    ],
)
def test_bad_input_is_named(call, named):
    with pytest.raises(InputError, match=named):
        call()
