"""A run in progress: one compiled loop with its state, its outputs and its step record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.integrate.compiled import slots
from odekit.integrate.compiled.addresses import (
    JACOBIAN_SIGNATURE,
    LOOP_SIGNATURE,
    TABLE_SIGNATURE,
    address_of,
)
from odekit.integrate.compiled.components import BlockClass
from odekit.integrate.compiled.slots import Code
from odekit.integrate.compiled.stepping import evaluate

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Method:
    """A compiled loop and what it takes; its module is imported when the loop is first asked for.

    ``changes``: it steps by the loops of a plain method and of the stabilised one in turn.

    Importing one compiles it (or reads it from the cache), which takes seconds the first time.
    """

    name: str
    module: str
    takes_jacobian: bool = False
    takes_table: bool = False
    changes: bool = False

    @cached_property
    def _own(self) -> Any:
        return import_module(f"odekit.integrate.compiled.{self.module}")

    @property
    def order(self) -> int:
        """Order of the method."""
        return int(self._own.ORDER)

    @property
    def dense(self) -> int:
        """Rows of the interpolant of a step."""
        return int(self._own.DENSE)

    @property
    def rows(self) -> int:
        """Rows of the workspace."""
        return int(self._own.ROWS)

    @property
    def loop(self) -> Callable[..., int]:
        """The loop itself."""
        loop: Callable[..., int] = self._own.advance
        return loop


METHODS = {
    m.name: m
    for m in (
        Method("Tsit5", "tsit5"),
        Method("DOP853", "dop853"),
        Method("ROCK4", "rock4", takes_table=True),
        Method("Rodas5P", "rodas5p", takes_jacobian=True),
        # Tsit5 (or DOP853) and ROCK4 in turn; for symmetric Jacobians.
        Method("explicit", "explicit", takes_table=True, changes=True),
    )
}


def changing_loops(plain: str) -> tuple[int, int]:
    """Addresses of the two loops that "explicit" changes between."""
    return (
        address_of(METHODS[plain].loop, LOOP_SIGNATURE),
        address_of(METHODS["ROCK4"].loop, TABLE_SIGNATURE),
    )


@cache
def _table() -> Vector:
    from odekit.integrate.compiled import rock4

    return rock4.pack_table()


def _clock(
    t0: float,
    t_end: float,
    rtol: float,
    first_step: float,
    max_step: float,
    min_step: float | None,
    blow_up: float,
) -> Vector:
    clock = np.zeros(slots.CLOCK_SIZE)
    clock[slots.T], clock[slots.T_END], clock[slots.H] = t0, t_end, first_step
    clock[slots.RTOL], clock[slots.H_MAX], clock[slots.BLOW_UP] = rtol, max_step, blow_up
    clock[slots.H_MIN] = 1e-26 * (t_end - t0) if min_step is None else min_step
    return clock


class Run:
    """One integration, resumable after any step.

    Parameters
    ----------
    method : str
        A name in `METHODS`.
    rhs : compiled Numba function
        ``void(float64, float64[::1], float64[::1], float64[::1])``: t, y, p, out.
    p : ndarray (m,)
        Parameters and scratch space; copied, since `rhs` may write to it.
    t0, t_end : float
        Start and end, ``t_end > t0``; the end is never stepped over.
    y0 : ndarray (n,)
        State at t0; copied.
    rtol : float
        Relative tolerance.
    atol : float or ndarray (n,)
        Absolute tolerance. A step is accepted when the root mean square of
        ``error_i / (atol_i + rtol |y_i|)``, y at the step's start, is at most one.
    jacobian : compiled Numba function, optional
        ``void(float64, float64[::1], float64[::1], float64[:, ::1])``; Rodas5P needs it.
    t_out : ndarray (K,)
        Increasing times at which outputs are wanted, within [t0, t_end].
    record : int
        Capacity of the step record. With ``record > 0`` each call of `advance` returns
        `Code.RECORD_FULL` after that many steps; the numbers are those of a run without record.
    autonomous : bool
        f does not depend on t (saves Rodas5P one call a step).
    patience : int
        0: never return `Code.STIFF`. Else Tsit5 and DOP853 return it when their step has been
        limited by stability and more than this many such steps are left.
    plain : str
        "Tsit5" or "DOP853": what "explicit" uses where accuracy limits the step.
    flag : ndarray int64 (1,), optional
        Set to a nonzero value from any thread to make `advance` return `Code.INTERRUPTED`
        before the next step; clear it to continue.
    """

    def __init__(
        self,
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
        record: int = 0,
        autonomous: bool = False,
        patience: int = 0,
        plain: str = "Tsit5",
        flag: NDArray[np.int64] | None = None,
    ) -> None:
        self.method = METHODS[method]
        if self.method.takes_jacobian and jacobian is None:
            raise ValueError(f"method {method!r} needs a Jacobian")
        n = y0.size
        self.rhs, self.jacobian = rhs, jacobian  # kept alive: loops see addresses only
        self.p = np.array(p, dtype=np.float64)
        self.y = np.array(y0, dtype=np.float64)
        self.atol = np.full(n, atol, dtype=np.float64) if np.ndim(atol) == 0 else np.array(atol)
        self.t_out = np.zeros(0) if t_out is None else np.ascontiguousarray(t_out, np.float64)
        self.y_out = np.empty((self.t_out.size, n))
        self.flag = np.zeros(1, np.int64) if flag is None else flag
        self.work = np.zeros((self.method.rows, n))
        self.clock = _clock(t0, t_end, rtol, first_step, max_step, min_step, blow_up)
        self.counts = np.zeros(slots.COUNTS_SIZE, np.int64)
        self.counts[slots.MAX_STEPS] = max_steps
        self.counts[slots.PATIENCE] = patience
        self.counts[slots.LOOKS] = 3 if method != "explicit" else 0
        self.counts[slots.AUTONOMOUS] = int(autonomous)
        self.plain = plain
        self.record_times = np.empty((record, 2))
        self.record_states = np.empty((record, self.method.dense + 1, n))
        self._prefix: tuple[Any, ...] = (address_of(rhs),)
        if self.method.changes:
            self._prefix += changing_loops(plain)
        if self.method.takes_jacobian:
            self._prefix += (address_of(jacobian, JACOBIAN_SIGNATURE),)
        if self.method.takes_table:
            self._prefix += (_table(),)

    def advance(self) -> Code:
        """Step until the end, a full record or trouble."""
        return Code(
            self.method.loop(
                *self._prefix, self.p, self.y, self.work, self.clock, self.counts, self.atol,
                self.t_out, self.y_out, self.record_times, self.record_states, self.flag,
            )
        )  # fmt: skip

    def continue_with(self, method: str, **changes: Any) -> Run:
        """A run by another method from the current state, step size, outputs and counts."""
        settings: dict[str, Any] = {
            "rtol": float(self.clock[slots.RTOL]),
            "atol": self.atol,
            "jacobian": self.jacobian,
            "t_out": self.t_out,
            "first_step": float(self.clock[slots.H]),
            "max_step": float(self.clock[slots.H_MAX]),
            "min_step": float(self.clock[slots.H_MIN]),
            "max_steps": int(self.counts[slots.MAX_STEPS]),
            "blow_up": float(self.clock[slots.BLOW_UP]),
            "record": self.record_times.shape[0],
            "autonomous": bool(self.counts[slots.AUTONOMOUS]),
            "patience": int(self.counts[slots.PATIENCE]),
            "plain": self.plain,
            "flag": self.flag,
        }
        other = Run(
            method, self.rhs, self.p, self.t, self.y, float(self.clock[slots.T_END]),
            **{**settings, **changes},
        )  # fmt: skip
        other.y_out = self.y_out
        for slot in (
            slots.STEPS, slots.REJECTED, slots.RHS, slots.JACOBIANS, slots.FACTORS, slots.FILLED,
            slots.STAGES, slots.SWITCHES, slots.STABILISED,
        ):  # fmt: skip
            other.counts[slot] = self.counts[slot]
        other.clock[slots.RADIUS] = self.clock[slots.RADIUS]
        return other

    @property
    def t(self) -> float:
        """Time of the current state."""
        return float(self.clock[slots.T])

    @property
    def filled(self) -> int:
        """Rows of `y_out` that are filled."""
        return int(self.counts[slots.FILLED])

    @property
    def recorded(self) -> int:
        """Steps in the record since the last call of `advance`."""
        return int(self.counts[slots.RECORDED])

    def at(self, step: int, theta: float) -> Vector:
        """State (n,) inside recorded step `step` at the fraction theta of its length."""
        out = np.empty(self.y.size)
        evaluate(self.record_states[step, 0], self.record_states[step, 1:], theta, out)
        return out

    @property
    def stats(self) -> dict[str, float]:
        """What the run has done so far."""
        c = self.counts
        return {
            "steps": int(c[slots.STEPS]),
            "rejected": int(c[slots.REJECTED]),
            "rhs_calls": int(c[slots.RHS]),
            "jacobian_calls": int(c[slots.JACOBIANS]),
            "factorisations": int(c[slots.FACTORS]),
            "switches": int(c[slots.SWITCHES]),
            "stabilised_steps": int(c[slots.STABILISED]),
            "largest_stages": int(c[slots.STAGES]),
            "spectral_radius": float(self.clock[slots.RADIUS]),
            "last_step": float(self.clock[slots.H_LAST]),
        }


@dataclass(frozen=True)
class BlockResult:
    """What `solve_blocks` returns: code, final state (n,), outputs, rows filled, counters."""

    code: Code
    y: Vector
    y_out: Vector
    filled: int
    stats: dict[str, float]


def solve_blocks(
    rhs: Any,
    classes: tuple[BlockClass, ...],
    p: Vector,
    t0: float,
    y0: Vector,
    t_end: float,
    *,
    rtol: float,
    atol: float | Vector,
    values: Any = None,
    nonzeros: int = 0,
    jacobian: Any = None,
    t_out: Vector | None = None,
    first_step: float = 0.0,
    max_step: float = np.inf,
    min_step: float | None = None,
    max_steps: int = 10_000_000,
    blow_up: float = 1e100,
    flag: NDArray[np.int64] | None = None,
) -> BlockResult:
    """Rodas5P on components (`components.block_classes`), for fields that do not depend on t.

    `values(t, y, p, out (nonzeros,))` fills the Jacobian's nonzeros in the pattern's order; without
    it the dense `jacobian` is called, which only pays for small states. Other parameters as in
    `Run`. Components of different size are integrated one class after the other.
    """
    from odekit.integrate.compiled.rodas5p_blocks import advance_blocks

    if values is None and jacobian is None:
        raise ValueError("solve_blocks needs `values` or `jacobian`")
    n = y0.size
    times = np.zeros(0) if t_out is None else np.ascontiguousarray(t_out, np.float64)
    tolerance = np.full(n, atol, dtype=np.float64) if np.ndim(atol) == 0 else np.array(atol)
    y, y_out = np.array(y0, dtype=np.float64), np.empty((times.size, n))
    own = np.array(p, dtype=np.float64)
    stop = np.zeros(1, np.int64) if flag is None else flag
    at = address_of(rhs)
    at_values = address_of(values) if values is not None else 0
    at_jacobian = address_of(jacobian, JACOBIAN_SIGNATURE) if values is None else 0
    total, code, filled, rounds = np.zeros(slots.COUNTS_SIZE, np.int64), Code.DONE, times.size, 0
    for block in classes:
        clock = _clock(t0, t_end, rtol, first_step, max_step, min_step, blow_up)
        counts = np.zeros(slots.COUNTS_SIZE, np.int64)
        counts[slots.MAX_STEPS] = max_steps
        code = Code(
            advance_blocks(
                at, at_values, at_jacobian, values is not None, own, y, block.members,
                block.entries, nonzeros, clock, counts, tolerance, times, y_out, stop,
            )
        )  # fmt: skip
        total += counts
        rounds = max(rounds, int(counts[slots.STEPS]))
        filled = min(filled, int(counts[slots.FILLED]))
        if code != Code.DONE:
            break
    stats: dict[str, float] = {
        "steps": rounds,
        "rejected": int(total[slots.REJECTED]),
        "rhs_calls": int(total[slots.RHS]),
        "jacobian_calls": int(total[slots.JACOBIANS]),
        "factorisations": int(total[slots.FACTORS]),
        "components": sum(block.members.shape[1] for block in classes),
    }
    return BlockResult(code, y, y_out, filled, stats)
