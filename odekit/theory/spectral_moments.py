"""Marchenko-Pastur moments without cancellation, and the renormalised ridge of the learning curves.

The pool of ``kappa d`` tasks has the second moment R, whose eigenvalues s follow the
Marchenko-Pastur law of ratio kappa. Every error of Lu et al. is a rational expression in averages
over that law, which are written here as products and sums of positive numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Moments:
    """Averages over the Marchenko-Pastur law of the tasks' second moment, with z > 0.

    ``a = E[s/(s+z)]``, ``p = E[z/(s+z)]``, ``m = E[1/(s+z)]``, ``ss = E[s^2/(s+z)^2]``,
    ``sz = E[s z/(s+z)^2]``, ``zz = E[z^2/(s+z)^2]``, and ``r = 1 - a/kappa``. All are products and
    sums of positive numbers: the law's equation is ``p r = z a``, and the derivative of m enters
    only through ``delta = p + a r``.
    """

    a: Floats
    p: Floats
    r: Floats
    m: Floats
    ss: Floats
    sz: Floats
    zz: Floats


def moments(z: Floats, c: Floats, one_minus_c: Floats) -> Moments:
    """Moments for ``c = 1/kappa``; ``1 - c`` is passed apart as it may be known more exactly."""
    root = np.sqrt(one_minus_c**2 + 2.0 * z * (1.0 + c) + z**2)
    a = 2.0 / (1.0 + c + z + root)
    many = one_minus_c >= 0
    # Of p and r the one that stays away from 0 as z -> 0 is summed; p r = z a gives the other.
    steady = z + root + np.abs(one_minus_c)
    large, small = 0.5 * a * steady, 2.0 * z / steady
    p, r = np.where(many, small, large), np.where(many, large, small)
    m = np.where(many, 2.0 / steady, large / z)
    delta = p + a * r
    return Moments(
        a=a,
        p=p,
        r=r,
        m=m,
        ss=a * a * (p * c + r) / delta,
        sz=a * p * r / delta,
        zz=p * p / delta,
    )


def one_minus_ratio(numerator: ArrayLike, denominator: Floats) -> Floats:
    """``1 - numerator/denominator`` from the exact difference, 1 for an infinite denominator."""
    top = np.asarray(numerator, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        value = (denominator - top) / denominator
    return np.where(np.isinf(denominator), 1.0, value)


def effective_ridge(q: Floats, k: Floats, t: Floats, lam: Floats) -> Floats:
    """Root xi of ``1 - tau + tau lambda/xi - xi m(q + xi) = 0``, the renormalised ridge.

    Newton's method in log xi, kept inside the bracket
    ``max(lambda, xi_0) < xi < lambda + (1+q)/tau``, where xi_0 is the root at lambda = 0.
    """
    below = t < 1
    inside = np.where(below, t, 0.5)
    bare = (1.0 - inside) / (inside * moments(q, inside / k, one_minus_ratio(inside, k)).m)
    bare = np.where(below, bare, 0.0)
    solution = np.array(np.where(np.isinf(t), lam, bare))
    active = (lam > 0) & np.isfinite(t)
    if not np.any(active):
        return solution
    q, k, t, lam, bare = q[active], k[active], t[active], lam[active], bare[active]
    c, one_minus_c = 1.0 / k, one_minus_ratio(1.0, k)
    low = np.maximum(lam, bare)
    high = np.maximum(lam + (1.0 + q) / t, low)
    xi = np.sqrt(low) * np.sqrt(high)
    previous = np.full_like(xi, np.inf)
    for _ in range(200):
        nu = q + xi
        f, g = xi / nu, q / nu
        mom = moments(nu, c, one_minus_c)
        pull = t * (lam / xi)
        slope = pull + f * (mom.sz + g * mom.zz)
        residual = _residual(t, k, f * mom.p, g * mom.p, mom.a, mom.r, pull)
        low, high = np.where(residual < 0, xi, low), np.where(residual > 0, xi, high)
        step = residual / slope
        trial = xi * np.exp(-np.clip(step, -50.0, 50.0))
        xi = np.where((trial < low) | (trial > high), np.sqrt(low) * np.sqrt(high), trial)
        # Steps that no longer shrink are the rounding of the residual.
        size = np.abs(step)
        if np.all((size <= 1e-15) | ((size < 1e-10) & (size >= 0.5 * previous))):
            break
        previous = size
    solution[active] = xi
    return solution


def _residual(
    t: Floats, k: Floats, fp: Floats, gp: Floats, a: Floats, r: Floats, pull: Floats
) -> Floats:
    """Minus the left side of the root's equation, without cancellation.

    Three forms are equal but cancel in different corners (near tau = 1, near tau = kappa, and
    elsewhere); at each point the one whose largest term is smallest is used.
    """
    with np.errstate(invalid="ignore"):
        forms = (
            (t - 1.0, fp, -pull),
            (t, -a, -gp, -pull),
            (t - k, np.where(np.isinf(k), np.inf, k * r), -gp, -pull),
        )
        values = np.stack([sum(form[1:], start=form[0]) for form in forms])
        sizes = np.stack([np.max(np.abs(np.stack(form)), axis=0) for form in forms])
    return np.take_along_axis(values, np.argmin(sizes, axis=0)[None], axis=0)[0]
