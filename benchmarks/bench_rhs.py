"""Right-hand sides: odekit's generated code against hand-written Numba, in one run.

    python -m benchmarks.bench_rhs [--quick] [--json FILE]

Hand-written versions are those an expert would write for each size: staged scalars up to D = 8,
flat loops up to 16, `np.dot` with preallocated outputs (see `hand_written`); where several are
given, the fastest counts. Times are CPU times of a call inside a compiled loop, medians of
alternated rounds; the ratio is what counts (goal 1.1).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import float64, int64, njit, types, void

import odekit as ok
from benchmarks import hand_written

CASES = (
    ("separate", 4, 4),
    ("separate", 8, 9),
    ("separate", 16, 16),
    ("separate", 32, 32),
    ("separate", 128, 32),
    ("merged", 4, 8),
    ("merged", 8, 8),
    ("merged", 16, 8),
    ("merged", 32, 8),
    ("merged", 128, 4),
)
GOAL = 1.1

_V = float64[::1]


@njit(void(types.FunctionType(void(float64, _V, _V, _V)), _V, _V, _V, int64), nogil=True)
def _repeat(rhs, y, p, out, count):  # type: ignore[no-untyped-def]
    for _ in range(count):
        rhs(0.0, y, p, out)


def timer(rhs: Any, y: np.ndarray, p: np.ndarray, budget: float) -> Callable[[], float]:
    """A function that measures CPU seconds a call, inside a compiled loop of about this budget."""
    out = np.empty_like(y)
    _repeat(rhs, y, p, out, 1)
    count = 1
    while True:
        start = time.thread_time()
        _repeat(rhs, y, p, out, count)
        if time.thread_time() - start > budget:
            break
        count *= 2

    def call() -> float:
        start = time.thread_time()
        _repeat(rhs, y, p, out, count)
        return (time.thread_time() - start) / count

    return call


def _by_hand(kind: str, dim: int, heads: int) -> dict[str, Any]:
    """Hand-written forms that are worth a try at this size."""
    head = hand_written._HEAD
    if kind == "merged":
        forms = {"loops": hand_written._merged(dim, heads, False)}
        if dim >= 16:
            forms["np.dot"] = hand_written._merged(dim, heads, True)
        return {name: hand_written._load(source).rhs for name, source in forms.items()}
    forms = {}
    if dim <= 8:
        forms["staged"] = hand_written.staged_separate(dim, heads)
    if dim >= 8:
        forms["np.dot"] = hand_written._dot_separate(dim, heads)
    return {
        name: hand_written._load(source if source.startswith(head) else head + source).rhs
        for name, source in forms.items()
    }


def measure(kind: str, dim: int, heads: int, rounds: int, budget: float) -> dict[str, Any]:
    """Measure one case.

    Parameters
    ----------
    kind : {"separate", "merged"}
    dim, heads : int
    rounds : int
        Alternated rounds, of which the median counts.
    budget : float
        CPU seconds a round and version.

    Returns
    -------
    dict
        Microseconds a call by version, the ratio to the fastest hand-written one, and the largest
        relative difference between the two results.
    """
    maker = hand_written.separate if kind == "separate" else hand_written.merged
    problem = maker("bench", dim, heads, 0.5, 1.0)
    sizes = {"D": dim, "H": heads, **({"R": 1} if kind == "separate" else {})}
    model = getattr(ok.models, f"attention_{kind}")()
    compiled = ok.compile(model, sizes)
    covariance = problem.p[: dim * dim].reshape(dim, dim)
    packed = compiled.layout.pack_parameters(
        {"Lambda": (covariance + covariance.T) / 2, "N": hand_written.CONTEXT}
    )
    forms = _by_hand(kind, dim, heads)
    ours, theirs = np.empty_like(problem.y0), np.empty_like(problem.y0)
    compiled.rhs(0.0, problem.y0, packed, ours)
    gap = 0.0
    for rhs in forms.values():
        rhs(0.0, problem.y0, problem.p, theirs)
        gap = max(gap, float(np.abs(ours - theirs).max() / np.abs(theirs).max()))
    timers = {"odekit": timer(compiled.rhs, problem.y0, packed, budget)}
    timers |= {name: timer(rhs, problem.y0, problem.p, budget) for name, rhs in forms.items()}
    samples: dict[str, list[float]] = {name: [] for name in timers}
    for _ in range(rounds):
        for name, measured in timers.items():
            samples[name].append(measured())
    micro = {name: 1e6 * statistics.median(values) for name, values in samples.items()}
    best = min((name for name in micro if name != "odekit"), key=micro.__getitem__)
    return {
        "case": f"{kind} D={dim} H={heads}",
        "microseconds": micro,
        "best": best,
        "ratio": micro["odekit"] / micro[best],
        "difference": gap,
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="fewer and shorter rounds, D = 4 and 32"
    )
    parser.add_argument("--json", help="also write the numbers to this file")
    arguments = parser.parse_args()
    rounds, budget = (7, 0.004) if arguments.quick else (21, 0.02)
    print("| case | odekit, us | hand-written, us | ratio | goal |")
    print("| --- | --- | --- | --- | --- |")
    rows = []
    for kind, dim, heads in CASES:
        if arguments.quick and dim not in (4, 32):
            continue
        row = measure(kind, dim, heads, rounds, budget)
        rows.append(row)
        by_hand = ", ".join(
            f"{value:.3g} {name}" for name, value in row["microseconds"].items() if name != "odekit"
        )
        verdict = "met" if row["ratio"] <= GOAL else "missed"
        print(
            f"| {row['case']} | {row['microseconds']['odekit']:.3g} | {by_hand} | "
            f"{row['ratio']:.2f} | {verdict} |",
            flush=True,
        )
        assert row["difference"] < 1e-10, row
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
