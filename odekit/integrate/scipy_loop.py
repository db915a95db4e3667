"""SciPy's methods, stepped by one loop of our own, so that every run ends with a status."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, sparse

from odekit.integrate.collect import Pieces, Requested, Steps
from odekit.integrate.diagnosis import diagnose
from odekit.integrate.quiet import quiet
from odekit.integrate.scipy_dense import NESTED, polynomial
from odekit.integrate.task import Outcome, Task
from odekit.solution.event import Event
from odekit.solution.status import Status

__all__ = ["run"]

Array = NDArray[np.float64]

SOLVERS: dict[str, Any] = {
    "LSODA": integrate.LSODA,
    "Radau": integrate.Radau,
    "BDF": integrate.BDF,
    "DOP853": integrate.DOP853,
    "RK45": integrate.RK45,
}
IMPLICIT = ("LSODA", "Radau", "BDF")
SPARSE_FROM = 64
"""From this size on a Jacobian that is mostly zeros is handed over as a sparse matrix."""

EPS = float(np.finfo(np.float64).eps)
STUMBLED, REBASE = 0, 1

RESTARTS = 100
"""Most times that a run starts again from its last good state before it gives up."""

STANDING = 20
"""LSODA may take steps that do not move t at the rounding limit; after so many it has stalled."""


def run(method: str, task: Task) -> Outcome:
    """Integrate with one of SciPy's methods.

    Parameters
    ----------
    method : {"LSODA", "Radau", "BDF", "DOP853", "RK45"}
    task : Task

    Returns
    -------
    Outcome
    """
    started = time.perf_counter()
    with quiet(), np.errstate(all="ignore"):
        return _Loop(method, task, started).outcome()


class _Loop:
    def __init__(self, method: str, task: Task, started: float) -> None:
        self.method = method
        self.task = task
        self.deadline = started + task.limits.seconds if task.limits.seconds is not None else np.inf
        self.sink: Requested | Steps
        if task.outputs is None:
            self.sink = Steps(task.start, task.y0, task.save.points)
        else:
            self.sink = Requested(task.outputs, len(task.y0))
            self.sink.add(task.start, task.y0, _no_dense)
        self.pieces = (
            Pieces(len(task.y0), task.save.memory, NESTED.get(method, False))
            if task.dense
            else None
        )
        self.steps = 0
        self.t, self.y = task.start, task.y0
        # Time of the run where the solver's own clock reads zero; see `_loop`.
        self.offset = 0.0
        self.width = 0.0
        self.attempt = 0.0
        self.stalled_at = -np.inf
        self.solver: Any = None
        self.counts: dict[str, int] = {}
        self.notes: list[str] = []

    def outcome(self) -> Outcome:
        status, detail = self._integrate()
        t, y = self.sink.arrays(self.t, self.y, status is not Status.success)
        self._count()
        notes = [*self.notes, *(self.pieces.notes() if self.pieces is not None else [])]
        return Outcome(
            t,
            y,
            status,
            detail,
            self.sink.filled,
            {"steps": self.steps, "end": self.t, **self.counts, "notes": notes},
            self.pieces.interpolant() if self.pieces is not None else None,
        )

    def _integrate(self) -> tuple[Status, str]:
        """Run, and start again with care where a method stumbles, until it ends or stops there."""
        task, first, widest = self.task, None, np.inf
        absolute = task.absolute
        try:
            for _ in range(RESTARTS):
                try:
                    self.solver = _make(
                        self.method, task, self.t, self.offset, self.y, absolute, first, widest
                    )
                    ended = self._loop(self.solver)
                except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
                    # BDF and Radau meet NaN as an internal error of their linear algebra.
                    if not _from_scipy(error):
                        raise
                    ended = None
                    self.attempt = float(getattr(self.solver, "h_abs", self.width))
                if isinstance(ended, tuple):
                    return ended
                if ended == REBASE:
                    self._count()
                    self.offset = self.t
                    first, widest = self.width, np.inf
                    continue
                status, detail = self._diagnose()
                self._count()
                if status is not Status.nan:
                    # Newton's iteration cannot settle below rounding: accept rounding as error.
                    raised = np.maximum(absolute, 100 * np.spacing(np.max(np.abs(self.y))))
                    near = self.t - self.stalled_at <= 1e-6 * abs(self.t)
                    if near or bool(np.all(raised == absolute)):
                        return status, detail
                    self.stalled_at = self.t
                    absolute = raised
                    self.notes.append(
                        f"Stalled at t = {self.t:.6g}; went on with absolute tolerance "
                        f"{raised.min():.2g}, the rounding of the largest entry."
                    )
                elif self.attempt > 32 * float(np.spacing(abs(self.t))):
                    # A long step may have overshot the edge of the domain: go up to it.
                    widest = self.attempt / 4
                    first = widest / 4
                    self.attempt = widest
                else:
                    return status, detail
            return self._diagnose()
        except KeyboardInterrupt:
            return Status.interrupted, f"Interrupted at t = {self.t:.12g}."

    def _count(self) -> None:
        """Add up the counts of the solver that is given up; SciPy's start at zero each time."""
        if self.solver is None:
            return
        for name, key in (
            ("rhs_calls", "nfev"),
            ("jacobian_calls", "njev"),
            ("factorisations", "nlu"),
        ):
            self.counts[name] = self.counts.get(name, 0) + int(getattr(self.solver, key))
        self.solver = None

    def _loop(self, solver: Any) -> tuple[Status, str] | int:
        """Step until the run ends, or the solver stumbles, or its clock should be set to zero.

        A plateau left from 1e-10 lasts 1e11 units of time, the drop after it a few: there the
        rounding of t is a rounding of the step that exceeds the tolerance, and methods stall or
        creep. A field that does not depend on time can be integrated on a clock that is set to
        zero where that happens.
        """
        task, sink, offset = self.task, self.sink, self.offset
        report, flag = task.report, task.flag
        bound = task.limits.blow_up**2
        step, limit, deadline = solver.step, task.limits.steps, self.deadline
        clock = time.perf_counter
        add, dense = sink.add, solver.dense_output
        inside = task.watcher is not None or self.pieces is not None
        coarse = 0.01 * EPS / task.relative if task.compiled.autonomous else 0.0
        standing = 0
        pinned, size = self.t, float(self.y.dot(self.y))
        while True:
            if self.steps >= limit:
                return Status.step_limit, f"{limit} steps reached t = {self.t:.12g}."
            step()
            state = solver.status
            if state == "failed":
                self.attempt = self.width
                return STUMBLED
            local, y = solver.t, solver.y
            square = float(y.dot(y))
            if not square <= bound:  # also true for NaN, which LSODA returns as success
                self.attempt = local + offset - self.t
                if np.isfinite(y).all():
                    text = f"The state outgrew {task.limits.blow_up:g} near t = {self.t:.12g}."
                    return Status.blow_up, text
                return STUMBLED
            self.steps += 1
            width = local - solver.t_old
            if width == 0.0 and state == "running":
                standing += 1
                if standing >= STANDING:
                    return STUMBLED
                continue
            standing = 0
            t = local if offset == 0.0 else local + offset
            if offset != 0.0:
                if state == "finished":
                    t = task.end
                if t != pinned:
                    pinned, size = t, square
                elif square > 1e12 * size:
                    return Status.blow_up, f"The solution blows up near t = {t:.12g}."
            if inside or offset != 0.0:
                stop, y, t = self._inside(t, y)
            else:
                stop = None
                add(t, y, dense)
            self.width, self.t, self.y = width, t, y
            if report is not None:
                report(t, self.steps, y)
            if stop is not None:
                return Status.event, f"{stop.label} at t = {stop.t:.12g}."
            if state == "finished":
                return Status.success, ""
            if flag.item():
                return Status.interrupted, f"Interrupted at t = {self.t:.12g}."
            if clock() > deadline:
                text = f"{task.limits.seconds:g} seconds reached t = {self.t:.12g}."
                return Status.time_limit, text
            if width < coarse * abs(local):
                return REBASE

    def _inside(self, t: float, y: Array) -> tuple[Event | None, Array, float]:
        """Look inside a step: outputs, events, and the interpolant if it is kept."""
        solver, task, t_old = self.solver, self.task, self.t
        made: list[Any] = []
        low, high, offset = solver.t_old, solver.t, self.offset

        def interpolant() -> Any:
            if not made:
                made.append(solver.dense_output())
            return made[0]

        def dense(times: Array) -> Array:
            local = times if offset == 0.0 else np.clip(times - offset, low, high)
            return np.asarray(interpolant()(local))

        stop = None
        # On a clock of its own a solver can take steps below the rounding of t: no room inside.
        if task.watcher is not None and t > t_old:
            stop = task.watcher.step(
                t_old, self.y, t, y, lambda times: np.ascontiguousarray(dense(times).T)
            )
        if self.pieces is not None and t > t_old:
            self.pieces.add(t_old, t, polynomial(self.method, interpolant()))
        if stop is not None:
            y, t = task.compiled.layout.pack(stop.state), stop.t
        self.sink.add(t, y, lambda: dense)
        return stop, y, t

    def _diagnose(self) -> tuple[Status, str]:
        ahead = max(self.width, self.attempt)
        clock = self.t if self.solver is None else self.solver.t
        return diagnose(
            self.task.compiled, self.t, self.y, self.task.p, ahead, self.task.relative, clock
        )


