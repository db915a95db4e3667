"""The order in which each intermediate's axes lie in memory, chosen for whoever reads it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from odekit.codegen.place import Place
from odekit.tensor import Tensor, TensorExpr

__all__ = ["choose_axis_orders"]

Order = tuple[int, ...]


def choose_axis_orders(
    statements: list[tuple[Tensor | Place, TensorExpr]],
    places: Mapping[Any, Place],
    shape: Callable[[Any], tuple[int, ...]],
) -> dict[Tensor, Order]:
    """Order the axes of intermediates, outermost in memory first.

    Parameters
    ----------
    statements : list of (target, expression)
        In order of evaluation; a target that is a `Place` has its order already.
    places : mapping
        Inputs and hoisted tensors that have theirs.
    shape : callable
        A symbolic shape in numbers.

    Returns
    -------
    dict
        Intermediate -> its axes. Readers decide, the one with the most work first: it should
        find contiguous the axis that it writes contiguously.
    """
    chosen: dict[Tensor, Order] = {}
    wishes: dict[Tensor, dict[Order, float]] = {}

    def known(tensor: Tensor) -> Order | None:
        if tensor in places:
            strides = places[tensor].strides
            return tuple(sorted(range(len(strides)), key=lambda k: -strides[k]))
        return chosen.get(tensor)

    for target, body in reversed(statements):
        if isinstance(target, Place):
            order = tuple(sorted(range(len(target.shape)), key=lambda k: -target.strides[k]))
        else:
            own = wishes.get(target, {})
            order = max(own, key=own.__getitem__) if own else tuple(range(body.rank))
            chosen[target] = order
        rank = {axis: place for place, axis in enumerate(order)}
        for factors, _ in body.terms:
            sizes = {i: n for t, ii in factors for i, n in zip(ii, shape(t.shape), strict=True)}
            volume = float(math.prod(sizes.values()))
            for tensor, ii in factors:
                if tensor in places or tensor.kind == "identity" or len(ii) < 2:
                    continue
                if order and order[-1] in ii:
                    wish = sorted(range(len(ii)), key=lambda k: rank.get(ii[k], -1))
                elif all(i >= body.rank for i in ii):
                    wish = _like_partner(tensor, ii, factors, known)
                else:
                    # What scales whole rows is read along the axis that is summed.
                    wish = sorted(range(len(ii)), key=lambda k: rank.get(ii[k], body.rank))
                votes = wishes.setdefault(tensor, {})
                votes[tuple(wish)] = votes.get(tuple(wish), 0.0) + volume
    return chosen


def _like_partner(
    tensor: Tensor, ii: tuple[int, ...], factors: Any, known: Callable[[Tensor], Order | None]
) -> list[int]:
    """In a full contraction, the order of the axes that the other factor has."""
    for partner, jj in factors:
        order = known(partner)
        if partner is not tensor and order is not None and set(ii) <= set(jj):
            place = {jj[axis]: k for k, axis in enumerate(order)}
            return sorted(range(len(ii)), key=lambda k: place[ii[k]])
    return list(range(len(ii)))
