"""Reading what the user gave as ``t``: an end time, or output times."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError

__all__ = ["read_times"]

Array = NDArray[np.float64]


def read_times(t: Any, start: Any) -> tuple[float, float, Array | None]:
    """Read the span and the output times of a run.

    Parameters
    ----------
    t : float or array_like (K,)
        End time, or increasing output times, which need not contain the start.
    start : float
        Time of the initial state.

    Returns
    -------
    (start, end, outputs)
        Outputs are None for an end time; those a rounding before the start are moved onto it.
    """
    begin = _real(start, "start")
    if begin.ndim != 0:
        raise InputError("The start must be one number.")
    first = float(begin)
    times = _real(t, "t")
    if times.ndim == 0:
        end = float(times)
        if end < first:
            raise InputError(
                f"The end time {end:g} lies before the start {first:g}; runs go forward in time: "
                "negate the field to go back."
            )
        return first, end, None
    if times.ndim != 1 or not len(times):
        raise InputError(
            f"The output times must be a nonempty one-dimensional array, got shape {times.shape}."
        )
    if not bool(np.all(np.diff(times) > 0)):
        raise InputError("The output times must increase; sort them and drop the repeated ones.")
    slack = 4 * np.spacing(max(abs(first), abs(float(times[-1]))))
    if times[0] < first - slack:
        raise InputError(
            f"Output time {times[0]:g} lies before the start {first:g}; set start=, or leave it "
            "out."
        )
    return first, float(max(times[-1], first)), np.maximum(times, first)


def _real(value: Any, what: str) -> Array:
    try:
        array = np.asarray(value)
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{what} must be a number or an array of numbers that float64 holds, got "
            f"{type(value).__name__}."
        ) from None
    if array.dtype.kind not in "iuf":
        raise InputError(f"{what} must be real, got entries of type {array.dtype}.")
    if not bool(np.isfinite(array).all()):
        raise InputError(f"{what} must be finite, got NaN or infinity; give a finite end.")
    return array.astype(np.float64)
