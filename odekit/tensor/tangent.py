"""Directional derivatives of an expression, along many directions at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction

import sympy as sp

from odekit.errors import InputError
from odekit.tensor.canonical import Factor
from odekit.tensor.coefficient import Monomial, multiply, polynomial, to_sympy
from odekit.tensor.expression import TensorExpr
from odekit.tensor.tensors import Tensor

__all__ = ["tangent"]


def tangent(
    expression: TensorExpr,
    tensors: Mapping[Tensor, Tensor],
    symbols: Mapping[sp.Symbol, Tensor],
    count: sp.Expr,
) -> TensorExpr:
    """The derivative along ``count`` directions, of shape ``(count, *expression.shape)``.

    Parameters
    ----------
    expression : TensorExpr
        Definitions in it are factors like any other: give their tangents too.
    tensors : Mapping[Tensor, Tensor]
        What moves, with its tangent of shape ``(count, *tensor.shape)``; the rest is held fixed.
    symbols : Mapping[sympy.Symbol, Tensor]
        Scalars of the coefficients that move, with their tangents of shape ``(count,)``.
    count : sympy.Expr
        Size of the leading axis.

    Returns
    -------
    TensorExpr

    Notes
    -----
    The product rule: each factor in turn gives way to its tangent, which needs no delta, so the
    result costs little more to evaluate than the expression itself, once for each direction.
    """

    def products() -> Iterator[tuple[list[Factor], Monomial, Fraction, dict[int, sp.Expr] | None]]:
        for factors, monomial, number in expression.raw():
            shifted = [(t, tuple(i + 1 if i >= 0 else i for i in ii)) for t, ii in factors]
            for k, (tensor, indices) in enumerate(shifted):
                if tensor in tensors:
                    moved = (tensors[tensor], (0, *indices))
                    yield [*shifted[:k], moved, *shifted[k + 1 :]], monomial, number, None
            for symbol, own in symbols.items():
                for change, share in _slope(monomial, symbol):
                    yield [*shifted, (own, (0,))], change, number * share, None

    return TensorExpr.collect((count, *expression.shape), products())


def _slope(monomial: Monomial, symbol: sp.Symbol) -> Iterator[tuple[Monomial, Fraction]]:
    """The derivative of a monomial by a symbol, as a sum of monomials with their numbers."""
    for k, (atom, exponent) in enumerate(monomial):
        if symbol not in atom.free_symbols:
            continue
        inner = sp.diff(atom, symbol)
        if inner.has(sp.Derivative, sp.Subs):
            raise InputError(
                f"the coefficient {to_sympy(monomial)} has no derivative by {symbol} that could be "
                "evaluated"
            )
        lowered = monomial[:k] + monomial[k + 1 :]
        if exponent != 1:
            lowered = multiply(lowered, ((atom, exponent - 1),))
        for own, number in polynomial(inner):
            yield multiply(lowered, own), exponent * number
