"""Tangents of scalar fields, by SymPy's derivatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp

from odekit.errors import InputError
from odekit.field.scalar_field import Group, ScalarField
from odekit.field.tangent_field import (
    Array,
    Differential,
    TangentField,
    free_names,
    refuse_unknown_parameters,
)

__all__ = ["ScalarTangentField", "differentiate_scalar_field"]


def slope(expression: sp.Expr, symbol: sp.Symbol) -> sp.Expr:
    """A derivative that can be evaluated, or a refusal."""
    out = sp.diff(expression, symbol)
    if out.has(sp.Derivative, sp.Subs):
        raise InputError(
            f"{sp.sstr(expression)[:60]} has no derivative by {symbol} that could be evaluated."
        )
    return out


@dataclass(frozen=True, eq=False)
class ScalarDifferential(Differential):
    """A gradient, contracted with tangents."""

    quantity: sp.Expr
    field: ScalarTangentField

    @cached_property
    def _gradient(self) -> tuple[list[sp.Symbol], Any]:
        origin = self.field.origin
        assert isinstance(origin, ScalarField)
        moving = [
            s
            for name, (_, symbols) in origin.groups.items()
            if name in self.field.state_names or name in self.field.parameter_names
            for s in dict.fromkeys(symbols)
            if s in self.quantity.free_symbols
        ]
        slopes = [slope(self.quantity, s) for s in moving]
        names = [*origin.states, *origin.parameters]
        return moving, sp.lambdify(names, slopes, "numpy", cse=True)

    def evaluate(
        self,
        states: Mapping[str, Array],
        tangents: Mapping[str, Array],
        params: Mapping[str, Any],
        directions: Mapping[str, Array],
    ) -> Array:
        """See `Differential.evaluate`."""
        origin = self.field.origin
        assert isinstance(origin, ScalarField)
        first = next(iter(tangents.values()))
        count, ways = first.shape[:2]
        values: dict[sp.Expr, Any] = {}
        changes: dict[sp.Expr, Any] = {}
        for name, (_, symbols) in origin.state_groups.items():
            flat = np.asarray(states[name]).reshape(count, -1)
            moved = np.asarray(tangents[name]).reshape(count, ways, -1)
            for k, symbol in enumerate(symbols):
                values[symbol], changes[symbol] = flat[:, k], moved[:, :, k]
        for name, (_, symbols) in origin.parameter_groups.items():
            for symbol, number in zip(symbols, np.ravel(params[name]), strict=True):
                values[symbol] = float(number)
            if name in directions:
                own = np.asarray(directions[name]).reshape(ways, -1)
                changes |= {symbol: own[None, :, k] for k, symbol in enumerate(symbols)}
        moving, function = self._gradient
        out = np.zeros((count, ways))
        slopes = function(*(values[s] for s in (*origin.states, *origin.parameters)))
        for symbol, own_slope in zip(moving, slopes, strict=True):
            out = out + np.broadcast_to(np.asarray(own_slope), (count,))[:, None] * changes[symbol]
        return out


@dataclass(frozen=True, eq=False)
class ScalarTangentField(TangentField):
    """See `TangentField`."""

    def differential(self, quantity: Any) -> ScalarDifferential:
        """The derivative of an expression in states and parameters of ``origin``."""
        return ScalarDifferential(sp.sympify(quantity), self)

    def along_flow(self, quantity: Any) -> sp.Expr:
        """The rate of an expression along the flow of ``origin``."""
        origin = self.origin
        assert isinstance(origin, ScalarField)
        return sp.Add(
            *(slope(quantity, s) * r for s, r in zip(origin.states, origin.rates, strict=True))
        )


def differentiate_scalar_field(
    field: ScalarField, moving: tuple[str, ...], count: int
) -> ScalarTangentField:
    """Make the tangent field; see `odekit.field.tangent_field.tangent_field`."""
    refuse_unknown_parameters(field, moving)
    taken = {str(s) for s in (*field.states, *field.parameters)} | set(field.groups)
    names = free_names([*field.state_groups, *moving], taken)
    entries = free_names(dict.fromkeys(str(s) for s in (*field.states, *field.parameters)), taken)

    def follow(name: str) -> tuple[Group, list[dict[sp.Expr, sp.Symbol]]]:
        shape, symbols = field.groups[name]
        each: list[dict[sp.Expr, sp.Symbol]] = [
            {s: sp.Symbol(f"{entries[str(s)]}_{m}", real=True) for s in symbols}
            for m in range(count)
        ]
        flat = tuple(own[s] for own in each for s in symbols)
        return ((count, *shape), flat), each

    state_groups, parameter_groups = dict(field.state_groups), dict(field.parameter_groups)
    moved: list[dict[sp.Expr, sp.Symbol]] = [{} for _ in range(count)]
    for name in (*field.state_groups, *moving):
        group, each = follow(name)
        (state_groups if name in field.state_groups else parameter_groups)[names[name]] = group
        for own, more in zip(moved, each, strict=True):
            own |= more
    slopes: dict[sp.Symbol, list[tuple[sp.Expr, sp.Expr]]] = {
        state: [
            (symbol, d)
            for symbol in sorted(rate.free_symbols & set(moved[0]), key=str)
            if (d := slope(rate, symbol)) != 0
        ]
        for state, rate in zip(field.states, field.rates, strict=True)
    }
    rates = list(field.rates)
    states = list(field.states)
    for own in moved:
        for state in field.states:
            states.append(own[state])
            rates.append(sp.Add(*(d * own[symbol] for symbol, d in slopes[state])))
    parameters = [s for _, symbols in parameter_groups.values() for s in symbols]
    tangents = ScalarField(
        tuple(states),
        tuple(rates),
        tuple(dict.fromkeys(parameters)),
        field.loss,
        state_groups,
        parameter_groups,
    )
    return ScalarTangentField(
        field=tangents,
        origin=field,
        state_names={name: names[name] for name in field.state_groups},
        parameter_names={name: names[name] for name in moving},
        sizes={},
    )
