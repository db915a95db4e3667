"""The reference problems in DiffSL, the language that pydiffsol takes."""

from __future__ import annotations

import re

import numpy as np

from benchmarks.hand_written import Problem, staged_separate


def _numbers(values: np.ndarray) -> list[str]:
    return [repr(float(v)) for v in values]


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
