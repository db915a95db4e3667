"""What a method is given and what it gives back, on flat arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.codegen.compiled_field import CompiledField
from odekit.integrate.options import Limits, Save
from odekit.integrate.watch import Watcher
from odekit.solution.interpolant import Interpolant
from odekit.solution.status import Status

__all__ = ["Method", "Outcome", "Task"]

Array = NDArray[np.float64]
Report = Callable[[float, int, Array], None]


@dataclass(frozen=True, eq=False)
class Task:
    """One initial value problem.

    Parameters
    ----------
    compiled : CompiledField
    y0 : ndarray (n,)
    p : ndarray
        Parameters with their scratch tail, this run's own copy.
    start, end : float
        ``start < end``.
    outputs : ndarray (K,) or None
        Increasing, in ``[start, end]``; None to store the accepted steps.
    relative : float
    absolute : ndarray (n,)
        Tolerances, which are chosen after the method.
    limits : Limits
    save : Save
    dense : bool
        Whether the interpolant is kept.
    watcher : Watcher or None
        Looks for events in each step.
    report : callable or None
        ``report(t, steps, y)`` after a step, for progress.
    flag : ndarray (1,) of int64
        Set to nonzero by another thread to interrupt the run.
    """

    compiled: CompiledField
    y0: Array
    p: Array
    start: float
    end: float
    outputs: Array | None
    relative: float = 0.0
    absolute: Array = field(default_factory=lambda: np.empty(0))
    limits: Limits = field(default_factory=Limits)
    save: Save = field(default_factory=Save)
    dense: bool = False
    watcher: Watcher | None = None
    report: Report | None = None
    flag: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a method hands back.

    Parameters
    ----------
    t : ndarray (K,)
        Outputs that were reached; where the run ended early, its last point is appended.
    y : ndarray (K, n)
    status : Status
    detail : str
        What is known beyond the status, such as the time of a blow-up.
    filled : int
        How many of the requested outputs were reached.
    stats : dict
        Counts of the method.
    interpolant : Interpolant or None
    """

    t: Array
    y: Array
    status: Status
    detail: str
    filled: int
    stats: dict[str, Any]
    interpolant: Interpolant | None = None


@dataclass(frozen=True)
class Method:
    """An integration method behind `odekit.solve`.

    Parameters
    ----------
    name : str
        What users write.
    run : callable
        ``run(task) -> Outcome``.
    relative : float
        Default relative tolerance: achieves 1e-6 on the reference problems it is meant for.
    stiff : bool
        Whether it is meant for stiff problems.
    source : str
        The paper or code it is from.
    loop : str or None
        The compiled loop that a whole run consists of, so that many members can share one call.
    plain : str
        What the loop "explicit" uses where accuracy limits the step.
    """

    name: str
    run: Callable[[Task], Outcome]
    relative: float
    stiff: bool
    source: str
    loop: str | None = None
    plain: str = "Tsit5"
