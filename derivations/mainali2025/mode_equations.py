r"""The published mode equations, their solution, and the mode equations of the layer itself.

Time in units of ``1/(eta P)`` throughout; ``s`` is the spectrum of the token covariance, ``N`` the
context length, ``a = p q`` a mode's product.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


def stretched(s: ArrayLike, context: float) -> Array:
    """``s_inf = (1 + 1/N) s + tr(S)/N`` of equations (9) to (11); shape of ``s``."""
    spectrum = np.asarray(s, dtype=np.float64)
    return (1 + 1 / context) * spectrum + spectrum.sum() / context


def published_product(t: ArrayLike, s: ArrayLike, context: float, start: ArrayLike) -> Array:
    """Equation (13): the logistic ``a(t)`` of balanced modes; shape (len(t), len(s)).

    Written with the decaying exponential, so that it neither overflows nor cancels late.
    """
    spectrum = np.asarray(s, dtype=np.float64)
    end = 1 / stretched(spectrum, context)
    a0 = np.broadcast_to(np.asarray(start, dtype=np.float64), spectrum.shape)
    decay = np.exp(-2 * spectrum**2 * np.asarray(t, dtype=np.float64)[..., None])
    return end * a0 / (a0 * (1 - decay) + end * decay)


def half_height(s: ArrayLike, context: float, start: float) -> Array:
    """Time at which equation (13) is half its end value.

    It is ``(tau/2) ln(1/(s_inf a0) - 1)`` with ``tau = 1/s^2``. The notes give the estimate with
    ``s^2`` in the numerator, which is no time.
    """
    spectrum = np.asarray(s, dtype=np.float64)
    return np.log(1 / (stretched(spectrum, context) * start) - 1) / (2 * spectrum**2)


def published_loss(a: ArrayLike, s: ArrayLike, context: float) -> Array:
    """Equation (14) as it must read: ``1/2 sum_a s (s s_inf a^2 - 2 s a + 1)``; last axis summed.

    The notes have ``a_inf = 1/s_inf`` where ``s_inf`` stands; then the fixed point (11) would not
    be the minimum.
    """
    spectrum, product = np.asarray(s, dtype=np.float64), np.asarray(a, dtype=np.float64)
    terms = spectrum * (
        spectrum * stretched(spectrum, context) * product**2 - 2 * spectrum * product + 1
    )
    return 0.5 * terms.sum(axis=-1)


def layer_rates(p: ArrayLike, q: ArrayLike, s: ArrayLike, context: float) -> tuple[Array, Array]:
    r"""Rates of the layer's own modes, tasks a multiple of the identity or diagonal.

    ``dp_a/dt = s_a^2 q_a - (1 + 1/N) s_a^3 p_a q_a^2 - (s_a p_a / N) sum_b s_b^2 q_b^2`` and
    ``dq_a/dt = s_a^2 p_a - (1 + 1/N) s_a^3 q_a p_a^2 - (s_a^2 q_a / N) sum_b s_b p_b^2``:
    a finite context couples the modes. Proved in `layer`.
    """
    p_, q_, s_ = (np.asarray(v, dtype=np.float64) for v in (p, q, s))
    grown = 1 + 1 / context
    dp = s_**2 * q_ - grown * s_**3 * p_ * q_**2 - s_ * p_ * np.sum(s_**2 * q_**2) / context
    dq = s_**2 * p_ - grown * s_**3 * q_ * p_**2 - s_**2 * q_ * np.sum(s_ * p_**2) / context
    return dp, dq


def layer_optimum(s: ArrayLike, context: float) -> Array:
    r"""The product ``a*`` at which the layer's own diagonal flow comes to rest; shape of ``s``.

    Both rates vanish where ``p_a^2 Q = s_a q_a^2 P`` with ``P = sum s p^2``, ``Q = sum s^2 q^2``;
    then ``a_a = (1 - kappa/(N sqrt(s_a)))/((1 + 1/N) s_a)`` with ``kappa = sqrt(P Q)``, and summing
    ``s^(3/2) a`` over the m learned modes gives ``kappa = sum sqrt(s)/(1 + (1 + m)/N)``. A mode
    with ``sqrt(s_a) <= kappa/N`` is not learned at all: the context is too short for it.
    """
    spectrum = np.asarray(s, dtype=np.float64)
    order = np.argsort(-spectrum)
    root = np.sqrt(spectrum[order])
    for learned in range(len(root), 0, -1):
        kappa = root[:learned].sum() / (1 + (1 + learned) / context)
        if root[learned - 1] > kappa / context:
            break
    product = np.zeros_like(spectrum)
    kept = order[:learned]
    product[kept] = (1 - kappa / (context * np.sqrt(spectrum[kept]))) / (
        (1 + 1 / context) * spectrum[kept]
    )
    return product
