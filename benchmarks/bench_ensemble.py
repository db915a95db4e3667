"""Ensembles of S4 starts: trajectories a second against numbalsoda in `prange`, one run.

Both reach an achieved error of 1e-8 (loss curve, the first member). Rounds alternate; the ratio is
of medians of wall time, which on a busy machine is noisy: CPU time per trajectory stands beside it.

Run: python -m benchmarks.bench_ensemble [--members 256] [--rounds 5]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np

from benchmarks.bench_solve import absolute, odekit, reference
from benchmarks.hand_written import Problem, problem
from benchmarks.peers.integrators import PEERS, missing
from odekit.integrate.compiled.ensemble import solve_members

ERROR = 1e-8
GOAL = 4.0


def loosest(p: Problem, solve: Callable[[float, float], np.ndarray], truth: np.ndarray) -> float:
    """Loosest tolerance, in steps of 10^(1/4), that reaches the error."""
    for quarter in range(20, 50):
        rtol = 10.0 ** (-quarter / 4)
        if np.max(np.abs(p.loss(solve(rtol, absolute(p, rtol))) / truth - 1)) <= ERROR:
            return rtol
    raise AssertionError("the error is not reached")


def numbalsoda_members(p: Problem, starts: np.ndarray, rtol: float) -> Callable[[], None]:
    import numba
    from numba import cfunc, njit, prange
    from numbalsoda import dop853, lsoda_sig

    rhs, n, m = p.rhs, p.y0.size, p.p.size

    @cfunc(lsoda_sig)
    def field(t, y, out, q):
        rhs(t, numba.carray(y, (n,)), numba.carray(q, (m,)), numba.carray(out, (n,)))

    address = field.address
    times = np.array([0.0, p.t_end])
    atol = absolute(p, rtol)

    @njit(parallel=True)
    def integrate(starts, q):
        last = np.empty_like(starts)
        for k in prange(starts.shape[0]):
            states, _ = dop853(address, starts[k], times, q.copy(), rtol, atol, 10**7)
            last[k] = states[1]
        return last

    def call() -> None:
        _ = field
        integrate(starts, p.p)

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    p = problem("S4")
    truth = reference(p)
    starts = 1e-2 * np.random.default_rng(11).normal(size=(options.members, p.y0.size))
    cores = len(os.sched_getaffinity(0))
    ours = min(
        (loosest(p, odekit(m)(p), truth), plain)
        for m, plain in (("explicit", "Tsit5"), ("explicit-8", "DOP853"))
    )
    end = np.array([p.t_end])

    def members(workers: int) -> Callable[[], None]:
        def call() -> None:
            solve_members(
                "explicit", p.rhs, p.p, 0.0, starts, p.t_end, rtol=ours[0],
                atol=absolute(p, ours[0]), t_out=end, plain=ours[1], workers=workers,
            )  # fmt: skip

        return call

    calls = {f"odekit, {cores} threads": members(cores), "odekit, 1 thread": members(1)}
    if "numbalsoda" in missing():
        print("Missing peer: numbalsoda. The goal is unproven.")
    else:
        rtol = loosest(p, PEERS["numbalsoda dop853"](p), truth)
        calls[f"numbalsoda dop853 in prange, {cores} threads"] = numbalsoda_members(p, starts, rtol)
    walls: dict[str, list[float]] = {name: [] for name in calls}
    cpus: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(options.rounds):
        for name, call in calls.items():
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            walls[name].append(time.perf_counter() - wall)
            cpus[name].append(time.process_time() - cpu)
    print("| tool | trajectories a second | CPU ms a trajectory |\n| --- | --- | --- |")
    for name in calls:
        rate = options.members / statistics.median(walls[name])
        cost = 1e3 * statistics.median(cpus[name]) / options.members
        print(f"| {name} | {rate:.0f} | {cost:.3f} |")
    peers = [name for name in calls if name.startswith("numbalsoda")]
    if peers:
        own = next(iter(calls))
        wall = statistics.median(walls[peers[0]]) / statistics.median(walls[own])
        cpu = statistics.median(cpus[peers[0]]) / statistics.median(cpus[own])
        print(
            f"\nRatio to numbalsoda: {wall:.2f} by wall time, {cpu:.2f} by CPU time "
            f"(goal {GOAL:g})."
        )


if __name__ == "__main__":
    main()
