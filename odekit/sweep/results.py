"""The results of a sweep, opened."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError, unknown_name
from odekit.sweep.store import Store

__all__ = ["Results", "load"]


@dataclass(frozen=True, eq=False, repr=False)
class Results:
    """Results of all runs of a plan, in the plan's order.

    Attributes
    ----------
    points : tuple of mapping
    status : tuple of str
        "done", "failed" or "missing".
    reasons : tuple of str
        Why a run failed.
    seconds : ndarray (runs,)
        Time inside each task; nan for a missing run.
    values : tuple of mapping
        Name -> array; empty for a run without results.
    axes : mapping
        Name -> values of a grid; empty for a list.
    keys : tuple of str
    title : str
    """

    points: tuple[Mapping[str, Any], ...]
    status: tuple[str, ...]
    reasons: tuple[str, ...]
    seconds: NDArray[np.float64]
    values: tuple[Mapping[str, NDArray[Any]], ...]
    axes: Mapping[str, tuple[Any, ...]]
    keys: tuple[str, ...]
    title: str

    def __len__(self) -> int:
        return len(self.points)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the quantities, in the order in which they first occur."""
        return tuple(dict.fromkeys(name for each in self.values for name in each))

    @property
    def failures(self) -> dict[int, str]:
        """Number of each failed run -> its reason."""
        return {k: r for k, r in enumerate(self.reasons) if self.status[k] == "failed"}

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Return a quantity, ``(*grid, *shape)`` over a grid, ``(runs, *shape)`` over a list.

        Runs without results hold nan (an empty text for text). Where shapes differ, they are filled
        with nan up to the largest.
        """
        if name not in self.names:
            raise unknown_name("quantity", name, self.names)
        found = [each.get(name) for each in self.values]
        there = [array for array in found if array is not None]
        ranks = {array.ndim for array in there}
        if len(ranks) > 1:
            raise InputError(f"{name!r} has different numbers of axes in different runs.")
        shape = tuple(int(n) for n in np.max([array.shape for array in there], axis=0))
        text = there[0].dtype.kind == "U"
        whole = len(there) == len(found) and all(array.shape == shape for array in there)
        kind = np.result_type(*there) if whole or text else np.result_type(np.float64, *there)
        out = np.full((len(found), *shape), "" if text else 0, dtype=kind)
        if not whole and not text:
            out[...] = np.nan
        for k, array in enumerate(found):
            if array is not None:
                here: tuple[int | slice, ...] = (k, *(slice(n) for n in array.shape))
                out[here] = array
        return out.reshape(self._shape + shape)

    @property
    def _shape(self) -> tuple[int, ...]:
        return tuple(len(v) for v in self.axes.values()) if self.axes else (len(self),)

    def to_xarray(self) -> Any:
        """Return one ``xarray.Dataset`` over the grid's axes, or over ``run`` for a list.

        A quantity's own axes are named after it, ``K_0``, ``K_1``; curves that share their times
        in every run lie along ``t``.

        Raises
        ------
        InputError
            When xarray is not installed.
        """
        try:
            import xarray
        except ImportError:
            raise InputError(
                "to_xarray needs xarray, which is not installed; install odekit[labelled]."
            ) from None
        dimensions = tuple(self.axes) or ("run",)
        coordinates: dict[str, Any] = {name: list(v) for name, v in self.axes.items()}
        if not self.axes:
            for name in dict.fromkeys(name for point in self.points for name in point):
                coordinates[name] = ("run", [point.get(name, np.nan) for point in self.points])
        times = self._common_times()
        if times is not None:
            coordinates["t"] = times
        variables: dict[str, Any] = {}
        for name in self.names:
            values = self[name]
            rank = values.ndim - len(dimensions)
            own = [f"{name}_{axis}" for axis in range(rank)]
            if times is not None and name == "t":
                continue
            if times is not None and name.endswith("_curve"):
                own = ["t", *(f"{name.removesuffix('_curve')}_{axis}" for axis in range(rank - 1))]
            # A quantity may be named like an axis of the grid.
            label = f"{name}_result" if name in coordinates or name in dimensions else name
            variables[label] = ((*dimensions, *own), values)
        shape = self._shape
        variables["run_status"] = (dimensions, np.array(self.status).reshape(shape))
        variables["run_reason"] = (dimensions, np.array(self.reasons).reshape(shape))
        variables["run_seconds"] = (dimensions, self.seconds.reshape(shape))
        return xarray.Dataset(variables, coords=coordinates, attrs={"title": self.title})

    def _common_times(self) -> NDArray[Any] | None:
        found = [each["t"] for each in self.values if "t" in each]
        same = found and all(np.array_equal(found[0], t) for t in found)
        return found[0] if same else None

    def __repr__(self) -> str:
        counts = {kind: self.status.count(kind) for kind in ("done", "failed", "missing")}
        told = ", ".join(f"{count} {kind}" for kind, count in counts.items() if count)
        return f"Results({self.title}: {len(self)} runs, {told}; {', '.join(self.names)})"

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f"<tr><th>{escape(name)}</th><td>{len(values)} values</td></tr>"
            for name, values in self.axes.items()
        )
        return f"<p>{escape(repr(self))}</p><table>{rows}</table>"


def load(path: str | PathLike[str]) -> Results:
    """Open the results of a sweep, finished or not.

    Parameters
    ----------
    path : path
        The store that `run` wrote.

    Returns
    -------
    Results
    """
    with Store(Path(path)) as store:
        return read(store)


def read(store: Store) -> Results:
    """Read an open store."""
    rows = store.rows()
    values = store.quantities()
    try:
        axes = json.loads(store.about("axes") or "{}")
        grid = {str(name): tuple(v) for name, v in axes.items()}
        count = int(np.prod([len(v) for v in grid.values()]))
    except (ValueError, TypeError, AttributeError):
        raise InputError(f"{str(store.path)!r} is damaged: its axes cannot be read.") from None
    if grid and count != len(rows):
        raise InputError(f"{str(store.path)!r} is damaged: its grid lacks runs.")
    return Results(
        points=tuple(row[1] for row in rows),
        status=tuple(row[2] for row in rows),
        reasons=tuple(row[3] for row in rows),
        seconds=np.array([np.nan if row[4] is None else row[4] for row in rows], dtype=float),
        values=tuple(values.get(row[0], {}) for row in rows),
        axes=grid,
        keys=tuple(row[0] for row in rows),
        title=store.about("title"),
    )
