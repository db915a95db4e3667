"""Array entries as flat addresses, and neighbouring axes fused into one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odekit.codegen.place import Place
from odekit.codegen.program import Statement

__all__ = ["Access", "FlatProduct", "FlatStatement", "flatten"]


@dataclass(frozen=True)
class Access:
    """An entry of a flat buffer: an offset plus a stride for each index."""

    buffer: str
    offset: int
    strides: Mapping[int, int]

    def text(self, names: Mapping[int, str]) -> str:
        """Source of the entry, with the given names of indices."""
        return f"{self.buffer}[{self.address(names)}]"

    def address(self, names: Mapping[int, str]) -> str:
        """Source of the entry's place in the buffer."""
        offset = self.offset
        parts = []
        for i, stride in self.strides.items():
            if names[i].isdigit():
                offset += stride * int(names[i])
            elif stride:
                parts.append(names[i] if stride == 1 else f"{stride} * {names[i]}")
        if offset or not parts:
            parts.insert(0, str(offset))
        return " + ".join(parts)

    def at(self, values: Mapping[int, int]) -> int:
        """The address for given values of the indices."""
        return self.offset + sum(s * values[i] for i, s in self.strides.items())


@dataclass(frozen=True)
class FlatProduct:
    """A number times entries."""

    number: float
    factors: tuple[Access, ...]

    @property
    def indices(self) -> frozenset[int]:
        """Every index that occurs."""
        return frozenset(i for f in self.factors for i in f.strides)

    def text(self, names: Mapping[int, str]) -> str:
        """Source of the product."""
        entries = [f.text(names) for f in self.factors]
        if self.number == 1.0 and entries:
            return " * ".join(entries)
        if self.number == -1.0 and entries:
            return "-" + " * ".join(entries)
        number = f"({self.number!r})" if self.number < 0 else repr(self.number)
        return " * ".join([number, *entries])


@dataclass(frozen=True)
class FlatStatement:
    """``target = sum of products`` in flat addresses; indices that the target lacks are summed."""

    target: Access
    products: tuple[FlatProduct, ...]
    sizes: Mapping[int, int]
    accumulate: bool
    comment: str

    @property
    def free(self) -> tuple[int, ...]:
        """The target's indices, outermost in memory first."""
        return tuple(sorted(self.target.strides, key=lambda i: -self.target.strides[i]))


def _access(place: Place, indices: tuple[int, ...]) -> Access:
    strides: dict[int, int] = {}
    for i, stride in zip(indices, place.strides, strict=True):
        strides[i] = strides.get(i, 0) + stride
    return Access(place.buffer, place.offset, strides)


def flatten(statement: Statement) -> FlatStatement:
    """Address a statement's arrays, with axes fused where every array keeps them side by side."""
    flat = FlatStatement(
        _access(statement.target, statement.indices),
        tuple(
            FlatProduct(p.number, tuple(_access(place, ii) for place, ii in p.factors))
            for p in statement.products
        ),
        statement.sizes,
        statement.accumulate,
        statement.comment,
    )
    return _without_unit_axes(_fused(flat))


def _accesses(flat: FlatStatement) -> list[Access]:
    return [flat.target, *(f for p in flat.products for f in p.factors)]


def _fused(flat: FlatStatement) -> FlatStatement:
    indices = sorted(flat.sizes)
    for outer in indices:
        for inner in indices:
            if outer != inner and all(
                _adjacent(a, outer, inner, flat.sizes[inner]) for a in _accesses(flat)
            ):
                return _fused(_joined(flat, outer, inner))
    return flat


def _adjacent(access: Access, outer: int, inner: int, size: int) -> bool:
    if outer not in access.strides and inner not in access.strides:
        return True
    return (
        outer in access.strides
        and inner in access.strides
        and access.strides[outer] == size * access.strides[inner]
    )


def _joined(flat: FlatStatement, outer: int, inner: int) -> FlatStatement:
    sizes = dict(flat.sizes)
    sizes[inner] *= sizes.pop(outer)
    return _map(flat, lambda strides: {i: s for i, s in strides.items() if i != outer}, sizes)


def _without_unit_axes(flat: FlatStatement) -> FlatStatement:
    """Axes of one entry need no loop."""
    sizes = {i: n for i, n in flat.sizes.items() if n > 1}
    return _map(flat, lambda strides: {i: s for i, s in strides.items() if i in sizes}, sizes)


def _map(flat: FlatStatement, change: object, sizes: Mapping[int, int]) -> FlatStatement:
    assert callable(change)

    def moved(access: Access) -> Access:
        return Access(access.buffer, access.offset, change(access.strides))

    return FlatStatement(
        moved(flat.target),
        tuple(FlatProduct(p.number, tuple(moved(f) for f in p.factors)) for p in flat.products),
        sizes,
        flat.accumulate,
        flat.comment,
    )
