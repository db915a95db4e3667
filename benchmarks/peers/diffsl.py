"""The reference problems in DiffSL, the language that pydiffsol takes."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from benchmarks.hand_written import Problem, staged_separate


def _numbers(values: np.ndarray) -> list[str]:
    return [repr(float(v)) for v in values]


def write(problem: Problem) -> str:
    """The problem with its numbers put in."""
    if problem.pattern is not None:
        return modes(problem)
    d = problem.dim
    if problem.name.startswith("M"):
        return merged(problem, d, problem.y0.size // (1 + d * d))
    return separate(problem, d, problem.y0.size // (1 + 2 * d))


def modes(problem: Problem) -> str:
    """Decoupled modes, one shared factor for each pair."""
    m = problem.y0.size // 2
    s2, a = _numbers(problem.p[:m] ** 2), _numbers(problem.p[m:])
    start = "\n".join(f"x{i} = {v}," for i, v in enumerate(_numbers(problem.y0)))
    rates = "\n".join(f"r{i} {{ {s2[i]} * (1.0 - x{i} * x{m + i} * {a[i]}) }}" for i in range(m))
    first = "\n".join(f"r{i} * x{m + i}," for i in range(m))
    second = "\n".join(f"r{i} * x{i}," for i in range(m))
    return f"in_i {{ dummy = 0 }}\nu_i {{\n{start}\n}}\n{rates}\nF_i {{\n{first}\n{second}\n}}\n"


def separate(problem: Problem, dim: int, heads: int) -> str:
    """The staged scalars of the separate flow, numbers in place of parameters.

    DiffSL reads an underscore as an index, so names lose theirs.
    """

    def plain(expression: str) -> str:
        return re.sub(r"([A-Za-z]+\d+)_(\d+)", r"\1x\2", expression)

    numbers = _numbers(problem.p)
    names: dict[int, str] = {}
    rates: dict[int, str] = {}
    staged = []
    for line in staged_separate(dim, heads).splitlines():
        if not line.startswith("    "):
            continue
        left, right = line.strip().split(" = ", 1)
        right = re.sub(r"p\[(\d+)\]", lambda found: numbers[int(found[1])], right)
        state = re.fullmatch(r"y\[(\d+)\]", right)
        if state:
            names[int(state[1])] = plain(left)
        elif left.startswith("out["):
            rates[int(left[4:-1])] = plain(right)
        else:
            staged.append(f"{plain(left)} {{ {plain(right)} }}")
    n = problem.y0.size
    start = "\n".join(f"{names[i]} = {float(problem.y0[i])!r}," for i in range(n))
    flow = "\n".join(f"{rates[i]}," for i in range(n))
    middle = "\n".join(staged)
    return f"in_i {{ dummy = 0 }}\nu_i {{\n{start}\n}}\n{middle}\nF_i {{\n{flow}\n}}\n"


def merged(problem: Problem, dim: int, heads: int) -> str:
    """The merged flow, each entry of A, A L and G a named scalar."""
    entries = [(i, j) for i in range(dim) for j in range(dim)]
    size = dim * dim
    linear, square, drive = (
        np.array(_numbers(problem.p[k * size : (k + 1) * size])).reshape(dim, dim) for k in range(3)
    )
    names = [f"v{h}" for h in range(heads)]
    names += [f"u{h}x{i}x{j}" for h in range(heads) for i, j in entries]
    start = [f"{name} = {y}," for name, y in zip(names, _numbers(problem.y0), strict=True)]

    def total(terms: Iterable[str]) -> str:
        return " + ".join(terms)

    lines = []
    for i, j in entries:
        lines.append(f"A{i}x{j} {{ {total(f'v{h} * u{h}x{i}x{j}' for h in range(heads))} }}")
    for i, j in entries:
        lines.append(f"C{i}x{j} {{ {total(f'A{i}x{m} * {linear[m, j]}' for m in range(dim))} }}")
    for i, j in entries:
        inner = total(f"{square[i, m]} * C{m}x{j}" for m in range(dim))
        lines.append(f"G{i}x{j} {{ {drive[i, j]} - ({inner}) }}")
    rates = [total(f"u{h}x{i}x{j} * G{i}x{j}" for i, j in entries) + "," for h in range(heads)]
    rates += [f"v{h} * G{i}x{j}," for h in range(heads) for i, j in entries]
    return "\n".join(["in_i { dummy = 0 }", "u_i {", *start, "}", *lines, "F_i {", *rates, "}", ""])
