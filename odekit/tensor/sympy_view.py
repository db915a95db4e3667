"""Expressions as SymPy objects: matrix expressions where they can be read, indexed sums elsewhere.

This is an export. Differentiate and average the tensor expression itself, not its SymPy view:
SymPy's derivative by a matrix symbol returns 0 for some of these (sympy#27406).
"""

from __future__ import annotations

from functools import reduce
from operator import add, mul
from typing import Any

import sympy as sp

from odekit.tensor.chains import Link, read_chains
from odekit.tensor.expression import TensorExpr
from odekit.tensor.printing import grouped_terms, index_letters
from odekit.tensor.simplify import Term


def to_sympy_view(expression: TensorExpr) -> Any:
    """View an expression as SymPy.

    Returns
    -------
    sympy.MatrixExpr, sympy.Expr
        For rank up to 2, where every term is a product of matrices: ``MatrixSymbol`` products, with
        ``Trace`` for scalars; a vector is a one-column matrix. Otherwise a sum over indices of
        ``IndexedBase`` products, with free indices ``i, j, k, l``.
    """
    terms = grouped_terms(expression)
    if not terms:
        if expression.rank == 0:
            return sp.Integer(0)
        return sp.ZeroMatrix(*_matrix_shape(expression)) if expression.rank <= 2 else sp.Integer(0)
    if all(read_chains(t.factors, expression.rank) is not None for t, _ in terms):
        parts = [coefficient * _matrix_term(t, expression.rank) for t, coefficient in terms]
        return reduce(add, parts)
    return sp.Add(*(coefficient * _index_term(t, expression.rank) for t, coefficient in terms))


def _matrix_shape(expression: TensorExpr) -> tuple[sp.Expr, sp.Expr]:
    rows, columns = (*expression.shape, sp.Integer(1))[:2]
    return rows, columns


def _matrix(link: Link) -> Any:
    shape = (*link.tensor.shape, sp.Integer(1))[:2]
    if link.tensor.kind == "identity":
        return sp.Identity(shape[0])
    symbol = sp.MatrixSymbol(link.tensor.name, *shape)
    symmetric = link.tensor.rank == 2 and bool(link.tensor.symmetric_groups)
    return symbol.T if link.transposed and not symmetric else symbol


def _matrix_term(term: Term, rank: int) -> Any:
    chains = read_chains(term.factors, rank)
    assert chains is not None
    scalar: Any = sp.Integer(1)
    for tensor in chains.scalars:
        scalar *= sp.Symbol(tensor.name)
    for links in chains.traces:
        scalar *= sp.Trace(sp.MatMul(*(_matrix(k) for k in links)).doit(deep=False))
    for links in chains.forms:
        # u^T M v as the trace of M v u^T: a 1 x 1 product entry would unfold into a sum.
        turned = [*links[1:], Link(links[0].tensor, True)]
        scalar *= sp.Trace(sp.MatMul(*(_matrix(k) for k in turned)))
    if rank == 0:
        return scalar
    opened = [_matrix(k) for k in chains.open[0]]
    if len(chains.open) == 2:
        opened += [_matrix(Link(k.tensor, not k.transposed)) for k in reversed(chains.open[1])]
    return reduce(mul, opened, scalar)


def _index_term(term: Term, rank: int) -> Any:
    used = sorted({i for _, indices in term.factors for i in indices})
    letters = index_letters(rank, max([i - rank + 1 for i in used if i >= rank], default=0))
    symbols = {i: sp.Symbol(letters[i], integer=True, nonnegative=True) for i in used}
    body: Any = sp.Integer(1)
    limits = {}
    for tensor, indices in term.factors:
        for slot, index in enumerate(indices):
            if index >= rank:
                limits[index] = tensor.shape[slot]
        if tensor.kind == "identity":
            body *= sp.KroneckerDelta(*(symbols[i] for i in indices))
        elif indices:
            body *= sp.IndexedBase(tensor.name)[tuple(symbols[i] for i in indices)]
        else:
            body *= sp.Symbol(tensor.name)
    if limits:
        body = sp.Sum(body, *((symbols[i], 0, size - 1) for i, size in sorted(limits.items())))
    return body