def _make(
    method: str,
    task: Task,
    t: float,
    offset: float,
    y: Array,
    absolute: Array,
    first: float | None,
    widest: float,
) -> Any:
    rhs, p, n = task.compiled.rhs, task.p, len(task.y0)
    empty = np.empty

    def fun(t: float, y: Array) -> Array:
        out = empty(n)
        rhs(t, y, p, out)
        return out

    options: dict[str, Any] = {"rtol": task.relative, "atol": absolute, "max_step": widest}
    if method in IMPLICIT and task.compiled.has_jacobian:
        options["jac"] = _jacobian(task, sparse_allowed=method != "LSODA")
    if first is not None:
        options["first_step"] = min(first, task.end - t)
    if offset != 0.0:
        # Only for fields that do not depend on time: these do not see that the clock was set.
        return SOLVERS[method](fun, t - offset, y, task.end - offset, **options)
    return SOLVERS[method](fun, t, y, task.end, **options)


def _jacobian(task: Task, sparse_allowed: bool) -> Callable[[float, Array], Any]:
    compiled, p, n = task.compiled, task.p, len(task.y0)
    pattern = compiled.pattern
    thin = (
        sparse_allowed
        and pattern is not None
        and n >= SPARSE_FROM
        and len(pattern[0]) < 0.2 * n * n
    )

    def dense(t: float, y: Array) -> Any:
        out = np.empty((n, n))
        compiled.jacobian(t, y, p, out)  # compiled at the first call, not before it is needed
        if thin and pattern is not None:
            rows, columns = pattern
            return sparse.csc_matrix((out[rows, columns], (rows, columns)), shape=(n, n))
        return out

    return dense


def _no_dense() -> Callable[[Array], Array]:
    raise AssertionError("outputs before the start are taken from the start itself")


def _from_scipy(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith("scipy."):
            return True
        trace = trace.tb_next
    return False
