"""Tangents of tensor fields: the product rule on terms, definitions kept as definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import sympy as sp

from odekit.errors import InputError
from odekit.field.tangent_field import (
    Array,
    Differential,
    TangentField,
    free_names,
    refuse_unknown_parameters,
)
from odekit.field.tensor_field import TensorField
from odekit.tensor import Tensor, TensorExpr, as_expression, define, einsum, tangent
from odekit.tensor.evaluation import evaluate

__all__ = ["TensorTangentField", "differentiate_tensor_field"]

_LETTERS = "abcdefghijklmnopqrstuvwxy"


class Rule:
    """Tangents of tensors and symbols, and of the definitions that hold them, made once each."""

    def __init__(
        self,
        tensors: Mapping[Tensor, Tensor],
        symbols: Mapping[sp.Symbol, Tensor],
        count: sp.Expr,
        taken: Iterable[str],
    ) -> None:
        self.tensors = dict(tensors)
        self.symbols = dict(symbols)
        self.count = count
        self.taken = set(taken)
        self.made: list[tuple[Tensor, TensorExpr]] = []
        self.fixed: set[Tensor] = set()

    def of(self, expression: TensorExpr) -> TensorExpr:
        """The tangent of an expression."""
        for tensor in expression.tensors():
            if tensor.definition is not None:
                self._define(tensor, tensor.definition)
        return tangent(expression, self.tensors, self.symbols, self.count)

    def _define(self, tensor: Tensor, body: TensorExpr) -> None:
        if tensor in self.tensors or tensor in self.fixed:
            return
        moved = self.of(body)
        if not moved.terms:
            self.fixed.add(tensor)
            return
        name = free_names([tensor.name], self.taken)[tensor.name]
        self.taken.add(name)
        own = define(name, moved)
        self.tensors[tensor] = own
        self.made.append((own, moved))


@dataclass(frozen=True, eq=False)
class TensorDifferential(Differential):
    """An expression in tangents."""

    expression: TensorExpr
    field: TensorTangentField

    def evaluate(
        self,
        states: Mapping[str, Array],
        tangents: Mapping[str, Array],
        params: Mapping[str, Any],
        directions: Mapping[str, Array],
    ) -> Array:
        """See `Differential.evaluate`."""
        import numpy as np

        names, own = self.field.state_names, self.field.parameter_names
        moving = {**states, **{names[name]: value for name, value in tangents.items()}}
        fixed = {**params, **{own[name]: value for name, value in directions.items()}}
        stack = next(iter(tangents.values()))
        used = {t.name for t in self.expression.tensors(deep=True)}
        values = {k: v for k, v in {**fixed, **moving}.items() if k in used}
        symbols = {str(s) for s in self.expression.symbols(deep=True)}
        values |= {k: v for k, v in params.items() if k in symbols}
        values |= {name: stack.shape[1] for name in self.field.sizes}
        batched = tuple(name for name in moving if name in used)
        out = np.asarray(evaluate(self.expression, values, batched), dtype=np.float64)
        if not batched:
            out = np.broadcast_to(out, (stack.shape[0], *out.shape))
        return out


@dataclass(frozen=True, eq=False)
class TensorTangentField(TangentField):
    """See `TangentField`; ``rule`` gives tangents of further expressions."""

    rule: Rule

    def differential(self, quantity: Any) -> TensorDifferential:
        """The derivative of an expression in states and parameters of ``origin``."""
        return TensorDifferential(self.rule.of(as_expression(quantity)), self)

    def along_flow(self, quantity: Any) -> TensorExpr:
        """The rate of an expression along the flow of ``origin``."""
        assert isinstance(self.origin, TensorField)
        one = sp.Integer(1)
        rates = {
            state: define(f"rate of {state.name}", _with_axis(self.origin.rates[state]))
            for state in self.origin.states
        }
        moved = Rule(rates, {}, one, ()).of(as_expression(quantity))
        rest = _LETTERS[: moved.rank - 1]
        return einsum(f"z{rest}->{rest}", moved)


def differentiate_tensor_field(
    field: TensorField, moving: tuple[str, ...], count: int
) -> TensorTangentField:
    """Make the tangent field; see `odekit.field.tangent_field.tangent_field`."""
    refuse_unknown_parameters(field, moving)
    tensors = {t.name: t for t in field.parameters}
    scalars = {str(s): s for s in field.symbols if s not in field.size_symbols}
    for tensor in field.parameters:
        of = getattr(tensor, "of", None)
        value = getattr(tensor, "value", None)
        if of is not None and (of.name in moving or str(getattr(value, "name", value)) in moving):
            raise InputError(
                f"{tensor.name} is an eigenvector of {of.name} and would have to move with it; "
                "differentiate the field before it is reduced."
            )
    everything = [*field.states, *field.parameters, *(t for t, _ in field.definitions)]
    taken = {t.name for t in everything} | {str(s) for s in (*field.symbols, *field.size_symbols)}
    names = free_names([*(s.name for s in field.states), *moving], taken)
    taken |= set(names.values())
    size_name = "M"
    while size_name in taken:
        size_name += "'"
    directions = sp.Symbol(size_name, positive=True, integer=True)

    def follow(tensor: Tensor) -> Tensor:
        symmetric = [tuple(axis + 1 for axis in group) for group in tensor.symmetric_groups]
        kind = "weight" if tensor in field.states else "parameter"
        shape = (directions, *tensor.shape)
        return Tensor(names[tensor.name], shape, kind, symmetric or False)  # type: ignore[arg-type]

    moved = {t: follow(t) for t in (*field.states, *(tensors[n] for n in moving if n in tensors))}
    symbols = {
        scalars[n]: Tensor(names[n], (directions,), "parameter") for n in moving if n in scalars
    }
    rule = Rule(moved, symbols, directions, taken)
    rates = {state: field.rates[state] for state in field.states}
    for state in field.states:
        rates[moved[state]] = rule.of(field.rates[state])
    tangents = TensorField(
        states=tuple(rates),
        definitions=(*field.definitions, *rule.made),
        rates=rates,
        loss=field.loss,
        constants=field.constants,
    )
    return TensorTangentField(
        field=tangents,
        origin=field,
        state_names={s.name: names[s.name] for s in field.states},
        parameter_names={name: names[name] for name in moving},
        sizes={size_name: count},
        rule=rule,
    )


def _with_axis(expression: TensorExpr) -> TensorExpr:
    """The same with a leading axis of size one."""
    return TensorExpr.collect(
        (sp.Integer(1), *expression.shape),
        (
            (
                [(t, tuple(i + 1 if i >= 0 else i for i in ii)) for t, ii in factors],
                m,
                Fraction(c),
                None,
            )
            for factors, m, c in expression.raw()
        ),
    )
