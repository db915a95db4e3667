"""Canonical form of a product of tensors under renaming of summed indices.

Colour refinement on the bipartite graph of factors and indices, with slots that may be exchanged
sharing a class, then individualisation of the smallest cell; the smallest encoding wins. Two
products are equal as contractions for all tensors exactly if their encodings are equal.

Free indices are 0, 1, ...; in this file summed indices are negative integers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from odekit.tensor.tensors import Tensor

Factor = tuple[Tensor, tuple[int, ...]]
Factors = tuple[Factor, ...]


def canonical_product(factors: list[Factor], rank: int) -> Factors:
    """Rename and sort: summed indices become ``rank, rank + 1, ...``."""
    components = [_canonical_component(_relabel(c)) for c in _components(factors)]
    components.sort(key=_encoding)
    result: list[Factor] = []
    offset = rank
    for component in components:
        used = 0
        for tensor, indices in component:
            used = max(used, max((-i for i in indices if i < 0), default=0))
            result.append((tensor, tuple(i if i >= 0 else offset - i - 1 for i in indices)))
        offset += used
    return tuple(result)


def _components(factors: list[Factor]) -> list[list[Factor]]:
    """Split into parts that share no summed index."""
    owner: dict[int, int] = {}
    parent = list(range(len(factors)))

    def root(k: int) -> int:
        while parent[k] != k:
            parent[k] = parent[parent[k]]
            k = parent[k]
        return k

    for k, (_, indices) in enumerate(factors):
        for i in indices:
            if i < 0:
                if i in owner:
                    parent[root(k)] = root(owner[i])
                else:
                    owner[i] = k
    groups: dict[int, list[Factor]] = {}
    for k, factor in enumerate(factors):
        groups.setdefault(root(k), []).append(factor)
    return list(groups.values())


def _relabel(component: list[Factor]) -> Factors:
    """Name summed indices by first appearance, so that the cache is hit more often."""
    names: dict[int, int] = {}
    component = sorted(component, key=lambda f: f[0].order)
    return tuple(
        (t, tuple(i if i >= 0 else names.setdefault(i, -1 - len(names)) for i in indices))
        for t, indices in component
    )


def _encoding(component: Factors) -> tuple[Any, ...]:
    return tuple((t.order, indices) for t, indices in component)


def _sort_slots(tensor: Tensor, indices: tuple[int, ...]) -> tuple[int, ...]:
    if not tensor.symmetric_groups:
        return indices
    ordered = list(indices)
    for group in tensor.symmetric_groups:
        # Free indices first, then summed ones in the order of their names.
        for slot, index in zip(
            group, sorted((indices[s] for s in group), key=lambda i: (i < 0, abs(i))), strict=True
        ):
            ordered[slot] = index
    return tuple(ordered)


@lru_cache(maxsize=200_000)
def _canonical_component(factors: Factors) -> Factors:
    dummies = sorted({i for _, indices in factors for i in indices if i < 0})
    if len(dummies) <= 1:
        return _encode(factors, dict.fromkeys(dummies, -1))
    return _Search(factors, dummies).best()


def _encode(factors: Factors, names: dict[int, int]) -> Factors:
    renamed = [
        (t, _sort_slots(t, tuple(i if i >= 0 else names[i] for i in indices)))
        for t, indices in factors
    ]
    renamed.sort(key=lambda f: (f[0].order, f[1]))
    return tuple(renamed)


class _Search:
    """Individualisation and refinement with pruning by automorphisms already seen."""

    def __init__(self, factors: Factors, dummies: list[int]) -> None:
        self.factors = factors
        self.dummies = dummies
        orders = sorted({t.order for t, _ in factors})
        self.tensor_rank = {order: k for k, order in enumerate(orders)}
        self.slots = [
            [
                (self.tensor_rank[t.order], slot_class, index)
                for slot_class, index in zip(t.slot_classes, indices, strict=True)
            ]
            for t, indices in factors
        ]
        self.best_code: tuple[Any, ...] | None = None
        self.best_factors: Factors = factors
        self.best_names: dict[int, int] = {}
        self.automorphisms: list[dict[int, int]] = []

    def best(self) -> Factors:
        self._visit(self._refine(dict.fromkeys(self.dummies, 0)), [])
        return self.best_factors

    def _refine(self, colours: dict[int, int]) -> dict[int, int]:
        classes = len(set(colours.values()))
        while classes < len(self.dummies):
            signatures = []
            for slots in self.slots:
                marks = sorted(
                    (slot_class, 0, index) if index >= 0 else (slot_class, 1, colours[index])
                    for _, slot_class, index in slots
                )
                signatures.append((slots[0][0] if slots else -1, tuple(marks)))
            rank = {s: k for k, s in enumerate(sorted(set(signatures)))}
            seen: dict[int, list[tuple[int, int]]] = {d: [] for d in self.dummies}
            for slots, signature in zip(self.slots, signatures, strict=True):
                for _, slot_class, index in slots:
                    if index < 0:
                        seen[index].append((rank[signature], slot_class))
            marks_of = {d: (colours[d], tuple(sorted(seen[d]))) for d in self.dummies}
            order = {m: k for k, m in enumerate(sorted(set(marks_of.values())))}
            colours = {d: order[marks_of[d]] for d in self.dummies}
            if len(order) == classes:
                break
            classes = len(order)
        return colours

    def _visit(self, colours: dict[int, int], fixed: list[int]) -> None:
        cells: dict[int, list[int]] = {}
        for dummy, colour in colours.items():
            cells.setdefault(colour, []).append(dummy)
        open_cells = [c for c in cells if len(cells[c]) > 1]
        if not open_cells:
            self._leaf({d: -1 - k for k, d in enumerate(sorted(colours, key=colours.__getitem__))})
            return
        colour = min(open_cells, key=lambda c: (len(cells[c]), c))
        done: list[int] = []
        for dummy in cells[colour]:
            if any(dummy in self._orbit(other, fixed) for other in done):
                continue
            split = {
                d: 2 * c + (1 if c == colour and d != dummy else 0) for d, c in colours.items()
            }
            self._visit(self._refine(split), [*fixed, dummy])
            done.append(dummy)

    def _orbit(self, start: int, fixed: list[int]) -> set[int]:
        maps = [m for m in self.automorphisms if all(m[f] == f for f in fixed)]
        orbit, frontier = {start}, [start]
        while frontier:
            dummy = frontier.pop()
            for m in maps:
                if m[dummy] not in orbit:
                    orbit.add(m[dummy])
                    frontier.append(m[dummy])
        return orbit

    def _leaf(self, names: dict[int, int]) -> None:
        encoded = _encode(self.factors, names)
        code = _encoding(encoded)
        if self.best_code is None or code < self.best_code:
            self.best_code, self.best_factors, self.best_names = code, encoded, names
        elif code == self.best_code:
            back = {name: dummy for dummy, name in self.best_names.items()}
            self.automorphisms.append({dummy: back[name] for dummy, name in names.items()})
