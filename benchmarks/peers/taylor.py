"""heyoka: a Taylor method, compiled for each tolerance (its order follows from it)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.hand_written import Problem
from benchmarks.peers.formulas import formula


def heyoka(problem: Problem) -> Callable[[float, float], np.ndarray]:
    import heyoka as hy

    names = [hy.expression(f"y{i}") for i in range(problem.y0.size)]
    rates = formula(problem, np)(np.array(names, dtype=object))
    system = list(zip(names, rates.tolist(), strict=True))
    times = np.concatenate([[0.0], problem.times])
    # Its one tolerance is absolute while the state is below one, as it is here.
    scale = float(np.sqrt(np.mean(problem.y0**2)))
    known: dict[float, Any] = {}

    def solve(rtol: float, atol: float) -> np.ndarray:
        if rtol not in known:
            known[rtol] = hy.taylor_adaptive(
                system, problem.y0.copy(), tol=rtol * scale, compact_mode=len(system) > 50
            )
        integrator = known[rtol]
        integrator.time, integrator.state[:] = 0.0, problem.y0
        outcome, *_, states = integrator.propagate_grid(times)
        if outcome != hy.taylor_outcome.time_limit:
            raise RuntimeError(str(outcome))
        return states[1:]

    return solve
