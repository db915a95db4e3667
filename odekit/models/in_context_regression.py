"""In-context linear regression (Zhang et al. 2025, section 2): the data of the attention models.

A sequence holds N pairs ``(x_n, y_n = w . x_n)`` and a query ``x_q``; every sequence draws its own
task ``w ~ N(0, I)``, and tokens are ``N(0, Lambda)``. A linear-attention layer sees the context
through ``beta = (1/N) sum_n y_n x_n``.
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
    """The data: context statistics, query and label."""

    beta: TensorExpr
    tokens: TensorExpr
    labels: TensorExpr
    query: TensorExpr
    target: TensorExpr
    context: sp.Expr
    dim: sp.Expr


def size_or_symbol(value: Any, name: str) -> sp.Expr:
    """An integer, a symbol, or the default symbol of that name."""
    return dims(name) if value is None else read_size(value, name)


def regression(dim: Any = None, context: Any = None) -> Regression:
    """Make the data with token size ``dim`` and ``context`` labelled tokens."""
    D, N = size_or_symbol(dim, "D"), size_or_symbol(context, "N")
    covariance = parameter("Lambda", (D, D), symmetric=True)
    x = gaussian("x", (N, D), covariance=covariance)
    query = gaussian("x_q", (D,), covariance=covariance)
    task = gaussian("w", (D,), covariance=identity(D))
    labels = einsum("d,nd->n", task, x)
    return Regression(
        beta=einsum("n,nd->d", labels, x) / N,
        tokens=x.as_expression(),
        labels=labels,
        query=query.as_expression(),
        target=einsum("d,d->", task, query),
        context=N,
        dim=D,
    )
