"""`ensemble`: many starts or parameter sets of one field, each with steps of its own."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.codegen.compiled_field import CompiledField
from odekit.errors import InputError, SolveError
from odekit.integrate.events import read_events
from odekit.integrate.options import Limits, Save, Tolerance
from odekit.integrate.outputs import read_times
from odekit.integrate.prepare import compiled_for, refuse_unknown
from odekit.integrate.solving import (
    OPTIONS,
    Plan,
    look_at_start,
    make_plan,
    name_results,
    origin_of,
    read_option,
    solve_quietly,
)
from odekit.integrate.task import Task
from odekit.solution.ensemble import Ensemble
from odekit.solution.solution import Solution

__all__ = ["ensemble"]

Member = tuple[Mapping[str, Any], Mapping[str, Any]]

CHUNKS = 8
"""Pieces of work a worker: enough to even out slow members, few enough to cost nothing."""


def ensemble(
    field: Any,
    members: Any,
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
    throw: bool = False,
    start: float = 0.0,
    workers: int | None = None,
    executor: Executor | None = None,
    **unknown: Any,
) -> Ensemble:
    """Integrate many starts or parameter sets of one field.

    Every member is solved by the same code as a single `solve` with the same options, so it
    equals that solve bit for bit, whatever the number of workers and the other members.

    Parameters
    ----------
    field : VectorField or CompiledField
    members : sequence or mapping
        A sequence of initial states (mappings), or of pairs ``(y0, params)`` whose params
        replace or add to the shared ones; or one mapping state name -> array ``(M, *shape)``.
    t, params, sizes, method, tolerance, save, events, limits, start
        As in `solve`, shared by all members; ``limits`` hold for each.
    progress : bool or callable
        True for a bar; or ``progress(done, total)``.
    throw : bool
        Whether the first failed member raises. By default failed members are kept, with their
        status and what they reached.
    workers : int, optional
        Number of threads; by default that of the processors.
    executor : concurrent.futures.Executor, optional
        Used instead of threads, and left open. Process pools need a field that pickles.

    Returns
    -------
    Ensemble

    Raises
    ------
    InputError
        As `solve`, for any member, before anything is run.
    SolveError
        With ``throw=True``; ``.solution`` is the failed member.
    """
    refuse_unknown(unknown, (*OPTIONS, "workers", "executor"))
    started = time.perf_counter()
    asked: Any = workers
    if asked is not None and not (isinstance(asked, Integral) and int(asked) >= 1):
        raise InputError(f"workers must be at least 1, got {workers!r}.")
    if executor is not None and not hasattr(executor, "submit"):
        raise InputError(
            f"executor must be a concurrent.futures executor, got {type(executor).__name__}."
        )
    pairs = read_members(members, params or {})
    compiled = compiled_for(field, *pairs[0], sizes, effort="full")
    for number, (y0, own) in enumerate(pairs):
        try:
            compiled.layout.pack(y0)
            compiled.layout.pack_parameters(own)
        except InputError as error:
            raise InputError(f"Member {number}: {error}") from None
    options = {
        "method": method,
        "tolerance": tolerance,
        "save": save,
        "events": events,
        "limits": limits,
        "start": start,
    }
    count = workers if workers is not None else _processors()
    own_pool = executor is None
    pool = executor if executor is not None else ThreadPoolExecutor(count)
    size = max(1, -(-len(pairs) // (CHUNKS * count)))
    chunks = [pairs[k : k + size] for k in range(0, len(pairs), size)]
    results: list[list[Solution] | None] = [None] * len(chunks)
    futures: dict[Future[list[Solution]], int] = {}
    flag = np.zeros(1, np.int64)
    try:
        with _counting(progress, len(pairs)) as show:
            futures = {
                pool.submit(solve_chunk, compiled, chunk, t, options, flag): number
                for number, chunk in enumerate(chunks)
            }
            pending, done = set(futures), 0
            while pending:
                finished, pending = wait(pending, return_when=FIRST_COMPLETED)
                for future in finished:
                    solved = future.result()
                    results[futures[future]] = solved
                    done += len(solved)
                    if throw:
                        _throw(solved)
                show(done)
    except BaseException:
        # Ctrl-C or a failed member: threads see the flag before their next step.
        flag[0] = 1
        raise
    finally:
        for future in futures:
            future.cancel()
        if own_pool:
            pool.shutdown(wait=True, cancel_futures=True)
    origin = origin_of(field)
    solutions = tuple(
        dataclasses.replace(member, field=origin) for chunk in results for member in chunk or ()
    )
    counts: dict[str, int] = {}
    for member in solutions:
        counts[str(member.status)] = counts.get(str(member.status), 0) + 1
    stats = {"workers": count, "seconds": time.perf_counter() - started, "statuses": counts}
    return Ensemble(solutions, stats)


def solve_chunk(
    compiled: CompiledField,
    chunk: Sequence[Member],
    t: Any,
    options: Mapping[str, Any],
    flag: NDArray[np.int64],
) -> list[Solution]:
    """Solve some members; runs in a worker, so it must pickle.

    Members that share a compiled loop and ask for nothing inside steps go through it in one call;
    the others one after the other through `solve`. The numbers are the same.
    """
    out = _together(compiled, chunk, t, options, flag)
    for k, (y0, params) in enumerate(chunk):
        if k not in out:
            out[k] = solve_quietly(
                compiled, y0, t, params, sizes=None, progress=False, flag=flag, **options
            )
    return [dataclasses.replace(out[k], field=None) for k in range(len(chunk))]


def _together(
    compiled: CompiledField,
    chunk: Sequence[Member],
    t: Any,
    options: Mapping[str, Any],
    flag: NDArray[np.int64],
) -> dict[int, Solution]:
    tolerance = read_option(options["tolerance"], Tolerance, "tolerance")
    save = read_option(options["save"], Save, "save")
    limits = read_option(options["limits"], Limits, "limits")
    start, end, outputs = read_times(t, options["start"])
    inside = save.dense or tolerance.verify or read_events(options["events"])
    if outputs is None or inside or limits.seconds is not None:
        return {}
    began = time.perf_counter()
    groups: dict[tuple[str, str, float], list[tuple[int, Plan]]] = {}
    out: dict[int, Solution] = {}
    for k, (y0, params) in enumerate(chunk):
        task = Task(
            compiled=compiled,
            y0=compiled.layout.pack(y0),
            p=compiled.layout.pack_parameters(params),
            start=start,
            end=end,
            outputs=outputs,
            limits=limits,
            flag=flag,
        )
        plan, outcome = look_at_start(make_plan(task, options["method"], tolerance), stacklevel=3)
        if outcome is not None:
            out[k] = name_results(plan, outcome, None, began)
        elif plan.method.loop is not None:
            kind = plan.method.loop, plan.method.plain, plan.task.relative
            groups.setdefault(kind, []).append((k, plan))
    for (loop, plain, _), group in groups.items():
        from odekit.integrate.compiled_loop import run_together

        outcomes = run_together(loop, plain, [plan.task for _, plan in group])
        for (k, plan), outcome in zip(group, outcomes, strict=True):
            if outcome is not None:
                out[k] = name_results(plan, outcome, None, began)
    return out


def read_members(members: Any, params: Mapping[str, Any]) -> list[Member]:
    """Read members in any of their forms as pairs of initial state and parameters."""
    if isinstance(members, Mapping):
        stacked = {
            str(getattr(name, "name", name)): np.asarray(value) for name, value in members.items()
        }
        lengths = {value.shape[0] if value.ndim else None for value in stacked.values()}
        if len(lengths) != 1 or None in lengths:
            shapes = ", ".join(f"{name} {value.shape}" for name, value in stacked.items())
            raise InputError(
                f"Stacked members need one leading axis of the same length, got {shapes}."
            )
        count = next(value.shape[0] for value in stacked.values())
        members = [{name: value[k] for name, value in stacked.items()} for k in range(count)]
    if isinstance(members, (str, bytes)) or not isinstance(members, Iterable):
        raise InputError(
            f"Members must be a sequence of initial states, got {type(members).__name__}."
        )
    pairs: list[Member] = []
    for number, member in enumerate(members):
        if isinstance(member, Mapping):
            pairs.append((member, params))
        elif isinstance(member, tuple) and len(member) == 2:
            y0, own = member
            pairs.append((y0, {**params, **own}))
        else:
            raise InputError(
                f"Member {number} must be a mapping of states or a pair (y0, params), got "
                f"{type(member).__name__}."
            )
    if not pairs:
        raise InputError("An ensemble needs at least one member.")
    return pairs


def _throw(solved: list[Solution]) -> None:
    for member in solved:
        if not member.status.ok:
            raise SolveError(member.message, member)


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on every platform
        return os.cpu_count() or 1


class _counting:
    """A bar, or a user's callable, for the number of members that are done."""

    def __init__(self, progress: Any, total: int) -> None:
        self.total = total
        self.progress = progress
        self.bar: Any = None
        if progress not in (False, True, None) and not callable(progress):
            raise InputError(
                f"progress must be True, False or a callable of (done, total), got {progress!r}."
            )

    def __enter__(self) -> Any:
        if self.progress is True:
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(stderr=True), transient=True)
            self.bar.__enter__()
            self.line = self.bar.add_task("members", total=self.total)
        return self.show

    def show(self, done: int) -> None:
        if self.bar is not None:
            self.bar.update(self.line, completed=done)
        elif callable(self.progress):
            self.progress(done, self.total)

    def __exit__(self, *error: Any) -> None:
        if self.bar is not None:
            self.bar.__exit__(*error)
