"""Measured against predicted."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from odekit.errors import InputError
from odekit.plot.curves import axes_or_new

__all__ = ["agreement", "power_law"]


def agreement(
    measured: ArrayLike,
    predicted: ArrayLike,
    ax: Axes | None = None,
    *,
    quantity: str = "loss",
    label: str | None = None,
    **marks: Any,
) -> Axes:
    """Draw measured against predicted values, with the line on which they are equal.

    Parameters
    ----------
    measured : array_like (..., M)
    predicted : array_like (M,) or the shape of ``measured``
        Repeated over the leading axes (seeds).
    ax : Axes, optional
    quantity : str
        Names the axes.
    label : str, optional
    **marks
        Passed to Matplotlib's ``plot``.

    Returns
    -------
    Axes
    """
    seen = np.asarray(measured, dtype=np.float64)
    try:
        said = np.broadcast_to(np.asarray(predicted, dtype=np.float64), seen.shape)
    except ValueError:
        raise InputError(
            f"measured has shape {seen.shape}, predicted {np.shape(predicted)}; "
            "they must match along the last axes."
        ) from None
    axes = axes_or_new(ax)
    axes.axline((float(said.flat[0]), float(said.flat[0])), slope=1, color="0.6", linewidth=0.7)
    options: dict[str, Any] = {"linestyle": "none", "marker": "o", "markerfacecolor": "none"}
    axes.plot(said.ravel(), seen.ravel(), label=label, **{**options, **marks})
    axes.set_xlabel(f"predicted {quantity}")
    axes.set_ylabel(f"measured {quantity}")
    return axes


def power_law(x: ArrayLike, y: ArrayLike) -> tuple[float, float]:
    """Fit ``y = factor * x ** slope`` by least squares in logarithms.

    Parameters
    ----------
    x, y : array_like (K,)
        Positive.

    Returns
    -------
    slope, factor : float
    """
    abscissa, ordinate = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if abscissa.shape != ordinate.shape or abscissa.ndim != 1 or len(abscissa) < 2:
        raise InputError("A power law is fitted to two or more points (x, y).")
    if np.any(abscissa <= 0) or np.any(ordinate <= 0):
        raise InputError("A power law needs positive x and y.")
    slope, offset = np.polyfit(np.log(abscissa), np.log(ordinate), 1)
    return float(slope), float(np.exp(offset))
