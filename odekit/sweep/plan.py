"""What is to be run: a task at every point of a grid, or at each point of a list."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from odekit.errors import InputError
from odekit.sweep.identity import content_hash

__all__ = ["Run", "Sweep", "grid", "listed"]

Point = Mapping[str, Any]
MOST_RUNS = 1_000_000


@dataclass(frozen=True)
class Run:
    """One run of a sweep.

    Attributes
    ----------
    point : mapping
        What distinguishes it: name -> number or text.
    arguments : mapping
        What its task is called with.
    key : str
        Hash of everything that determines its result.
    """

    point: Point
    arguments: Mapping[str, Any]
    key: str


@dataclass(frozen=True)
class Sweep:
    """Runs of one task.

    Attributes
    ----------
    task : callable
        ``task(**arguments)`` gives a `Solution`, an `Ensemble`, or a mapping of names to numbers
        and arrays. For processes it is a function at the top level of a module.
    runs : tuple of Run
    axes : mapping
        Name -> values, in order, for a grid; empty for a list.
    title : str
    """

    task: Callable[..., Any]
    runs: tuple[Run, ...]
    axes: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    title: str = "sweep"

    def __len__(self) -> int:
        return len(self.runs)

    def __repr__(self) -> str:
        shape = " x ".join(f"{len(values)} {name}" for name, values in self.axes.items())
        return f"Sweep({self.title}: {len(self)} runs{', ' if shape else ''}{shape})"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{escape(_span(values))}</td></tr>"
            for name, values in self.axes.items()
        )
        return f"<p>{escape(self.title)}: {len(self)} runs</p><table>{rows}</table>"


def _span(values: tuple[Any, ...]) -> str:
    if len(values) <= 3:
        return ", ".join(map(str, values))
    return f"{values[0]}, {values[1]}, ... {values[-1]} ({len(values)} values)"


def grid(
    task: Callable[..., Any],
    axes: Mapping[str, Iterable[Any]],
    *,
    title: str = "sweep",
    arguments: Mapping[str, Any] | None = None,
) -> Sweep:
    """Plan a run at every point of a grid.

    Parameters
    ----------
    task : callable
        Called as ``task(**point, **arguments)``; see `Sweep`.
    axes : mapping
        Name -> the values that it takes, numbers or text.
    title : str
    arguments : mapping, optional
        Shared by all runs.

    Returns
    -------
    Sweep
        Runs in C order, the last axis fastest.
    """
    if not axes:
        raise InputError("A grid needs at least one axis: a name and its values.")
    values = {name: tuple(_coordinate(name, v) for v in along) for name, along in axes.items()}
    count = 1
    for name, along in values.items():
        if not along:
            raise InputError(f"The axis {name!r} has no values.")
        count *= len(along)
    if count > MOST_RUNS:
        raise InputError(f"The grid has {count} points; at most {MOST_RUNS} are taken.")
    points = [dict(zip(values, p, strict=True)) for p in itertools.product(*values.values())]
    return Sweep(task, planned(task, points, arguments or {}), values, title)


def listed(
    task: Callable[..., Any],
    points: Iterable[Point],
    *,
    title: str = "sweep",
    arguments: Mapping[str, Any] | None = None,
) -> Sweep:
    """Plan a run at each point of a list; otherwise as `grid`."""
    chosen = [{name: _coordinate(name, v) for name, v in point.items()} for point in points]
    if not chosen:
        raise InputError("The list of points is empty.")
    return Sweep(task, planned(task, chosen, arguments or {}), {}, title)


def planned(
    task: Callable[..., Any],
    points: list[dict[str, Any]],
    shared: Mapping[str, Any],
    arguments: Callable[[Point], Mapping[str, Any]] | None = None,
) -> tuple[Run, ...]:
    """Hash each run; ``arguments`` makes what the task is called with from a point."""
    # All that is made here stays: looking through it for garbage would take a third of the time.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _hashed(task, points, shared, arguments)
    finally:
        if collecting:
            gc.enable()


def _hashed(
    task: Callable[..., Any],
    points: list[dict[str, Any]],
    shared: Mapping[str, Any],
    arguments: Callable[[Point], Mapping[str, Any]] | None,
) -> tuple[Run, ...]:
    runs = []
    keys: dict[str, int] = {}
    for number, point in enumerate(points):
        for name in point:
            if name in shared:
                raise InputError(f"{name!r} is given both by the points and by arguments.")
        given = {**point, **shared} if arguments is None else arguments(point)
        key = content_hash(task, given)
        if key in keys:
            raise InputError(f"Runs {keys[key]} and {number} are the same; leave one out.")
        keys[key] = number
        runs.append(Run(point, given, key))
    return tuple(runs)


def _coordinate(name: str, value: Any) -> Any:
    """Plain numbers and text only, so that a point reads the same from the store."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        raise InputError(f"The values of {name!r} must be finite, got {value!r}.")
    if not isinstance(value, bool | int | float | str):
        raise InputError(
            f"The values of {name!r} must be numbers or text, got {type(value).__name__}; number "
            "the choices and look them up inside the task."
        )
    return value
