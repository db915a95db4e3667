"""The edge of stability: where full-batch gradient descent stops following the gradient flow.

Without momentum the loss can rise in a step only where the curvature along it exceeds 2/lr
(descent lemma), so a rise beyond rounding marks the edge; heavy ball has its bound at
2 (1 + momentum)/lr, and its loss may rise below it, so there the measured sharpness decides.
In such windows a relative perturbation of 1e-15 grows to a visible one: mask them in comparisons.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import OdekitWarning
from odekit.simulate.layer import Floats

__all__ = ["EdgeOfStabilityWarning", "report_edge", "sharpness"]

WINDOWS = 64  # windows recorded with their state; later ones are only counted
MEASURED = 8  # windows whose sharpness is measured


class EdgeOfStabilityWarning(OdekitWarning):
    """The learning rate is past the stability limit for part of the run."""


def sharpness(gradient: Callable[[Floats], Floats], theta: Floats) -> float:
    """Largest eigenvalue of the loss Hessian, from central differences of the gradient.

    Parameters
    ----------
    gradient : callable
        (n,) -> (n,), the gradient of the loss.
    theta : array (n,)
        Where.

    Returns
    -------
    float
        Accurate to about 1e-4 relative or better: enough to compare with 2/lr.
    """
    n = theta.size
    # Balances the rounding of the gradient (eps/h) and the cubic term (h^2).
    step = 1e-5 * max(1.0, float(np.abs(theta).max(initial=0.0)))
    if n <= 400:
        hessian = np.empty((n, n))
        for i in range(n):
            shift = np.zeros(n)
            shift[i] = step
            hessian[i] = (gradient(theta + shift) - gradient(theta - shift)) / (2 * step)
        return float(np.linalg.eigvalsh(0.5 * (hessian + hessian.T))[-1])
    return _largest_by_lanczos(
        lambda w: (gradient(theta + step * w) - gradient(theta - step * w)) / (2 * step), n
    )


def _largest_by_lanczos(product: Callable[[Floats], Floats], n: int, steps: int = 80) -> float:
    # The algebraically largest eigenvalue; all vectors are kept, so that no ghost appears.
    start = np.random.default_rng(0).standard_normal(n)
    basis = [start / np.linalg.norm(start)]
    diagonal: list[float] = []
    off: list[float] = []
    while True:
        image = product(basis[-1] * np.sqrt(n)) / np.sqrt(n)
        diagonal.append(float(basis[-1] @ image))
        for _ in range(2):
            for vector in basis:
                image = image - (vector @ image) * vector
        size = float(np.linalg.norm(image))
        if len(diagonal) == steps or size <= 1e-12 * max(abs(d) for d in diagonal):
            break
        off.append(size)
        basis.append(image / size)
    tridiagonal = np.diag(diagonal) + np.diag(off, 1) + np.diag(off, -1)
    return float(np.linalg.eigvalsh(tridiagonal)[-1])


def report_edge(
    windows: NDArray[np.int64],
    starts: Floats,
    count: int,
    gradient: Callable[[Floats], Floats],
    lr: float,
    momentum: float,
) -> dict[str, Any]:
    """Judge the windows in which the loss rose, and warn when they are the edge of stability.

    Parameters
    ----------
    windows : array (W, 2)
        First and last step of each window.
    starts : array (W, n)
        State at the first step of each.
    count : int
        How many there were; those beyond W are not in the arrays.
    gradient : callable
        (n,) -> (n,).
    lr, momentum : float

    Returns
    -------
    dict
        ``windows``, ``count``, ``sharpness`` (of the first few), ``limit``, ``detected``.
    """
    limit = 2 * (1 + momentum) / lr
    kept = min(count, len(windows))
    measured = [sharpness(gradient, theta) for theta in starts[: min(kept, MEASURED)]]
    detected = kept > 0 and (momentum == 0 or max(measured) > limit)
    if detected:
        first, last = (int(step) for step in windows[0])
        warnings.warn(
            EdgeOfStabilityWarning(
                f"The loss rose in {count} window(s), the first at steps {first} to {last} "
                f"(sharpness {measured[0]:.3g}, limit {limit:.3g}): the run is at the edge of "
                'stability there; mask the windows in stats["edge"] or lower lr.'
            ),
            stacklevel=4,
        )
    return {
        "windows": [(int(a), int(b)) for a, b in windows[:kept]],
        "count": count,
        "sharpness": measured,
        "limit": limit,
        "detected": detected,
    }
