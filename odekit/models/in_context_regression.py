"""In-context linear regression (Zhang et al. 2025, section 2): the data of the attention models.

A sequence holds N pairs ``(x_n, y_n = w . x_n)`` and a query ``x_q``; every sequence draws its own
task ``w ~ N(0, I)``, and tokens are ``N(0, Lambda)``. The query enters as a token with label 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy as sp

from odekit.gaussian import gaussian
from odekit.tensor import TensorExpr, dims, einsum, identity, parameter
from odekit.tensor.tensors import read_size


@dataclass(frozen=True)
class Regression:
    """One sequence.

    Attributes
    ----------
    query, target : TensorExpr
        ``x_q`` (D,) and ``y_q = w . x_q``.
    beta : TensorExpr
        ``(1/N) sum_n y_n x_n`` (D,): what the context tells of the task.
    token_moment, label_moment : TensorExpr
        ``(1/N) (sum_n x_n x_n^T + x_q x_q^T)`` (D, D) and ``(1/N) sum_n y_n^2``: what the blocks
        that the reduced models leave out would see.
    dim, context : sympy.Expr
        D and N.
    """

    query: TensorExpr
    target: TensorExpr
    beta: TensorExpr
    token_moment: TensorExpr
    label_moment: TensorExpr
    dim: sp.Expr
    context: sp.Expr


def size_or_symbol(value: Any, name: str) -> sp.Expr:
    """An integer, a symbol, or the default symbol of that name."""
    return dims(name) if value is None else read_size(value, name)


def regression(dim: Any = None, context: Any = None) -> Regression:
    """Make one sequence with token size ``dim`` and ``context`` labelled tokens."""
    D, N = size_or_symbol(dim, "D"), size_or_symbol(context, "N")
    covariance = parameter("Lambda", (D, D), symmetric=True)
    x = gaussian("x", (N, D), covariance=covariance)
    query = gaussian("x_q", (D,), covariance=covariance)
    task = gaussian("w", (D,), covariance=identity(D))
    y = einsum("d,nd->n", task, x)
    return Regression(
        query=query.as_expression(),
        target=einsum("d,d->", task, query),
        beta=einsum("n,nd->d", y, x) / N,
        token_moment=(einsum("na,nb->ab", x, x) + einsum("a,b->ab", query, query)) / N,
        label_moment=einsum("n,n->", y, y) / N,
        dim=D,
        context=N,
    )
