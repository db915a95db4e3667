"""Derivatives of a run: of its states and loss, and of the times of its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError, unknown_name
from odekit.solution.event import Event
from odekit.solution.solution import Solution

__all__ = ["EventSensitivity", "Sensitivities"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EventSensitivity:
    """How an event moves.

    Parameters
    ----------
    event : Event
        The event itself.
    time : ndarray (M,)
        Derivative of its time along each direction, in time units over the direction's units.
        Infinite or NaN where the watched quantity touches its level without passing it.
    state : mapping
        State name -> ``(M, *shape)``, the derivative of the state at the event, which moves with
        it: ``dx + (dx/dt) dt``.
    """

    event: Event
    time: Array
    state: Mapping[str, Array] = field(repr=False)


@dataclass(frozen=True, eq=False, repr=False)
class Sensitivities:
    """A run with its derivatives along M directions.

    Parameters
    ----------
    trajectory : Solution
        The run. Its steps resolve the tangents too, so it differs from that of `odekit.solve` by
        less than the tolerance.
    labels : tuple of str (M,)
        What each direction changes.
    states : mapping
        State name -> tangents ``(K, M, *shape)``: the derivative of the state at each output time
        along each direction. ``sens["v"]`` is short for ``sens.states["v"]``, and ``sens["v",
        "N"]`` is its part ``(K, *shape)`` along one direction.
    loss : ndarray (K, M) or None
        Derivative of the loss, explicit dependence on parameters included; None when the field
        has no loss.
    events : tuple of EventSensitivity
        In order of time.
    initial, parameters : mapping
        State or parameter name -> ``(M, *shape)``: the directions themselves.
    tangent_field : object
        The field with its tangents, for `value`.
    run : Solution
        The integration of states and tangents together.
    """

    trajectory: Solution
    labels: tuple[str, ...]
    states: Mapping[str, Array]
    loss: Array | None
    events: tuple[EventSensitivity, ...]
    initial: Mapping[str, Array]
    parameters: Mapping[str, Array]
    tangent_field: Any
    run: Solution

    @property
    def t(self) -> Array:
        """Output times (K,), in the field's time unit."""
        return self.trajectory.t

    def __getitem__(self, key: str | tuple[str, str]) -> Array:
        """Tangents of a state, ``(K, M, *shape)``, or along one direction, ``(K, *shape)``."""
        name, label = key if isinstance(key, tuple) else (key, None)
        if str(name) not in self.states:
            raise unknown_name("state", str(name), self.states)
        tangents = self.states[str(name)]
        return tangents if label is None else tangents[:, self.index(label)]

    def index(self, label: str) -> int:
        """The place of a direction among the M."""
        if label not in self.labels:
            raise unknown_name("direction", label, self.labels)
        return self.labels.index(label)

    @property
    def event_times(self) -> Array:
        """Derivatives of all events' times, ``(number of events, M)``."""
        return np.array([e.time for e in self.events]).reshape(len(self.events), len(self.labels))

    def at(self, t: ArrayLike) -> dict[str, Array]:
        """Return the tangents at any times of the run.

        Parameters
        ----------
        t : float or array_like (T,)
            Between outputs, the run must have kept its dense output; see `Solution.at`.

        Returns
        -------
        dict
            State name -> ``(M, *shape)`` for a single time, ``(T, M, *shape)`` for several.
        """
        everything = self.run.at(t)
        return {name: everything[own] for name, own in self.tangent_field.state_names.items()}

    def value(self, expr: Any) -> Array:
        """Return the derivative of any expression of states and parameters along the run.

        Parameters
        ----------
        expr : tensor expression, definition, loss, SymPy expression, or str
            As for `Solution.value`; a string is a state, a named intermediate or ``"loss"``.

        Returns
        -------
        ndarray (K, M, *shape)
            The explicit dependence on parameters is included.
        """
        if isinstance(expr, str):
            if expr in self.states:
                return self.states[expr]
            expr = _named(expr, self.tangent_field.origin)
        return np.asarray(
            self.tangent_field.differential(expr).evaluate(
                self.trajectory.states, self.states, self.trajectory.params, self.parameters
            )
        )

    def plot(self, **options: Any) -> Any:
        """Draw loss and derivatives; options are those of ``odekit.plot.sensitivities``."""
        import importlib

        return importlib.import_module("odekit.plot").sensitivities(self, **options)

    def __repr__(self) -> str:
        return f"Sensitivities({', '.join(self.labels)}; {self.trajectory!r})"

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(label)}</th>" for label in self.labels)
        rows = []
        if self.loss is not None and len(self.loss):
            rows.append(("d loss at the end", self.loss[-1]))
        rows += [(f"d t of {e.event.label}, t = {e.event.t:.6g}", e.time) for e in self.events]
        body = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th>"
            + "".join(f"<td>{value:.6g}</td>" for value in values)
            + "</tr>"
            for name, values in rows
        )
        table = f"<table><tr><th></th>{head}</tr>{body}</table>"
        return table + self.trajectory._repr_html_()


def _named(name: str, origin: Any) -> Any:
    if name == "loss" and origin.loss is not None:
        return origin.loss
    known = list(origin.state_names)
    for tensor, expression in getattr(origin, "definitions", ()):
        if tensor.name == name:
            return expression
        known.append(tensor.name)
    raise unknown_name("state or intermediate", name, known)


def split(values: Mapping[str, Array], names: Mapping[str, str]) -> tuple[Any, Any]:
    """Part the arrays of a tangent field's run into states and tangents, by the states' names."""
    missing = [own for pair in names.items() for own in pair if own not in values]
    if missing:
        raise InputError(f"The run lacks {', '.join(missing)}.")
    return {n: values[n] for n in names}, {n: values[own] for n, own in names.items()}
