"""How far a run is: a bar, or a function of the user's own, about ten times a second."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.codegen.compiled_field import CompiledField
from odekit.errors import InputError

__all__ = ["progress_of"]

Array = NDArray[np.float64]
Report = Callable[[float, int, Array], None]

INTERVAL = 0.1
"""Seconds between two reports."""

FIRST = 1e-6
"""The bar is logarithmic in time from this fraction of the span on: learning is."""


@contextmanager
def progress_of(
    progress: Any, compiled: CompiledField, p: Array, start: float, end: float
) -> Iterator[Report | None]:
    """Give the callback that a method calls after each step; None for no progress.

    Parameters
    ----------
    progress : bool or callable
    compiled : CompiledField
    p : ndarray
        Parameters with scratch.
    start, end : float
    """
    if progress is False or progress is None:
        yield None
    elif callable(progress):
        yield _seldom(progress, compiled, p)
    elif progress is True:
        with _bar(start, end) as show:
            yield _seldom(show, compiled, p)
    else:
        raise InputError(
            f"progress must be True, False or a callable of (t, steps, loss), got {progress!r}."
        )


def _seldom(
    show: Callable[[float, int, float | None], Any], compiled: CompiledField, p: Array
) -> Report:
    loss, scratch, last = compiled.loss, p.copy(), 0.0

    def report(t: float, steps: int, y: Array) -> None:
        nonlocal last
        now = time.perf_counter()
        if now - last >= INTERVAL:
            last = now
            show(t, steps, float(loss(np.ascontiguousarray(y), scratch)) if loss else None)

    return report


@contextmanager
def _bar(start: float, end: float) -> Iterator[Callable[[float, int, float | None], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    span = end - start
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("starting", total=1.0)

        def show(t: float, steps: int, loss: float | None) -> None:
            done = math.log1p((t - start) / (FIRST * span)) / math.log1p(1 / FIRST)
            text = f"t = {t:.4g} of {end:.4g}, {steps} steps"
            if loss is not None:
                text += f", loss {loss:.4g}"
            bar.update(line, completed=done, description=text)

        yield show
