"""A moment in a run at which something that was asked for happened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Event"]


@dataclass(frozen=True, eq=False)
class Event:
    """One event of a run, with its time and state.

    Parameters
    ----------
    label : str
        What was watched, for example ``"loss = 0.1"``.
    kind : {"crossing", "plateau start", "plateau end"}
        What happened.
    t : float
        Time of the event, in the field's time unit.
    state : mapping
        State name -> array at that time.
    loss : float or None
        Loss at that time, if the field has one.
    value : float
        The watched quantity at that time: for a crossing the level, for a plateau the loss where
        it is flattest between start and end.
    direction : int
        1 for an upward crossing, -1 for a downward one, 0 where it has no direction.
    terminal : bool
        Whether it ended the run.
    """

    label: str
    kind: str
    t: float
    state: Mapping[str, NDArray[np.float64]] = field(repr=False)
    loss: float | None
    value: float
    direction: int = 0
    terminal: bool = False
