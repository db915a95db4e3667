"""Coefficients: rational numbers times Laurent monomials in sizes and scalar parameters.

A coefficient such as ``2 D / N`` is held as a rational number and a monomial, a sorted tuple of
``(atom, exponent)`` pairs. Atoms are SymPy expressions that hold no tensor: sizes (``N``), scalar
parameters (``tau``), and whatever SymPy cannot split further (``N + 1`` in a denominator).
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from numbers import Integral, Rational, Real
from typing import Any

import sympy as sp

from odekit.errors import InputError

Monomial = tuple[tuple[sp.Expr, Fraction], ...]
"""Sorted pairs of a SymPy atom and its exponent; the empty tuple is 1."""

ONE: Monomial = ()


@lru_cache(maxsize=4096)
def _atom_key(atom: sp.Expr) -> tuple[str, str]:
    return (str(atom), sp.srepr(atom))


def multiply(left: Monomial, right: Monomial) -> Monomial:
    """Multiply two monomials."""
    if not left:
        return right
    if not right:
        return left
    exponents = dict(left)
    for atom, exponent in right:
        exponents[atom] = exponents.get(atom, Fraction(0)) + exponent
    return tuple(
        sorted(
            ((a, e) for a, e in exponents.items() if e != 0), key=lambda pair: _atom_key(pair[0])
        )
    )


def to_sympy(monomial: Monomial, number: Fraction = Fraction(1)) -> sp.Expr:
    """Write a number times a monomial as a SymPy expression."""
    factors = [sp.Rational(number.numerator, number.denominator)]
    factors += [atom ** sp.Rational(e.numerator, e.denominator) for atom, e in monomial]
    return sp.Mul(*factors)


def from_number(value: Any, what: str = "coefficient") -> Fraction:
    """Read a real number exactly; a float is taken as its shortest decimal (0.1 is 1/10)."""
    if isinstance(value, Fraction):
        return value
    if isinstance(value, bool):
        raise InputError(f"{what} is a bool; give a number")
    if isinstance(value, Integral | Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, Real):
        number = float(value)
        if number != number or number in (float("inf"), float("-inf")):
            raise InputError(f"{what} is {number}; give a finite number")
        return Fraction(repr(number))
    if isinstance(value, complex):
        raise InputError(f"{what} is complex ({value}); odekit works with real numbers")
    raise InputError(f"{what} is a {type(value).__name__}; give a number or a SymPy expression")


def is_scalar(value: Any) -> bool:
    """Whether a value can be read as a coefficient."""
    return isinstance(value, Real | sp.Expr | Fraction | complex)


@lru_cache(maxsize=4096)
def _polynomial_of(expression: sp.Expr) -> tuple[tuple[Monomial, Fraction], ...]:
    views = expression.atoms(sp.IndexedBase, sp.MatrixSymbol)
    if views:
        # The SymPy view of a tensor, put into a function: its entries are no scalars.
        names = ", ".join(sorted(str(v) for v in views))
        raise InputError(f"a SymPy function of {names} is not polynomial in these tensors")
    collected: dict[Monomial, Fraction] = {}
    for term in sp.Add.make_args(sp.expand(expression)):
        number = Fraction(1)
        monomial: Monomial = ONE
        for factor in sp.Mul.make_args(term):
            base, exponent = factor.as_base_exp()
            if factor.is_Rational:
                number *= Fraction(int(factor.p), int(factor.q))
            elif factor.is_Float:
                number *= from_number(float(factor))
            elif factor.is_finite is False or factor is sp.nan or factor.has(sp.I):
                raise InputError(f"coefficient {expression} is not a finite real expression")
            elif exponent.is_Rational:
                monomial = multiply(monomial, ((base, Fraction(int(exponent.p), int(exponent.q))),))
            else:
                monomial = multiply(monomial, ((factor, Fraction(1)),))
        total = collected.get(monomial, Fraction(0)) + number
        collected[monomial] = total
    return tuple((m, c) for m, c in collected.items() if c != 0)


def polynomial(value: Any, what: str = "coefficient") -> tuple[tuple[Monomial, Fraction], ...]:
    """Read a number or a SymPy expression as a sum of ``(monomial, number)`` pairs."""
    if isinstance(value, sp.Expr):
        return _polynomial_of(value)
    number = from_number(value, what)
    return ((ONE, number),) if number else ()
