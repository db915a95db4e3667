"""What a user would pick instead of `ok.solve`, each with the same compiled right-hand side.

A peer is a function `(problem) -> solve`, and `solve(rtol, atol) -> states (K, n)` at
`problem.times`; making it may compile, calling it is what is timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from benchmarks.hand_written import Problem

Solve = Callable[[float, float], np.ndarray]

MOST_CALLS = 500_000
STUCK = 20_000
"""Steps between two outputs after which a multistep method is stuck on its own rounding."""


def numbalsoda(method: str) -> Callable[[Problem], Solve]:
    def make(problem: Problem) -> Solve:
        import numba
        from numba import cfunc
        from numbalsoda import dop853, lsoda, lsoda_sig

        rhs, n, m = problem.rhs, problem.y0.size, problem.p.size

        @cfunc(lsoda_sig)
        def field(t, y, out, p):
            rhs(t, numba.carray(y, (n,)), numba.carray(p, (m,)), numba.carray(out, (n,)))

        call, steps = {"dop853": (dop853, 10**6), "lsoda": (lsoda, STUCK)}[method]
        times = np.concatenate([[0.0], problem.times])

        def solve(rtol: float, atol: float) -> np.ndarray:
            states, _ = call(
                field.address, problem.y0, times, data=problem.p, rtol=rtol, atol=atol,
                mxstep=steps,
            )  # fmt: skip
            return states[1:]

        return solve

    return make


def cyrk(method: str) -> Callable[[Problem], Solve]:
    def make(problem: Problem) -> Solve:
        from CyRK import pysolve_ivp

        rhs = problem.rhs

        @njit
        def field(out, t, y, p):
            rhs(t, y, p, out)

        def solve(rtol: float, atol: float) -> np.ndarray:
            result = pysolve_ivp(
                field, (0.0, problem.t_end), problem.y0, method=method, t_eval=problem.times,
                args=(problem.p,), rtol=rtol, atol=atol, pass_dy_as_arg=True,
                max_num_steps=10**5 if method == "LSODA" else 10**6,
            )  # fmt: skip
            return result.y.T

        return solve

    return make


def scipy(method: str) -> Callable[[Problem], Solve]:
    def make(problem: Problem) -> Solve:
        from scipy.integrate import solve_ivp

        n = problem.y0.size

        left = 0

        def field(t: float, y: np.ndarray) -> np.ndarray:
            nonlocal left
            left -= 1
            if left < 0:
                raise RuntimeError(f"more than {MOST_CALLS} right-hand sides")
            out = np.empty(n)
            problem.rhs(t, y, problem.p, out)
            return out

        def jacobian(t: float, y: np.ndarray) -> np.ndarray:
            out = np.empty((n, n))
            problem.jacobian(t, y, problem.p, out)
            return out

        options: dict[str, Any] = {"jac": jacobian} if method in {"LSODA", "Radau", "BDF"} else {}

        def solve(rtol: float, atol: float) -> np.ndarray:
            nonlocal left
            left = MOST_CALLS
            return solve_ivp(
                field, (0.0, problem.t_end), problem.y0, method, problem.times, rtol=rtol,
                atol=atol, **options,
            ).y.T  # fmt: skip

        return solve

    return make


def odeint(problem: Problem) -> Solve:
    """SciPy's LSODA as one Fortran loop, with the exact Jacobian."""
    from scipy.integrate import odeint as integrate

    n = problem.y0.size
    rates, matrix = np.empty(n), np.empty((n, n))

    def field(t: float, y: np.ndarray) -> np.ndarray:
        problem.rhs(t, y, problem.p, rates)
        return rates

    def jacobian(t: float, y: np.ndarray) -> np.ndarray:
        problem.jacobian(t, y, problem.p, matrix)
        return matrix

    times = np.concatenate([[0.0], problem.times])

    def solve(rtol: float, atol: float) -> np.ndarray:
        states, report = integrate(
            field, problem.y0, times, Dfun=jacobian, tfirst=True, rtol=rtol, atol=atol,
            mxstep=STUCK, full_output=True,
        )  # fmt: skip
        if report["message"] != "Integration successful.":
            raise RuntimeError(report["message"])
        return states[1:]

    return solve


def odeint_banded(problem: Problem) -> Solve:
    """The same for the modes, told that their Jacobian is tridiagonal when interleaved."""
    from scipy.integrate import odeint as integrate

    from benchmarks.peers import banded

    n = problem.y0.size
    rates, band = np.empty(n), np.empty((3, n))

    def field(t: float, z: np.ndarray) -> np.ndarray:
        banded.rhs(t, z, problem.p, rates)
        return rates

    def jacobian(t: float, z: np.ndarray) -> np.ndarray:
        banded.jacobian(t, z, problem.p, band)
        return band

    start = banded.interleave(problem.y0)
    times = np.concatenate([[0.0], problem.times])

    def solve(rtol: float, atol: float) -> np.ndarray:
        states, report = integrate(
            field, start, times, Dfun=jacobian, tfirst=True, ml=1, mu=1, rtol=rtol, atol=atol,
            mxstep=STUCK, full_output=True,
        )  # fmt: skip
        if report["message"] != "Integration successful.":
            raise RuntimeError(report["message"])
        return banded.separate(states[1:])

    return solve


def pydiffsol(method: str) -> Callable[[Problem], Solve]:
    """The problem is written in the peer's own language (`diffsl`)."""

    def make(problem: Problem) -> Solve:
        import pydiffsol as ds

        from benchmarks.peers import diffsl

        ode = ds.Ode(
            diffsl.write(problem),
            matrix_type=ds.nalgebra_dense,
            ode_solver={"tsit45": ds.tsit45, "bdf": ds.bdf}[method],
        )
        dummy = np.zeros(1)

        def solve(rtol: float, atol: float) -> np.ndarray:
            ode.rtol, ode.atol = rtol, atol
            return ode.solve_dense(dummy, problem.times).ys.T

        return solve

    return make
