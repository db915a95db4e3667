"""Numbers of ``x' = P(x)/Q(x)`` for all times, from exact partial fractions.

Time as a function of the state is a sum of logarithms and powers of ``x - r`` over the roots r of
P. The state is written as ``x = x_inf - (x_inf - x0) exp(-y)`` with the rest point ``x_inf`` it
moves to, so that the logarithm that diverges is ``-y`` itself and the others are taken by log1p.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

__all__ = ["SeparableNumbers", "separable_numbers"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Root:
    """A root of the rate's numerator, with the coefficients of its partial fractions."""

    value: complex
    multiplicity: int
    real: bool
    coefficients: tuple[complex, ...]


@dataclass(frozen=True)
class SeparableNumbers:
    """A rational rate at numbers.

    Parameters
    ----------
    roots : tuple
        Roots of the numerator with the partial fractions of 1/rate.
    polynomial : tuple of float
        Coefficients (from the constant up) of the polynomial part of 1/rate.
    lead : float
        Leading coefficient of the numerator.
    denominator : tuple of complex
        Coefficients of the denominator, from the highest.
    """

    roots: tuple[_Root, ...]
    polynomial: tuple[float, ...]
    lead: float
    denominator: tuple[float, ...]

    def rate(self, x: float) -> float:
        """The rate, as a product over the roots."""
        value: complex = self.lead
        for root in self.roots:
            value *= (x - root.value) ** root.multiplicity
        return float(value.real / np.polyval(self.denominator, x))

    def _target(self, x0: float, rate: float) -> _Root | None:
        ahead = [r for r in self.roots if r.real and (r.value.real - x0) * rate > 0]
        return min(ahead, key=lambda r: abs(r.value.real - x0)) if ahead else None

    def evaluate(self, t: Array, x0: float) -> Array:
        """The state at times of either sign; nan from a blow-up on.

        Parameters
        ----------
        t : ndarray, shape (K,)
            Times after the state was ``x0``.
        x0 : float
            Initial state.
        """
        result = np.empty(t.shape)
        for k, time in enumerate(t.ravel()):
            result.ravel()[k] = self._at(float(time), x0)
        return result

    def _at(self, time: float, x0: float) -> float:
        rate = self.rate(x0)
        if time == 0.0 or rate == 0.0:
            return x0
        direction = 1.0 if time > 0 else -1.0
        target = self._target(x0, rate * direction)
        span = target.value.real - x0 if target is not None else 0.0
        sign = np.sign(rate * direction)
        reach = 1.0 + abs(x0)

        def state(y: float) -> tuple[float, float]:
            """The state and its distance from x0."""
            moved = -span * np.expm1(-y) if target is not None else sign * reach * np.expm1(y)
            return x0 + moved, moved

        def elapsed(y: float) -> float:
            x, moved = state(y)
            total: complex = 0.0
            for root in self.roots:
                here = root is target
                base = x0 - root.value
                ratio = complex(-y) if here else complex(np.log1p(moved / base))
                for power, c in enumerate(root.coefficients, start=1):
                    if power == 1:
                        total += c * ratio
                    else:
                        # (x - r)^(1-k) - (x0 - r)^(1-k), with the difference taken by expm1.
                        factor = np.expm1((1 - power) * ratio)
                        total -= c / (power - 1) * base ** (1 - power) * factor
            for power, c in enumerate(self.polynomial):
                total += c * (x ** (power + 1) - x0 ** (power + 1)) / (power + 1)
            return float(total.real) * direction

        goal = abs(time)
        low, high = 0.0, 1e-3
        with np.errstate(all="ignore"):
            while True:
                value = elapsed(high)
                if not np.isfinite(value):
                    return float("nan") if target is None else target.value.real
                if value >= goal:
                    break
                low, high = high, 2.0 * high
                if high > 600.0 and target is None:
                    return float("nan")
                if high > 1e6:
                    break
            from scipy.optimize import brentq

            if elapsed(high) < goal:
                return state(high)[0]
            y = brentq(lambda v: elapsed(v) - goal, low, high, xtol=1e-300, rtol=8.9e-16)
        return state(float(y))[0]


def separable_numbers(rate: sp.Expr, x: sp.Symbol) -> SeparableNumbers:
    """Factor a rational rate with exact rational coefficients."""
    top, bottom = sp.fraction(sp.cancel(sp.together(rate)))
    numerator, denominator = sp.Poly(top, x, domain=sp.QQ), sp.Poly(bottom, x, domain=sp.QQ)
    content, factors = numerator.sqf_list()
    del content
    quotient, rest = sp.div(denominator, numerator)
    found: list[tuple[Any, int, bool]] = []
    for factor, multiplicity in factors:
        for root in factor.nroots(n=40, maxsteps=300):
            found.append((root, multiplicity, False))
        count = factor.count_roots()
        place = sorted(
            range(len(found) - factor.degree(), len(found)), key=lambda k: abs(sp.im(found[k][0]))
        )
        for k in place[:count]:
            found[k] = (sp.re(found[k][0]), multiplicity, True)
    roots = []
    for k, (value, multiplicity, real) in enumerate(found):
        others = [(r, m) for j, (r, m, _) in enumerate(found) if j != k]
        coefficients = _principal_part(rest, numerator.LC(), value, multiplicity, others, x)
        roots.append(_Root(complex(value), multiplicity, real, coefficients))
    polynomial = (
        tuple(float(c) for c in reversed(quotient.all_coeffs())) if not quotient.is_zero else ()
    )
    return SeparableNumbers(
        tuple(roots),
        polynomial,
        float(numerator.LC()),
        tuple(float(c) for c in denominator.all_coeffs()),
    )


def _principal_part(
    rest: sp.Poly,
    lead: sp.Rational,
    root: Any,
    multiplicity: int,
    others: Sequence[tuple[Any, int]],
    x: sp.Symbol,
) -> tuple[complex, ...]:
    """Coefficients of (x - r)^-1, (x - r)^-2, ... of rest / (lead * product over roots)."""
    import mpmath

    with mpmath.workdps(40):
        order = multiplicity

        def number(value: Any) -> Any:
            return mpmath.mpmathify(
                sp.N(value, 40)._to_mpmath(140) if hasattr(value, "_to_mpmath") else complex(value)
            )

        r = number(root)
        shifted = [mpmath.mpf(0)] * order
        derivative = rest
        factorial = mpmath.mpf(1)
        for k in range(order):
            value = mpmath.mpf(0)
            for c in derivative.all_coeffs():
                value = value * r + mpmath.mpf(int(c.p)) / int(c.q)
            shifted[k] = value / factorial
            derivative = derivative.diff(x)
            factorial *= k + 1
        series = [s / (mpmath.mpf(int(lead.p)) / int(lead.q)) for s in shifted]
        for other, m in others:
            gap = r - number(other)
            for _ in range(m):
                # Divide the series by (gap + h).
                out: list[Any] = []
                for k in range(order):
                    out.append((series[k] - (out[k - 1] if k else 0)) / gap)
                series = out
        return tuple(complex(series[multiplicity - k]) for k in range(1, multiplicity + 1))
