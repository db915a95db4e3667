"""What can be watched for along a run: crossings of a level, and plateaus of the loss."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any

from odekit.errors import InputError

__all__ = ["Crossing", "Plateau", "read_events"]


@dataclass(frozen=True, eq=False)
class Crossing:
    """A quantity passes a level.

    Crossings are searched on the method's own interpolant inside each step: between nine samples
    a step, and at the extrema that the samples suggest, so that several crossings in one step are
    found. A touch without a change of sign is no crossing.

    Parameters
    ----------
    of : str, expression or callable
        ``"loss"``; the name of a state with one entry, or an entry such as ``"v[0]"`` or
        ``"K[1, 0]"``; a scalar tensor expression, loss, or SymPy expression; or a callable
        ``of(t, state) -> float`` with ``state`` a mapping from name to array.
    level : float
        In units of the quantity.
    direction : {0, 1, -1}
        1 for upward crossings only, -1 for downward ones only, 0 for both.
    terminal : bool
        Whether the first one ends the run, with the crossing as its last output.
    label : str, optional
        Name in ``sol.events``.
    """

    of: Any
    level: float = 0.0
    direction: int = 0
    terminal: bool = False
    label: str = ""

    def __post_init__(self) -> None:
        if self.direction not in (-1, 0, 1):
            raise InputError(
                f"The direction of a crossing must be -1, 0 or 1, got {self.direction!r}."
            )
        try:
            level = float(self.level)
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"The level of a crossing must be a number, got {self.level!r}."
            ) from None
        if not math.isfinite(level):
            raise InputError(f"The level of a crossing must be finite, got {self.level!r}.")

    @property
    def name(self) -> str:
        """Label in ``sol.events``."""
        what = self.of if isinstance(self.of, str) else getattr(self.of, "__name__", str(self.of))
        return self.label or f"{what} = {float(self.level):g}"


@dataclass(frozen=True, eq=False)
class Plateau:
    """The loss is flat: start and end of every plateau.

    Definition: a plateau is a maximal interval of time on which
    ``|d ln(loss) / d ln(t)| < slope``, with ``t`` counted from the start of the run, and whose
    end is at least ``lasting`` times its start. The derivative is taken along the flow, from the
    right-hand side and the loss, not from differences of outputs. The run's start opens a plateau
    (there ``t = 0``); a plateau that the run's end cuts off has a start and no end.

    A start carries the loss at that time; an end carries, as ``value``, the loss where the
    plateau was flattest among the samples looked at (nine a step).

    Parameters
    ----------
    slope : float
        Threshold of the logarithmic slope, dimensionless.
    lasting : float
        Least ratio of end to start, dimensionless; 1 keeps all.
    label : str
        Name in ``sol.events``.
    """

    slope: float = 0.1
    lasting: float = 1.0
    label: str = "plateau"

    def __post_init__(self) -> None:
        given: dict[str, Any] = {"slope": self.slope, "least ratio": self.lasting}
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, Real):
                raise InputError(f"The {name} of a plateau must be a number, got {value!r}.")
        if not self.slope > 0:
            raise InputError(f"The slope of a plateau must be positive, got {self.slope!r}.")
        if not self.lasting >= 1:
            raise InputError(
                f"The least ratio of a plateau's end to its start must be at least 1, got "
                f"{self.lasting!r}."
            )


def read_events(events: Any) -> tuple[Crossing | Plateau, ...]:
    """Read one event or a sequence of them."""
    if isinstance(events, (Crossing, Plateau)):
        return (events,)
    if events is None:
        return ()
    if not isinstance(events, Iterable) or isinstance(events, (str, dict)):
        raise InputError(
            f"Events must be ok.Crossing or ok.Plateau or a list of them, got "
            f"{type(events).__name__}."
        )
    chosen = tuple(events)
    for event in chosen:
        if not isinstance(event, (Crossing, Plateau)):
            raise InputError(
                f"Events must be ok.Crossing or ok.Plateau, got {type(event).__name__}."
            )
    return chosen
