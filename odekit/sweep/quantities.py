"""What a task gave back, as named arrays that a store can keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError, SolveError
from odekit.solution import Ensemble, Solution
from odekit.sweep.plateaus import Plateaus

__all__ = [
    "RECORDS",
    "ensemble_quantities",
    "plateau_quantities",
    "quantities",
    "solution_quantities",
    "watched_plateaus",
]

Arrays = dict[str, NDArray[Any]]

RECORDS = ("loss", "final", "curve", "trajectory", "plateaus")
"""The end's loss and states, both along the output times, and the plateaus of the loss."""


def quantities(result: Any) -> Arrays:
    """Read what a task returned.

    Parameters
    ----------
    result : Solution, Ensemble, or mapping of names to numbers, text and arrays
        A solution is kept by its last loss and states, an ensemble by those of its members.

    Raises
    ------
    InputError
        For anything else.
    SolveError
        For a solution that failed.
    """
    if isinstance(result, Solution):
        return solution_quantities(result, ("loss", "final"))
    if isinstance(result, Ensemble):
        return ensemble_quantities(result)
    if not isinstance(result, Mapping):
        raise InputError(
            f"A task gives a Solution, an Ensemble, or names and numbers, not "
            f"{type(result).__name__}."
        )
    out = {str(name): np.asarray(value) for name, value in result.items()}
    for name, array in out.items():
        if array.dtype.kind not in "biufU":
            raise InputError(f"{name!r} is no number, text or array of them: {array.dtype}.")
    return out


def solution_quantities(run: Solution, records: tuple[str, ...]) -> Arrays:
    """Read the chosen `RECORDS` off a run that went well."""
    if not run.status.ok:
        raise SolveError(run.message or run.status.message, run)
    out: Arrays = {}
    if run.loss is not None:
        if "loss" in records:
            out["loss"] = np.asarray(run.loss[-1])
        if "curve" in records:
            out["loss_curve"] = run.loss
    if "curve" in records or "trajectory" in records:
        out["t"] = run.t
    if "trajectory" in records:
        out |= {f"{name}_curve": values for name, values in run.states.items()}
    if "final" in records:
        out |= {name: np.asarray(value) for name, value in run.final.items()}
    return out


def plateau_quantities(found: Plateaus) -> Arrays:
    """Name what was read off a curve: how many, and where each starts, ends and lies."""
    return {
        "plateaus": np.asarray(len(found)),
        "plateau_start": found.start,
        "plateau_end": found.end,
        "plateau_loss": found.loss,
    }


def watched_plateaus(run: Solution) -> Plateaus:
    """Return the plateaus among a run's events."""
    starts = [e for e in run.events if e.kind == "plateau start"]
    ends = [e for e in run.events if e.kind == "plateau end"]
    cut = [np.nan] * (len(starts) - len(ends))  # the run's end may leave one open
    last = [np.nan if run.loss is None else run.loss[-1]] * len(cut)
    return Plateaus(
        np.array([e.t for e in starts], dtype=float),
        np.array([*(e.t for e in ends), *cut], dtype=float),
        np.array([*(e.value for e in ends), *last], dtype=float),
    )


def ensemble_quantities(runs: Ensemble) -> Arrays:
    """Read the last loss and states of all members, and how each ended."""
    members = [runs[k] for k in range(len(runs))]
    out: Arrays = {"member_status": np.array([str(run.status) for run in members])}
    if all(run.loss is not None and len(run) for run in members):
        out["loss"] = np.array([run.loss[-1] for run in members if run.loss is not None])
    for name in members[0].states:
        out[name] = np.array([run.final[name] for run in members])
    return out
