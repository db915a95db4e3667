"""`solve`: one call for every method."""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.codegen.compiled_field import CompiledField
from odekit.errors import InputError, OdekitWarning, SolveError
from odekit.integrate.diagnosis import at_fixed_point
from odekit.integrate.events import read_events
from odekit.integrate.methods import find_method
from odekit.integrate.options import Limits, Save, Tolerance
from odekit.integrate.outputs import read_times
from odekit.integrate.prepare import compiled_for, refuse_unknown
from odekit.integrate.progress import progress_of
from odekit.integrate.task import Method, Outcome, Task
from odekit.integrate.watch import make_watcher
from odekit.solution.solution import Solution
from odekit.solution.status import Status

__all__ = ["solve"]

Array = NDArray[np.float64]

OPTIONS = (
    "sizes",
    "method",
    "tolerance",
    "save",
    "events",
    "limits",
    "progress",
    "throw",
    "start",
)


def solve(
    field: Any,
    y0: Mapping[str, Any],
    t: Any,
    params: Mapping[str, Any] | None = None,
    *,
    sizes: Mapping[str, Any] | None = None,
    method: str = "auto",
    tolerance: Tolerance | None = None,
    save: Save | None = None,
    events: Any = (),
    limits: Limits | None = None,
    progress: Any = False,
    throw: bool = True,
    start: float = 0.0,
    **unknown: Any,
) -> Solution:
    """Integrate a field from an initial state.

    Parameters
    ----------
    field : VectorField or CompiledField
        A field is compiled at its first use (``effort="quick"``) and found in the cache later.
    y0 : mapping
        State name -> array of the state's shape, at time ``start``.
    t : float or array_like (K,)
        End time, or increasing output times, which need not contain the start. With an end time
        the accepted steps are the outputs and the method's own dense output is kept; with output
        times these alone are stored.
    params : mapping, optional
        Parameter name -> number or array.
    sizes : mapping, optional
        Sizes that cannot be read off the arrays.
    method : str
        "auto", one of SciPy's "LSODA", "Radau", "BDF", "DOP853", "RK45", or a compiled one.
    tolerance : Tolerance, optional
        Default: relative as the method needs for an achieved error of 1e-6 on the reference
        problems, absolute following the initial scale.
    save : Save, optional
    events : Crossing, Plateau, or a list of them
    limits : Limits, optional
    progress : bool or callable
        True for a bar; or ``progress(t, steps, loss)``, called about ten times a second.
    throw : bool
        Whether a run that fails raises; otherwise see ``.status``.
    start : float
        Time of the initial state.

    Returns
    -------
    Solution
        A run that ended early (failed, or stopped by an event) has its last point appended to
        the outputs.

    Raises
    ------
    InputError
        For names, shapes, times and options that do not fit.
    SolveError
        When the run fails and ``throw`` is true; ``.solution`` has what was reached.

    Warns
    -----
    OdekitWarning
        When the initial state is exactly a fixed point.

    Notes
    -----
    Time is in the field's own unit.
    """
    refuse_unknown(unknown, OPTIONS)
    solution = solve_quietly(
        field, y0, t, params, sizes, method, tolerance, save, events, limits, progress, start
    )
    if throw and not solution.status.ok:
        raise SolveError(solution.message, solution)
    return solution


def solve_quietly(
    field: Any,
    y0: Mapping[str, Any],
    t: Any,
    params: Mapping[str, Any] | None,
    sizes: Mapping[str, Any] | None,
    method: str,
    tolerance: Tolerance | None,
    save: Save | None,
    events: Any,
    limits: Limits | None,
    progress: Any,
    start: float,
    flag: NDArray[np.int64] | None = None,
) -> Solution:
    """Solve as `solve` does, never raising for a failed run; another thread may set ``flag``."""
    started = time.perf_counter()
    tolerance = read_option(tolerance, Tolerance, "tolerance")
    save = read_option(save, Save, "save")
    limits = read_option(limits, Limits, "limits")
    watched = read_events(events)
    first, end, outputs = read_times(t, start)
    compiled = compiled_for(field, y0, params, sizes)
    state = compiled.layout.pack(y0)
    p = compiled.layout.pack_parameters(params)
    prepared = time.perf_counter()
    with progress_of(progress, compiled, p, first, end) as report:
        task = Task(
            compiled=compiled,
            y0=state,
            p=p,
            start=first,
            end=end,
            outputs=outputs,
            limits=limits,
            save=save,
            dense=outputs is None if save.dense is None else save.dense,
            watcher=make_watcher(watched, compiled, p, first, state),
            report=report,
            flag=np.zeros(1, np.int64) if flag is None else flag,
        )
        plan, outcome = look_at_start(make_plan(task, method, tolerance), stacklevel=3)
        if outcome is None:
            outcome = plan.method.run(plan.task)
        solution = name_results(plan, outcome, origin_of(field), prepared)
    if tolerance.verify and solution.status.ok and len(solution.t):
        from odekit.integrate.verification import verify

        solution = verify(solution, task, tolerance)
    total = time.perf_counter() - started
    solution = dataclasses.replace(solution, stats={**solution.stats, "total_seconds": total})
    return solution


