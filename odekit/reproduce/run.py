"""Running targets side by side; one that fails, or whose process dies, does not lose the others."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import queue
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from odekit.errors import InputError
from odekit.reproduce.files import atomic, remove, writable_folder, write_picture
from odekit.reproduce.targets import Picture, Target

__all__ = ["Listener", "Outcome", "run"]

Listener = Callable[[str, str], None]
"""Called in the parent process with a target's name and what it is doing."""

_POLL_SECONDS = 0.1
_mailbox: Any = None  # in a worker process: where its messages go


@dataclass(frozen=True)
class Outcome:
    """How a target ended.

    Attributes
    ----------
    target : Target
    seconds : float
        Wall-clock time of drawing and writing.
    files : tuple of Path
        Files written; for a failed target the log with its traceback.
    error : str or None
        One line on why it failed, None if it did not.
    """

    target: Target
    seconds: float
    files: tuple[Path, ...] = ()
    error: str | None = None


def run(
    targets: Sequence[Target],
    out: Path | str,
    *,
    quick: bool = False,
    workers: int | None = None,
    listener: Listener | None = None,
) -> tuple[Outcome, ...]:
    """Draw targets and write their files.

    Parameters
    ----------
    targets : sequence of Target
        What to draw, as `odekit.reproduce.choose` returns it.
    out : path
        Folder for ``<target>.png``, ``.svg`` and ``.json``; made if it does not exist.
    quick : bool
        Passed on to the targets: fewer seeds, shorter runs.
    workers : int, optional
        Processes to share the work; by default one for each core, at most one for each target. With
        one, everything runs in this process.
    listener : callable, optional
        Called with ``(name of target, what it is doing)``.

    Returns
    -------
    tuple of Outcome
        In the order of `targets`; look for ``error`` in each.

    Raises
    ------
    InputError
        When the folder cannot be written.
    """
    folder = writable_folder(Path(out))
    tell: Listener = listener or (lambda name, message: None)
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1, got {workers}.")
    count = min(workers or _cores(), len(targets))
    if count <= 1:
        return tuple(_draw(target, folder, quick, partial(tell, target.name)) for target in targets)
    outcomes = _in_processes(targets, folder, quick, count, tell)
    # A process that dies takes its neighbours' work with it: each of those is drawn on its own.
    for target in targets:
        if target.name not in outcomes:
            outcomes |= _in_processes([target], folder, quick, 1, tell)
        if target.name not in outcomes:
            reason = "its process died (out of memory, or a crash in compiled code)"
            outcomes[target.name] = _failed(target, folder, 0.0, reason, reason)
    return tuple(outcomes[target.name] for target in targets)


def _cores() -> int:
    """Cores that this process may use, which on a shared machine are fewer than there are."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS or Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _in_processes(
    targets: Sequence[Target], folder: Path, quick: bool, count: int, tell: Listener
) -> dict[str, Outcome]:
    # Spawned, not forked: the parent may hold threads (a progress bar, BLAS), which a fork loses.
    context = multiprocessing.get_context("spawn")
    messages = context.Queue()
    outcomes: dict[str, Outcome] = {}
    pool = ProcessPoolExecutor(count, context, _enter_worker, (messages, count))
    try:
        pending: set[Future[Outcome]] = {
            pool.submit(_draw_in_worker, target, folder, quick) for target in targets
        }
        while pending:
            done, pending = wait(pending, timeout=_POLL_SECONDS)
            with contextlib.suppress(queue.Empty):
                while True:
                    tell(*messages.get_nowait())
            for future in done:
                with contextlib.suppress(BrokenProcessPool):
                    outcome = future.result()
                    outcomes[outcome.target.name] = outcome
    finally:
        pool.shutdown(cancel_futures=True)
        messages.close()
    return outcomes


def _enter_worker(messages: Any, count: int) -> None:
    global _mailbox
    _mailbox = messages
    # Before NumPy is imported: BLAS threads of several workers would fight for the same cores.
    threads = max(1, _cores() // count)
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(name, str(threads))


def _draw_in_worker(target: Target, folder: Path, quick: bool) -> Outcome:
    return _draw(target, folder, quick, lambda message: _mailbox.put((target.name, message)))


def _draw(target: Target, folder: Path, quick: bool, progress: Callable[[str], None]) -> Outcome:
    os.environ.setdefault("MPLBACKEND", "Agg")  # pictures go to files; there may be no display
    start = time.perf_counter()
    try:
        progress("starts")
        remove(target, folder)
        picture = importlib.import_module(target.module).draw(quick=quick, progress=progress)
        if not isinstance(picture, Picture):
            kind = type(picture).__name__
            raise InputError(f"{target.module}.draw must return a Picture, got {kind}.")
        progress("writes")
        seconds = time.perf_counter() - start
        files = write_picture(target, picture, folder, quick=quick, seconds=seconds)
        picture.figure.clear()  # a worker draws several: their memory need not add up
    except Exception as error:  # whatever a target raises must not lose the others
        seconds = time.perf_counter() - start
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        progress("failed")
        return _failed(target, folder, seconds, reason, traceback.format_exc())
    progress("done")
    return Outcome(target, time.perf_counter() - start, files)


def _failed(target: Target, folder: Path, seconds: float, reason: str, log: str) -> Outcome:
    path = folder / f"{target.name}.log"
    with contextlib.suppress(OSError), atomic(path) as draft:
        draft.write_text(log, encoding="utf-8")
        return Outcome(target, seconds, (path,), reason)
    return Outcome(target, seconds, (), reason)
