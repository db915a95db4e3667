"""Forms of one scalar equation that can be solved, each with its stable evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.analysis.separable import separable_numbers
from odekit.errors import InputError

__all__ = ["Pattern", "find_pattern", "unbalanced_product_values"]

Array = NDArray[np.float64]
Numbers = Mapping[sp.Symbol, sp.Expr]


@dataclass(frozen=True, eq=False)
class Pattern:
    """A solved scalar equation: see `odekit.analysis.closed_form.ClosedForm`."""

    kind: str
    time: sp.Symbol
    start: sp.Symbol
    explicit: sp.Expr | None
    implicit: sp.Expr | None
    verification: Literal["exact", "digits"]
    evaluate: Callable[[Array, float, Numbers], Array]


def find_pattern(rate: sp.Expr, x: sp.Symbol) -> Pattern:
    """Recognise and solve ``x' = rate``.

    Raises
    ------
    InputError
        If the rate has none of the known forms.
    """
    used = {s.name for s in rate.free_symbols}
    t = sp.Symbol("t" if "t" not in used else "time", real=True)
    x0 = sp.Symbol(f"{x.name}_0", **{"positive": True} if x.is_positive else {"real": True})
    powers = _powers(rate, x)
    if powers is not None:
        exponents = sorted(powers)
        if not exponents:
            return _checked(
                "constant", x0, None, rate, x, t, x0, lambda t, s, n: np.full(t.shape, s)
            )
        if set(exponents) <= {0, 1}:
            return _linear(powers, rate, x, t, x0)
        if len(exponents) <= 2 and (1 in exponents or len(exponents) == 1):
            return _bernoulli(powers, rate, x, t, x0)
        if set(exponents) <= {0, 1, 2}:
            return _riccati(powers, rate, x, t, x0)
    product = _root_of_quadratic(rate, x)
    if product is not None:
        return _unbalanced(product, rate, x, t, x0)
    if rate.is_rational_function(x):
        return _separable(rate, x, t, x0)
    raise InputError(
        f"No closed form is known for {x}' = {rate}; the rate must be rational in {x}, or "
        f"sqrt(A + B*{x}**2)*(c0 + c1*{x})."
    )


def _powers(rate: sp.Expr, x: sp.Symbol) -> dict[Any, sp.Expr] | None:
    """Coefficients by exponent, when the rate is a sum of powers of x."""
    found: dict[Any, sp.Expr] = {}
    if rate == 0:
        return found
    for term in sp.Add.make_args(sp.expand(rate)):
        coefficient, power = term.as_independent(x, as_Add=False)
        base, exponent = power.as_base_exp()
        if power == 1:
            exponent = sp.Integer(0)
        elif base != x or exponent.free_symbols or not exponent.is_Rational:
            return None
        found[exponent] = found.get(exponent, sp.Integer(0)) + coefficient
    return {e: sp.factor(c) for e, c in found.items() if sp.simplify(c) != 0}


def _checked(
    kind: str,
    explicit: sp.Expr | None,
    implicit: sp.Expr | None,
    rate: sp.Expr,
    x: sp.Symbol,
    t: sp.Symbol,
    x0: sp.Symbol,
    evaluate: Callable[[Array, float, Numbers], Array],
) -> Pattern:
    """Put the form back into the equation; refuse it if it does not fit."""
    if explicit is not None:
        rest = sp.diff(explicit, t) - rate.subs(x, explicit)
        begin = explicit.subs(t, 0) - x0
        # A power of a product must not be split where its base may be negative.
        exact = _vanishes(begin) and _vanishes(rest)
        fits = exact or (_digits(begin) and _digits(rest))
    else:
        assert implicit is not None
        rest = sp.diff(implicit, x) - 1 / rate
        begin = implicit.subs(x, x0)
        exact = _vanishes(begin) and _vanishes(rest)
        fits = exact or (_digits(begin) and _digits(rest))
    if not fits:
        raise InputError(f"The {kind} form of {x}' = {rate} did not pass its substitution check.")
    return Pattern(kind, t, x0, explicit, implicit, "exact" if exact else "digits", evaluate)


def _vanishes(expression: sp.Expr) -> bool:
    if expression == 0:
        return True
    if sp.expand(expression) == 0 or sp.expand(sp.numer(sp.together(expression))) == 0:
        return True
    # Simplification of larger expressions can take minutes; they are left to `_digits`.
    return sp.count_ops(expression) <= 90 and bool(sp.simplify(expression) == 0)


def _digits(expression: sp.Expr) -> bool:
    """Whether an expression vanishes to 40 digits at random positive points where it is real."""
    rng = np.random.default_rng(2)
    symbols = sorted(expression.free_symbols, key=str)
    seen = 0
    for _ in range(24):
        point = {s: sp.Rational(int(rng.integers(5, 60)), 97) for s in symbols}
        value = expression.xreplace(point)
        size = sum((abs(a.evalf(60)) for a in sp.Add.make_args(value)), start=sp.Float(1, 60))
        number = value.evalf(60, maxn=400)
        if not number.is_number or number.has(sp.nan, sp.zoo, sp.oo):
            continue
        if abs(number) > sp.Float(10) ** -40 * size:
            return False
        seen += 1
    return seen >= 3


def _number(expression: sp.Expr, numbers: Numbers) -> float:
    return float(sp.sympify(expression).subs(numbers))


def _linear(
    powers: Mapping[Any, sp.Expr], rate: sp.Expr, x: sp.Symbol, t: sp.Symbol, x0: sp.Symbol
) -> Pattern:
    a, b = powers.get(0, sp.Integer(0)), powers.get(1, sp.Integer(0))
    explicit = x0 + a * t if b == 0 else x0 * sp.exp(b * t) + a / b * (sp.exp(b * t) - 1)

    def evaluate(times: Array, start: float, numbers: Numbers) -> Array:
        c, r = _number(a, numbers), _number(b, numbers)
        if r == 0.0:
            return start + c * times
        # Around the rest point, so that nothing is left of the start after it has decayed.
        grown = start * np.exp(r * times)
        return grown + c / r * np.expm1(r * times)

    return _checked("linear", explicit, None, rate, x, t, x0, evaluate)


def _bernoulli(
    powers: Mapping[Any, sp.Expr], rate: sp.Expr, x: sp.Symbol, t: sp.Symbol, x0: sp.Symbol
) -> Pattern:
    a = powers.get(1, sp.Integer(0))
    (n,) = [e for e in powers if e != 1]
    b, m = powers[n], n - 1
    if a == 0:
        explicit = x0 * (1 - m * b * x0**m * t) ** (-1 / m)
    else:
        explicit = x0 * (sp.exp(-m * a * t) - b / a * x0**m * (1 - sp.exp(-m * a * t))) ** (-1 / m)

    def evaluate(times: Array, start: float, numbers: Numbers) -> Array:
        rate_a, rate_b, power = _number(a, numbers), _number(b, numbers), float(m)
        if start == 0.0:
            return np.zeros_like(times)
        if start < 0 and power != round(power):
            raise InputError(f"{x} starts at {start:g}, where {x}**{n} is not real.")
        y0 = start ** (int(power) if power == round(power) else power)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            if rate_a == 0.0:
                base = 1.0 - power * rate_b * y0 * times
                lead = np.ones_like(times)
            else:
                forward = power * rate_a * times
                # Whichever exponential decays; the other form would overflow.
                decays = forward >= 0
                safe = np.where(decays, forward, 0.0)
                base_down = np.exp(-safe) + rate_b / rate_a * y0 * np.expm1(-safe)
                other = np.where(decays, 0.0, forward)
                base_up = 1.0 - rate_b / rate_a * y0 * np.expm1(other)
                base = np.where(decays, base_down, base_up)
                lead = np.where(decays, 1.0, np.exp(rate_a * np.where(decays, 0.0, times)))
            # The bracket starts at one; its first zero is a blow-up (or, for a power below one, the
            # end of the solution), past which it has no meaning.
            safe_base = np.where(base > 0, base, np.nan)
            return start * lead * safe_base ** (-1.0 / power)

    return _checked("bernoulli", explicit, None, rate, x, t, x0, evaluate)


def _riccati(
    powers: Mapping[Any, sp.Expr], rate: sp.Expr, x: sp.Symbol, t: sp.Symbol, x0: sp.Symbol
) -> Pattern:
    a, b, c = (powers.get(k, sp.Integer(0)) for k in (0, 1, 2))
    delta = sp.sqrt(sp.factor(b**2 - 4 * a * c))
    if delta == 0:
        return _separable(rate, x, t, x0)
    wave: sp.Expr = sp.tanh(delta * t / 2)
    if delta.is_imaginary or delta.has(sp.I):
        # No rest point: the same formula with a real frequency.
        delta = sp.sqrt(sp.factor(4 * a * c - b**2))
        wave = sp.tan(delta * t / 2)
    explicit = (x0 * delta + (2 * a + b * x0) * wave) / (delta - (2 * c * x0 + b) * wave)
    return _checked("riccati", explicit, None, rate, x, t, x0, _by_partial_fractions(rate, x))


def _by_partial_fractions(rate: sp.Expr, x: sp.Symbol) -> Callable[[Array, float, Numbers], Array]:
    def evaluate(times: Array, start: float, numbers: Numbers) -> Array:
        bound = sp.nsimplify(sp.sympify(rate).subs(numbers), rational=True)
        return separable_numbers(bound, x).evaluate(times, start)

    return evaluate


def _separable(rate: sp.Expr, x: sp.Symbol, t: sp.Symbol, x0: sp.Symbol) -> Pattern:
    """Time as a function of the state."""
    primitive = _two_power_primitive(rate, x)
    if primitive is None:
        primitive = _rational_primitive(rate, x)
    implicit = primitive - primitive.subs(x, x0)
    return _checked("separable", None, implicit, rate, x, t, x0, _by_partial_fractions(rate, x))


def _two_power_primitive(rate: sp.Expr, x: sp.Symbol) -> sp.Expr | None:
    """Primitive of 1/(alpha x^m (1 - (k x)^n)): parameters enter only through k and alpha."""
    powers = _powers(rate, x)
    if powers is None or len(powers) != 2 or any(not e.is_Integer or e < 0 for e in powers):
        return None
    m, top = sorted(powers)
    alpha, n = powers[m], top - m
    ratio = sp.factor(-powers[top] / alpha)
    if not (ratio.is_positive or n % 2 == 1):
        return None
    k = ratio ** sp.Rational(1, n) if ratio.is_positive else sp.real_root(ratio, n)
    u = sp.Symbol("u", positive=True)
    inner = sp.integrate(sp.apart(1 / (u**m * (1 - u**n)), u), u)
    if inner.has(sp.Integral, sp.RootSum):
        return None

    def real_logarithm(argument: sp.Expr) -> sp.Expr:
        """The logarithm of the absolute value: real for u on either side of one."""
        negative = argument.has(u) and argument.subs(u, sp.Rational(1, 2)).is_negative
        return sp.log(argument**2) / 2 if negative else sp.log(argument)

    inner = inner.replace(sp.log, real_logarithm)
    return k ** (m - 1) / alpha * inner.subs(u, k * x)


def _rational_primitive(rate: sp.Expr, x: sp.Symbol) -> sp.Expr:
    """Primitive of 1/rate, term by term of its partial fractions."""
    total: sp.Expr = sp.Integer(0)
    for term in sp.Add.make_args(sp.apart(sp.together(1 / rate), x)):
        numerator, denominator = sp.fraction(sp.together(term))
        base = sp.Poly(denominator, x)
        content, factors = base.factor_list()
        del content
        if all(f.degree() <= 1 for f, _ in factors):
            part = sp.integrate(term, x)
        else:
            (factor, power), *rest = factors
            z = sp.Dummy("z")
            if rest or power != 1:
                part = sp.Integral(term, x)
            else:
                slope = sp.diff(denominator, x)
                part = (
                    sp.RootSum(
                        factor.as_expr(),
                        sp.Lambda(z, (numerator / slope).subs(x, z) * sp.log(x - z)),
                        x=x,
                    )
                    if factor.degree() > 2
                    else sp.integrate(term, x)
                )
        total += part
    return total


def _root_of_quadratic(
    rate: sp.Expr, x: sp.Symbol
) -> tuple[sp.Expr, sp.Expr, sp.Expr, sp.Expr] | None:
    """(A, B, c0, c1) of sqrt(A + B x^2) (c0 + c1 x)."""
    roots = [p for p in rate.atoms(sp.Pow) if p.exp == sp.Rational(1, 2) and p.base.has(x)]
    if len(roots) != 1:
        return None
    (root,) = roots
    rest = sp.expand(sp.cancel(sp.expand(rate).subs(root, sp.Symbol("_root")) / sp.Symbol("_root")))
    if rest.has(sp.Symbol("_root")) or not rest.is_polynomial(x):
        return None
    line, square = sp.Poly(rest, x), sp.Poly(root.base, x)
    if line.degree() > 1 or square.degree() != 2 or square.coeff_monomial(x) != 0:
        return None
    return (
        square.coeff_monomial(1),
        square.coeff_monomial(x**2),
        line.coeff_monomial(1),
        line.coeff_monomial(x),
    )


def _unbalanced(
    parts: tuple[sp.Expr, sp.Expr, sp.Expr, sp.Expr],
    rate: sp.Expr,
    x: sp.Symbol,
    t: sp.Symbol,
    x0: sp.Symbol,
) -> Pattern:
    """The unbalanced product ``a' = r sqrt(K + 4 a^2)(1 - al a)``, K > 0."""
    A, B, c0, c1 = parts
    K, r, al = 4 * A / B, c0 * sp.sqrt(B) / 2, -c1 / c0
    if c0 == 0:
        raise InputError(f"The rate of {x} has no constant factor: write it as a product pair.")
    root = sp.sqrt(K)
    E0 = (2 * x0 + sp.sqrt(4 * x0**2 + K)) / root
    g = al * root / 2
    if al == 0:
        growth = E0 * sp.exp(2 * r * t)
    else:
        w = sp.sqrt(1 + g**2)
        upper = (1 + w) / g
        lower = -1 / upper
        X = (E0 - upper) / (E0 - lower) * sp.exp(-2 * r * w * t)
        growth = (upper - lower * X) / (1 - X)
    explicit = root / 4 * (growth - 1 / growth)

    def evaluate(times: Array, start: float, numbers: Numbers) -> Array:
        values = [_number(e, numbers) for e in (K, r, al)]
        return unbalanced_product_values(times, start, *values)

    if not _unbalanced_identity():
        raise InputError(f"The unbalanced form of {x}' = {rate} did not pass its check.")
    return Pattern("unbalanced product", t, x0, explicit, None, "exact", evaluate)


