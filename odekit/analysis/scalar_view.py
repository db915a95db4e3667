"""One equation in one unknown, read off a tensor field.

A field with a single scalar state is such an equation, with invariants of its parameters (such as a
trace) as symbols. So is a field ``u' = u g(u . u)`` of a vector: its squared norm ``s`` obeys
``s' = 2 s g(s)``, and the direction stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from odekit.errors import InputError
from odekit.tensor import Tensor, TensorExpr
from odekit.tensor.coefficient import to_sympy

__all__ = ["ScalarView", "scalar_view"]


@dataclass(frozen=True, eq=False)
class ScalarView:
    """A scalar equation behind a tensor field.

    Parameters
    ----------
    state : Symbol
        The unknown.
    rate : Expr
        Its rate.
    invariants : mapping
        Symbol -> the rank-zero expression of parameters that it stands for.
    name : str
        Name of the field's state.
    radial : bool
        Whether the unknown is the squared norm of the state.
    """

    state: sp.Symbol
    rate: sp.Expr
    invariants: Mapping[sp.Symbol, TensorExpr]
    name: str
    radial: bool


def scalar_view(field: Any) -> ScalarView:
    """Read the scalar equation, or say why there is none."""
    if len(field.states) != 1:
        names = ", ".join(s.name for s in field.states)
        raise InputError(
            f"closed_form needs one state, got {names}; reduce the field first (ok.reduce)."
        )
    (state,) = field.states
    radial = any(n != 1 for n in state.shape)
    unknown = sp.Symbol(f"{state.name}_squared" if radial else state.name, real=True)
    invariants: dict[TensorExpr, sp.Symbol] = {}
    taken = {state.name, *(str(s) for s in field.symbols)}
    total: sp.Expr = sp.Integer(0)
    for (factors, monomial), number in field.rates[state].expand().terms.items():
        value = to_sympy(monomial, number)
        free_factor = 0
        for part, own in _parts(factors, state.rank):
            count = sum(1 for t, _ in part if t is state)
            if own:
                if count != 1 or len(part) != 1 or part[0][1] != tuple(range(state.rank)):
                    raise _not_radial(state)
                free_factor += 1
            elif count == 0:
                value *= _invariant(part, invariants, taken)
            elif all(t is state for t, _ in part):
                if not radial:
                    value *= unknown**count
                elif count == 2 and part[0][1] == part[1][1]:
                    value *= unknown
                else:
                    raise _not_radial(state)
            else:
                raise _not_radial(state)
        if radial and free_factor != 1:
            raise _not_radial(state)
        if not radial:
            value *= unknown**free_factor
        total += value
    rate = sp.expand(2 * unknown * total) if radial else sp.expand(total)
    return ScalarView(unknown, rate, {s: e for e, s in invariants.items()}, state.name, radial)


def _not_radial(state: Tensor) -> InputError:
    return InputError(
        f"The rate of {state.name} is not {state.name} times a function of its squared norm; "
        "reduce the field to one scalar first (ok.reduce)."
    )


def _parts(factors: Any, rank: int) -> list[tuple[list[Any], bool]]:
    """Factors joined by summed indices, and whether each group carries free indices.

    Factors without indices, and axes of size one, join nothing.
    """
    groups: list[tuple[list[Any], set[int]]] = []
    for tensor, indices in factors:
        links = {i for i, n in zip(indices, tensor.shape, strict=True) if n != 1}
        joined = [g for g in groups if g[1] & links]
        merged = (
            [f for g in joined for f in g[0]] + [(tensor, indices)],
            links.union(*(g[1] for g in joined)),
        )
        groups = [g for g in groups if g not in joined] + [merged]
    return [(part, any(i < rank for i in links)) for part, links in groups]


def _invariant(
    part: list[Any], invariants: dict[TensorExpr, sp.Symbol], taken: set[str]
) -> sp.Symbol:
    from fractions import Fraction

    loose = [(t, tuple(-1 - i for i in indices)) for t, indices in part]
    expression = TensorExpr.collect((), [(loose, (), Fraction(1), None)])
    if expression not in invariants:
        tensor = part[0][0]
        trace = len(part) == 1 and tensor.rank == 2 and len(set(part[0][1])) == 1
        name = f"tr_{tensor.name}" if trace else tensor.name if tensor.rank == 0 else "c"
        while name in taken:
            name += "_"
        taken.add(name)
        positive = bool(getattr(tensor, "semidefinite", False)) and trace
        invariants[expression] = (
            sp.Symbol(name, positive=True) if positive else sp.Symbol(name, real=True)
        )
    return invariants[expression]
