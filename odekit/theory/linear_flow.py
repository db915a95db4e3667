"""Gradient flow of Gamma: exact at finite size, and its population learning curve.

The flow of ``(d/2n)[sum (y - <Gamma, H>)^2 + (n/d) lambda |Gamma|^2]`` with ``H = x h^T`` is
linear, ``dGamma/dt = v - (S + lambda) Gamma``. Setting and source: see
`odekit.theory.learning_curves`; the flow is an own addition to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError
from odekit.theory.learning_curves import LearningCurve

Floats = NDArray[np.float64]


def linear_flow(
    S: ArrayLike,  # noqa: N803
    v: ArrayLike,
    times: ArrayLike,
    *,
    ridge: float = 0.0,
    start: ArrayLike | None = None,
) -> Floats:
    """Solve ``dGamma/dt = v - (S + lambda) Gamma`` exactly, by eigen-decomposition.

    Parameters
    ----------
    S : array_like, shape (p, p)
        Symmetric, positive semidefinite.
    v : array_like, shape (p,) or (p, m)
        Drive; m columns flow independently.
    times : array_like, shape (K,)
        Times >= 0, ``inf`` included: the end of the flow.
    ridge : float
        lambda >= 0.
    start : array_like, shape of v, optional
        Gamma(0), zero by default.

    Returns
    -------
    ndarray, shape (K, p) or (K, p, m)
        ``exp(-(S + lambda) t) Gamma(0) + f_t(S + lambda) v``, ``f_t(a) = (1 - exp(-a t))/a``.

    Notes
    -----
    Directions in which S vanishes (to rounding) and v has no part stay where they start: from zero
    the flow without ridge ends at the solution of least norm.
    """
    matrix, drive = np.asarray(S, dtype=np.float64), np.asarray(v, dtype=np.float64)
    clock = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"S must be a square matrix, got shape {matrix.shape}")
    if not np.allclose(matrix, matrix.T, rtol=1e-10, atol=1e-12 * np.abs(matrix).max()):
        raise InputError("S must be symmetric; pass the second moment of the features")
    if drive.ndim not in (1, 2) or len(drive) != len(matrix):
        raise InputError(f"v must have {len(matrix)} rows as S does, got shape {drive.shape}")
    if clock.ndim != 1 or np.any(~(clock >= 0)):
        raise InputError("times must be a vector of numbers >= 0")
    if not (ridge >= 0 and np.isfinite(ridge)):
        raise InputError(f"ridge must be finite and >= 0, got {ridge}")
    values, vectors = np.linalg.eigh(matrix)
    if values[0] < -1e-10 * max(values[-1], 0.0):
        raise InputError(f"S must be positive semidefinite, its least eigenvalue is {values[0]:g}")
    values = np.where(values > 4e-16 * len(values) * values[-1], values, 0.0) + ridge
    still = values == 0
    columns = drive.reshape(len(drive), -1)
    modes = vectors.T @ columns
    modes[still] = 0.0
    begin = np.zeros_like(columns)
    if start is not None:
        begin = np.asarray(start, dtype=np.float64)
        if begin.shape != drive.shape:
            raise InputError(f"start must have the shape {drive.shape} of v, got {begin.shape}")
        begin = begin.reshape(columns.shape)
    initial = vectors.T @ begin
    with np.errstate(invalid="ignore"):
        decay = np.where(still, 0.0, np.outer(clock, values))
    grown = -np.expm1(-decay) / np.where(still, 1.0, values)
    in_modes = grown[:, :, None] * modes + np.exp(-decay)[:, :, None] * initial
    return np.asarray((vectors @ in_modes).reshape(len(clock), *drive.shape))


def population_flow(
    alpha: float, kappa: float, noise: float, times: ArrayLike, *, ridge: float = 0.0
) -> LearningCurve:
    """Errors along the gradient flow from zero on the population (tau = inf), d -> infinity.

    Parameters
    ----------
    alpha, kappa : float
        Context length and number of pretraining tasks over dimension, > 0; kappa may be ``inf``.
    noise : float
        Label-noise variance rho >= 0.
    times : array_like, shape (K,)
        Training times >= 0, ``inf`` included, for learning rate 1 on half the squared error
        times d.
    ridge : float
        Weight decay lambda >= 0.

    Returns
    -------
    LearningCurve
        ``(icl, idg)``, each of shape (K,). At ``inf`` that of `learning_curve` with tau = inf.

    Notes
    -----
    A direction in which the tasks have variance s is learned at the rate ``s + q + lambda``,
    ``q = (1 + rho)/alpha``, to ``s/(s + q + lambda)``; the rest is an average over the
    Marchenko-Pastur law, here by Gauss-Chebyshev quadrature, exact to rounding in its bulk.
    """
    for name, value in (("alpha", alpha), ("kappa", kappa)):
        if not value > 0:
            raise InputError(f"{name} must be > 0, got {value}")
    for name, value in (("noise", noise), ("ridge", ridge)):
        if not (value >= 0 and np.isfinite(value)):
            raise InputError(f"{name} must be finite and >= 0, got {value}")
    clock = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if clock.ndim != 1 or np.any(~(clock >= 0)):
        raise InputError("times must be a vector of numbers >= 0")
    q = (1.0 + noise) / alpha
    s, weight = _spectrum(kappa)
    rate = s + q + ridge
    # g/s, finite as s -> 0; the weights belong to averages of s times a smooth function.
    slope = -np.expm1(-np.outer(clock, rate)) / rate
    icl = 1.0 + noise + (-2.0 * slope + (1.0 + q) * s * slope**2) @ weight
    idg = noise + (1.0 - 2.0 * s * slope + (s + q) * s * slope**2) @ weight
    return LearningCurve(icl, idg)


def _spectrum(kappa: float, nodes: int = 4000) -> tuple[Floats, Floats]:
    """Nodes s and weights w such that ``E[s f(s)] = sum w f(s)`` over the Marchenko-Pastur law."""
    if np.isinf(kappa):
        return np.ones(1), np.ones(1)
    c = 1.0 / kappa
    angle = np.pi * np.arange(1, nodes + 1) / (nodes + 1)
    s = 1.0 + c + 2.0 * np.sqrt(c) * np.cos(angle)
    # s times the density is a semicircle on the bulk: Chebyshev polynomials of the second kind.
    weight = 2.0 / (nodes + 1) * np.sin(angle) ** 2
    return s, weight
