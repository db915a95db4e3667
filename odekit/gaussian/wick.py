"""The exact mean of a polynomial in Gaussian tensors (Isserlis' theorem)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from odekit.errors import InputError, OdekitError
from odekit.gaussian.gaussians import Gaussian
from odekit.tensor import Factor, Monomial, Tensor, TensorExpr, Term, as_expression
from odekit.tensor.coefficient import multiply
from odekit.tensor.simplify import reduced_terms

FULL_PAIRINGS = 105
"""A variable with at most this many full pairings in a term is paired at once."""


class BudgetError(OdekitError, RuntimeError):
    """An expectation grew past its budget."""


def expectation(
    expression: Any,
    over: Iterable[Gaussian] | Gaussian | None = None,
    *,
    max_terms: int = 200_000,
    seconds: float = 120.0,
) -> TensorExpr:
    """The exact mean over Gaussian tensors.

    Parameters
    ----------
    expression : TensorExpr
        Any polynomial in Gaussian tensors. Definitions that hold random tensors are multiplied out.
    over : Gaussian or iterable of Gaussian, optional
        Average over these only; default all.
    max_terms, seconds : optional
        Budget; past it `BudgetError` names the variable and the number of terms.

    Returns
    -------
    TensorExpr
        Exact, with symbolic sizes; results are exact in the number of samples.
    """
    body = as_expression(expression)
    chosen = _read_variables(over)
    body = body.expand([t for t in body.tensors(deep=True) if _holds(t, chosen)])
    deadline = time.monotonic() + seconds
    rank = body.rank
    while True:
        variables = [t for t in body.tensors() if _is_averaged(t, chosen)]
        if not variables:
            return body
        total: dict[Term, Fraction] = {}
        for factors, monomial, number in body.raw():
            for term, coefficient in _step(factors, monomial, number, rank, chosen):
                total[term] = total.get(term, Fraction(0)) + coefficient
            if len(total) > max_terms or time.monotonic() > deadline:
                name = variables[0].name
                raise BudgetError(
                    f"averaging over {name} reached {len(total)} terms; "
                    "name intermediates with ok.define or lower the degree"
                )
        body = TensorExpr(body.shape, total)


def _read_variables(over: Iterable[Gaussian] | Gaussian | None) -> set[Gaussian] | None:
    if over is None:
        return None
    variables = {over} if isinstance(over, Tensor) else set(over)
    for variable in variables:
        if not isinstance(variable, Gaussian):
            raise InputError(f"over= names {variable!r}, which is no Gaussian tensor")
    return variables


def _is_averaged(tensor: Any, chosen: set[Gaussian] | None) -> bool:
    return isinstance(tensor, Gaussian) and (chosen is None or tensor in chosen)


def _holds(tensor: Any, chosen: set[Gaussian] | None) -> bool:
    return tensor.definition is not None and any(
        _is_averaged(t, chosen) for t in tensor.definition.tensors(deep=True)
    )


def _step(
    factors: list[Factor],
    monomial: Monomial,
    number: Fraction,
    rank: int,
    chosen: set[Gaussian] | None,
) -> Iterator[tuple[Term, Fraction]]:
    """Average one term over its rarest variable, or pair one factor of it where that is long."""
    places: dict[Gaussian, list[int]] = {}
    for k, (tensor, _) in enumerate(factors):
        if isinstance(tensor, Gaussian) and (chosen is None or tensor in chosen):
            places.setdefault(tensor, []).append(k)
    if any(len(where) % 2 for where in places.values()):
        return
    if not places:
        yield from _collect([(factors, monomial, number)], rank)
        return
    variable, where = min(places.items(), key=lambda item: (len(item[1]), item[0].order))
    rest = [f for k, f in enumerate(factors) if k not in where]
    mine = [factors[k][1] for k in where]
    whole = _count_pairings(len(mine)) <= FULL_PAIRINGS
    matchings = _full_pairings(mine) if whole else _first_pairings(mine)
    for pairs, left in matchings:
        products: list[tuple[list[Factor], Monomial, Fraction]] = [
            ([*rest, *((variable, indices) for indices in left)], monomial, number)
        ]
        for depth, (first, second) in enumerate(pairs):
            options = variable.pairing(first, second)
            products = [
                (f + _apart(of, depth), multiply(m, om), c * oc)
                for f, m, c in products
                for of, om, oc in options
            ]
        yield from _collect(products, rank)


def _apart(factors: list[Factor], depth: int) -> list[Factor]:
    """Keep summed indices of a structured covariance apart from those of other pairs."""
    shift = 10**6 * depth
    return [(t, tuple(i if i > -(10**9) else i - shift for i in ii)) for t, ii in factors]


def _collect(
    products: list[tuple[list[Factor], Monomial, Fraction]], rank: int
) -> Iterator[tuple[Term, Fraction]]:
    for factors, monomial, number in products:
        for term, factor in reduced_terms(factors, monomial, rank):
            yield term, number * factor


def _count_pairings(count: int) -> int:
    result = 1
    for k in range(count - 1, 0, -2):
        result *= k
    return result


Indices = tuple[int, ...]
Matching = tuple[list[tuple[Indices, Indices]], list[Indices]]


def _full_pairings(items: list[Indices]) -> Iterator[Matching]:
    if not items:
        yield [], []
        return
    first = items[0]
    for k in range(1, len(items)):
        for pairs, left in _full_pairings(items[1:k] + items[k + 1 :]):
            yield [(first, items[k]), *pairs], left


def _first_pairings(items: list[Indices]) -> Iterator[Matching]:
    for k in range(1, len(items)):
        yield [(items[0], items[k])], items[1:k] + items[k + 1 :]
