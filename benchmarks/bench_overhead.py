"""Overheads: a solve against its right-hand-side calls, and SciPy through `ok.solve` against SciPy.

    python -m benchmarks.bench_overhead [--quick]

First table: CPU time of `ok.solve` (method "auto") over the number of right-hand-side calls times
the time of one such call; the goal is 1.5. Second table: SciPy's methods through `ok.solve` over
`solve_ivp` called by hand with the same compiled functions, outputs and tolerances; goal 1.05.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np

import odekit as ok
from benchmarks import own
from benchmarks.bench_rhs import timer
from benchmarks.hand_written import problem
from benchmarks.work_precision import absolute, alternate, keep_stdout

LIMIT, BY_HAND = 1.5, 1.05
RTOL = 1e-8


def to_the_limit(name: str, rounds: int) -> str:
    p = problem(name)
    compiled, y0, params = own.prepare(p)
    tolerance = ok.Tolerance(relative=RTOL, absolute=absolute(p, RTOL))

    def solve() -> ok.Solution:
        return ok.solve(compiled, y0, p.times, params, tolerance=tolerance)

    run = solve()
    packed = compiled.layout.pack_parameters(params)
    call = timer(compiled.rhs, compiled.layout.pack(run.final), packed, 0.01)
    took = alternate({"solve": solve}, rounds)["solve"]
    least = 1e3 * call() * run.stats["rhs_calls"]
    verdict = "met" if took / least <= LIMIT else "missed"
    return (
        f"| {name} | {run.stats['method']} | {took:.3f} | {run.stats['rhs_calls']} | {least:.3f} | "
        f"{took / least:.2f} | {verdict} |"
    )


def by_hand(name: str, method: str, rounds: int) -> str:
    from scipy.integrate import solve_ivp

    p = problem(name)
    compiled, y0, params = own.prepare(p)
    packed, start = compiled.layout.pack_parameters(params), compiled.layout.pack(y0)
    n = start.size
    tolerance = ok.Tolerance(relative=RTOL, absolute=absolute(p, RTOL))
    rhs, jacobian = compiled.rhs, compiled.jacobian

    def field(t: float, y: np.ndarray) -> np.ndarray:
        out = np.empty(n)
        rhs(t, y, packed, out)
        return out

    def derivative(t: float, y: np.ndarray) -> np.ndarray:
        out = np.empty((n, n))
        jacobian(t, y, packed, out)
        return out

    options: dict[str, Any] = {"jac": derivative} if method in {"LSODA", "Radau", "BDF"} else {}
    calls: dict[str, Callable[[], Any]] = {
        "odekit": lambda: ok.solve(
            compiled, y0, p.times, params, method=method, tolerance=tolerance
        ),
        "SciPy": lambda: solve_ivp(
            field, (0.0, p.t_end), start, method, p.times, rtol=RTOL, atol=absolute(p, RTOL),
            **options,
        ),
    }  # fmt: skip
    took = alternate(calls, rounds)
    ratio = took["odekit"] / took["SciPy"]
    verdict = "met" if ratio <= BY_HAND else "missed"
    return (
        f"| {name} | {method} | {took['odekit']:.2f} | {took['SciPy']:.2f} | {ratio:.3f} | "
        f"{verdict} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="S4 only, three rounds")
    options = parser.parse_args()
    keep_stdout()
    rounds = 3 if options.quick else 9
    print("| problem | method | solve, ms | calls | calls x call, ms | ratio | goal |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in ("S4",) if options.quick else ("S4", "S8", "S32"):
        print(to_the_limit(name, rounds), flush=True)
    print("\n| problem | method | ok.solve, ms | solve_ivp, ms | ratio | goal |")
    print("| --- | --- | --- | --- | --- | --- |")
    for method in ("LSODA",) if options.quick else ("LSODA", "Radau", "BDF", "DOP853"):
        print(by_hand("S4", method, rounds), flush=True)


if __name__ == "__main__":
    main()
