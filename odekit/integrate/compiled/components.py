"""Connected components of a Jacobian's pattern, grouped by size for `rodas5p_blocks`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class BlockClass:
    """Components of one size.

    `members` (b, L): place of entry i of lane z in the state; `entries` (b, b, L): place of
    Jacobian entry (i, j) of lane z in the pattern's list, -1 where the pattern has none.
    """

    members: NDArray[np.int64]
    entries: NDArray[np.int64]


def classes_of(compiled: Any) -> tuple[BlockClass, ...]:
    """Components of a compiled field's Jacobian, found once for each field; () where it is dense.

    Parameters
    ----------
    compiled : CompiledField
    """
    if compiled.pattern is None:
        return ()
    known = compiled.kept.get("components")
    if known is None:
        rows, columns = compiled.pattern
        known = compiled.kept["components"] = block_classes(compiled.layout.size, rows, columns)
    found: tuple[BlockClass, ...] = known
    return found


def find_components(n: int, rows: NDArray[np.int64], cols: NDArray[np.int64]) -> NDArray[np.int64]:
    """Label (n,) of each unknown's component: the smallest index in it.

    Label propagation with pointer jumping: a few vectorised passes for any pattern.
    """
    label = np.arange(n)
    while True:
        low = np.minimum(label[rows], label[cols])
        new = label.copy()
        np.minimum.at(new, rows, low)
        np.minimum.at(new, cols, low)
        np.minimum.at(new, label[rows], low)
        np.minimum.at(new, label[cols], low)
        new = new[new]
        if np.array_equal(new, label):
            return label
        label = new


def block_classes(
    n: int, rows: NDArray[np.int64], cols: NDArray[np.int64]
) -> tuple[BlockClass, ...]:
    """Components of the pattern (rows[k], cols[k]), one class for each component size.

    Within a component unknowns keep their order, and components are ordered by their first
    unknown, so that the states p (d,), q (d,) of decoupled modes lie in lanes as in memory.
    """
    rows, cols = np.asarray(rows, np.int64), np.asarray(cols, np.int64)
    label = find_components(n, rows, cols)
    order = np.argsort(label, kind="stable")
    first, start, size = np.unique(label[order], return_index=True, return_counts=True)
    place = np.empty(n, np.int64)
    place[order] = np.arange(n) - np.repeat(start, size)
    classes = []
    for b in np.unique(size):
        of_size = np.flatnonzero(size == b)
        lane = np.full(n, -1)
        lane[first[of_size]] = np.arange(of_size.size)
        members = order[start[of_size][None, :] + np.arange(b)[:, None]]
        entries = np.full((b, b, of_size.size), -1)
        here = np.flatnonzero(lane[label[rows]] >= 0)
        entries[place[rows[here]], place[cols[here]], lane[label[rows[here]]]] = here
        classes.append(BlockClass(np.ascontiguousarray(members), entries))
    return tuple(classes)