@lru_cache(maxsize=1)
def _unbalanced_identity() -> bool:
    """Prove the unbalanced form by substitution.

    With ``a = sqrt(K)/4 (E - 1/E)`` and E > 0, ``sqrt(K + 4 a^2) = sqrt(K)/2 (E + 1/E)`` and the
    equation is ``E' = 2 r E - r g (E^2 - 1)``. Written in the rest point P of E, where
    ``g = 2 P/(P^2 - 1)`` and ``w = (P^2 + 1)/(P^2 - 1)``, all is rational in P, E(0) and
    ``d = exp(-2 r w t)``.
    """
    P, E0, d, r, E, K = sp.symbols("P E_0 d r E K", positive=True)
    g, w = 2 * P / (P**2 - 1), (P**2 + 1) / (P**2 - 1)
    X = (E0 - P) / (E0 + 1 / P) * d
    solution = (P + X / P) / (1 - X)
    slope = sp.diff(solution, d) * (-2 * r * w * d)
    flow = 2 * r * solution - r * g * (solution**2 - 1)
    a = sp.sqrt(K) / 4 * (E - 1 / E)
    change = 2 * r * E - r * g * (E**2 - 1)
    al = 2 * g / sp.sqrt(K)
    original = r * (sp.sqrt(K) / 2 * (E + 1 / E)) * (1 - al * a)
    square = (sp.sqrt(K) / 2 * (E + 1 / E)) ** 2 - (K + 4 * a**2)
    return all(
        sp.cancel(sp.together(e)) == 0
        for e in (
            slope - flow,
            solution.subs(d, 1) - E0,
            sp.diff(a, E) * change - original,
            sp.expand(square),
            w**2 - 1 - g**2,
        )
    )


