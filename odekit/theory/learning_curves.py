"""Sharp asymptotics of in-context learning by linear attention.

Setting (Lu et al.): tokens ``x ~ N(0, I_d/d)``, tasks ``|w|^2 = d``, labels
``y = <w, x> + eps`` with ``eps ~ N(0, rho)``. In the limit d -> infinity the context length is
``alpha d``, the pool of pretraining tasks ``kappa d``, the number of pretraining contexts
``tau d^2``. The prediction is linear in ``Gamma (d, d+1)``, fitted by ridge regression with
penalty ``(n/d) lambda |Gamma|^2``.

Source: Lu, Letey, Zavatone-Veth, Maiti, Pehlevan, "Asymptotic theory of in-context learning by
linear attention", PNAS 122 (2025) e2502599122. The formulas are rewritten here as sums of positive
terms (see `odekit.theory.spectral_moments`), so that no corner of the parameter space loses digits
to cancellation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError
from odekit.theory.spectral_moments import effective_ridge, moments, one_minus_ratio

Floats = NDArray[np.float64]

# alpha = inf is evaluated at this alpha: terms of order sqrt(1/alpha) are then below 1e-99.
_ENDLESS = 1e200
# What alpha = inf leaves above this size grows without bound with alpha.
_UNBOUNDED = 1e60


class LearningCurve(NamedTuple):
    """Errors on a fresh task (``icl``) and on one of the pretraining tasks (``idg``)."""

    icl: Any
    idg: Any


def learning_curve(
    alpha: ArrayLike,
    kappa: ArrayLike,
    tau: ArrayLike,
    noise: ArrayLike,
    ridge: ArrayLike = 0.0,
) -> LearningCurve:
    """Test errors of linear attention after pretraining, in the limit of large dimension.

    Parameters
    ----------
    alpha : array_like
        Context length over dimension, > 0; ``inf`` is the limit of an endless context.
    kappa : array_like
        Number of pretraining tasks over dimension, > 0; ``inf``: a fresh task for each context.
    tau : array_like
        Number of pretraining contexts over dimension squared, > 0; ``inf``: population training.
    noise : array_like
        Variance rho of the label noise, >= 0.
    ridge : array_like
        Strength lambda >= 0; 0 is the limit lambda -> 0, the solution of least norm.

    Returns
    -------
    LearningCurve
        ``(icl, idg)``, each of the broadcast shape of the arguments (floats for numbers): the mean
        squared error on a query of a fresh task, and on a fresh context of a pretraining task.

    Raises
    ------
    InputError
        If an argument is out of range, or at ``tau = 1`` without ridge, where both diverge.

    Notes
    -----
    Units: mean squared error without 1/2, label noise of the query included; predicting 0 costs
    ``1 + noise``. Both diverge at tau = 1 without ridge: double descent. Accurate to about 1e-13
    of the value, a distance ``|tau - 1|`` that is exact in floating point included.

    Examples
    --------
    >>> icl, idg = learning_curve(10, [0.5, 2], float("inf"), 0.01)
    >>> (icl - idg).round(3)
    array([0.367, 0.022])
    """
    state = _solve(alpha, kappa, tau, noise, ridge)
    return LearningCurve(state.icl, state.idg)


def training_error(
    alpha: ArrayLike,
    kappa: ArrayLike,
    tau: ArrayLike,
    noise: ArrayLike,
    ridge: ArrayLike = 0.0,
) -> Any:
    """Mean squared error on the pretraining set itself, the ridge penalty left out.

    Parameters
    ----------
    alpha, kappa, tau, noise, ridge : array_like
        As in `learning_curve`.

    Returns
    -------
    float or ndarray
        ``(lambda/xi)^2 e_IDG``; 0 below tau = 1 without ridge, where the set is interpolated.
    """
    state = _solve(alpha, kappa, tau, noise, ridge)
    return state.shrinkage**2 * state.idg


def bayes_error(alpha: ArrayLike, noise: ArrayLike) -> Any:
    """Error of the ideal predictor of a fresh Gaussian task: ridge regression in the context.

    Parameters
    ----------
    alpha : array_like
        Context length over dimension, > 0, ``inf`` included.
    noise : array_like
        Variance rho of the label noise, >= 0.

    Returns
    -------
    float or ndarray
        ``rho (1 + M_alpha(rho/alpha)/alpha)``; ``max(1 - alpha, 0)`` without noise. No predictor
        has a lower ``icl``; on the pretraining tasks a predictor that knows them can do better.
    """
    a, rho = _ranged("alpha", alpha, above=0.0), _ranged("noise", noise, least=0.0, finite=True)
    # rho M_alpha(rho/alpha)/alpha = E[z/(s + z)] at z = rho/alpha.
    # Without noise z would be 0, where the moments divide by it at alpha = 1.
    z = np.maximum(rho / np.minimum(a, _ENDLESS), 1e-300)
    noisy = rho + moments(z, 1.0 / a, one_minus_ratio(1.0, a)).p
    result = np.where(rho > 0, noisy, np.maximum(1.0 - a, 0.0))
    return _plain(result, result.shape)


def optimal_ridge(
    alpha: ArrayLike,
    kappa: ArrayLike,
    tau: ArrayLike,
    noise: ArrayLike,
    objective: Literal["icl", "idg"] = "icl",
) -> Any:
    """Ridge that minimises an error of `learning_curve`.

    Parameters
    ----------
    alpha, kappa, tau, noise : array_like
        As in `learning_curve`.
    objective : {"icl", "idg"}
        Which error to minimise.

    Returns
    -------
    float or ndarray
        ``(1+q)(rho (1+q) + q)/tau`` with ``q = (1+rho)/alpha`` for fresh tasks (kappa = inf). For
        a finite pool a minimum of the error over ``1e-12 < lambda < 1e12``, good to about eight
        digits of the error and so to four of lambda; 0 or inf where the error is lowest there.
    """
    if objective not in ("icl", "idg"):
        raise InputError(f'objective must be "icl" or "idg", got {objective!r}')
    (a, k, t, rho, _), shape = _arguments(alpha, kappa, tau, noise, 1.0)
    q = (1.0 + rho) / a
    best = (1.0 + q) * (rho * (1.0 + q) + q) / t
    pooled = np.isfinite(k)
    if np.any(pooled):
        best[pooled] = _search_ridge(a[pooled], k[pooled], t[pooled], rho[pooled], objective)
    return _plain(best, shape)


@dataclass(frozen=True)
class _State:
    icl: Any
    idg: Any
    shrinkage: Any  # lambda / xi


def _solve(
    alpha: ArrayLike, kappa: ArrayLike, tau: ArrayLike, noise: ArrayLike, ridge: ArrayLike
) -> _State:
    (a, k, t, rho, lam), shape = _arguments(alpha, kappa, tau, noise, ridge)
    endless, null = np.isinf(a), np.isinf(lam)
    q = (1.0 + rho) / np.where(endless, _ENDLESS, a)
    lam = np.where(null, 1.0, lam)
    c, one_minus_c = 1.0 / k, one_minus_ratio(1.0, k)

    xi = effective_ridge(q, k, t, lam)
    nu = q + xi
    f, g = xi / nu, q / nu
    mom = moments(nu, c, one_minus_c)
    # tau (1 - lambda/xi) in the limit lambda -> 0 at tau > 1 is 1: xi vanishes with lambda.
    vanishing = (xi == 0) & np.isfinite(t)
    shrinkage = np.where(xi > 0, lam / np.where(xi > 0, xi, 1.0), np.maximum(1.0 - 1.0 / t, 0.0))
    with np.errstate(invalid="ignore"):
        pull = np.where(vanishing, t - 1.0, np.where(np.isinf(t), np.inf, t * shrinkage))
    mixed = mom.sz + g * mom.zz  # E[(s+q) nu/(s+nu)^2]
    slack = pull + f * mixed  # tau (1 - gamma)
    bias = rho + q * mom.a + xi * mom.sz
    with np.errstate(invalid="ignore"):
        idg = np.where(np.isinf(t), bias, bias * (t / slack))
    # bias/nu E[(s+q) nu/(s+nu)^2], with mixed = p (a r + g p)/delta and p/nu = m
    spread = rho * (mixed / nu) + (g * mom.a + f * mom.sz) * mixed
    icl = rho + mom.zz + q * mom.ss + (1.0 + q) * spread / slack

    nothing = 1.0 + rho
    icl, idg = np.where(null, nothing, icl), np.where(null, nothing, idg)
    icl = np.where(endless & (icl > _UNBOUNDED), np.inf, icl)
    idg = np.where(endless & (idg > _UNBOUNDED), np.inf, idg)
    shrinkage = np.where(null, 1.0, shrinkage)
    return _State(_plain(icl, shape), _plain(idg, shape), _plain(shrinkage, shape))


def _search_ridge(
    a: Floats, k: Floats, t: Floats, rho: Floats, objective: Literal["icl", "idg"]
) -> Floats:
    def error(logs: Floats) -> Floats:
        curve = learning_curve(a, k, t, rho, np.exp(logs))
        return curve.icl if objective == "icl" else curve.idg

    grid = np.linspace(np.log(1e-12), np.log(1e12), 241)
    table = np.stack([error(np.full_like(a, point)) for point in grid])
    best = np.argmin(table, axis=0)
    low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, len(grid) - 1)]
    golden = (np.sqrt(5.0) - 1.0) / 2.0
    left, right = high - golden * (high - low), low + golden * (high - low)
    at_left, at_right = error(left), error(right)
    for _ in range(48):  # shrinks the bracket of width .46 to below 1e-10
        keep_left = at_left < at_right
        low, high = np.where(keep_left, low, left), np.where(keep_left, right, high)
        inner = np.where(keep_left, high - golden * (high - low), low + golden * (high - low))
        at_inner = error(inner)
        left, right = np.where(keep_left, inner, right), np.where(keep_left, left, inner)
        at_left, at_right = (
            np.where(keep_left, at_inner, at_right),
            np.where(keep_left, at_left, at_inner),
        )
    found = np.exp(0.5 * (low + high))
    found = np.where(best == 0, 0.0, found)
    return np.where(best == len(grid) - 1, np.inf, found)


def _arguments(
    alpha: ArrayLike, kappa: ArrayLike, tau: ArrayLike, noise: ArrayLike, ridge: ArrayLike
) -> tuple[list[Floats], tuple[int, ...]]:
    values = (
        _ranged("alpha", alpha, above=0.0),
        _ranged("kappa", kappa, above=0.0),
        _ranged("tau", tau, above=0.0),
        _ranged("noise", noise, least=0.0, finite=True),
        _ranged("ridge", ridge, least=0.0),
    )
    try:
        a, k, t, rho, lam = np.broadcast_arrays(*values)
    except ValueError as error:
        shapes = ", ".join(str(value.shape) for value in values)
        raise InputError(
            f"alpha, kappa, tau, noise and ridge must broadcast together, got shapes {shapes}"
        ) from error
    if np.any((t == 1) & (lam == 0)):
        raise InputError(
            "tau = 1 without ridge has infinite error (the peak of double descent); "
            "take ridge > 0 or leave the point out"
        )
    return [np.atleast_1d(value) for value in (a, k, t, rho, lam)], a.shape


def _ranged(
    name: str,
    value: ArrayLike,
    *,
    above: float | None = None,
    least: float | None = None,
    finite: bool = False,
) -> Floats:
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be a real number or an array of them") from error
    bad = np.isnan(array)
    if above is not None:
        bad |= array <= above
    if least is not None:
        bad |= array < least
    if finite:
        bad |= np.isinf(array)
    if np.any(bad):
        bound = f"> {above:g}" if above is not None else f">= {least:g}"
        also = " and finite" if finite else " (inf is its limit)"
        raise InputError(f"{name} must be {bound}{also}, got {array[bad].flat[0]:g}")
    return array


def _plain(value: Floats, shape: tuple[int, ...]) -> Any:
    return value.reshape(shape) if shape else float(value.reshape(()))
