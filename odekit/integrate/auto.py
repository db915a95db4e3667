"""Which method a run takes when the user does not say, and why."""

from __future__ import annotations

import numpy as np

from odekit.integrate.methods import METHODS
from odekit.integrate.options import initial_scale
from odekit.integrate.task import Method, Task

__all__ = ["choose"]

TINY = 1e-3
"""Below this ratio of initial to unit scale explicit methods creep along learned modes."""

CREEP = 2e4
"""More steps than this at the edge of stability make an explicit method the slower one."""


def choose(task: Task) -> tuple[Method, str]:
    """Choose a method by the structure of the field, the initial scale and the span.

    Parameters
    ----------
    task : Task
        Its tolerances are not used: they depend on the method.

    Returns
    -------
    (Method, str)
        The method, and the reason, which goes to ``stats["reason"]``.
    """
    scale = initial_scale(task.compiled.layout, task.y0)
    if scale < TINY:
        return METHODS["LSODA"], (
            f"initial scale {scale:.2g} is below {TINY:g}: the run is long against the learned "
            "modes' own times"
        )
    rate = _spectral_bound(task)
    if rate * (task.end - task.start) > CREEP:
        return METHODS["LSODA"], (
            f"the Jacobian at the start times the span is {rate * (task.end - task.start):.2g}, "
            f"above {CREEP:g}: explicit steps would be limited by stability"
        )
    return METHODS["DOP853"], "the start is not tiny and no stiffness shows at it"


def _spectral_bound(task: Task) -> float:
    """Estimate the largest rate of the Jacobian at the start by nonlinear power iteration."""
    rhs, y0, p = task.compiled.rhs, task.y0, task.p
    n = len(y0)
    base, moved = np.empty(n), np.empty(n)
    rhs(task.start, y0, p, base)
    size = float(np.linalg.norm(y0)) or 1.0
    direction = np.cos(1.0 + np.arange(n))
    direction /= np.linalg.norm(direction)
    rate = 0.0
    for _ in range(8):
        rhs(task.start, y0 + 1e-6 * size * direction, p, moved)
        change = (moved - base) / (1e-6 * size)
        rate = float(np.linalg.norm(change))
        if not 0 < rate < np.inf:
            break
        direction = change / rate
    return rate if np.isfinite(rate) else 0.0
