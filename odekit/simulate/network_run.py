"""What a training run of a small nonlinear network leaves behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError

__all__ = ["NetworkRun", "first_step"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NetworkRun:
    """Weights and measures of a network at the recorded steps of its training.

    Parameters
    ----------
    t : array (K,)
        Steps done at each record; the first is 0.
    states : mapping of str to array (K, *shape)
        Weights.
    measures : mapping of str to array (K,)
        Losses (natural logarithms) and accuracies (fractions), by name.
    seconds : float
        CPU time of the run, its records included.
    configuration : mapping
        Everything that the run depends on, with versions.
    """

    t: NDArray[np.int64]
    states: Mapping[str, Floats]
    measures: Mapping[str, Floats]
    seconds: float
    configuration: Mapping[str, Any]

    def __getitem__(self, name: str) -> Floats:
        for held in (self.measures, self.states):
            if name in held:
                return held[name]
        known = ", ".join([*self.measures, *self.states])
        raise InputError(f"The run holds no {name!r}; it holds {known}.")


def first_step(run: NetworkRun, measure: str, level: float) -> int | None:
    """First recorded step at which a measure has reached a level, None when it never does.

    Parameters
    ----------
    run : NetworkRun
    measure : str
        Name of a measure.
    level : float
        In the measure's unit; reached from below.

    Returns
    -------
    int or None
    """
    if measure not in run.measures:
        raise InputError(f"The run measured {', '.join(run.measures)}; not {measure!r}.")
    reached = np.flatnonzero(run.measures[measure] >= level)
    return int(run.t[reached[0]]) if reached.size else None
