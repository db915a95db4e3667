"""Which entries of a tensor field's Jacobian can differ from zero."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odekit.codegen.place import Place, c_strides
from odekit.tensor import TensorExpr

__all__ = ["Sparsity", "jacobian_pattern"]

DENSE = 0.3
"""Share of entries from which a pattern is not worth keeping."""


@dataclass(frozen=True)
class Sparsity:
    """Entries of a Jacobian that can differ from zero, and where they are packed.

    Parameters
    ----------
    rows, columns : list of int
    packed : tuple of Place or None
        For each block, where its entries are in an array of these entries alone; None where terms
        of one block have different deltas, and the entries are those of a union.
    mirrored : tuple of (source, target, count)
        Entries of blocks that mirror others.
    """

    rows: list[int]
    columns: list[int]
    packed: tuple[Place | None, ...] | None
    mirrored: tuple[tuple[int, int, int], ...]


def jacobian_pattern(blocks: list[tuple[Place, TensorExpr]], n: int) -> Sparsity | None:
    """Collect entries from the deltas in each block's terms.

    Parameters
    ----------
    blocks : list of (Place, TensorExpr)
        Blocks of the Jacobian, rows' axes before columns'; entries are taken to be symmetric where
        the mirrored block is not among them.
    n : int
        Number of states.

    Returns
    -------
    Sparsity or None
        None for a Jacobian that is mostly full. Zeros inside parameters are not seen, but every
        delta between axes is.
    """
    patterns = [
        (place, sorted({_merged(factors, body.rank) for factors, _ in body.terms}))
        for place, body in blocks
    ]
    count = sum(
        math.prod(place.shape[i] for i in set(merged))
        for place, found in patterns
        for merged in found
    )
    if count > DENSE * n * n:
        return None
    starts = {place.offset for place, _ in blocks}
    simple = all(len(found) < 2 for _, found in patterns)
    parts: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
    packed: list[Place | None] = []
    mirrored: list[tuple[int, int, int]] = []
    filled = 0
    for place, found in patterns:
        if not found:
            packed.append(None)
        for merged in found:
            addresses = _addresses(place, merged)
            parts.append(addresses)
            packed.append(_packed(place, merged, filled))
            start, filled = filled, filled + addresses.size
            if (place.offset % n) * n + place.offset // n not in starts:
                parts.append((addresses % n) * n + addresses // n)
                mirrored.append((start, filled, addresses.size))
                filled += addresses.size
    entries = np.concatenate(parts)
    if not simple:
        entries = np.unique(entries)
        return Sparsity((entries // n).tolist(), (entries % n).tolist(), None, ())
    return Sparsity((entries // n).tolist(), (entries % n).tolist(), tuple(packed), tuple(mirrored))


def _packed(place: Place, merged: tuple[int, ...], offset: int) -> Place:
    """Entries of a block side by side; axes that a delta merges count once."""
    axes = sorted(set(merged))
    inner = dict(zip(axes, c_strides(tuple(place.shape[i] for i in axes)), strict=True))
    strides = tuple(inner[i] if i == axis else 0 for axis, i in enumerate(merged))
    return Place(place.name, "out", offset, place.shape, strides)


def _merged(factors: object, rank: int) -> tuple[int, ...]:
    """For each axis, the first axis that a delta holds equal to it."""
    indices = list(range(rank))
    for tensor, ii in factors:  # type: ignore[attr-defined]
        if tensor.kind == "identity":
            low, high = sorted(indices[i] for i in ii)
            indices = [low if i == high else i for i in indices]
    return tuple(indices)


def _addresses(place: Place, merged: tuple[int, ...]) -> NDArray[np.int64]:
    total = np.array(place.offset, dtype=np.int64)
    for axis in sorted(set(merged)):
        stride = sum(s for s, i in zip(place.strides, merged, strict=True) if i == axis)
        total = np.add.outer(total, stride * np.arange(place.shape[axis], dtype=np.int64))
    return total.reshape(-1)
