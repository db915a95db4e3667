"""Compiled methods behind the same task: limits, Ctrl-C, events and outputs around their loops."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError
from odekit.integrate.collect import Pieces, Steps
from odekit.integrate.compiled import slots
from odekit.integrate.compiled.components import classes_of
from odekit.integrate.compiled.run import Run, solve_blocks
from odekit.integrate.compiled.slots import Code
from odekit.integrate.diagnosis import diagnose
from odekit.integrate.task import Outcome, Task
from odekit.solution.event import Event
from odekit.solution.interpolant import Interpolant
from odekit.solution.status import Status

__all__ = ["run", "run_blocks"]

Array = NDArray[np.float64]

RECORD = 256
"""Steps that a compiled loop records before Python looks at them."""

FIRST_SLICE = 2000
SLICE_SECONDS = 0.05
"""A loop returns to Python about so often: for Ctrl-C, the time limit and progress."""

DIRECT = 20_000
"""Rounds of steps that the blocks may take before they are moved to a thread of their own."""

STATUS = {
    Code.DONE: Status.success,
    Code.NAN: Status.nan,
    Code.BLOW_UP: Status.blow_up,
    Code.STEP_LIMIT: Status.step_limit,
    Code.INTERRUPTED: Status.interrupted,
    Code.STALLED: Status.stalled,
}


@dataclass(frozen=True)
class Settings:
    """What a method of this room passes to its loop.

    Parameters
    ----------
    loop : str
        A name in `odekit.integrate.compiled.run.METHODS`.
    plain : str
        What "explicit" uses where accuracy limits the step.
    stiff : str or None
        The loop to go on with when explicit steps are limited by stability.
    patience : int
        How many such steps must be left for that.
    """

    loop: str
    plain: str = "Tsit5"
    stiff: str | None = None
    patience: int = 0


def run(settings: Settings, task: Task) -> Outcome:
    """Integrate with a compiled loop.

    Parameters
    ----------
    settings : Settings
    task : Task

    Returns
    -------
    Outcome
    """
    return _Loop(settings, task).outcome()


class _Loop:
    def __init__(self, settings: Settings, task: Task) -> None:
        self.settings = settings
        self.task = task
        # Steps are looked at only where something inside them is asked for.
        self.looks = task.outputs is None or task.dense or task.watcher is not None
        self.steps = Steps(task.start, task.y0, task.save.points) if task.outputs is None else None
        self.pieces = Pieces(len(task.y0), task.save.memory, True) if task.dense else None
        self.stop: Event | None = None
        self.stopped: Array = task.y0
        self.notes: list[str] = []
        compiled = task.compiled
        self.run = Run(
            settings.loop,
            compiled.rhs,
            task.p,
            task.start,
            task.y0,
            task.end,
            rtol=task.relative,
            atol=task.absolute,
            jacobian=compiled.jacobian if settings.loop == "Rodas5P" else None,
            t_out=task.outputs,
            max_steps=task.limits.steps,
            blow_up=task.limits.blow_up,
            record=RECORD if self.looks else 0,
            autonomous=compiled.autonomous,
            patience=settings.patience,
            plain=settings.plain,
            flag=task.flag,
        )

    def outcome(self) -> Outcome:
        task = self.task
        status, detail = self._advance()
        t, y = self.run.t, self.run.y
        if self.stop is not None:
            t, y = self.stop.t, self.stopped
        early = status is not Status.success
        if self.steps is not None:
            times, values = self.steps.arrays(t, y, early)
            filled = self.steps.filled
        else:
            assert task.outputs is not None
            filled = self.run.filled
            if self.stop is not None:
                filled = min(filled, int(np.searchsorted(task.outputs, t, side="right")))
            times, values = task.outputs[:filled], self.run.y_out[:filled]
            if early and (not filled or times[-1] < t):
                times, values = np.append(times, t), np.vstack([values, y])
        notes = [*self.notes, *(self.pieces.notes() if self.pieces is not None else [])]
        return Outcome(
            times.copy(),
            values.copy() if early else values,
            status,
            detail,
            filled,
            {**read_counts(self.run.counts), "end": t, "notes": notes},
            self._interpolant(),
        )

    def _interpolant(self) -> Interpolant | None:
        return self.pieces.interpolant() if self.pieces is not None else None

    def _advance(self) -> tuple[Status, str]:
        task, limit = self.task, self.task.limits.steps
        deadline = (
            time.perf_counter() + task.limits.seconds if task.limits.seconds is not None else np.inf
        )
        slice_steps = FIRST_SLICE
        try:
            while True:
                began = time.perf_counter()
                counts = self.run.counts
                before = int(counts[slots.STEPS] + counts[slots.REJECTED])
                counts[slots.MAX_STEPS] = min(before + slice_steps, limit)
                code = self.run.advance()
                if self.looks and self._look():
                    assert self.stop is not None
                    return Status.event, f"{self.stop.label} at t = {self.stop.t:.12g}."
                if task.report is not None:
                    task.report(self.run.t, int(self.run.counts[slots.STEPS]), self.run.y)
                now = time.perf_counter()
                taken = int(self.run.counts[slots.STEPS] + self.run.counts[slots.REJECTED])
                if code is Code.STIFF:
                    self._switch()
                elif code not in (Code.RECORD_FULL, Code.STEP_LIMIT):
                    return self._ended(code)
                elif taken >= limit:
                    return Status.step_limit, f"{limit} steps reached t = {self.run.t:.12g}."
                elif code is Code.STEP_LIMIT:
                    pace = max(now - began, 1e-6) / max(taken - before, 1)
                    slice_steps = int(min(max(SLICE_SECONDS / pace, 10), 1e7))
                if now > deadline:
                    seconds = task.limits.seconds
                    return Status.time_limit, f"{seconds:g} seconds reached t = {self.run.t:.12g}."
        except KeyboardInterrupt:
            return Status.interrupted, f"Interrupted at t = {self.run.t:.12g}."

    def _switch(self) -> None:
        stiff = self.settings.stiff
        assert stiff is not None
        self.notes.append(
            f"Explicit steps were limited by stability at t = {self.run.t:.6g}; went on with "
            f"{stiff}."
        )
        self.run = self.run.continue_with(
            stiff, jacobian=self.task.compiled.jacobian, patience=0, first_step=0.0
        )

    def _ended(self, code: Code) -> tuple[Status, str]:
        status = STATUS[code]
        if status is Status.success:
            return status, ""
        t = self.run.t
        if status is Status.interrupted:
            return status, f"Interrupted at t = {t:.12g}."
        y, bound = self.run.y, self.task.limits.blow_up
        if float(np.max(np.abs(y))) > bound:
            return Status.blow_up, f"The state outgrew {bound:g} near t = {t:.12g}."
        ahead = float(self.run.clock[slots.H_LAST])
        found, detail = diagnose(
            self.task.compiled, t, y, self.task.p, ahead, self.task.relative, t
        )
        if found is Status.stalled and status is Status.nan:
            return status, f"Not finite just after t = {t:.12g}."
        return found, detail

    def _look(self) -> bool:
        """Take the recorded steps in order; true when a terminal event ends the run in one."""
        run, watcher = self.run, self.task.watcher
        count = run.recorded
        for k in range(count):
            t_old, width = run.record_times[k]
            t = float(run.record_times[k + 1, 0]) if k + 1 < count else run.t
            y_old = run.record_states[k, 0]
            y = run.record_states[k + 1, 0] if k + 1 < count else run.y
            if watcher is not None:
                piece = Interpolant(np.array([t_old, t]), run.record_states[k : k + 1], True)
                self.stop = watcher.step(float(t_old), y_old, t, y, piece)
            if self.pieces is not None:
                self.pieces.add(float(t_old), t, run.record_states[k].copy())
            if self.stop is not None:
                self.stopped = self.task.compiled.layout.pack(self.stop.state)
                if self.steps is not None:
                    self.steps.add(self.stop.t, self.stopped, _none)
                return True
            if self.steps is not None:
                self.steps.add(t, y.copy(), _none)
        run.counts[slots.RECORDED] = 0
        return False


def read_counts(counts: NDArray[np.int64]) -> dict[str, Any]:
    """Return what a compiled loop counted, by name."""
    return {
        "steps": int(counts[slots.STEPS]),
        "rejected": int(counts[slots.REJECTED]),
        "rhs_calls": int(counts[slots.RHS]),
        "jacobian_calls": int(counts[slots.JACOBIANS]),
        "factorisations": int(counts[slots.FACTORS]),
        "switches": int(counts[slots.SWITCHES]),
        "stabilised_steps": int(counts[slots.STABILISED]),
    }


def run_together(loop: str, plain: str, tasks: Sequence[Task]) -> list[Outcome | None]:
    """Integrate members of one field in one compiled call, which holds no interpreter lock.

    Parameters
    ----------
    loop : str
        A loop of `odekit.integrate.compiled.run.METHODS`.
    plain : str
        As in `Settings`.
    tasks : sequence of Task
        With the same field, span, outputs, relative tolerance and limits; no events, no dense
        output.

    Returns
    -------
    list of Outcome or None
        The same numbers as `run`; None for a member that did not reach its end, which `run` can
        diagnose.
    """
    # Imported here: every loop is compiled into the one over members.
    from odekit.integrate.compiled.ensemble import solve_members

    first = tasks[0]
    assert first.outputs is not None
    done = solve_members(
        loop,
        first.compiled.rhs,
        np.array([task.p for task in tasks]),
        first.start,
        np.array([task.y0 for task in tasks]),
        first.end,
        rtol=first.relative,
        atol=np.array([task.absolute for task in tasks]),
        jacobian=first.compiled.jacobian if loop == "Rodas5P" else None,
        t_out=first.outputs,
        max_steps=first.limits.steps,
        blow_up=first.limits.blow_up,
        autonomous=first.compiled.autonomous,
        plain=plain,
        flag=first.flag,
        workers=1,
        chunk=len(tasks),
    )
    return [
        Outcome(
            first.outputs.copy(),
            done.y_out[k],
            Status.success,
            "",
            len(first.outputs),
            {**read_counts(done.counts[k]), "end": first.end, "notes": []},
        )
        if done.codes[k] == Code.DONE
        else None
        for k in range(len(tasks))
    ]


def _none() -> Any:
    raise AssertionError("accepted steps are stored without interpolation")


def run_blocks(task: Task) -> Outcome:
    """Integrate the connected components of the Jacobian's pattern, each with its own steps.

    Parameters
    ----------
    task : Task
        With output times, no events and no dense output: components have no common steps.

    Returns
    -------
    Outcome
    """
    compiled = task.compiled
    if compiled.pattern is None or not compiled.has_jacobian or not compiled.autonomous:
        raise InputError(
            "Rodas5P-blocks needs a field without explicit time whose Jacobian falls into parts, "
            "and this one is not known to; use method='Rodas5P' or 'auto'."
        )
    if task.watcher is not None:
        raise InputError(
            "Rodas5P-blocks finds no events: its parts have steps of their own; use "
            "method='Rodas5P' or 'auto'."
        )
    times, notes = task.outputs, []
    if times is None:
        share = np.logspace(-6, 0, 200)
        times = task.start + (task.end - task.start) * np.concatenate([[0.0], share])
        times[-1] = task.end
        notes = [
            "Components have steps of their own: 201 outputs are stored in place of common steps."
        ]
    values = getattr(compiled, "jacobian_values", None)
    classes, nonzeros = classes_of(compiled), len(compiled.pattern[0])

    def solve(steps: int, flag: NDArray[np.int64]) -> Any:
        return solve_blocks(
            compiled.rhs,
            classes,
            task.p,
            task.start,
            task.y0,
            task.end,
            rtol=task.relative,
            atol=task.absolute,
            values=values,
            nonzeros=nonzeros,
            jacobian=compiled.jacobian if values is None else None,
            t_out=times,
            max_steps=steps,
            blow_up=task.limits.blow_up,
            flag=flag,
        )

    steps = min(task.limits.steps, DIRECT)
    result = solve(steps, task.flag)
    status: Status | None = None
    if result.code is Code.STEP_LIMIT and steps < task.limits.steps:
        result, status = _in_thread(solve, task)
    if status is None:
        status = STATUS[result.code]
    filled = result.filled
    detail = ""
    if status is not Status.success:
        reached = times[filled - 1] if filled else task.start
        detail = f"Some component ended after t = {reached:.12g}."
    return Outcome(
        times[:filled].copy(),
        result.y_out[:filled],
        status,
        detail,
        filled,
        {**result.stats, "end": float(times[filled - 1]) if filled else task.start, "notes": notes},
    )


def _in_thread(solve: Any, task: Task) -> tuple[Any, Status | None]:
    """Run a loop that cannot be sliced beside a main thread that can take Ctrl-C."""
    deadline = (
        time.perf_counter() + task.limits.seconds if task.limits.seconds is not None else np.inf
    )
    flag, out = task.flag, []
    worker = threading.Thread(target=lambda: out.append(solve(task.limits.steps, flag)))
    worker.start()
    status: Status | None = None
    while worker.is_alive():
        try:
            worker.join(SLICE_SECONDS)
        except KeyboardInterrupt:
            flag[0], status = 1, Status.interrupted
        if time.perf_counter() > deadline and status is None:
            flag[0], status = 1, Status.time_limit
    result = out[0]
    return result, status if result.code is Code.INTERRUPTED else None
