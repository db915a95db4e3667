"""Who runs a sweep: this thread, threads, processes, a given executor, or a Dask cluster."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from odekit.errors import InputError, OdekitError, unknown_name

__all__ = ["Crew", "crew_for"]

CONNECT = 10.0
"""Seconds to wait for a Dask scheduler."""


@dataclass
class Crew:
    """An executor, how many runs it can do at a time, and how to replace it when it breaks."""

    pool: Any
    slots: int
    renew: Callable[[], Any] | None = None


class _Here(Executor):
    """Runs each call at once, in the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@contextlib.contextmanager
def crew_for(executor: Any, workers: int | None, task: Any, count: int) -> Iterator[Crew]:
    """Make what an option names, and take it down again; a given executor is left open."""
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int)):
        raise InputError(f"workers must be a whole number, got {workers!r}.")
    if workers is not None and workers < 1:
        raise InputError(f"workers must be at least 1, got {workers!r}.")
    if isinstance(executor, str) and "://" in executor:
        with _cluster(executor) as client:
            yield _dask(client, workers)
        return
    if hasattr(executor, "get_executor"):
        yield _dask(executor, workers)
        return
    if isinstance(executor, Executor):
        yield Crew(executor, workers or getattr(executor, "_max_workers", None) or _processors())
        return
    if executor not in (None, "threads", "processes"):
        if isinstance(executor, str):
            raise unknown_name("executor", executor, ["threads", "processes", "tcp://HOST:PORT"])
        raise InputError(
            f"executor must be 'threads', 'processes', a Dask address, or an Executor, got "
            f"{type(executor).__name__}."
        )
    number = max(1, min(workers or _processors(), count))
    if executor is None and number == 1:
        yield Crew(_Here(), 1)
        return
    if executor == "threads":
        with ThreadPoolExecutor(number) as pool:
            yield Crew(pool, number)
        return
    _check_travels(task)
    # Not forked: a fork of a process with threads (BLAS, a progress bar) may hang.
    context = multiprocessing.get_context("spawn")

    def renew() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(number, context, _end_with, (os.getpid(),))

    crew = Crew(renew(), number, renew)
    try:
        yield crew
    finally:
        crew.pool.shutdown(wait=True, cancel_futures=True)


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _end_with(parent: int) -> None:
    """End this worker when its parent was killed: it would wait for work for ever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _check_travels(task: Any) -> None:
    try:
        pickle.dumps(task)
    except Exception as error:
        raise InputError(
            "Processes need a task that pickles, such as a function at the top level of a module "
            f"({error}); or use executor='threads'."
        ) from None
    main = sys.modules["__main__"]
    inner = getattr(task, "func", task)
    if getattr(inner, "__module__", "") == "__main__" and not hasattr(main, "__file__"):
        raise InputError(
            "Processes cannot find a task that was typed in; put it into a module, or use "
            "executor='threads'."
        )


@contextlib.contextmanager
def _cluster(address: str) -> Iterator[Any]:
    try:
        from distributed import Client
    except ImportError:
        raise InputError(
            "A Dask cluster needs distributed, which is not installed; install odekit[distributed]."
        ) from None
    try:
        client = Client(address, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(
            f"No Dask scheduler answers at {address!r} ({type(error).__name__}); start one with "
            "'dask scheduler'."
        ) from None
    with client:
        yield client


def _dask(client: Any, workers: int | None) -> Crew:
    threads = sum(client.nthreads().values())
    if not threads and workers is None:
        raise OdekitError("The Dask cluster has no workers; start one with 'dask worker ADDRESS'.")
    # A worker that is killed takes its chunks with it; the scheduler gives them to another.
    return Crew(client.get_executor(pure=False, retries=2), workers or threads)
