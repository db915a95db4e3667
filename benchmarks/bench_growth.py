"""Growth with size: right-hand side and Jacobian, in D and in H, with fitted exponents.

    python -m benchmarks.bench_growth [--quick] [--out DIR]

CPU time of a call of the generated code inside a compiled loop. The exponent is the slope of a
straight line through log time against log size, over the sizes named in the table; the goal is an
exponent in D of at most 3.1 for the right-hand side from D = 64 to 512.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numba import float64, int64, njit, types, void

import odekit as ok
from benchmarks.bench_rhs import timer
from benchmarks.work_precision import keep_stdout

GOAL = 3.1
FIT_FROM = 64
DIMS = (4, 8, 16, 32, 64, 128, 256, 512)
_V = float64[::1]
_M = float64[:, ::1]


@njit(void(types.FunctionType(void(float64, _V, _V, _M)), _V, _V, _M, int64), nogil=True)
def _repeat(jacobian, y, p, out, count):  # type: ignore[no-untyped-def]
    for _ in range(count):
        jacobian(0.0, y, p, out)


@dataclass
class Line:
    """Cost of one function along one size."""

    name: str
    axis: str
    sizes: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def exponent(self) -> tuple[float, list[int]]:
        """The fitted exponent and the sizes it is fitted to: the large ones, if there are three."""
        large = [n for n in self.sizes if n >= FIT_FROM]
        chosen = large if len(large) >= 3 else self.sizes[-3:]
        pairs = [(n, s) for n, s in zip(self.sizes, self.seconds, strict=True) if n in chosen]
        slope = np.polyfit(*np.log(np.array(pairs)).T, 1)[0]
        return float(slope), chosen


def compiled_at(kind: str, dim: int, heads: int) -> tuple[Any, np.ndarray, np.ndarray]:
    sizes = {"D": dim, "H": heads, **({"R": 1} if kind == "separate" else {})}
    compiled = ok.compile(getattr(ok.models, f"attention_{kind}")(), sizes)
    y = 0.5 * np.random.default_rng(0).normal(size=compiled.layout.size)
    matrix = np.diag(np.linspace(2.0, 1.0, dim) / dim)
    return compiled, y, compiled.layout.pack_parameters({"Lambda": matrix, "N": 31})


def jacobian_timer(compiled: Any, y: np.ndarray, p: np.ndarray, budget: float) -> float:
    out = np.empty((y.size, y.size))
    jacobian = compiled.jacobian
    _repeat(jacobian, y, p, out, 1)
    count, spent = 1, 0.0
    while spent < budget:
        count *= 2
        begun = time.thread_time()
        _repeat(jacobian, y, p, out, count)
        spent = time.thread_time() - begun
    return spent / count


def grow(
    name: str, axis: str, sizes: tuple[int, ...], cost: Callable[[int], float], most: float
) -> Line:
    """Measure up to the first size whose compilation and timing take longer than ``most``."""
    line = Line(name, axis)
    for size in sizes:
        begun = time.process_time()
        line.sizes.append(size)
        line.seconds.append(cost(size))
        if time.process_time() - begun > most:
            break
    return line


def lines(quick: bool) -> list[Line]:
    budget, most = (0.01, 15.0) if quick else (0.05, 60.0)
    dims = DIMS if not quick else DIMS[1::2]
    heads = (1, 2, 4, 8, 16, 32, 64, 128) if not quick else (2, 8, 32, 128)
    small = (4, 8, 16, 32, 64) if not quick else (4, 8, 16, 32)

    def rhs(kind: str, dim: int, count: int) -> float:
        compiled, y, p = compiled_at(kind, dim, count)
        measure = timer(compiled.rhs, y, p, budget)
        return min(measure() for _ in range(3))

    def jacobian(kind: str, dim: int, count: int) -> float:
        return jacobian_timer(*compiled_at(kind, dim, count), budget)

    plans: list[tuple[str, str, tuple[int, ...], Callable[[int], float]]] = [
        ("right-hand side, separate, H = 8", "D", dims, lambda d: rhs("separate", d, 8)),
        ("right-hand side, separate, D = 16", "H", heads, lambda h: rhs("separate", 16, h)),
        ("Jacobian, separate, H = 4", "D", small, lambda d: jacobian("separate", d, 4)),
        ("right-hand side, merged, H = 8", "D", dims, lambda d: rhs("merged", d, 8)),
        ("right-hand side, merged, D = 16", "H", heads, lambda h: rhs("merged", 16, h)),
        ("Jacobian, separate, D = 8", "H", small, lambda h: jacobian("separate", 8, h)),
    ]
    return [grow(*plan, most) for plan in (plans[:3] if quick else plans)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one field, every second size")
    parser.add_argument("--out", type=Path, help="folder for the picture")
    options = parser.parse_args()
    keep_stdout()
    measured = lines(options.quick)
    print("| function | grows with | exponent | fitted at | microseconds | goal |")
    print("| --- | --- | --- | --- | --- | --- |")
    for line in measured:
        slope, chosen = line.exponent()
        costs = ", ".join(
            f"{1e6 * s:.3g} at {n}" for n, s in zip(line.sizes, line.seconds, strict=True)
        )
        judged = line.axis == "D" and line.name.startswith("right") and len(chosen) >= 3
        judged = judged and chosen[0] >= FIT_FROM
        verdict = ("met" if slope <= GOAL else "missed") if judged else "-"
        fitted = f"{chosen[0]} to {chosen[-1]}"
        print(f"| {line.name} | {line.axis} | {slope:.2f} | {fitted} | {costs} | {verdict} |")
    if options.out is not None:
        from benchmarks.pictures import growth

        print(f"\n![Growth with D and H]({growth(measured, options.out).name})")


if __name__ == "__main__":
    main()
