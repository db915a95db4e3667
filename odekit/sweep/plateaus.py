"""Plateaus read off a loss curve, fast enough for ten thousand of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError

__all__ = ["Plateaus", "read_plateaus"]

Array = NDArray[np.float64]

NODES = 6
"""Points of the polynomial whose slope is followed to its threshold."""


ROUNDING = 1e-13
"""Share of the largest loss below which a sum of some hundred terms is rounding."""


@dataclass(frozen=True, eq=False)
class Plateaus:
    """The plateaus of one run, in order of time.

    Attributes
    ----------
    start, end : ndarray (P,)
        In the curve's unit of time; the end of one that the curve's end cuts off is nan.
    loss : ndarray (P,)
        Loss where each is flattest.
    """

    start: Array
    end: Array
    loss: Array

    def __len__(self) -> int:
        return len(self.start)

    @property
    def duration(self) -> Array:
        """End less start, (P,)."""
        return self.end - self.start

    @property
    def left(self) -> NDArray[np.bool_]:
        """Which of them end within the curve, (P,)."""
        return np.isfinite(self.end)


def read_plateaus(
    t: ArrayLike, loss: ArrayLike, slope: float = 0.1, lasting: float = 1.0
) -> Plateaus:
    """Read plateaus off a curve, by the definition of `odekit.Plateau`.

    Parameters
    ----------
    t, loss : array_like (K,)
        Accepted steps of a run (``ok.solve`` with an end time), which lie close where the loss
        falls fast; times increase, from where the run starts.
    slope, lasting : float
        As in `odekit.Plateau`: ``|d ln(loss) / d ln(t)| < slope``, with t counted from the first
        time, on an interval whose end is at least ``lasting`` times its start.

    Returns
    -------
    Plateaus

    Raises
    ------
    InputError
        For times that do not increase, and for a loss that is not positive. (One that decays to
        zero is read up to where it is 1e-13 of its largest value: the rest is rounding.)

    Notes
    -----
    The slope at the points is a second-order difference; where it passes the threshold, that of
    the polynomial through the nearest six points is followed to it. On steps of the default
    tolerance the times agree to about 1e-5 of their value with ``events=ok.Plateau()``, which
    looks inside each step and takes fifty times as long.
    """
    times, values = _curve(t, loss)
    if not slope > 0 or not lasting >= 1:
        raise InputError(
            f"A plateau needs slope > 0 and lasting >= 1, got {slope!r} and {lasting!r}."
        )
    x, y = np.log(times[1:] - times[0]), np.log(values[1:])
    steep = np.abs(np.gradient(y, x, edge_order=2))  # at all points but the start, where it is 0
    above = steep >= slope
    flips = np.flatnonzero(above[1:] != above[:-1])
    edges = [times[0] + _passes(x, y, int(k), slope, steep) for k in flips]
    # Rows of (start, end, first and last point inside).
    found: list[tuple[float, float, int, int]] = []
    opened: tuple[float, int] | None = None if above[0] else (float(times[0]), 0)
    for k, edge in zip(flips, edges, strict=True):
        if above[k + 1]:
            assert opened is not None
            found.append((opened[0], edge, opened[1], int(k)))
            opened = None
        else:
            opened = (edge, int(k) + 1)
    if opened is not None:
        found.append((opened[0], np.nan, opened[1], len(x) - 1))
    kept = [
        (start, end, values[1 + first + int(np.argmin(steep[first : last + 1])) if first else 0])
        for start, end, first, last in found
        if (times[-1] if np.isnan(end) else end) - times[0] >= lasting * (start - times[0])
    ]
    rows: Any = np.array(kept, dtype=np.float64).reshape(-1, 3)
    return Plateaus(rows[:, 0].copy(), rows[:, 1].copy(), rows[:, 2].copy())


def can_read(t: ArrayLike, loss: ArrayLike) -> bool:
    """Whether `read_plateaus` takes a curve."""
    try:
        return len(_curve(t, loss)) > 0
    except InputError:
        return False


def _curve(t: ArrayLike, loss: ArrayLike) -> tuple[Array, Array]:
    """Check a curve, and cut off what is rounding."""
    times, values = (np.asarray(each, dtype=np.float64) for each in (t, loss))
    if times.ndim != 1 or times.shape != values.shape or len(times) < NODES + 1:
        raise InputError(
            f"Plateaus need one loss a time, at least {NODES + 1} of them, got shapes "
            f"{times.shape} and {values.shape}."
        )
    if not (np.diff(times) > 0).all():
        raise InputError("The times of a curve must increase.")
    # A loss that reaches zero ends in rounding, whose logarithm says nothing.
    spent = np.abs(values) <= ROUNDING * np.abs(values).max(initial=0.0)
    if spent.any() and not spent[0]:
        times, values = (each[: int(np.argmax(spent))] for each in (times, values))
    if len(times) < NODES + 1 or not (values > 0).all() or not np.isfinite(values).all():
        raise InputError("A loss must be positive and finite for its logarithm to have a slope.")
    return times, values


def _passes(x: Array, y: Array, k: int, slope: float, steep: Array) -> float:
    """Time at which the slope passes its threshold between points k and k + 1."""
    first = min(max(k - NODES // 2 + 1, 0), len(x) - NODES)
    near = slice(first, first + NODES)
    # In units of the step: the powers of a raw difference would span too many decades.
    unit = x[k + 1] - x[k]
    nodes = (x[near] - x[k]) / unit
    powers = np.vander(nodes, NODES, increasing=True)
    rise = np.linalg.solve(powers, y[near] - y[k])[1:] * np.arange(1, NODES)

    def over(u: float) -> bool:
        return bool(abs(np.polynomial.polynomial.polyval(u, rise)) >= slope * unit)

    low, high = 0.0, 1.0
    if over(low) == over(high):  # the two estimates of the slope differ about the threshold
        low, high = -0.5, 1.5
    if over(low) == over(high):
        a, b = np.log(np.maximum(steep[k : k + 2], 1e-300) / slope)
        low = float(a / (a - b))
    else:
        before = over(low)
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if over(middle) == before else (low, middle)
    return float(np.exp(x[k] + low * unit))
