"""scikit-sundae: CVODE, called back with the compiled functions."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.hand_written import Problem


def _solver(
    rhs: Any, p: np.ndarray, y0: np.ndarray, times: np.ndarray, jacobian: Any, **options: Any
) -> Callable[[float, float], np.ndarray]:
    from sksundae.cvode import CVODE

    # CVODE's arrays are read only; the compiled functions take writable ones.
    state, rates = np.empty_like(y0), np.empty_like(y0)
    grid = np.concatenate([[0.0], times])

    def field(t: float, y: np.ndarray, out: np.ndarray) -> None:
        state[:] = y
        rhs(t, state, p, rates)
        out[:] = rates

    if jacobian is not None:
        matrix = np.empty((y0.size, y0.size))

        def derivative(t: float, y: np.ndarray, yp: np.ndarray, out: np.ndarray) -> None:
            state[:] = y
            jacobian(t, state, p, matrix)
            out[:] = matrix

        options["jacfn"] = derivative

    def solve(rtol: float, atol: float) -> np.ndarray:
        solver = CVODE(field, rtol=rtol, atol=atol, max_num_steps=10**5, **options)
        with contextlib.redirect_stdout(io.StringIO()):  # it prints its failures
            solution = solver.solve(grid, y0)
        if not solution.success:
            raise RuntimeError(solution.message)
        return solution.y[1:]

    return solve


def cvode(method: str) -> Callable[[Problem], Callable[[float, float], np.ndarray]]:
    def make(problem: Problem) -> Callable[[float, float], np.ndarray]:
        jacobian = problem.jacobian if method == "BDF" else None
        return _solver(
            problem.rhs, problem.p, problem.y0, problem.times, jacobian, method=method,
        )  # fmt: skip

    return make


def cvode_banded(problem: Problem) -> Callable[[float, float], np.ndarray]:
    """The modes, told that their Jacobian is tridiagonal; CVODE differences it in three calls."""
    from benchmarks.peers import banded

    inner = _solver(
        banded.rhs, problem.p, banded.interleave(problem.y0), problem.times, None,
        method="BDF", linsolver="band", lband=1, uband=1,
    )  # fmt: skip
    return lambda rtol, atol: banded.separate(inner(rtol, atol))