def unbalanced_product_values(times: Array, start: float, K: float, r: float, al: float) -> Array:
    """The unbalanced product at numbers, accurate for small starts and long times.

    With ``a = sqrt(K)/2 sinh(e)`` the equation is ``e' = 2 r (1 - g sinh e)``; what is followed is
    ``y = exp(e) - 1`` from its start, so that a small product keeps its digits.

    Parameters
    ----------
    times : ndarray, shape (K,)
        Times after the start.
    start : float
        Initial product.
    K, r, al : float
        Imbalance squared (positive), rate and the inverse of the rest point.
    """
    if K <= 0:
        raise InputError(f"The imbalance K is {K}; it must be positive.")
    if al < 0:
        return -unbalanced_product_values(times, -start, K, -r, -al)
    root = np.sqrt(K)
    e0 = np.arcsinh(2 * start / root)
    if al == 0.0:
        return root / 2 * np.sinh(e0 + 2 * r * times)
    g = al * root / 2
    w = np.hypot(1.0, g)
    upper, lower = (1 + w) / g, -g / (1 + w)
    E0 = np.exp(e0)
    # E0 - upper without cancellation near the rest point: sinh(e0) = 1/g there.
    gap = E0 - upper
    X0 = gap / (E0 - lower)
    phase = 2 * r * w * times
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        forward = phase >= 0
        decay = np.exp(-np.abs(phase))
        moved_down = -gap * -np.expm1(-np.abs(phase)) / (1 - X0 * decay)
        moved_up = -gap * np.expm1(-np.abs(phase)) / (decay - X0)
        moved = np.where(forward, moved_down, moved_up)
        blown = ~forward & (X0 > 0) & (decay <= X0)
        y = np.expm1(e0) + moved
        value = root / 4 * y * (2 + y) / (1 + y)
    return np.where(blown, np.nan, value)
