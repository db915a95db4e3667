"""Zeros of a system of equations by damped least-squares Newton steps from many starts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from odekit.analysis.budget import Budget

__all__ = ["least_squares_root", "multistart_roots"]

Vector = NDArray[np.float64]
Function = Callable[[Vector], Vector]


def least_squares_root(
    function: Function,
    jacobian: Function,
    start: Vector,
    tolerance: float = 1e-12,
    steps: int = 80,
) -> Vector | None:
    """A zero near a start, or None.

    Steps are minimum-norm Gauss-Newton steps, damped (Levenberg-Marquardt) while they do not help.

    Parameters
    ----------
    function, jacobian : callable
        Residuals (m,) and their derivatives (m, n) at a point (n,).
    start : ndarray, shape (n,)
        Where to begin.
    tolerance : float
        Largest residual of a zero, relative to one plus the size of the point.
    steps : int
        Most steps.
    """
    point = np.array(start, dtype=float)
    value = function(point)
    size = float(value @ value)
    damping = 0.0
    moved = 0.0
    for _ in range(steps):
        if not np.isfinite(size):
            return None
        matrix = jacobian(point)
        scale = max(float(np.abs(matrix).max(initial=0.0)), 1e-300)
        accepted = False
        for _ in range(12):
            if damping:
                rows = np.vstack([matrix, np.sqrt(damping) * scale * np.eye(point.size)])
                right = np.concatenate([-value, np.zeros(point.size)])
            else:
                rows, right = matrix, -value
            step = np.linalg.lstsq(rows, right, rcond=1e-12)[0]
            new = point + step
            fresh = function(new)
            square = float(fresh @ fresh)
            if np.isfinite(square) and square < size:
                accepted = True
                break
            damping = max(4.0 * damping, 1e-6)
        if not accepted:
            moved = 0.0
            break
        moved = float(np.abs(step).max(initial=0.0))
        point, value, size = new, fresh, square
        damping = 0.0 if damping < 1e-8 else damping / 8.0
        small = float(np.abs(value).max(initial=0.0)) <= tolerance * (1 + np.abs(point).max())
        if small and moved <= 1e-9 * (1 + float(np.abs(point).max())):
            return point
    # Where a residual only dies out towards infinity, as exp(x) does, the steps do not shrink.
    far = 1 + float(np.abs(point).max(initial=0.0))
    if float(np.abs(value).max(initial=0.0)) <= tolerance * far and moved <= 1e-3 * far:
        return point
    return None


def multistart_roots(
    function: Function,
    jacobian: Function,
    count: int,
    starts: int,
    budget: Budget,
    seed: int,
    distinct: bool = True,
    most: int = 200,
) -> list[Vector]:
    """Zeros reached from the origin and from random starts of several sizes.

    Parameters
    ----------
    function, jacobian : callable
        Residuals and their derivatives.
    count : int
        Number of unknowns.
    starts : int
        Number of starts.
    budget : Budget
        The search ends when it is spent.
    seed : int
        Seed of the starts.
    distinct : bool
        Whether to keep one of each cluster of zeros.
    most : int
        The search ends when it has this many.
    """
    rng = np.random.default_rng(seed)
    found: list[Vector] = []
    for k in range(starts):
        if budget.left == 0.0 or len(found) >= most:
            break
        radius = 10.0 ** rng.uniform(-1.0, 0.7)
        start = np.zeros(count) if k == 0 else radius * rng.normal(size=count)
        root = least_squares_root(function, jacobian, start)
        if root is None:
            continue
        near = 1e-6 * (1 + float(np.abs(root).max(initial=0.0)))
        if not distinct or all(np.abs(root - other).max() > near for other in found):
            found.append(root)
    return found
