"""Array statements as Python loops over flat indices, which Numba compiles fast."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odekit.codegen.program import Place, Product, Statement

__all__ = ["write_loops"]


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
    return [line for statement in statements for line in _statement(statement)]


def _statement(statement: Statement) -> list[str]:
    sizes = statement.sizes
    names = {i: f"i{k}" for k, i in enumerate(sorted(sizes))}
    axes = sorted(set(statement.indices))
    lines = [f"# {part}" for part in _wrapped(statement.comment)]
    depth = _open(lines, 0, axes, sizes, names)
    plain = [p for p in statement.products if p.indices <= set(axes)]
    summed = [p for p in statement.products if not p.indices <= set(axes)]
    target = _entry(statement.target, statement.indices, names)
    start = " + ".join(_product(p, names) for p in plain) or "0.0"
    if statement.accumulate:
        start = f"{target} + {start}"
    if not summed:
        lines.append("    " * depth + f"{target} = {start}")
        return lines
    lines.append("    " * depth + f"s = {start}")
    for product in summed:
        inner = _open(lines, depth, sorted(product.indices - set(axes)), sizes, names)
        lines.append("    " * inner + f"s += {_product(product, names)}")
    lines.append("    " * depth + f"{target} = s")
    return lines


def _open(
    lines: list[str], depth: int, axes: Sequence[int], sizes: dict[int, int], names: dict[int, str]
) -> int:
    for i in axes:
        lines.append("    " * depth + f"for {names[i]} in range({sizes[i]}):")
        depth += 1
    return depth


def _entry(place: Place, indices: Sequence[int], names: dict[int, str]) -> str:
    strides: dict[str, int] = {}
    for i, stride in zip(indices, place.strides, strict=True):
        strides[names[i]] = strides.get(names[i], 0) + stride
    parts = [name if s == 1 else f"{s} * {name}" for name, s in strides.items()]
    if place.offset or not parts:
        parts.insert(0, str(place.offset))
    return f"{place.buffer}[{' + '.join(parts)}]"


def _product(product: Product, names: dict[int, str]) -> str:
    entries = [_entry(place, ii, names) for place, ii in product.factors]
    number = product.number
    if number == 1.0 and entries:
        return " * ".join(entries)
    if number == -1.0 and entries:
        return "-" + " * ".join(entries)
    return " * ".join([f"({number!r})" if number < 0 else repr(number), *entries])


def _wrapped(comment: str, width: int = 90) -> list[str]:
    import textwrap

    return textwrap.wrap(comment, width) if comment else []
