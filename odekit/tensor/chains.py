"""Reading a contraction as products of matrices, traces and vectors, for display."""

from __future__ import annotations

from typing import NamedTuple

from odekit.tensor.canonical import Factors
from odekit.tensor.tensors import Tensor


class Link(NamedTuple):
    """One matrix or vector in a chain, possibly transposed."""

    tensor: Tensor
    transposed: bool


class Chains(NamedTuple):
    """A product as an open chain (rank 1 or 2), scalars, and traces.

    ``open`` holds one chain, or two whose outer product is meant; ``forms`` are scalars
    ``u^T M v``; ``traces`` are closed chains; ``scalars`` are rank-zero tensors.
    """

    open: tuple[tuple[Link, ...], ...]
    forms: tuple[tuple[Link, ...], ...]
    traces: tuple[tuple[Link, ...], ...]
    scalars: tuple[Tensor, ...]


def read_chains(factors: Factors, rank: int) -> Chains | None:
    """Walk the chains, or None where the product is no matrix expression."""
    if rank > 2 or any(t.rank > 2 for t, _ in factors):
        return None
    places: dict[int, list[tuple[int, int]]] = {}
    for k, (_, indices) in enumerate(factors):
        for slot, index in enumerate(indices):
            places.setdefault(index, []).append((k, slot))
    for index, where in places.items():
        if len(where) != (1 if index < rank else 2):
            return None
    if any(index not in places for index in range(rank)):
        return None
    unused = {k for k, (t, _) in enumerate(factors) if t.rank}

    def walk(index: int) -> tuple[tuple[Link, ...], int | None]:
        """Follow from an index; returns the links and the free index met, if any."""
        links: list[Link] = []
        previous = -1
        while True:
            here = [(k, s) for k, s in places[index] if k != previous and k in unused]
            if not here:
                return tuple(links), index if index < rank else None
            k, slot = here[0]
            unused.discard(k)
            tensor, indices = factors[k]
            links.append(Link(tensor, slot == 1))
            if tensor.rank == 1:
                return tuple(links), None
            previous, index = k, indices[1 - slot]

    opened: list[tuple[Link, ...]] = []
    reached: set[int] = set()
    for free in range(rank):
        if free not in reached:
            links, end = walk(free)
            opened.append(links)
            if end is not None:
                reached.add(end)
    forms: list[tuple[Link, ...]] = []
    for k, (tensor, indices) in enumerate(factors):
        if k in unused and tensor.rank == 1:
            unused.discard(k)
            links, _ = walk(indices[0])
            forms.append((Link(tensor, True), *links))
    traces: list[tuple[Link, ...]] = []
    for k, (tensor, indices) in enumerate(factors):
        if k in unused:
            unused.discard(k)
            if indices[0] == indices[1]:
                traces.append((Link(tensor, False),))
                continue
            links, _ = walk(indices[1])
            traces.append((Link(tensor, False), *links))
    scalars = tuple(t for t, _ in factors if t.rank == 0)
    return Chains(tuple(opened), tuple(forms), tuple(traces), scalars)
