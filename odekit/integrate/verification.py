"""The achieved error of a run, measured by a second one at tighter tolerance."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.integrate.methods import METHODS
from odekit.integrate.options import Save, Tolerance
from odekit.integrate.task import Task
from odekit.solution.solution import Solution

__all__ = ["relative_error", "verify"]

Array = NDArray[np.float64]

TIGHTER = 0.01
TIGHTEST = 1e-13
"""Below this rounding, not the tolerance, makes the error."""


def relative_error(values: Array, reference: Array) -> float:
    """Largest error over the outputs, relative to the largest entry of the state at each.

    Parameters
    ----------
    values, reference : ndarray (K, *shape)

    Returns
    -------
    float
        Zero where both are zero.
    """
    axes = tuple(range(1, values.ndim))
    gap = np.max(np.abs(values - reference), axis=axes, initial=0.0)
    size = np.max(np.abs(reference), axis=axes, initial=0.0)
    return float(np.max(gap / np.where(size > 0, size, 1.0), initial=0.0))


def verify(solution: Solution, task: Task, tolerance: Tolerance) -> Solution:
    """Run again at a hundredth of the tolerance and put the difference into the stats.

    Parameters
    ----------
    solution : Solution
        The first run.
    task : Task
        What it was given.
    tolerance : Tolerance

    Returns
    -------
    Solution
        The first run, with ``stats["verification"]``: the tighter tolerance, the largest relative
        error of each state, and that of the loss.
    """
    relative = max(solution.stats["relative_tolerance"] * TIGHTER, TIGHTEST)
    absolute = tolerance.absolute_for(
        task.compiled.layout, task.y0, solution.stats["relative_tolerance"]
    )
    outputs = solution.t
    again = dataclasses.replace(
        task,
        outputs=outputs,
        end=max(float(outputs[-1]), task.start),
        relative=relative,
        absolute=absolute * TIGHTER,
        save=Save(dense=False),
        dense=False,
        watcher=None,
        report=None,
    )
    outcome = METHODS[solution.stats["method"]].run(again)
    found: dict[str, Any] = {"relative_tolerance": relative, "status": str(outcome.status)}
    if outcome.status.ok:
        states = task.compiled.layout.unpack(outcome.y)
        found["states"] = {
            name: relative_error(solution.states[name], states[name]) for name in states
        }
        loss = task.compiled.loss
        if loss is not None and solution.loss is not None:
            reference = np.array([loss(row, task.p) for row in outcome.y])
            found["loss"] = relative_error(solution.loss, reference)
    return dataclasses.replace(solution, stats={**solution.stats, "verification": found})
