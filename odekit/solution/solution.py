"""A trajectory with named states, its status, and what is needed to ask it questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError, unknown_name
from odekit.solution.event import Event
from odekit.solution.interpolant import Interpolant
from odekit.solution.status import Status

__all__ = ["Solution"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Solution:
    """A run: times, named states, loss, and how it ended.

    Parameters
    ----------
    t : ndarray (K,)
        Output times, in the field's time unit; numbers of steps for discrete training.
    states : mapping
        State name -> array ``(K, *shape)``. ``sol["v"]`` is short for ``sol.states["v"]``.
    loss : ndarray (K,) or None
        Loss at the output times, in the field's own scale; None when the field has none.
    status : Status
        How the run ended.
    message : str
        The status in one sentence, with numbers where they are known.
    stats : mapping
        Method, tolerances, counts of steps and calls, seconds, warnings.
    events : tuple of Event
        In order of time.
    params : mapping
        Parameter name -> value of the run.
    interpolant : Interpolant or None
        The method's own dense output, kept when the run was given an end time, or on request by
        ``save=Save(dense=True)``.
    field : object or None
        The vector field, for `value`; not written by `save`.
    """

    t: Array
    states: Mapping[str, Array]
    loss: Array | None = None
    status: Status = Status.success
    message: str = ""
    stats: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[Event, ...] = ()
    params: Mapping[str, Array] = field(default_factory=dict)
    interpolant: Interpolant | None = None
    field: Any = None

    def __getitem__(self, name: str) -> Array:
        """Return the values of one state, ``(K, *shape)``."""
        key = str(name)
        if key not in self.states:
            raise unknown_name("state", key, self.states)
        return self.states[key]

    def __len__(self) -> int:
        return len(self.t)

    @property
    def final(self) -> dict[str, Array]:
        """State name -> array at the last time."""
        if not len(self.t):
            raise InputError("The run has no outputs: it ended before the first output time.")
        return {name: values[-1] for name, values in self.states.items()}

    def at(self, t: ArrayLike) -> dict[str, Array]:
        """Return the states at any times of the run.

        Stored times give the stored states. Other times need the method's own dense output,
        which is kept when the run was given an end time or ``save=Save(dense=True)``; without
        it they are refused, because an interpolation of the outputs alone would have an error
        that nobody controlled.

        Parameters
        ----------
        t : float or array_like (M,)
            Times within the run.

        Returns
        -------
        dict
            State name -> array ``shape`` for a single time, ``(M, *shape)`` for several.

        Raises
        ------
        InputError
            For times outside the run, or between outputs without dense output.
        """
        try:
            times = np.asarray(t)
            numeric = times.dtype.kind in "iuf" or not times.size
        except ValueError:
            numeric = False
        if not numeric:
            raise InputError(f"Times must be real numbers, got {t!r:.60}.")
        times = times.astype(np.float64)
        if times.ndim > 1:
            raise InputError(f"Times must be a number or one-dimensional, got {times.ndim} axes.")
        if not len(self.t):
            raise InputError("The run has no outputs: it ended before the first output time.")
        where = np.clip(np.searchsorted(self.t, times), 1, max(len(self.t) - 1, 1)) - 1
        upper = np.minimum(where + 1, len(self.t) - 1)
        nearest = np.where(
            np.abs(self.t[upper] - times) < np.abs(self.t[where] - times), upper, where
        )
        stored = np.abs(self.t[nearest] - times) <= 4 * np.spacing(np.abs(times))
        if bool(np.all(stored)):
            return {name: values[nearest] for name, values in self.states.items()}
        if self.interpolant is None:
            raise InputError(
                "Only the output times of this run are stored; solve with "
                "save=ok.Save(dense=True), or with an end time as t, to ask between them."
            )
        if bool(np.any(times > self.t[-1] + 4 * np.spacing(abs(self.t[-1])))):
            raise InputError(
                f"Time outside the run: it ended at {self.t[-1]:g}; solve to a later end."
            )
        flat = self.interpolant(times)
        out: dict[str, Array] = {}
        start = 0
        for name, values in self.states.items():
            shape = values.shape[1:]
            stop = start + int(np.prod(shape, dtype=int))
            out[name] = flat[..., start:stop].reshape(times.shape + shape)
            start = stop
        return out

    def value(self, expr: Any, params: Mapping[str, Any] | None = None) -> Array:
        """Return any expression, named intermediate or loss along the run.

        Parameters
        ----------
        expr : tensor expression, definition, loss, or str
            Anything with ``evaluate(values)``, a SymPy expression of a scalar field, or the name
            of a state or named intermediate.
        params : mapping, optional
            Values that replace or add to the run's own parameters.

        Returns
        -------
        ndarray (K, *shape)
        """
        from odekit.solution.along import value_along

        return value_along(self, expr, params)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the run as ``.npz``: arrays and JSON, no pickle; the field is left out.

        Parameters
        ----------
        path : path
            Written at once or not at all.
        """
        from odekit.solution.storage import write

        write(self, path)

    @staticmethod
    def load(path: str | PathLike[str]) -> Solution:
        """Read a run that `save` wrote.

        Parameters
        ----------
        path : path

        Returns
        -------
        Solution
            Without its field: `value` then takes states by name, and expressions whose
            intermediates are all weights and parameters.
        """
        from odekit.solution.storage import read

        return read(path)

    def to_xarray(self) -> Any:
        """Return an ``xarray.Dataset``: one variable a state, along ``t``.

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
        axis_name = _free_name("t", self.states)
        variables: dict[str, Any] = {
            name: ((axis_name, *(f"{name}_{axis}" for axis in range(values.ndim - 1))), values)
            for name, values in self.states.items()
        }
        if self.loss is not None:
            variables[_free_name("loss", self.states)] = ((axis_name,), self.loss)
        attributes = {"status": str(self.status), "message": self.message}
        return xarray.Dataset(variables, coords={axis_name: self.t}, attrs=attributes)

    def plot(self, **options: Any) -> Any:
        """Draw the run; options are those of ``odekit.plot.solution``."""
        import importlib

        return importlib.import_module("odekit.plot").solution(self, **options)

    def __repr__(self) -> str:
        states = ", ".join(f"{name} {values.shape[1:]}" for name, values in self.states.items())
        span = f"{len(self.t)} times"
        if len(self.t):
            span += f" from {self.t[0]:g} to {self.t[-1]:g}"
        return f"Solution({states}; {span}; {self.status})"

    def _repr_html_(self) -> str:
        rows = [("status", self.message or self.status.message), ("times", str(len(self.t)))]
        if len(self.t):
            rows.append(("span", f"{self.t[0]:g} to {self.t[-1]:g}"))
        rows += [(name, f"shape {values.shape}") for name, values in self.states.items()]
        if self.loss is not None and len(self.loss):
            rows.append(("loss", f"{self.loss[0]:.6g} to {self.loss[-1]:.6g}"))
        for key in ("method", "steps", "rhs_calls", "seconds"):
            if key in self.stats:
                value = self.stats[key]
                rows.append((key, f"{value:.3g}" if isinstance(value, float) else str(value)))
        if self.events:
            rows.append(("events", ", ".join(f"{e.label} at {e.t:.6g}" for e in self.events)))
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            f"<td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in rows
        )
        return f"<table>{cells}</table>"


def _free_name(name: str, taken: Iterable[str]) -> str:
    used = set(taken)
    while name in used:
        name += "_"
    return name