@dataclass(frozen=True)
class Plan:
    """A task with its method and tolerances chosen, and why."""

    task: Task
    method: Method
    reason: str
    notes: tuple[str, ...] = ()


def make_plan(task: Task, method: str, tolerance: Tolerance) -> Plan:
    """Choose method and tolerances for a task that has none yet."""
    if str(method).lower() == "auto":
        from odekit.integrate.auto import choose

        chosen, reason = choose(task, tolerance)
    else:
        chosen, reason = find_method(method), "asked for"
    layout = task.compiled.layout
    relative = tolerance.relative_for(layout, task.y0, chosen.relative)
    absolute = tolerance.absolute_for(layout, task.y0, relative)
    return Plan(dataclasses.replace(task, relative=relative, absolute=absolute), chosen, reason)


def look_at_start(plan: Plan, stacklevel: int) -> tuple[Plan, Outcome | None]:
    """Notice a fixed point, and end a run that cannot take a step."""
    task = plan.task
    rate = np.empty(len(task.y0))
    task.compiled.rhs(task.start, task.y0, task.p, rate)
    if at_fixed_point(task.compiled, rate):
        note = (
            "The initial state is exactly a fixed point: the run stays there; perturb it to leave."
        )
        plan = dataclasses.replace(plan, notes=(*plan.notes, note))
        warnings.warn(note, OdekitWarning, stacklevel=stacklevel + 1)
    if not np.isfinite(rate).all():
        return plan, _nowhere(task, Status.nan, "Not finite at the start.")
    if task.end == task.start:
        return plan, _nowhere(task, Status.success, "")
    return plan, None


def name_results(plan: Plan, outcome: Outcome, field: Any, began: float) -> Solution:
    """Turn flat results into a solution."""
    task, compiled = plan.task, plan.task.compiled
    stats = {
        "method": plan.method.name,
        "reason": plan.reason,
        "relative_tolerance": task.relative,
        "absolute_tolerance": float(task.absolute.min(initial=np.inf)),
        **outcome.stats,
        "outputs": outcome.filled,
        "compile_seconds": compiled.compile_seconds,
        "notes": [*plan.notes, *outcome.stats.get("notes", [])],
    }
    loss = _losses(compiled, outcome.y, task.p)
    return Solution(
        t=outcome.t,
        states=compiled.layout.unpack(outcome.y),
        loss=loss,
        status=outcome.status,
        message=" ".join(part for part in (outcome.detail, outcome.status.message) if part),
        stats={**stats, "seconds": time.perf_counter() - began},
        events=task.watcher.results(outcome.stats.get("end", task.end)) if task.watcher else (),
        params=compiled.layout.unpack_parameters(task.p),
        interpolant=outcome.interpolant,
        field=field,
    )


def origin_of(field: Any) -> Any:
    """Return the vector field behind what the user gave; None for a bare compiled field."""
    return field.origin if isinstance(field, CompiledField) else getattr(field, "flow", field)


def _nowhere(task: Task, status: Status, detail: str) -> Outcome:
    """Make the outcome of a run that takes no step."""
    filled = 0 if task.outputs is None else int(np.sum(task.outputs <= task.start))
    return Outcome(
        np.array([task.start]),
        task.y0[None, :].copy(),
        status,
        detail,
        filled,
        {"steps": 0, "rhs_calls": 1, "end": task.start},
    )


def _losses(compiled: CompiledField, y: Array, p: Array) -> Array | None:
    if compiled.loss is None:
        return None
    from odekit.integrate.compiled.losses import losses

    return losses(compiled.loss, y, p)


def read_option(value: Any, kind: Any, name: str) -> Any:
    """Return an option, its default when it is None, or say how to write it."""
    if value is None:
        return kind()
    if not isinstance(value, kind):
        raise InputError(
            f"{name} must be an ok.{kind.__name__}, got {type(value).__name__}; write "
            f"{name}=ok.{kind.__name__}(...)."
        )
    return value
