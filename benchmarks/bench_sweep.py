"""Sweeps: the share of time outside the solver, and two processes against one.

    python -m benchmarks.bench_sweep [--runs 10000] [--rounds 3] [--quick]

The share compares a whole sweep (reading the file, planning, hashing, running, storing, reading
the results) with the same `ok.solve` calls made by hand on prepared starts and parameters, in
alternating rounds of CPU time. A problem file and a task in Python are timed apart, on a small
solve (M4 from a start of 0.1: merged attention, D = 4, H = 8) and on the usual one (S4: separate,
D = H = 4).

Two processes are compared with one by wall time, start-up included, which means something on two
free cores only; beside it stands the bound that the CPU time spent by all processes sets.
"""

from __future__ import annotations

import argparse
import functools
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import odekit as ok
from odekit.problem import Problem, read_sweep

GOAL, GOAL_CORES = 0.20, 1.8
SEEDS = 20
SPECTRUM = "[0.4, 0.3, 0.2, 0.1]"
PROBLEMS = {
    "M4": ('"attention_merged"', "heads = 8, dim = 4, context = 31", 120.0, 0.1),
    "S4": ('"attention_separate"', "heads = 4, rank = 1, dim = 4, context = 31", 2e4, 1e-2),
}


def written(name: str, runs: int, folder: Path) -> Path:
    """A problem file with so many runs."""
    model, sizes, end, scale = PROBLEMS[name]
    path = folder / f"{name}.toml"
    path.write_text(
        f"model = {model}\ntime = {end}\nsizes = {{ {sizes} }}\n"
        f"[parameters]\nLambda = {{ diagonal = {SPECTRUM} }}\n[sweep]\n[sweep.grid]\n"
        f'"random.scale" = {{ from = {scale}, to = {2 * scale}, points = {runs // SEEDS} }}\n'
        f'"random.seed" = {list(range(SEEDS))}\n'
    )
    return path


@functools.cache
def prepared(name: str) -> tuple[Any, Any]:
    """The compiled flow and its parameters, once a process."""
    with tempfile.TemporaryDirectory() as folder:
        first = Problem.from_mapping(
            read_sweep(written(name, SEEDS, Path(folder))).runs[0].arguments["document"]
        )
    flow: Any = first.field
    return ok.compile(flow, flow.infer_sizes(first.y0, first.params, {})), first.params


def task(name: str, scale: float, seed: int) -> Any:
    """One solve, as a task in Python."""
    compiled, params = prepared(name)
    rng = np.random.default_rng(seed)
    start = {n: scale * rng.standard_normal(shape) for n, shape in compiled.layout.states}
    return ok.solve(compiled, start, [PROBLEMS[name][2]], params)


def python_plan(name: str, runs: int) -> Any:
    scale = PROBLEMS[name][3]
    axes = {"scale": np.geomspace(scale, 2 * scale, runs // SEEDS), "seed": range(SEEDS)}
    return ok.sweep.grid(task, axes, arguments={"name": name})


def cpu(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def outside(name: str, runs: int, rounds: int, folder: Path) -> None:
    """Print the share of time outside the solver."""
    path = written(name, runs, folder)
    problems = [
        Problem.from_mapping(r.arguments["document"], share=True) for r in read_sweep(path).runs
    ]
    compiled, params = prepared(name)
    store = folder / f"{name}.sweep"

    def by_hand() -> None:
        for each in problems:
            ok.solve(compiled, each.y0, [each.t], params)

    def swept(make: Callable[[], Any]) -> Callable[[], None]:
        def call() -> None:
            store.unlink(missing_ok=True)
            results = ok.sweep.run(make(), store, workers=1)
            assert set(results.status) == {"done"}

        return call

    calls = {
        "solver": by_hand,
        "file": swept(lambda: read_sweep(path)),
        "Python": swept(lambda: python_plan(name, runs)),
    }
    times: dict[str, list[float]] = {kind: [] for kind in calls}
    by_hand()
    for _ in range(rounds):
        for kind, call in calls.items():
            times[kind].append(cpu(call))
    solver = statistics.median(times["solver"])
    for kind in ("file", "Python"):
        whole = statistics.median(times[kind])
        print(
            f"| {name} | {kind} | {1e3 * solver / runs:.2f} | {1e6 * (whole - solver) / runs:.0f} "
            f"| {1 - solver / whole:.1%} |",
            flush=True,
        )


def two_processes(runs: int, rounds: int, folder: Path) -> None:
    """Print the throughput of two processes over that of one."""
    plan = python_plan("S4", runs)
    walls: dict[int, list[float]] = {1: [], 2: []}
    spent: dict[int, list[float]] = {1: [], 2: []}
    for k in range(rounds):
        for workers in (1, 2):
            store = folder / f"{workers}-{k}.sweep"
            wall, before = time.perf_counter(), _spent()
            # One process, too, so that both start up and hand their results over.
            ok.sweep.run(plan, store, workers=workers, executor="processes")
            walls[workers].append(time.perf_counter() - wall)
            spent[workers].append(_spent() - before)
    gain = statistics.median(walls[1]) / statistics.median(walls[2])
    bound = 2 * statistics.median(spent[1]) / statistics.median(spent[2])
    load = os.getloadavg()[0]
    print(
        f"\nTwo processes against one, {runs} solves of S4: {gain:.2f} by wall time (goal "
        f"{GOAL_CORES:g} on two free cores; load {load:.1f} of {len(os.sched_getaffinity(0))}), "
        f"{bound:.2f} by CPU time."
    )


def _spent() -> float:
    own, others = (resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + others.ru_utime + others.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="1,000 runs")
    options = parser.parse_args()
    runs = options.runs or (1_000 if options.quick else 10_000)
    rounds = options.rounds or 3
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{runs} runs, {rounds} rounds; goal: less than {GOAL:.0%} outside the solver.\n")
        print("| solve | described in | ms a solve | us a run outside | share outside |")
        print("| --- | --- | --- | --- | --- |")
        for problem in PROBLEMS:
            outside(problem, runs if problem == "M4" else runs // 5, rounds, folder)
        two_processes(runs, 1, folder)


if __name__ == "__main__":
    main()
