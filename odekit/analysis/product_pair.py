"""Pairs ``p' = alpha q g(p q)``, ``q' = beta p g(p q)``: the product in closed form, then both.

``beta p^2 - alpha q^2`` is conserved; with its value k the product a obeys
``a' = sqrt(k^2 + 4 alpha beta a^2) g(a)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.analysis.closed_form_patterns import (
    Pattern,
    find_pattern,
    unbalanced_product_values,
)
from odekit.analysis.scalar_system import ScalarSystem
from odekit.errors import InputError

__all__ = ["ProductPair", "product_pair"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ProductPair:
    """A pair with its product's closed form.

    Parameters
    ----------
    product : Symbol
        The product a.
    rate : Expr
        Its rate, with the conserved value as the symbol k.
    pattern : Pattern
        Its solution for k different from zero.
    conserved : Expr
        The conserved quantity k.
    alpha, beta, constant, slope : Expr
        ``g(a) = constant + slope a``.
    """

    product: sp.Symbol
    rate: sp.Expr
    pattern: Pattern
    conserved: sp.Expr
    alpha: sp.Expr
    beta: sp.Expr
    constant: sp.Expr
    slope: sp.Expr

    def evaluate(
        self, times: Array, p0: float, q0: float, numbers: Mapping[sp.Symbol, sp.Expr]
    ) -> tuple[Array, Array]:
        """Both states at times."""
        alpha, beta, c0, c1 = (
            float(sp.sympify(e).subs(numbers))
            for e in (self.alpha, self.beta, self.constant, self.slope)
        )
        if alpha * beta <= 0:
            raise InputError("The two rates have opposite signs; the pair is no product flow.")
        sign = np.sign(alpha)
        alpha, beta, c0, c1 = abs(alpha), abs(beta), sign * c0, sign * c1
        # In units where both rates are one: P = sqrt(beta) p, Q = sqrt(alpha) q.
        P0, Q0 = np.sqrt(beta) * p0, np.sqrt(alpha) * q0
        unit = np.sqrt(alpha * beta)
        k = (P0 - Q0) * (P0 + Q0)
        a0 = P0 * Q0
        if c0 == 0.0:
            raise InputError("The pair's rate has no linear part; its product is not covered.")
        r, al = unit * c0, -c1 / (unit * c0)
        if abs(k) < 1e-300 or abs(k) < 1e-14 * (P0**2 + Q0**2):
            # Balanced: |P| = |Q|, a' = 2 r |a| (1 - al a).
            a = _balanced(times, a0, r, al)
        else:
            a = unbalanced_product_values(times, a0, k * k, r, al)
        size = np.hypot(k, 2 * a)
        # The larger of the two never changes sign; the other follows from the product.
        if k >= 0:
            P = np.copysign(np.sqrt((size + k) / 2), P0 if P0 else 1.0)
            Q = np.divide(a, P, out=np.zeros_like(a), where=P != 0)
        else:
            Q = np.copysign(np.sqrt((size - k) / 2), Q0 if Q0 else 1.0)
            P = np.divide(a, Q, out=np.zeros_like(a), where=Q != 0)
        return P / np.sqrt(beta), Q / np.sqrt(alpha)


def _balanced(times: Array, a0: float, r: float, al: float) -> Array:
    if a0 == 0.0:
        return np.zeros_like(times)
    rate = 2 * r * np.sign(a0)
    with np.errstate(over="ignore", invalid="ignore"):
        phase = rate * times
        down = np.exp(-np.abs(phase))
        base = np.where(
            phase >= 0,
            down - al * a0 * np.expm1(-np.abs(phase)),
            1 - al * a0 * -np.expm1(-np.abs(phase)),
        )
        lead = np.where(phase >= 0, 1.0, down)
        return a0 * lead / np.where(base > 0, base, np.nan)


def product_pair(system: ScalarSystem) -> ProductPair:
    """Recognise a product pair.

    Raises
    ------
    InputError
        If the field is none.
    """
    p, q = system.states
    first, second = system.rates
    reason = InputError(
        f"closed_form knows pairs {p}' = alpha*{q}*g({p}*{q}), {q}' = beta*{p}*g({p}*{q}) with g "
        "linear; this pair is not of that form. Reduce it to one state (ok.reduce)."
    )
    left, right = sp.expand(sp.cancel(first / q)), sp.expand(sp.cancel(second / p))
    if not left.is_polynomial(p, q) or not right.is_polynomial(p, q) or left == 0:
        raise reason
    ratio = sp.cancel(right / left)
    if ratio == 0 or ratio.free_symbols & {p, q}:
        raise reason
    terms = sp.Poly(left, p, q).terms()
    if any(m not in ((0, 0), (1, 1)) for m, _ in terms):
        raise reason
    table = dict(terms)
    constant, slope = table.get((0, 0), sp.Integer(0)), table.get((1, 1), sp.Integer(0))
    if constant == 0:
        raise reason
    names = {s.name for s in (*system.states, *system.parameters)}
    product = sp.Symbol("a" if "a" not in names else "product", real=True)
    k = sp.Symbol("k" if "k" not in names else "imbalance", positive=True)
    rate = sp.sqrt(k**2 + 4 * ratio * product**2) * (constant + slope * product)
    pattern = find_pattern(rate, product)
    return ProductPair(
        product, rate, pattern, ratio * p**2 - q**2, sp.Integer(1), ratio, constant, slope
    )
