"""Sharp asymptotics against an independent evaluation in many digits, and in their limits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from odekit.errors import InputError
from odekit.theory import bayes_error, learning_curve, optimal_ridge, training_error

INF = float("inf")


# --- the published formulas as they stand, in 60 digits (they cancel; 30 remain)


def published(alpha, kappa, tau, rho, lam):
    with mpmath.workdps(60):
        alpha, rho, lam = mpmath.mpf(alpha), mpmath.mpf(rho), mpmath.mpf(lam)
        q = (1 + rho) / alpha

        def m_of(z, ratio):
            if ratio == INF:
                return 1 / (1 + z)
            ratio = mpmath.mpf(ratio)
            b = z + 1 - 1 / ratio
            return 2 / (b + mpmath.sqrt(b**2 + 4 * z / ratio))

        def slope_of(m):
            if kappa == INF:
                return -(m**2)
            return -(m**2) / (1 - kappa * m**2 / (kappa + m) ** 2)

        if tau == INF:
            xi = lam
        elif lam == 0 and tau > 1:
            m = m_of(q, kappa)
            slope = slope_of(m)
            idg = tau / (mpmath.mpf(tau) - 1) * (rho + q - q**2 * m)
            icl = (
                (1 + q)
                * (1 - 2 * q * m - q**2 * slope + (rho + q - q**2 * m) * m / (mpmath.mpf(tau) - 1))
                - 2 * (1 - q * m)
                + 1
                + rho
            )
            return icl, idg, mpmath.nan
        elif lam == 0:
            tau = mpmath.mpf(tau)
            mu = q * m_of(q, INF if kappa == INF else kappa / tau)
            xi = (1 - tau) * q / (tau * mu)
        else:
            tau = mpmath.mpf(tau)
            low, high = lam, lam + (1 + q) / tau

            for _ in range(230):  # halves a bracket of at most 1e12 to 1e-57 of the root
                xi = mpmath.sqrt(low * high)
                above = 1 - tau + tau * lam / xi - xi * m_of(q + xi, kappa) < 0
                low, high = (low, xi) if above else (xi, high)
        nu = q + xi
        m = m_of(nu, kappa)
        slope = slope_of(m)
        big_j = 1 - 2 * nu * m - nu**2 * slope
        gamma = 0 if tau == INF else (1 - 2 * xi * m - xi**2 * slope) / tau
        idg = (rho + nu - nu**2 * m - xi * big_j) / (1 - gamma)
        ratio = 0 if tau == INF else idg / tau
        icl = 1 + rho - 2 * (1 - nu * m) + (1 + q) * (big_j + ratio * (m + xi * slope))
        return icl, idg, (lam / xi) ** 2 * idg if xi else mpmath.nan


def sample_points(count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        alpha = 10 ** rng.uniform(-2, 4)
        kappa = INF if rng.random() < 0.15 else 10 ** rng.uniform(-2, 2)
        tau = 10 ** rng.uniform(-2, 2)
        corner = rng.random()
        if corner < 0.1:
            tau = INF
        elif corner < 0.25:
            tau = 1 + rng.choice([-1, 1]) * 10 ** rng.uniform(-6, -1)
        elif corner < 0.35 and kappa < INF:
            tau = kappa * (1 + rng.choice([-1, 1]) * 10 ** rng.uniform(-8, -1))
        rho = 0.0 if rng.random() < 0.1 else 10 ** rng.uniform(-4, 1)
        lam = 0.0 if rng.random() < 0.4 else 10 ** rng.uniform(-8, 2)
        if rng.random() < 0.2:
            alpha, rho = 1e4, 1e-4
        yield float(alpha), float(kappa), float(tau), float(rho), float(lam)


def test_agrees_with_many_digits_on_a_random_sample():
    points = list(sample_points(500, seed=20250701))
    icl, idg = learning_curve(*np.transpose(points))
    train = training_error(*np.transpose(points))
    for n, point in enumerate(points):
        exact = published(*point)
        for got, true in zip((icl[n], idg[n], train[n]), exact, strict=True):
            if mpmath.isnan(true):
                continue
            # 1e-11 of 1 + rho; where the error itself exceeds that a hundredfold (the peak of
            # double descent) float64 holds its leading 13 digits
            allowed = max(1e-11 * (1 + point[3]), 1e-13 * float(true))
            assert abs(float(got - true)) <= allowed, (point, got, true)


@pytest.mark.parametrize("alpha", [1e4, 1e7])
@pytest.mark.parametrize("kappa", [0.01, 0.5, 1.0, 1 + 1e-9, 2.0, 1e6, INF])
@pytest.mark.parametrize("tau", [0.3, 0.5, 1 - 1e-9, 1 + 1e-9, 3.0, 1e9, INF])
@pytest.mark.parametrize("lam", [0.0, 1e-12, 1e-3, 1e6])
def test_corners_keep_their_digits(alpha, kappa, tau, lam):
    rho = 1e-4
    for got, true in zip(
        learning_curve(alpha, kappa, tau, rho, lam),
        published(alpha, kappa, tau, rho, lam),
        strict=False,
    ):
        # relative to the value itself: every term of the rewritten formulas is positive
        assert abs(float(got / true - 1)) < 1e-12


# --- limits


def test_infinite_arguments_are_the_limits_of_large_ones():
    rng = np.random.default_rng(4)
    for lam in (0.0, 0.3):
        alpha, rho, kappa = rng.uniform(0.5, 20), rng.uniform(0.01, 1), rng.uniform(0.2, 3)
        for tau in (0.4, 2.5):
            # the first correction is of order 1/kappa
            np.testing.assert_allclose(
                learning_curve(alpha, INF, tau, rho, lam),
                learning_curve(alpha, 1e11, tau, rho, lam),
                rtol=1e-9,
            )
        np.testing.assert_allclose(
            learning_curve(alpha, kappa, INF, rho, lam),
            learning_curve(alpha, kappa, 1e11, rho, lam),
            rtol=1e-9,
        )
        np.testing.assert_allclose(
            learning_curve(INF, 2 + kappa, 0.6, rho, lam),
            learning_curve(1e13, 2 + kappa, 0.6, rho, lam),
            rtol=1e-9,
        )
    assert learning_curve(3, 0.7, 0.5, 0.2, INF) == (1.2, 1.2)


def test_ridgeless_is_the_limit_of_a_small_ridge():
    for tau in (0.3, 0.9, 1.1, 7.0):
        np.testing.assert_allclose(
            learning_curve(10, 0.5, tau, 0.1, 1e-11), learning_curve(10, 0.5, tau, 0.1), rtol=1e-7
        )


def test_fresh_tasks_have_the_explicit_form():
    alpha, rho, q = 7.0, 0.3, 1.3 / 7.0
    for tau in (0.35, 0.8):
        expected = (1 + rho - tau * (2 - tau) / (1 + q)) / (1 - tau)
        assert learning_curve(alpha, INF, tau, rho) == pytest.approx((expected,) * 2, rel=1e-14)
    for tau in (1.5, 20.0):
        expected = tau / (tau - 1) * (rho + q / (1 + q))
        assert learning_curve(alpha, INF, tau, rho) == pytest.approx((expected,) * 2, rel=1e-14)


def test_gap_of_population_training_tends_to_the_share_of_unseen_directions():
    kappa = np.array([0.1, 0.5, 0.9, 1.1, 3.0])
    icl, idg = learning_curve(1e9, kappa, INF, 0.01)
    # memorisation below kappa = 1, genuine in-context learning above; corrections are of order q
    np.testing.assert_allclose(icl - idg, np.maximum(1 - kappa, 0), atol=1e-7)


def test_endless_context_without_bound_is_infinite():
    # noise fitted in directions that no pretraining task spans grows with alpha
    icl, idg = learning_curve(INF, 0.5, 3.0, 0.01)
    assert icl == INF
    assert idg == pytest.approx(3 / 2 * 0.01, rel=1e-12)
    assert learning_curve(1e12, 0.5, 3.0, 0.01).icl > 1e8


def test_double_descent_peak_at_one():
    tau = np.array([0.2, 0.9, 0.999, 1.001, 1.1, 5.0])
    icl, idg = learning_curve(10, 0.5, tau, 0.01)
    for curve in (icl, idg):
        assert np.all(np.diff(curve[:3]) > 0) or curve[0] > curve[1]
        assert np.all(np.diff(curve[3:]) < 0)
        assert curve[2] > 50 * curve[-1]


def test_interpolation_has_no_training_error():
    assert training_error(10, 0.5, 0.7, 0.1) == 0.0
    # above the peak the training error is (1 - 1/tau)^2 of the test error: n - p degrees of freedom
    idg = learning_curve(10, 0.5, 2.0, 0.1).idg
    assert training_error(10, 0.5, 2.0, 0.1) == pytest.approx(idg / 4, rel=1e-14)


def test_bayes_error_without_noise_and_below_every_learner():
    np.testing.assert_allclose(bayes_error([0.25, 1.0, 4.0], 0.0), [0.75, 0, 0], atol=0)
    alpha, rho = np.array([0.3, 1.0, 10.0])[:, None], np.array([0.01, 0.5, 4.0])
    best = bayes_error(alpha, rho)
    assert np.all(best < learning_curve(alpha, INF, INF, rho).icl)
    assert np.all(best > rho)
    assert bayes_error(INF, 0.3) == 0.3


def test_bayes_error_is_that_of_ridge_regression_in_the_context():
    rng = np.random.default_rng(5)
    dim, length, rho = 400, 600, 0.4
    x = rng.standard_normal((length, dim)) / np.sqrt(dim)
    posterior = np.linalg.inv(np.eye(dim) + x.T @ x / rho)
    # fluctuations of a trace of resolvents are of order 1/dim
    assert rho + np.trace(posterior) / dim == pytest.approx(bayes_error(1.5, rho), rel=0.01)


@pytest.mark.parametrize("objective", ["icl", "idg"])
def test_optimal_ridge_is_a_minimum(objective):
    kappa = np.array([0.3, 1.0, 4.0, INF])[:, None]
    tau = np.array([0.5, 1.0, 3.0])
    best = optimal_ridge(5.0, kappa, tau, 0.2, objective)
    assert best.shape == (4, 3)

    def error(ridge):
        return getattr(learning_curve(5.0, kappa, tau, 0.2, ridge), objective)

    for factor in (0.01, 0.9, 1.1, 100):
        assert np.all(error(best) < error(best * factor))


def test_optimal_ridge_of_a_large_pool_meets_that_of_fresh_tasks():
    assert optimal_ridge(5.0, 1e9, 0.5, 0.2) == pytest.approx(
        optimal_ridge(5.0, INF, 0.5, 0.2), rel=1e-4
    )


# --- the border


def test_numbers_give_numbers_and_arrays_broadcast():
    icl, idg = learning_curve(10, 0.5, 2, 0.1)
    assert type(icl) is float
    assert type(idg) is float
    curve = learning_curve(np.ones((3, 1)), 0.5, [0.5, 2.0], 0.1, [[0.0], [0.1], [1.0]])
    assert curve.icl.shape == curve.idg.shape == (3, 2)
    assert curve.icl[1, 1] == learning_curve(1.0, 0.5, 2.0, 0.1, 0.1).icl


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0, 1, 2, 0.1), "alpha"),
        ((1, -1, 2, 0.1), "kappa"),
        ((1, 1, 0, 0.1), "tau"),
        ((1, 1, 2, -0.1), "noise"),
        ((1, 1, 2, INF), "noise"),
        ((1, 1, 2, 0.1, -1), "ridge"),
        ((np.nan, 1, 2, 0.1), "alpha"),
        (("x", 1, 2, 0.1), "alpha"),
        ((1, 1, 1, 0.1), "tau = 1 without ridge"),
        ((1, 1, [0.5, 1.0], 0.1, [0.0, 0.0]), "tau = 1 without ridge"),
        (([1, 2], [1, 2, 3], 2, 0.1), "broadcast"),
    ],
)
def test_bad_input_is_named(arguments, named):
    with pytest.raises(InputError, match=named):
        learning_curve(*arguments)


def test_peak_is_finite_with_ridge():
    icl, idg = learning_curve(10, 0.5, 1.0, 0.1, 1e-6)
    assert 10 < icl < 1e4
    assert 10 < idg < 1e4


def test_unknown_objective():
    with pytest.raises(InputError, match="objective"):
        optimal_ridge(1, 1, 1, 0.1, "both")
