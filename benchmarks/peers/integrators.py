"""What a user would pick instead of `ok.solve`, each with the same compiled right-hand side.

A peer is a function `(problem) -> solve`, and `solve(rtol, atol) -> states (K, n)` at
`problem.times`; making it may compile, calling it is what is timed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from benchmarks.hand_written import Problem

Solve = Callable[[float, float], np.ndarray]


def numbalsoda(method: str) -> Callable[[Problem], Solve]:
    def make(problem: Problem) -> Solve:
        import numba
        from numba import cfunc
        from numbalsoda import dop853, lsoda, lsoda_sig

        rhs, n, m = problem.rhs, problem.y0.size, problem.p.size

        @cfunc(lsoda_sig)
        def field(t, y, out, p):
            rhs(t, numba.carray(y, (n,)), numba.carray(p, (m,)), numba.carray(out, (n,)))

        call = {"dop853": dop853, "lsoda": lsoda}[method]
        times = np.concatenate([[0.0], problem.times])

        def solve(rtol: float, atol: float) -> np.ndarray:
            states, _ = call(
                field.address, problem.y0, times, data=problem.p, rtol=rtol, atol=atol,
                mxstep=10**6,
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
                max_num_steps=10**6,
            )  # fmt: skip
            return result.y.T

        return solve

    return make


def scipy(method: str) -> Callable[[Problem], Solve]:
    def make(problem: Problem) -> Solve:
        from scipy.integrate import solve_ivp

        n = problem.y0.size

        def field(t: float, y: np.ndarray) -> np.ndarray:
            out = np.empty(n)
            problem.rhs(t, y, problem.p, out)
            return out

        def jacobian(t: float, y: np.ndarray) -> np.ndarray:
            out = np.empty((n, n))
            problem.jacobian(t, y, problem.p, out)
            return out

        options: dict[str, Any] = {"jac": jacobian} if method in {"LSODA", "Radau", "BDF"} else {}

        def solve(rtol: float, atol: float) -> np.ndarray:
            return solve_ivp(
                field, (0.0, problem.t_end), problem.y0, method, problem.times, rtol=rtol,
                atol=atol, **options,
            ).y.T  # fmt: skip

        return solve

    return make


def pydiffsol(method: str) -> Callable[[Problem], Solve]:
    """For the problems that are written in the peer's own language (`diffsl`)."""

    def make(problem: Problem) -> Solve:
        import pydiffsol as ds

        from benchmarks.peers import diffsl

        if problem.name.startswith("P"):
            code = diffsl.modes(problem)
        elif problem.name in {"S4", "S4tiny"}:
            code = diffsl.separate(problem, 4, 4)
        else:
            raise NotImplementedError(f"{problem.name} is not written in DiffSL")
        if problem.y0.size > 500:
            raise NotImplementedError("a dense matrix of this size is no fair choice for it")
        ode = ds.Ode(
            code,
            matrix_type=ds.nalgebra_dense,
            ode_solver={"tsit45": ds.tsit45, "bdf": ds.bdf}[method],
        )
        dummy = np.zeros(1)

        def solve(rtol: float, atol: float) -> np.ndarray:
            ode.rtol, ode.atol = rtol, atol
            return ode.solve_dense(dummy, problem.times).ys.T

        return solve

    return make


PEERS: dict[str, Callable[[Problem], Solve]] = {
    "numbalsoda dop853": numbalsoda("dop853"),
    "numbalsoda lsoda": numbalsoda("lsoda"),
    "CyRK DOP853": cyrk("DOP853"),
    "CyRK LSODA": cyrk("LSODA"),
    "pydiffsol tsit45": pydiffsol("tsit45"),
    "pydiffsol bdf": pydiffsol("bdf"),
    "scipy LSODA": scipy("LSODA"),
}

PACKAGES = {"numbalsoda": "numbalsoda", "CyRK": "CyRK", "pydiffsol": "pydiffsol"}


def missing() -> tuple[str, ...]:
    """Peers whose package cannot be imported."""
    absent = []
    for name, module in PACKAGES.items():
        try:
            importlib.import_module(module)
        except Exception:  # noqa: BLE001  a broken install is as missing as an absent one
            absent.append(name)
    return tuple(absent)
