"""Array statements as Python loops over flat indices, which Numba compiles fast.

Each contraction is written in the order that a compiler can vectorise without reordering sums:
along an axis that lies contiguous in the target and in every factor that has it (short rows as
one instruction of `odekit.codegen.rows`); else as a dot product in four partial sums.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from odekit.codegen.access import Access, FlatProduct, FlatStatement, flatten
from odekit.codegen.program import Statement
from odekit.codegen.rows import LONGEST, SHORTEST

__all__ = ["write_loops"]

UNROLL = 16
"""Rows added at once: fewer passes over the target, and still a body that compiles fast."""

PARTIAL = 4
"""Partial sums of a dot product: what hides the latency of an addition."""


def write_loops(statements: Iterable[Statement]) -> list[str]:
    """Write statements as source lines.

    Parameters
    ----------
    statements : iterable of Statement

    Returns
    -------
    list of str
        Lines without the function's indentation.
    """
    lines: list[str] = []
    for statement in statements:
        lines += [f"# {part}" for part in wrapped(statement.comment)]
        lines += statement_loops(flatten(statement))
    return lines


def statement_loops(flat: FlatStatement) -> list[str]:
    """Write one statement."""
    names = {i: f"i{k}" for k, i in enumerate(sorted(flat.sizes))}
    free = set(flat.target.strides)
    summed = [p for p in flat.products if not p.indices <= free]
    along = _vector_axis(flat, summed)
    if summed and along is not None:
        return _rows(flat, summed, along, names)
    if not summed and (row := _scaled_row(flat, names)) is not None:
        return row
    return _entries(flat, summed, names)


def _vector_axis(flat: FlatStatement, summed: Sequence[FlatProduct]) -> int | None:
    """A free axis along which target and factors are contiguous or constant."""
    for i in reversed(flat.free):
        if flat.target.strides[i] == 1 and all(
            f.strides.get(i, 0) in (0, 1) for p in summed for f in p.factors
        ):
            return i
    return None


def _rows(
    flat: FlatStatement, summed: Sequence[FlatProduct], along: int, names: Mapping[int, str]
) -> list[str]:
    """Whole rows at a time: ``row += number * row``."""
    lines: list[str] = []
    outer = [i for i in flat.free if i != along]
    depth = open_loops(lines, 0, outer, flat.sizes, names)
    target = flat.target.text(names)
    start = _start(flat, names)
    plain, known = _start_row(flat, along)
    if not _at_once(flat, summed[0]) or (_short(flat, along) and not plain):
        if start != target:
            inner = open_loops(lines, depth, [along], flat.sizes, names)
            lines.append("    " * inner + f"{target} = {start}")
        start, known = target, flat.target
    for product in summed:
        axes = [i for i in _by_stride(product) if i not in flat.target.strides]
        inner = open_loops(lines, depth, axes[:-1], flat.sizes, names)
        rows = _add_rows(flat, product, axes[-1], along, names, start, known)
        lines += ["    " * inner + line for line in rows]
        start, known = target, flat.target
    return lines


def _short(flat: FlatStatement, along: int) -> bool:
    return SHORTEST <= flat.sizes[along] <= LONGEST


def _start_row(flat: FlatStatement, along: int) -> tuple[bool, Access | None]:
    """Whether a sum starts from zero (None) or from one plain row, and which."""
    first = [p for p in flat.products if p.indices <= set(flat.target.strides)]
    if flat.accumulate:
        return not first, flat.target
    if not first:
        return True, None
    row = first[0].factors[0] if first[0].factors else None
    alone = len(first) == 1 and first[0].number == 1.0 and len(first[0].factors) == 1
    return alone and row is not None and row.strides.get(along) == 1, row


def _scaled_row(flat: FlatStatement, names: Mapping[int, str]) -> list[str] | None:
    """Short rows of a product of numbers and one array; None where a statement is not that."""
    if len(flat.products) != 1 or flat.accumulate:
        return None
    (product,) = flat.products
    for along in reversed(flat.free):
        moving = [f for f in product.factors if along in f.strides]
        if flat.target.strides[along] == 1 and _short(flat, along):
            if len(moving) != 1 or moving[0].strides[along] != 1:
                return None
            lines: list[str] = []
            outer = [i for i in flat.free if i != along]
            depth = open_loops(lines, 0, outer, flat.sizes, names)
            fixed = FlatProduct(product.number, tuple(f for f in product.factors if f != moving[0]))
            lines.append(
                "    " * depth
                + _call(flat, along, names, None, [fixed.text(names)], moving[0], names, 0)
            )
            return lines
    return None


def _call(
    flat: FlatStatement,
    along: int,
    names: Mapping[int, str],
    start: Access | None,
    scales: Sequence[str],
    source: Access,
    first: Mapping[int, str],
    step: int,
) -> str:
    """A call of `odekit.codegen.rows.add_rows`; ``first`` names the indices of the first row."""
    here, there = {**names, along: "0"}, {**first, along: "0"}
    begun = "None, 0" if start is None else f"{start.buffer}, {start.address(here)}"
    target = f"{flat.target.buffer}, {flat.target.address(here)}, {flat.sizes[along]}"
    rows = f"{source.buffer}, {source.address(there)}, {step}"
    return f"add_rows({target}, {begun}, ({', '.join(scales)},), {rows})"


def _at_once(flat: FlatStatement, product: FlatProduct) -> bool:
    """Whether one pass over the target takes in a whole product."""
    axes = [i for i in product.indices if i not in flat.target.strides]
    return len(axes) == 1 and flat.sizes[axes[0]] <= UNROLL


def _add_rows(
    flat: FlatStatement,
    product: FlatProduct,
    axis: int,
    along: int,
    names: Mapping[int, str],
    before: str,
    known: Access | None,
) -> list[str]:
    """Add the rows of a product along one summed axis, several at once, to what was before.

    ``known`` is what was before as an access for short rows, None for zero.
    """
    size, target = flat.sizes[axis], flat.target.text(names)
    fixed = FlatProduct(
        product.number,
        tuple(f for f in product.factors if along not in f.strides),
    )
    moving = FlatProduct(1.0, tuple(f for f in product.factors if along in f.strides))
    rows = moving.factors[0] if len(moving.factors) == 1 and _short(flat, along) else None
    step = size if size <= UNROLL else max(k for k in range(1, UNROLL // 2 + 1) if size % k == 0)
    if step < 4:
        step = min(UNROLL // 2, size)
    whole = size - size % step
    lines: list[str] = []
    for start, stop in ((0, whole), (whole, size)):
        width = min(step, stop - start)
        if width == 0:
            continue
        pad = ""
        if stop - start > width:
            lines.append(f"for {names[axis]} in range({start}, {stop}, {width}):")
            pad = "    "
        terms, scales = [], []
        for k in range(width):
            here = f"({names[axis]} + {k})" if pad else str(start + k)
            moved = {**names, axis: here}
            scale = fixed.text(moved)
            if fixed.factors:
                lines.append(f"{pad}a{k} = {scale}")
                scale = f"a{k}"
            scales.append(scale)
            terms.append(f"{scale} * {moving.text(moved)}" if moving.factors else scale)
        if rows is not None:
            first = {**names, axis: names[axis] if pad else str(start)}
            stride = rows.strides.get(axis, 0)
            lines.append(pad + _call(flat, along, names, known, scales, rows, first, stride))
            known = flat.target
            continue
        lines.append(f"{pad}for {names[along]} in range({flat.sizes[along]}):")
        total = " + ".join(terms if before == "0.0" else [before, *terms])
        lines.append(f"{pad}    {target} = {total.replace('+ -', '- ')}")
    return lines


def _entries(
    flat: FlatStatement, summed: Sequence[FlatProduct], names: Mapping[int, str]
) -> list[str]:
    """One entry of the target at a time."""
    lines: list[str] = []
    depth = open_loops(lines, 0, flat.free, flat.sizes, names)
    target = flat.target.text(names)
    start = _start(flat, names)
    if not summed:
        lines.append("    " * depth + f"{target} = {start}")
        return lines
    lines.append("    " * depth + f"s = {start}")
    for product in summed:
        lines += ["    " * depth + line for line in _sum(flat, product, names)]
    lines.append("    " * depth + f"{target} = s")
    return lines


def _sum(flat: FlatStatement, product: FlatProduct, names: Mapping[int, str]) -> list[str]:
    """Add a product's sum to ``s``."""
    axes = [i for i in _by_stride(product) if i not in flat.target.strides]
    last = axes[-1]
    size = flat.sizes[last]
    lines: list[str] = []
    if size < 2 * PARTIAL:
        depth = open_loops(lines, 0, axes, flat.sizes, names)
        lines.append("    " * depth + f"s += {product.text(names)}")
        return lines
    depth = open_loops(lines, 0, axes[:-1], flat.sizes, names)
    pad = "    " * depth
    lines.append(pad + " = ".join(f"s{k}" for k in range(PARTIAL)) + " = 0.0")
    whole = size - size % PARTIAL
    lines.append(pad + f"for {names[last]} in range(0, {whole}, {PARTIAL}):")
    for k in range(PARTIAL):
        shifted = {**names, last: f"({names[last]} + {k})" if k else names[last]}
        lines.append(pad + f"    s{k} += {product.text(shifted)}")
    lines.append(pad + "s += (s0 + s1) + (s2 + s3)")
    for k in range(whole, size):
        lines.append(pad + f"s += {product.text({**names, last: str(k)})}")
    return lines


def _start(flat: FlatStatement, names: Mapping[int, str]) -> str:
    """The part of a statement that needs no sum."""
    plain = [p.text(names) for p in flat.products if p.indices <= set(flat.target.strides)]
    if flat.accumulate:
        plain.insert(0, flat.target.text(names))
    return " + ".join(plain).replace("+ -", "- ") or "0.0"


def _by_stride(product: FlatProduct) -> list[int]:
    """A product's indices, those that move furthest in memory first."""
    reach = {i: max(f.strides.get(i, 0) for f in product.factors) for i in sorted(product.indices)}
    return sorted(reach, key=lambda i: -reach[i])


def open_loops(
    lines: list[str],
    depth: int,
    axes: Sequence[int],
    sizes: Mapping[int, int],
    names: Mapping[int, str],
) -> int:
    """Append loop headers; returns the depth inside."""
    for i in axes:
        lines.append("    " * depth + f"for {names[i]} in range({sizes[i]}):")
        depth += 1
    return depth


def wrapped(comment: str, width: int = 90) -> list[str]:
    """Break a comment into lines."""
    return textwrap.wrap(comment, width) if comment else []
