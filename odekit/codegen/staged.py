"""Array statements as scalars, each named once: the fastest form of a small field."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

from odekit.codegen.access import Access, FlatStatement, flatten
from odekit.codegen.loops import wrapped
from odekit.codegen.program import Statement

__all__ = ["count_work", "write_staged"]


def count_work(statements: Iterable[Statement]) -> int:
    """Number of products that the statements add up."""
    total = 0
    for statement in statements:
        flat = flatten(statement)
        for product in flat.products:
            indices = product.indices | set(flat.target.strides)
            total += math.prod(flat.sizes[i] for i in indices)
    return total


def write_staged(statements: Iterable[Statement]) -> list[str]:
    """Write statements as source lines without loops.

    Parameters
    ----------
    statements : iterable of Statement

    Returns
    -------
    list of str
        Intermediates are locals; inputs are unpacked to locals first.
    """
    body: list[str] = []
    inputs: dict[tuple[str, int], str] = {}
    made: dict[tuple[str, int], str] = {}

    def read(access: Access, values: dict[int, int]) -> str:
        spot = (access.buffer, access.at(values))
        if spot in made:
            return made[spot]
        return inputs.setdefault(spot, f"{spot[0]}{spot[1]}")

    for statement in statements:
        flat = flatten(statement)
        body += [f"# {part}" for part in wrapped(statement.comment)]
        for position in _positions(flat, flat.free):
            spot = (flat.target.buffer, flat.target.at(position))
            terms = [read(flat.target, position)] if flat.accumulate else []
            for product in flat.products:
                axes = sorted(product.indices - set(flat.target.strides))
                for inner in _positions(flat, axes):
                    values = {**position, **inner}
                    names = [read(f, values) for f in product.factors]
                    terms.append(_times(product.number, names))
            name = f"w{spot[1]}" if spot[0] == "p" else f"{spot[0]}{spot[1]}"
            made[spot] = name
            body.append(f"{name} = {_plus(terms)}")
            if spot[0] == "out":
                body.append(f"out[{spot[1]}] = {name}")
    unpack = [f"{name} = {buffer}[{address}]" for (buffer, address), name in sorted(inputs.items())]
    return unpack + body


def _positions(flat: FlatStatement, axes: Iterable[int]) -> Iterable[dict[int, int]]:
    axes = list(axes)
    for values in itertools.product(*(range(flat.sizes[i]) for i in axes)):
        yield dict(zip(axes, values, strict=True))


def _times(number: float, names: list[str]) -> str:
    if number == 1.0 and names:
        return " * ".join(names)
    if number == -1.0 and names:
        return "-" + " * ".join(names)
    return " * ".join([f"({number!r})" if number < 0 else repr(number), *names])


def _plus(terms: list[str]) -> str:
    return " + ".join(terms).replace("+ -", "- ") or "0.0"
