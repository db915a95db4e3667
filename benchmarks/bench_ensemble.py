"""Ensembles of S4 starts: trajectories a second against numbalsoda in `prange`, one run.

    python -m benchmarks.bench_ensemble [--members 256] [--rounds 5] [--quick]

odekit is timed as a user calls it: `ok.ensemble` on the compiled model. Both reach an achieved
error of 1e-8 (loss curve, the first member). Rounds alternate; the ratio is of medians of wall
time, which on a busy machine is noisy: CPU time per trajectory stands beside it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

import numpy as np

import odekit as ok
from benchmarks import own
from benchmarks.bench_solve import reference
from benchmarks.hand_written import Problem, problem
from benchmarks.peers import PEERS, missing
from benchmarks.work_precision import Tool, absolute, keep_stdout, loosest

ERROR = 1e-8
GOAL = 4.0
GOAL_CORES = 1.8


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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="64 members, three rounds")
    options = parser.parse_args()
    keep_stdout()
    count = options.members or (64 if options.quick else 256)
    rounds = options.rounds or (3 if options.quick else 5)
    p = problem("S4")
    tools = own.tools(p)
    truth = reference(p, tools)
    starts = 1e-2 * np.random.default_rng(11).normal(size=(count, p.y0.size))
    cores = len(os.sched_getaffinity(0))
    compiled, _, params = own.prepare(p)
    rtol = loosest(p, tools[0], truth, ERROR)
    tolerance = ok.Tolerance(relative=rtol, absolute=absolute(p, rtol))
    members = compiled.layout.unpack(starts)

    def ensemble(workers: int) -> Callable[[], object]:
        return lambda: ok.ensemble(
            compiled, members, [p.t_end], params, tolerance=tolerance, workers=workers
        )

    own_name, one_name = f"odekit, {cores} threads", "odekit, 1 thread"
    calls: dict[str, Callable[[], object]] = {own_name: ensemble(cores), one_name: ensemble(1)}
    peer_name = f"numbalsoda dop853 in prange, {cores} threads"
    if "numbalsoda" in missing():
        print("Missing peer: numbalsoda. The goal is unproven.\n")
    else:
        peer = next(peer for peer in PEERS if peer.name == "numbalsoda dop853")
        bound = loosest(p, Tool(peer.name, peer.make(p), p.loss), truth, ERROR)
        calls[peer_name] = numbalsoda_members(p, starts, bound)
    walls: dict[str, list[float]] = {name: [] for name in calls}
    cpus: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            walls[name].append(time.perf_counter() - wall)
            cpus[name].append(time.process_time() - cpu)
    print("| tool | trajectories a second | CPU ms a trajectory |\n| --- | --- | --- |")
    for name in calls:
        rate = count / statistics.median(walls[name])
        cost = 1e3 * statistics.median(cpus[name]) / count
        print(f"| {name} | {rate:.0f} | {cost:.3f} |")
    gain = statistics.median(walls[one_name]) / statistics.median(walls[own_name])
    print(f"\n{cores} threads against one: {gain:.2f} (goal {GOAL_CORES:g} on two free cores).")
    if peer_name in calls:
        wall = statistics.median(walls[peer_name]) / statistics.median(walls[own_name])
        cpu = statistics.median(cpus[peer_name]) / statistics.median(cpus[own_name])
        print(f"Ratio to numbalsoda: {wall:.2f} by wall time, {cpu:.2f} by CPU (goal {GOAL:g}).")


if __name__ == "__main__":
    main()
