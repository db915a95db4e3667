"""Many members in parallel threads, each by the very loop of its single solve.

A chunk of members is integrated inside one compiled call that holds no interpreter lock, so threads
run side by side and Python is entered once a chunk. Every member has its own steps, copy of the
parameters and counters: it equals its single solve bit for bit, whatever its neighbours do.
"""

# Loops are typed by their Numba signatures.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import float64, int64, njit
from numpy.typing import NDArray

from odekit.integrate.compiled import slots
from odekit.integrate.compiled.addresses import (
    CHANGING_SIGNATURE,
    JACOBIAN_SIGNATURE,
    LOOP_SIGNATURE,
    ROSENBROCK_SIGNATURE,
    TABLE_SIGNATURE,
    address_of,
    changing_at,
    loop_at,
    rosenbrock_at,
    table_loop_at,
)
from odekit.integrate.compiled.run import METHODS, Vector, _clock, _table, changing_loops
from odekit.integrate.compiled.slots import CLOCK_SIZE, COUNTS_SIZE

_SIGNATURES = (LOOP_SIGNATURE, TABLE_SIGNATURE, ROSENBROCK_SIGNATURE, CHANGING_SIGNATURE)


@njit(
    int64(
        int64, int64, int64, int64, int64, int64, int64, int64, float64[:, ::1], int64, int64,
        float64[:, ::1], float64[:, ::1], float64[:, ::1], float64[:, ::1], int64[:, ::1],
        float64[::1], float64[:, :, ::1], int64[::1], int64[::1],
    ),
    cache=True,
    nogil=True,
    error_model="numpy",
)  # fmt: skip
def advance_members(
    kind, loop, plain, stabilised, rows, dense, rhs_address, jac_address, table, start, stop, p, y,
    atol, clocks, counts, t_out, y_out, codes, flag,
):  # fmt: skip
    """Integrate members start..stop-1 one after the other; returns how many were begun.

    `loop` is the address of a loop, `kind` the place of its signature in `_SIGNATURES`.
    """
    n = y.shape[1]
    work = np.zeros((rows, n))
    rec_t = np.zeros((0, 2))
    rec_c = np.zeros((0, dense + 1, n))
    for k in range(start, stop):
        if flag[0] != 0:
            return k - start
        own = p[k].copy()  # the right-hand side may write to its scratch tail
        work[:, :] = 0.0
        args = (own, y[k], work, clocks[k], counts[k], atol[k], t_out, y_out[k], rec_t, rec_c, flag)
        if kind == 0:
            codes[k] = loop_at(loop)(rhs_address, *args)
        elif kind == 1:
            codes[k] = table_loop_at(loop)(rhs_address, table, *args)
        elif kind == 2:
            codes[k] = rosenbrock_at(loop)(rhs_address, jac_address, *args)
        else:
            codes[k] = changing_at(loop)(rhs_address, plain, stabilised, table, *args)
    return stop - start


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True)
class Members:
    """Result of `solve_members`.

    `codes` (M,) in `slots.Code`, -1 where the member was never begun; `y` (M, n) last states, `t`
    (M,) their times; `y_out` (M, K, n) with `filled` (M,) rows each; `counts` (M, COUNTS_SIZE).
    """

    codes: NDArray[np.int64]
    t: Vector
    y: Vector
    y_out: Vector
    filled: NDArray[np.int64]
    counts: NDArray[np.int64]


def solve_members(
    method: str,
    rhs: Any,
    p: Vector,
    t0: float,
    y0: Vector,
    t_end: float,
    *,
    rtol: float,
    atol: float | Vector,
    jacobian: Any = None,
    t_out: Vector | None = None,
    first_step: float = 0.0,
    max_step: float = np.inf,
    min_step: float | None = None,
    max_steps: int = 10_000_000,
    blow_up: float = 1e100,
    autonomous: bool = False,
    plain: str = "Tsit5",
    flag: NDArray[np.int64] | None = None,
    workers: int | None = None,
    chunk: int = 0,
    progress: Callable[[int], None] | None = None,
) -> Members:
    """Integrate M members of one field in threads.

    Parameters
    ----------
    p : ndarray (M, m) or (m,)
        Parameters of each member, or of all.
    y0 : ndarray (M, n)
        Start of each member.
    atol : float or ndarray (n,) or (M, n)
        Absolute tolerances.
    workers : int, optional
        Threads; default the processors this process may use.
    chunk : int
        Members a thread takes at a time; 0 chooses. Smaller chunks balance uneven members.
    progress : callable, optional
        Called from the calling thread with the number of members finished.
    method, rhs, t0, t_end, rtol, jacobian, t_out, ... :
        As in `run.Run`. Setting `flag` from another thread ends the run; Ctrl-C does so too.
    """
    kind = METHODS[method]
    form = 3 if kind.changes else 2 if kind.takes_jacobian else int(kind.takes_table)
    if kind.takes_jacobian and jacobian is None:
        raise ValueError(f"method {method!r} needs a Jacobian")
    y = np.array(y0, dtype=np.float64, order="C")
    count, n = y.shape
    times = np.zeros(0) if t_out is None else np.ascontiguousarray(t_out, np.float64)
    parameters = np.array(np.broadcast_to(p, (count, np.shape(p)[-1])), np.float64, order="C")
    tolerance = np.array(np.broadcast_to(atol, (count, n)), np.float64, order="C")
    y_out = np.empty((count, times.size, n))
    clocks, counts = np.empty((count, CLOCK_SIZE)), np.zeros((count, COUNTS_SIZE), np.int64)
    clocks[:] = _clock(t0, t_end, rtol, first_step, max_step, min_step, blow_up)
    counts[:, slots.MAX_STEPS] = max_steps
    counts[:, slots.LOOKS] = 3 if method != "explicit" else 0
    counts[:, slots.AUTONOMOUS] = int(autonomous)
    codes = np.full(count, -1, np.int64)
    stop = np.zeros(1, np.int64) if flag is None else flag
    threads = workers or _processors()
    size = chunk or max(1, min(64, count // (8 * threads)))
    at = address_of(rhs)
    at_jacobian = address_of(jacobian, JACOBIAN_SIGNATURE) if kind.takes_jacobian else 0
    table = _table() if kind.takes_table else np.zeros((1, 1))
    loop = address_of(kind.loop, _SIGNATURES[form])
    plain_loop, stabilised = changing_loops(plain) if kind.changes else (0, 0)

    def integrate(start: int) -> int:
        end = min(start + size, count)
        return int(
            advance_members(
                form, loop, plain_loop, stabilised, kind.rows, kind.dense, at, at_jacobian,
                table, start, end, parameters, y, tolerance, clocks, counts, times, y_out, codes,
                stop,
            )
        )  # fmt: skip

    starts = range(0, count, size)
    done = 0
    if threads == 1 and threading.current_thread() is not threading.main_thread():
        for start in starts:
            done += integrate(start)
            if progress is not None:
                progress(done)
    else:
        with ThreadPoolExecutor(threads) as pool:
            try:
                for future in as_completed([pool.submit(integrate, start) for start in starts]):
                    done += future.result()
                    if progress is not None:
                        progress(done)
            except BaseException:
                # Ctrl-C or a failing callback: the loops see the flag before their next step.
                stop[0] = 1
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    return Members(
        codes, clocks[:, slots.T].copy(), y, y_out, counts[:, slots.FILLED].copy(), counts
    )
