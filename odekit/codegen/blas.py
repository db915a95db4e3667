"""Large contractions as matrix products, which BLAS does in blocks; the rest as loops.

Outputs are preallocated, and operands are views of the flat arrays: nothing is allocated.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from odekit.codegen.access import Access, FlatStatement, flatten
from odekit.codegen.loops import statement_loops, wrapped
from odekit.codegen.program import LEAST, Statement

__all__ = ["write_blas"]

NARROW = 4
"""Rows or columns below which it does not."""


def write_blas(statements: Iterable[Statement]) -> list[str]:
    """Write statements as source lines, with ``np.dot`` where it pays.

    Parameters
    ----------
    statements : iterable of Statement

    Returns
    -------
    list of str
    """
    lines: list[str] = []
    for statement in statements:
        lines += [f"# {part}" for part in wrapped(statement.comment)]
        lines += _statement(statement)
    return lines


def _statement(statement: Statement) -> list[str]:
    products = list(statement.products)
    if statement.accumulate:
        return statement_loops(flatten(statement))
    for product in products:
        alone = flatten(dataclasses.replace(statement, products=(product,)))
        call = _product(alone)
        if call is None:
            continue
        number = product.number
        rest = tuple(p for p in products if p is not product)
        if number == 1.0 and not rest:
            return [call]
        # The target holds the matrix product; scale it and add the rest on top.
        itself = ((statement.target, statement.indices),)
        again = dataclasses.replace(product, number=number, factors=itself)
        return [call, *_in_one_pass(dataclasses.replace(statement, products=(again, *rest)))]
    return statement_loops(flatten(statement))


def _in_one_pass(statement: Statement) -> list[str]:
    """Terms without a sum first, in one pass; each sum afterwards."""
    free = set(statement.indices)
    plain = tuple(p for p in statement.products if p.indices <= free)
    lines = statement_loops(flatten(dataclasses.replace(statement, products=plain)))
    for product in statement.products:
        if not product.indices <= free:
            more = dataclasses.replace(statement, products=(product,), accumulate=True)
            lines += statement_loops(flatten(more))
    return lines


def _product(flat: FlatStatement) -> str | None:
    """The call for a product of two matrices; None if it is not one that pays."""
    (product,) = flat.products
    if len(product.factors) != 2 or len(flat.sizes) != 3:
        return None
    left, right = product.factors
    summed = set(left.strides) & set(right.strides) - set(flat.target.strides)
    rows = set(left.strides) & set(flat.target.strides) - set(right.strides)
    columns = set(right.strides) & set(flat.target.strides) - set(left.strides)
    if not len(summed) == len(rows) == len(columns) == 1:
        return None
    if math.prod(flat.sizes.values()) < LEAST or min(flat.sizes.values()) < NARROW:
        return None
    (m,), (n,), (k,) = rows, columns, summed
    if flat.target.strides[m] == 1:
        left, right, m, n = right, left, n, m
    out = _matrix(flat.target, m, n, flat)
    a, b = _matrix(left, m, k, flat), _matrix(right, k, n, flat)
    if out is None or a is None or b is None or out.endswith(".T"):
        return None
    return f"np.dot({a}, {b}, {out})"


def _matrix(access: Access, row: int, column: int, flat: FlatStatement) -> str | None:
    """A contiguous block of a flat array as a matrix, or its transpose."""
    if set(access.strides) != {row, column}:
        return None
    m, n = flat.sizes[row], flat.sizes[column]
    view = f"{access.buffer}[{access.offset}:{access.offset + m * n}]"
    if access.strides[column] == 1 and access.strides[row] == n:
        return f"{view}.reshape(({m}, {n}))"
    if access.strides[row] == 1 and access.strides[column] == m:
        return f"{view}.reshape(({n}, {m})).T"
    return None
