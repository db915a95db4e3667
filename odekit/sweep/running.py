"""`run`: do the runs of a sweep that are missing, and keep each result at once."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Future,
    wait,
)
from os import PathLike
from pathlib import Path
from typing import Any

from odekit.errors import InputError, OdekitError, SolveError
from odekit.solution.status import Status
from odekit.sweep.crew import Crew, crew_for
from odekit.sweep.plan import Run, Sweep
from odekit.sweep.progress import Progress
from odekit.sweep.quantities import quantities
from odekit.sweep.results import Results, read
from odekit.sweep.store import Outcome, Store

__all__ = ["run", "run_chunk"]

CHUNK_SECONDS = 0.25
"""Runs travel to workers in chunks of about this much work: long against the cost of a message,
short against what a kill may lose."""

LARGEST_CHUNK = 256


def run(
    sweep: Sweep,
    store: str | PathLike[str],
    *,
    workers: int | None = None,
    executor: Any = None,
    resume: bool = False,
    retry: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Results:
    """Run a sweep into a store.

    Parameters
    ----------
    sweep : Sweep
    store : path
        One file. Each result is kept under the hash of everything that determines it, in
        transactions half a second apart, up to five on a disk that is slow to sync; a killed sweep
        loses no more.
    workers : int, optional
        How many runs at a time; default one a processor.
    executor : {"threads", "processes"}, Executor, Dask client, or address, optional
        Default: processes, or this thread for one worker. ``"tcp://HOST:PORT"`` is a Dask
        scheduler (extra ``distributed``). An executor or client of yours is left open.
    resume : bool
        Whether to go on with a store that exists: only what is missing is run.
    retry : bool
        Whether to run failed runs again (with ``resume``).
    progress : callable, optional
        Called with a `Progress` whenever results came in.

    Returns
    -------
    Results

    Raises
    ------
    InputError
        For a store that exists without ``resume``, or one that is damaged.
    OdekitError
        When the executor is lost. What was done is in the store.

    Notes
    -----
    A run that raises is recorded as failed, with its reason, and so is one that takes its worker
    process down twice. A result does not depend on who computed it: on machines of one kind a
    parallel or resumed sweep equals a serial one bit for bit.
    """
    with Store(Path(store), create=True) as kept:
        if kept.statuses() and not resume:
            raise InputError(
                f"{str(store)!r} holds a sweep already; go on with resume, or name another file."
            )
        kept.plan(sweep)
        statuses = kept.statuses()
        wanted = ("missing", "failed") if retry else ("missing",)
        todo = [each for each in sweep.runs if statuses[each.key] in wanted]
        before = {k: sum(s == k for s in statuses.values()) for k in ("done", "failed")}
        if retry:
            before["failed"] = 0
        tally = _Tally(kept, len(sweep), before["done"], before["failed"], progress)
        if todo:
            with crew_for(executor, workers, sweep.task, len(todo)) as crew:
                _Work(crew, sweep.task, todo, tally).finish()
        kept.flush()
        return read(kept)


def run_chunk(
    task: Callable[..., Any], chunk: list[tuple[str, Mapping[str, Any]]]
) -> list[Outcome]:
    """Do some runs in a worker; what a run raises is its reason."""
    outcomes = []
    for key, arguments in chunk:
        began = time.perf_counter()
        try:
            found, reason = quantities(task(**arguments)), ""
        except SolveError as error:
            if getattr(error.solution, "status", None) is Status.interrupted:
                # Ctrl-C reached the run: the sweep ends, and the run stays missing.
                raise KeyboardInterrupt from error
            found, reason = {}, _reason(error)
        except Exception as error:
            found, reason = {}, _reason(error)
        outcomes.append(Outcome(key, found, reason, time.perf_counter() - began))
    return outcomes


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:1000]


class _Tally:
    """Keeps outcomes and tells how far the sweep is."""

    def __init__(
        self,
        store: Store,
        total: int,
        done: int,
        failed: int,
        listener: Callable[[Progress], None] | None,
    ) -> None:
        self.store, self.total, self.listener = store, total, listener
        self.done, self.failed = done, failed
        self.before = done + failed
        self.began = time.monotonic()

    def keep(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            self.store.add(outcome)
            if outcome.reason:
                self.failed += 1
            else:
                self.done += 1
        if self.listener is not None:
            elapsed = time.monotonic() - self.began
            new = self.done + self.failed - self.before
            left = self.total - self.done - self.failed
            remaining = elapsed * left / new if new else None
            self.listener(Progress(self.done, self.failed, self.total, elapsed, remaining))


class _Work:
    """Hands out chunks, and deals with workers that die."""

    def __init__(
        self, crew: Crew, task: Callable[..., Any], todo: list[Run], tally: _Tally
    ) -> None:
        self.crew, self.task, self.tally = crew, task, tally
        self.queue = deque(todo)
        self.suspects: deque[Run] = deque()
        """Runs that were under way when a worker died; each is tried again alone."""
        self.futures: dict[Future[list[Outcome]], list[Run]] = {}
        self.pace: float | None = None

    def finish(self) -> None:
        try:
            while self.queue or self.suspects or self.futures:
                self._hand_out()
                ready, _ = wait(self.futures, return_when=FIRST_COMPLETED)
                for future in ready:
                    self._take(future)
        finally:
            for future in self.futures:
                future.cancel()

    def _hand_out(self) -> None:
        if self.suspects:
            if not self.futures:
                self._submit([self.suspects.popleft()])
            return
        while self.queue and len(self.futures) < (
            2 * self.crew.slots if self.crew.slots > 1 else 1
        ):
            share = len(self.queue) // (2 * self.crew.slots)
            size = 1 if self.pace is None else int(CHUNK_SECONDS / max(self.pace, 1e-9))
            size = max(1, min(size, share, LARGEST_CHUNK))
            self._submit([self.queue.popleft() for _ in range(size)])

    def _submit(self, chunk: list[Run]) -> None:
        content = [(each.key, each.arguments) for each in chunk]
        try:
            future = self.crew.pool.submit(run_chunk, self.task, content)
        except BrokenExecutor as error:
            self._replace(error)
            self.suspects.extend(chunk)
            return
        self.futures[future] = chunk

    def _take(self, future: Future[list[Outcome]]) -> None:
        chunk = self.futures.pop(future, None)
        if chunk is None:
            return
        try:
            outcomes = future.result()
        except CancelledError:
            raise OdekitError(
                "The cluster was lost; what was done is in the store: go on with resume."
            ) from None
        except BrokenExecutor as error:
            others = [each for lost in self.futures.values() for each in lost]
            alone = len(chunk) == 1 and not others
            self.futures.clear()
            self._replace(error)
            if alone:
                self._give_up(chunk[0], "the worker process died")
            else:
                self.suspects.extend([*chunk, *others])
        except Exception as error:  # the run's worker died, or its result did not travel
            if len(chunk) == 1:
                self._give_up(chunk[0], _reason(error))
            else:
                self.suspects.extend(chunk)
        else:
            mean = sum(outcome.seconds for outcome in outcomes) / len(outcomes)
            self.pace = mean if self.pace is None else (self.pace + mean) / 2
            self.tally.keep(outcomes)

    def _give_up(self, lost: Run, reason: str) -> None:
        self.tally.keep([Outcome(lost.key, {}, reason)])

    def _replace(self, error: BrokenExecutor) -> None:
        if self.crew.renew is None:
            raise OdekitError(
                f"The executor broke ({_reason(error)}); what was done is in the store: go on with "
                "resume."
            ) from None
        self.crew.pool.shutdown(wait=False, cancel_futures=True)
        self.crew.pool = self.crew.renew()
