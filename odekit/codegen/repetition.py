"""Equations that are the same but for their symbols, found and written as one loop.

A thousand decoupled modes are two equations and a loop, not two thousand equations: they compile in
a second instead of hours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy as sp

__all__ = ["Equation", "Run", "find_runs"]

SHORTEST = 8
"""Equations from which a loop is written."""

Spot = tuple[str, int]
"""A flat buffer and an address in it."""


@dataclass(frozen=True)
class Equation:
    """An expression, where it goes, and where its symbols are."""

    target: int
    expression: Any
    symbols: tuple[sp.Symbol, ...]
    spots: tuple[Spot, ...]


@dataclass(frozen=True)
class Run:
    """Equations that differ by constant steps in their addresses.

    Parameters
    ----------
    first : Equation
    count : int
    step : int
        Of the target.
    steps : tuple of int
        Of each symbol's address.
    """

    first: Equation
    count: int
    step: int
    steps: tuple[int, ...]


def find_runs(
    targets: Sequence[int], expressions: Sequence[Any], spots: dict[sp.Symbol, Spot]
) -> list[Run]:
    """Group expressions into runs.

    Parameters
    ----------
    targets : sequence of int
        Where each expression goes.
    expressions : sequence of sympy.Expr
    spots : dict
        Where each symbol is. Names must sort as addresses do, so that SymPy orders the terms of
        similar expressions alike.

    Returns
    -------
    list of Run
        Of one equation each where nothing repeats.
    """
    classes: dict[Any, list[Equation]] = {}
    for target, expression in zip(targets, expressions, strict=True):
        symbols: dict[sp.Symbol, int] = {}
        shape = _shape(expression, symbols)
        own = tuple(spots[s] for s in symbols)
        equation = Equation(target, expression, tuple(symbols), own)
        key = (shape, tuple(buffer for buffer, _ in own))
        classes.setdefault(key, []).append(equation)
    runs: list[Run] = []
    for members in classes.values():
        runs += _split(members)
    return runs


def _shape(expression: Any, symbols: dict[sp.Symbol, int]) -> Any:
    """An expression with its symbols numbered by first appearance."""
    if expression.is_Symbol:
        return symbols.setdefault(expression, len(symbols))
    if not expression.args:
        return expression
    return (expression.func, *(_shape(a, symbols) for a in expression.args))


def _split(members: list[Equation]) -> list[Run]:
    runs: list[Run] = []
    start = 0
    while start < len(members):
        first = members[start]
        stop = start + 1
        step, steps = 0, (0,) * len(first.spots)
        if stop < len(members):
            step, steps = _steps(first, members[stop])
            while stop < len(members) and _steps(members[stop - 1], members[stop]) == (step, steps):
                stop += 1
        if stop - start < SHORTEST:
            runs.append(Run(first, 1, 0, (0,) * len(first.spots)))
            start += 1
        else:
            runs.append(Run(first, stop - start, step, steps))
            start = stop
    return runs


def _steps(one: Equation, other: Equation) -> tuple[int, tuple[int, ...]]:
    return other.target - one.target, tuple(
        b - a for (_, a), (_, b) in zip(one.spots, other.spots, strict=True)
    )
