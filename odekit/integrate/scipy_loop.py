"""SciPy's methods, stepped by one loop of our own, so that every run ends with a status."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import integrate, sparse

from odekit.integrate.collect import Pieces, Requested, Steps
from odekit.integrate.diagnosis import diagnose
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
                    self.solver = _make(self.method, task, self.t, self.y, absolute, first, widest)
                    ended = self._loop(self.solver)
                except (ArithmeticError, ValueError, np.linalg.LinAlgError) as error:
                    # BDF and Radau meet NaN as an internal error of their linear algebra.
                    if not _from_scipy(error):
                        raise
                    ended = None
                    self.attempt = float(getattr(self.solver, "h_abs", self.width))
                if ended is not None:
                    return ended
                self._count()
                status, detail = self._diagnose()
                spacing = float(np.spacing(max(abs(self.t), abs(task.end))))
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
                elif status is Status.nan and self.attempt > 32 * spacing:
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

    def _loop(self, solver: Any) -> tuple[Status, str] | None:
        """Step until the run ends; None where the method could not take a step."""
        task, sink, pieces = self.task, self.sink, self.pieces
        watcher, report, flag = task.watcher, task.report, task.flag
        bound = task.limits.blow_up**2
        step, limit, deadline = solver.step, task.limits.steps, self.deadline
        clock = time.perf_counter
        add = sink.add
        standing = 0
        while True:
            if flag[0]:
                return Status.interrupted, f"Interrupted at t = {self.t:.12g}."
            if self.steps >= limit:
                return Status.step_limit, f"{limit} steps reached t = {self.t:.12g}."
            step()
            if solver.status == "failed":
                self.attempt = self.width
                return None
            t, y = solver.t, solver.y
            if not y.dot(y) <= bound:  # also true for NaN, which LSODA returns as success
                self.attempt = t - self.t
                if np.isfinite(y).all():
                    text = f"The state outgrew {task.limits.blow_up:g} at t = {t:.12g}."
                    return Status.blow_up, text
                return None
            t_old, y_old = self.t, self.y
            self.steps += 1
            if t == t_old:
                standing += 1
                if standing >= STANDING:
                    return None
                if solver.status == "running":
                    continue
            standing = 0
            dense = solver.dense_output
            stop = None
            if watcher is not None or pieces is not None:
                dense, stop, y = self._inside(t_old, y_old, t, y)
                t = t if stop is None else stop.t
            add(t, y, dense)
            self.width, self.t, self.y = t - t_old, t, y
            if report is not None:
                report(t, self.steps, y)
            if stop is not None:
                return Status.event, f"{stop.label} at t = {stop.t:.12g}."
            if solver.status == "finished":
                return Status.success, ""
            if clock() > deadline:
                text = f"{task.limits.seconds:g} seconds reached t = {self.t:.12g}."
                return Status.time_limit, text

    def _inside(
        self, t_old: float, y_old: Array, t: float, y: Array
    ) -> tuple[Callable[[], Any], Event | None, Array]:
        """Look inside a step: events, and the interpolant if it is kept."""
        interpolant = self.solver.dense_output()
        stop = None
        if self.task.watcher is not None:
            stop = self.task.watcher.step(
                t_old, y_old, t, y, lambda times: np.ascontiguousarray(interpolant(times).T)
            )
        if self.pieces is not None:
            self.pieces.add(t_old, t, polynomial(self.method, interpolant))
        if stop is not None:
            y = self.task.compiled.layout.pack(stop.state)
        return lambda: interpolant, stop, y

    def _diagnose(self) -> tuple[Status, str]:
        ahead = max(self.width, self.attempt)
        return diagnose(self.task.compiled, self.t, self.y, self.task.p, ahead, self.task.relative)


def _make(
    method: str,
    task: Task,
    t: float,
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
    if first is not None:
        options["first_step"] = min(first, task.end - t)
    if method in IMPLICIT and task.compiled.has_jacobian:
        options["jac"] = _jacobian(task, sparse_allowed=method != "LSODA")
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


_lock = threading.Lock()
_depth = 0
_saved: warnings.catch_warnings[Any] | None = None


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings that our statuses replace, from any number of threads at once.

    ``warnings.catch_warnings`` alone is not safe in threads: the last one out would restore the
    filters of another. Here the first one in sets the filters and the last one out restores them.
    """
    global _depth, _saved
    with _lock:
        if _depth == 0:
            _saved = warnings.catch_warnings()
            _saved.__enter__()
            warnings.filterwarnings("ignore", message="lsoda: ")
            warnings.filterwarnings("ignore", message="Diagonal number ")
            warnings.filterwarnings("ignore", message="Matrix is exactly singular")
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0 and _saved is not None:
                _saved.__exit__(None, None, None)
                _saved = None
