"""diffrax on the CPU, in double precision, compiled once for all tolerances."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.hand_written import Problem
from benchmarks.peers.formulas import formula


def diffrax(method: str) -> Callable[[Problem], Callable[[float, float], np.ndarray]]:
    def make(problem: Problem) -> Callable[[float, float], np.ndarray]:
        import diffrax as dfx
        import jax

        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_platforms", "cpu")
        rates = formula(problem, jax.numpy)
        term = dfx.ODETerm(lambda t, y, args: rates(y))
        save = dfx.SaveAt(ts=jax.numpy.asarray(problem.times))
        y0 = jax.numpy.asarray(problem.y0)

        @jax.jit
        def integrate(rtol, atol):
            return dfx.diffeqsolve(
                term, getattr(dfx, method)(), 0.0, problem.t_end, None, y0, saveat=save,
                stepsize_controller=dfx.PIDController(rtol, atol), max_steps=2 * 10**5, throw=False,
            )  # fmt: skip

        def solve(rtol: float, atol: float) -> np.ndarray:
            solution = integrate(rtol, atol)
            if solution.result != dfx.RESULTS.successful:
                raise RuntimeError(str(solution.result))
            return np.asarray(solution.ys)

        return solve

    return make
