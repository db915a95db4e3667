"""How the times of events move: the implicit function theorem at each of them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError
from odekit.integrate.events import Crossing, Plateau
from odekit.solution.event import Event
from odekit.solution.sensitivities import EventSensitivity, split

if TYPE_CHECKING:
    from odekit.field.tangent_field import TangentField

__all__ = ["event_sensitivities", "refuse_callables"]

Array = NDArray[np.float64]


def refuse_callables(watched: tuple[Crossing | Plateau, ...]) -> None:
    """Refuse to watch what cannot be differentiated exactly."""
    for event in watched:
        if isinstance(event, Crossing) and not (isinstance(event.of, str) or _is_expression(event)):
            raise InputError(
                f"The crossing {event.name!r} watches a Python function, which has no exact "
                "derivative; watch the loss, a state's entry or an expression."
            )


def _is_expression(event: Crossing) -> bool:
    return any(hasattr(event.of, name) for name in ("evaluate", "free_symbols", "as_expression"))


def event_sensitivities(
    events: tuple[Event, ...],
    watched: tuple[Crossing | Plateau, ...],
    tangents: TangentField,
    params: Mapping[str, Array],
    moved: Mapping[str, Array],
    start: float,
) -> tuple[EventSensitivity, ...]:
    """Differentiate the time and the state of every event.

    Parameters
    ----------
    events : tuple of Event
        Of the tangent field's run; ``label`` is the number of what was watched.
    watched : tuple of Crossing or Plateau
    tangents : TangentField
    params : mapping
        Parameters of the field itself.
    moved : mapping
        Parameter name -> its directions ``(M, *shape)``.
    start : float
        Start of the run.

    Returns
    -------
    tuple of EventSensitivity
        Of events that hold the field's own states, under the labels that were asked for.
    """
    slopes = [
        _Crossing(event, tangents) if isinstance(event, Crossing) else _Slope(tangents)
        for event in watched
    ]
    return tuple(
        _one(
            event,
            watched[int(event.label)],
            slopes[int(event.label)],
            tangents,
            params,
            moved,
            start,
        )
        for event in events
    )


def _one(
    event: Event,
    watched: Crossing | Plateau,
    slope: _Crossing | _Slope,
    tangents: TangentField,
    params: Mapping[str, Array],
    moved: Mapping[str, Array],
    start: float,
) -> EventSensitivity:
    state, own = split(event.state, tangents.state_names)
    rate = tangents.origin.evaluate(state, _known(tangents, params))
    # One more direction: along the flow, parameters fixed.
    along = {name: np.concatenate([own[name], rate[name][None]])[None] for name in own}
    still = {n: np.concatenate([a, np.zeros_like(a[:1])]) for n, a in moved.items()}
    stack = {name: value[None] for name, value in state.items()}
    if isinstance(slope, _Slope) and event.t <= start:
        time = np.zeros(along[next(iter(along))].shape[1] - 1)  # the run's start opens it
    else:
        changes, drift = slope.changes(stack, along, params, still, event.t - start)
        with np.errstate(divide="ignore", invalid="ignore"):
            time = -changes[:-1] / (changes[-1] + drift)
    label = watched.name if isinstance(watched, Crossing) else watched.label
    with np.errstate(invalid="ignore"):
        total = {name: own[name] + np.multiply.outer(time, np.asarray(rate[name])) for name in own}
    return EventSensitivity(dataclasses.replace(event, label=label, state=state), time, total)


def _known(tangents: TangentField, params: Mapping[str, Array]) -> dict[str, Any]:
    names = set(tangents.origin.parameter_names)
    return {name: value for name, value in params.items() if name in names}


class _Crossing:
    """The derivative of a watched quantity."""

    def __init__(self, event: Crossing, tangents: TangentField) -> None:
        of, origin = event.of, tangents.origin
        self.entry: tuple[str, tuple[int, ...]] | None = None
        if isinstance(of, str) and not (of == "loss" and "loss" not in origin.state_names):
            name, _, index = of.strip().partition("[")
            numbers = tuple(int(part) for part in re.findall(r"\d+", index))
            self.entry = (name.strip(), numbers)
        else:
            loss = getattr(origin, "loss", None)
            self.differential = tangents.differential(loss if isinstance(of, str) else of)

    def changes(
        self, state: Any, along: Any, params: Any, directions: Any, elapsed: float
    ) -> tuple[Array, float]:
        """Changes along all directions ``(M + 1,)``, the flow last, and the explicit drift."""
        if self.entry is not None:
            name, index = self.entry
            values = along[name][0]
            return values[(slice(None), *index)].reshape(len(values)), 0.0
        return self.differential.evaluate(state, along, params, directions)[0], 0.0


class _Slope:
    """The derivative of a plateau's ``|d ln(loss) / d ln(t)|``, its sign left out."""

    def __init__(self, tangents: TangentField) -> None:
        origin: Any = tangents.origin
        speed = tangents.along_flow(origin.loss)
        self.loss = tangents.differential(origin.loss)
        self.speed = tangents.differential(speed)
        self.tangents = tangents

    def changes(
        self, state: Any, along: Any, params: Any, directions: Any, elapsed: float
    ) -> tuple[Array, float]:
        """Changes of ``t L'/L`` along all directions, the flow last, and its explicit drift."""
        at = {name: value[0] for name, value in state.items()}
        loss = self.tangents.origin.loss_value(at, _known(self.tangents, params))
        loss_changes = self.loss.evaluate(state, along, params, directions)[0]
        speed_changes = self.speed.evaluate(state, along, params, directions)[0]
        speed = loss_changes[-1]
        relative = speed_changes / loss - speed * loss_changes / loss**2
        return elapsed * relative, float(speed / loss)
