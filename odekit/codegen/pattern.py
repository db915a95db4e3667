"""Which entries of a tensor field's Jacobian can differ from zero."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from odekit.codegen.place import Place
from odekit.tensor import TensorExpr

__all__ = ["jacobian_pattern"]

DENSE = 0.3
"""Share of entries from which a pattern is not worth keeping."""

Lists = tuple[list[int], list[int]]


def jacobian_pattern(blocks: list[tuple[Place, TensorExpr]], n: int) -> Lists | None:
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
    (rows, columns) or None
        Sorted lists; None for a Jacobian that is mostly full. Zeros inside parameters are not
        seen, but every delta between axes is.
    """
    patterns = [
        (place, {_merged(factors, body.rank) for factors, _ in body.terms})
        for place, body in blocks
    ]
    count = sum(
        math.prod(place.shape[i] for i in set(merged))
        for place, found in patterns
        for merged in found
    )
    if count > DENSE * n * n:
        return None
    parts: list[NDArray[np.int64]] = [np.empty(0, dtype=np.int64)]
    for place, found in patterns:
        for merged in found:
            parts.append(_addresses(place, merged))
    addresses = np.unique(np.concatenate(parts))
    starts = {place.offset for place, _ in blocks}
    mirrored = [
        (a % n) * n + a // n
        for place, merged_set in patterns
        for merged in merged_set
        for a in (_addresses(place, merged),)
        if (place.offset % n) * n + place.offset // n not in starts
    ]
    if mirrored:
        addresses = np.unique(np.concatenate([addresses, *mirrored]))
    return (addresses // n).tolist(), (addresses % n).tolist()


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
