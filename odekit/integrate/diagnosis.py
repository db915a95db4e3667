"""Why a run cannot go on: the same words for every method, found from the last good state."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from odekit.codegen.compiled_field import CompiledField
from odekit.solution.status import Status

__all__ = ["diagnose", "at_fixed_point"]

Array = NDArray[np.float64]


def diagnose(
    compiled: CompiledField,
    t: float,
    y: Array,
    p: Array,
    step: float,
    relative: float,
    clock: float,
) -> tuple[Status, str]:
    """Tell a blow-up from a right-hand side that is not finite, and both from a stalled step.

    Parameters
    ----------
    compiled : CompiledField
    t, y : float, ndarray (n,)
        Last good state.
    p : ndarray
        Parameters with scratch.
    step : float
        Last accepted or attempted step, which tells how far ahead to look; 0 when there was none.
    relative : float
        Relative tolerance. Where the state grows by its own size in less than ten roundings of
        t over it, no step can resolve the growth: a pole of the solution.
    clock : float
        The solver's own time, whose rounding limits its steps.

    Returns
    -------
    (Status, str)
        ``nan``, ``blow_up`` or ``stalled``, and a sentence with the time.
    """
    out = np.empty(len(y))
    compiled.rhs(t, y, p, out)
    if not np.isfinite(out).all():
        return Status.nan, f"Not finite at t = {t:.12g}."
    size, rate = float(np.max(np.abs(y))), float(np.max(np.abs(out)))
    spacing = float(np.spacing(max(abs(clock), abs(clock + step), 1e-300)))
    if float(y.dot(out)) > 0 and 10 * rate * spacing > relative * size:
        return Status.blow_up, f"The solution blows up near t = {t:.12g} (size {size:.3g})."
    slope = out.copy()
    # Where a step size has shrunk towards the edge of the domain, the edge may lie closer than a
    # step, or as far as the state changes by its own size: look on all scales in between.
    reach = max(step, 2 * size / rate if rate > 0 else 0.0, 16 * spacing)
    for ahead in reach * 2.0 ** np.arange(-60, 7):
        compiled.rhs(t + ahead, y + ahead * slope, p, out)
        if not np.isfinite(out).all():
            return Status.nan, f"Not finite just after t = {t:.12g}."
    return Status.stalled, f"The step size vanished at t = {t:.12g}."


def at_fixed_point(compiled: CompiledField, rate: Array) -> bool:
    """Whether a run that starts with this rate never leaves its initial state."""
    return compiled.autonomous and not rate.any()
