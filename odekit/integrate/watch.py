"""Looks for events inside each accepted step, on the method's own interpolant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.codegen.compiled_field import CompiledField
from odekit.integrate.events import Crossing, Plateau
from odekit.integrate.quantity import Quantity, make_quantity, slope_quantity
from odekit.integrate.roots import crossings
from odekit.solution.event import Event

__all__ = ["Watcher", "make_watcher"]

Array = NDArray[np.float64]
Dense = Callable[[Array], Array]

SAMPLES = np.linspace(0.0, 1.0, 9)


@dataclass
class _Flat:
    """The plateau that is open now."""

    start: Event
    slope: float
    level: float


class Watcher:
    """Finds the events of one run, step by step.

    Parameters
    ----------
    events : tuple of Crossing or Plateau
    compiled : CompiledField
    p : ndarray
        Parameters with scratch; a copy of the watcher's own.
    start, y0 : float, ndarray (n,)
        Where the run starts.
    """

    def __init__(
        self,
        events: tuple[Crossing | Plateau, ...],
        compiled: CompiledField,
        p: Array,
        start: float,
        y0: Array,
    ) -> None:
        self.events = events
        self.compiled = compiled
        self.p = p
        self.start = start
        self.found: list[Event] = []
        self.closed: list[list[tuple[Event, Event | None]]] = [[] for _ in events]
        # Several levels of one quantity share its evaluations.
        shared: dict[Any, Quantity] = {}
        for event in events:
            key = _key(event)
            if key not in shared:
                shared[key] = (
                    make_quantity(event.of, compiled, p)
                    if isinstance(event, Crossing)
                    else slope_quantity(compiled, p, start)
                )
        self.shared = list(shared.values())
        self.source = [list(shared).index(_key(event)) for event in events]
        self.levels = [
            float(event.level) if isinstance(event, Crossing) else event.slope for event in events
        ]
        times, states = np.array([start]), y0[None, :]
        first = [float(quantity(times, states)[0]) for quantity in self.shared]
        values = [first[k] - level for k, level in zip(self.source, self.levels, strict=True)]
        self.signs = [float(np.sign(value)) for value in values]
        self.flat: list[_Flat | None] = [
            self._open(event, start, y0) if isinstance(event, Plateau) and value < 0 else None
            for event, value in zip(events, values, strict=True)
        ]

    def step(self, t_old: float, y_old: Array, t: float, y: Array, dense: Dense) -> Event | None:
        """Look at one accepted step.

        Parameters
        ----------
        t_old, y_old, t, y : float, ndarray (n,)
            Its two ends.
        dense : callable
            ``dense(t (M,)) -> (M, n)`` inside it.

        Returns
        -------
        Event or None
            The terminal event that ends the run.
        """
        times = t_old + (t - t_old) * SAMPLES
        times[-1] = t
        states = dense(times)
        # The ends are known better than the interpolant knows them (multistep methods).
        states[0], states[-1] = y_old, y
        hits: list[tuple[float, int, int]] = []
        samples: list[Array] = []
        sampled = [quantity(times, states) for quantity in self.shared]
        for number, (source, level) in enumerate(zip(self.source, self.levels, strict=True)):
            quantity = self.shared[source]
            values = sampled[source] - level
            samples.append(values)

            def at(time: float, quantity: Quantity = quantity, level: float = level) -> float:
                moment = np.array([time])
                return float(quantity(moment, dense(moment))[0]) - level

            found, self.signs[number] = crossings(times, values, at, self.signs[number])
            hits += [(time, number, direction) for time, direction in found]
        stop: Event | None = None
        for time, number, direction in sorted(hits):
            state = y if time == t else dense(np.array([time]))[0]
            stop = self._hit(number, direction, time, state, times, states, samples[number])
            if stop is not None:
                break
        for number, event in enumerate(self.events):
            if isinstance(event, Plateau):
                self._flatten(number, times, states, samples[number])
        return stop

    def results(self, end: float) -> tuple[Event, ...]:
        """Return all events in order of time; plateaus that did not last are left out."""
        kept = [event for event in self.found if event.kind == "crossing"]
        for number, watched in enumerate(self.events):
            if isinstance(watched, Plateau):
                pairs = self._pairs(number)
                for begin, finish in pairs:
                    last = finish.t if finish is not None else end
                    if last - self.start >= watched.lasting * (begin.t - self.start):
                        kept += [begin] if finish is None else [begin, finish]
        return tuple(sorted(kept, key=lambda event: event.t))

    def _pairs(self, number: int) -> list[tuple[Event, Event | None]]:
        flat = self.flat[number]
        return [*self.closed[number], *([(flat.start, None)] if flat is not None else [])]

    def _hit(
        self,
        number: int,
        direction: int,
        time: float,
        state: Array,
        times: Array,
        states: Array,
        samples: Array,
    ) -> Event | None:
        watched = self.events[number]
        if isinstance(watched, Crossing):
            if watched.direction not in (0, direction):
                return None
            event = self._event(
                watched.name,
                "crossing",
                time,
                state,
                float(watched.level),
                direction,
                watched.terminal,
            )
            self.found.append(event)
            return event if watched.terminal else None
        flat = self.flat[number]
        if direction < 0:
            self.flat[number] = self._open(watched, time, state)
        elif flat is not None:
            before = (times <= time) & (times >= flat.start.t)
            self._flatten(number, times[before], states[before], samples[before])
            end = self._event(watched.label, "plateau end", time, state, flat.level)
            self.closed[number].append((flat.start, end))
            self.flat[number] = None
        return None

    def _open(self, watched: Plateau, time: float, state: Array) -> _Flat:
        event = self._event(watched.label, "plateau start", time, state, None)
        return _Flat(event, np.inf, event.value)

    def _flatten(self, number: int, times: Array, states: Array, samples: Array) -> None:
        flat = self.flat[number]
        if flat is None:
            return
        inside = np.flatnonzero(times >= flat.start.t)
        if not len(inside):
            return
        best = inside[np.argmin(samples[inside])]
        if samples[best] < flat.slope and self.compiled.loss is not None:
            flat.slope = float(samples[best])
            flat.level = float(self.compiled.loss(np.ascontiguousarray(states[best]), self.p))

    def _event(
        self,
        label: str,
        kind: str,
        time: float,
        state: Array,
        value: float | None,
        direction: int = 0,
        terminal: bool = False,
    ) -> Event:
        flat = np.ascontiguousarray(state)
        loss = float(self.compiled.loss(flat, self.p)) if self.compiled.loss is not None else None
        named: dict[str, Any] = {
            name: part.copy() for name, part in self.compiled.layout.unpack(flat).items()
        }
        shown = value if value is not None else (loss if loss is not None else np.nan)
        return Event(label, kind, float(time), named, loss, float(shown), direction, terminal)


def make_watcher(
    events: tuple[Crossing | Plateau, ...],
    compiled: CompiledField,
    p: Array,
    start: float,
    y0: Array,
) -> Watcher | None:
    """Return a watcher, or None when nothing is watched."""
    return Watcher(events, compiled, p.copy(), start, y0) if events else None


def _key(event: Crossing | Plateau) -> Any:
    if isinstance(event, Plateau):
        return Plateau
    return event.of if isinstance(event.of, str) else id(event.of)
