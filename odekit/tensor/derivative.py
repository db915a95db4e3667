"""The derivative of an expression with respect to a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from odekit.tensor.canonical import Factor
from odekit.tensor.coefficient import Monomial
from odekit.tensor.einsum import einsum
from odekit.tensor.expression import TensorExpr
from odekit.tensor.tensors import Tensor, identity

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def partial_derivative(expression: TensorExpr, tensor: Tensor) -> TensorExpr:
    """The derivative with definitions held fixed, of shape ``expression.shape + tensor.shape``.

    Each occurrence is dropped in turn and its indices set free; where two of its slots carry the
    same index, or a free one, a delta remains.
    """
    rank = expression.rank

    def products() -> Iterator[tuple[list[Factor], Monomial, Fraction, None]]:
        for factors, monomial, number in expression.raw():
            for k, (found, indices) in enumerate(factors):
                if found is not tensor:
                    continue
                freed: dict[int, int] = {}
                rest: list[Factor] = []
                for slot, index in enumerate(indices):
                    new = rank + slot
                    if index < 0 and index not in freed:
                        freed[index] = new
                    else:
                        held = freed.get(index, index)
                        rest.append((identity(tensor.shape[slot]), (held, new)))
                for m, (other, own) in enumerate(factors):
                    if m != k:
                        rest.append((other, tuple(freed.get(i, i) for i in own)))
                yield rest, monomial, number, None

    return TensorExpr.collect(expression.shape + tensor.shape, products())


def derivative(expression: TensorExpr, tensor: Tensor) -> TensorExpr:
    """The total derivative: definitions are differentiated by the chain rule."""
    total = partial_derivative(expression, tensor)
    for definition in expression.tensors():
        body = definition.definition
        if body is None or tensor not in body.tensors(deep=True):
            continue
        outer = partial_derivative(expression, definition)
        total = total + contract_tail(outer, derivative(body, tensor), definition.rank)
    return total


def contract_tail(outer: TensorExpr, inner: TensorExpr, count: int) -> TensorExpr:
    """Sum the last ``count`` axes of ``outer`` against the first ``count`` of ``inner``."""
    split = outer.rank - count
    left = _LETTERS[:split]
    middle = _LETTERS[split : split + count]
    right = _LETTERS[split + count : split + inner.rank]
    return einsum(f"{left}{middle},{middle}{right}->{left}{right}", outer, inner)
