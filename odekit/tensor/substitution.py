"""Putting expressions in the place of tensors, and multiplying out definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from odekit.errors import InputError
from odekit.tensor.canonical import Factor
from odekit.tensor.coefficient import Monomial, multiply
from odekit.tensor.expression import TensorExpr, _show, as_expression, shift_dummies
from odekit.tensor.tensors import Tensor


def replace(expression: TensorExpr, bodies: Mapping[Tensor, TensorExpr]) -> TensorExpr:
    """Replace factors by expressions of the same shape; definitions are not looked into."""
    if not any(t in bodies for t in expression.tensors()):
        return expression
    for tensor, body in bodies.items():
        if body.shape != tensor.shape:
            raise InputError(
                f"{tensor.name} has shape {_show(tensor.shape)}; "
                f"its replacement has shape {_show(body.shape)}"
            )

    def products() -> Iterator[tuple[list[Factor], Monomial, Fraction, None]]:
        for factors, monomial, number in expression.raw():
            partial: list[tuple[list[Factor], Monomial, Fraction]] = [([], monomial, number)]
            for k, (tensor, indices) in enumerate(factors):
                body = bodies.get(tensor)
                if body is None:
                    partial = [([*f, (tensor, indices)], m, c) for f, m, c in partial]
                    continue
                inserted = [
                    (
                        [
                            (t, tuple(indices[i] if i >= 0 else i for i in ii))
                            for t, ii in shift_dummies(own, 1000 * (k + 1))
                        ],
                        m,
                        c,
                    )
                    for own, m, c in body.raw()
                ]
                partial = [
                    (f + own, multiply(m, own_m), c * own_c)
                    for f, m, c in partial
                    for own, own_m, own_c in inserted
                ]
            for f, m, c in partial:
                yield f, m, c, _summed_alone(factors, f)

    return TensorExpr.collect(expression.shape, products())


def _summed_alone(before: list[Factor], after: list[Factor]) -> Any:
    """Summed indices that a broadcasting replacement left in no factor, with their sizes."""
    present = {i for _, indices in after for i in indices}
    lost = {
        i: t.shape[slot]
        for t, indices in before
        for slot, i in enumerate(indices)
        if i < 0 and i not in present
    }
    return lost or None


def expand(expression: TensorExpr, only: Iterable[Tensor] | None = None) -> TensorExpr:
    """Multiply out definitions until none is left (or none of those named)."""
    wanted = None if only is None else set(only)
    while True:
        bodies = {
            t: t.definition
            for t in expression.tensors()
            if t.definition is not None and (wanted is None or t in wanted)
        }
        if not bodies:
            return expression
        expression = replace(expression, bodies)


def substitute(expression: TensorExpr, replacements: Mapping[Tensor, Any]) -> TensorExpr:
    """Put expressions in the place of tensors, inside definitions as well."""
    bodies = {tensor: as_expression(value) for tensor, value in replacements.items()}
    touched = [
        t
        for t in expression.tensors(deep=True)
        if t.definition is not None
        and t not in bodies
        and any(inner in bodies for inner in t.definition.tensors(deep=True))
    ]
    return replace(expand(expression, touched), bodies)
