r"""Reading plateaus off a loss curve, without knowing what theory predicts.

Definition. Along the flow ``-d(loss)/dt = 2 |d(theta)/dt|^2`` is known from the right-hand side. On
the logarithm of this speed a *drop* is a local maximum that stands at least ``depth`` decades above
the lowest speed on either side (before the next higher one), and across which the loss falls by at
least ``least`` of its start. A *plateau* is what lies before, between and after the drops; its
level is the loss where the speed is lowest. A plateau's *depth* is the number of decades from there
up to the lower of the two drops beside it; its *length* the time between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import odekit as ok

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Staircase:
    """What was read off a curve: M plateaus and M - 1 drops between them.

    Attributes
    ----------
    levels, times : ndarray (M,)
        Loss where each plateau is flattest, and when.
    drops : ndarray (M - 1,)
        Times of the drops.
    depths, lengths : ndarray (M - 1,)
        Of all plateaus but the last; the first one counts from the start of the run.
    """

    levels: Array
    times: Array
    drops: Array
    depths: Array
    lengths: Array


def speed(flow: Any) -> Any:
    """``-d(loss)/dt`` along a flow ``2 d(theta)/dt = - d(loss)/d(theta)``, as an expression."""
    total: Any = 0
    for weight, rate in flow.rates.items():
        axes = "hijk"[: weight.rank]
        total = ok.einsum(f"{axes},{axes}->", rate, rate) + total
    return 2 * total


def read_staircase(
    run: Any, rate: Any, depth: float = 1.0, least: float = 1e-2, end: float | None = None
) -> Staircase:
    """Read plateaus and drops off a run.

    Parameters
    ----------
    run : Solution
        With outputs dense enough to show each drop (100 for a factor ten in time are).
    rate : expression
        What `speed` returns.
    depth : float
        Least depth of a plateau, in decades of the speed.
    least : float
        Least fall of the loss across a drop, as a fraction of the loss at the start.
    end : float, optional
        Read up to this time only.
    """
    keep = slice(None) if end is None else run.t <= end
    t, loss, fall = run.t[keep], run.loss[keep], run.value(rate)[keep]
    return staircase_of(t, loss, fall, depth, least)


def staircase_of(t: Array, loss: Array, fall: Array, depth: float, least: float) -> Staircase:
    """Read plateaus and drops off a curve: times, loss and ``-d(loss)/dt``, each (K,)."""
    height = np.log10(np.maximum(fall, 1e-300))
    peaks = _prominent(height, depth)
    while True:
        edges = [0, *peaks, len(t) - 1]
        flattest = [
            lo + int(np.argmin(height[lo : hi + 1]))
            for lo, hi in zip(edges[:-1], edges[1:], strict=True)
        ]
        steps = loss[flattest[:-1]] - loss[flattest[1:]]
        if not len(peaks) or steps.min() >= least * loss[0]:
            break
        # Not a drop after all (the noise of a curve at rest, say): forget the smallest one.
        peaks = np.delete(peaks, int(np.argmin(steps)))
    tops = height[peaks]
    lower = np.minimum(tops, np.concatenate([[np.inf], tops[:-1]]))
    return Staircase(
        levels=loss[flattest],
        times=t[flattest],
        drops=t[peaks],
        depths=lower - height[flattest[:-1]],
        lengths=np.diff(np.concatenate([[0.0], t[peaks]])),
    )


def _prominent(height: Array, depth: float) -> NDArray[np.intp]:
    """Local maxima that stand ``depth`` above the lowest point before a higher one, both ways."""
    inner = height[1:-1]
    maxima = 1 + np.flatnonzero((inner > height[:-2]) & (inner >= height[2:]))
    found = []
    for peak in maxima:
        top = height[peak]
        before, after = height[:peak], height[peak + 1 :]
        higher = np.flatnonzero(before > top)
        left = before[higher[-1] + 1 if len(higher) else 0 :].min()
        higher = np.flatnonzero(after > top)
        right = after[: higher[0] if len(higher) else len(after)].min()
        if top - max(left, right) >= depth:
            found.append(peak)
    return np.array(found, dtype=np.intp)
