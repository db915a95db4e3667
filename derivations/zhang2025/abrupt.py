"""What counts as an abrupt drop of a training curve, as a definition in numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.signal import find_peaks

Array = NDArray[np.float64]

CONTRAST, LEAST = 10.0, 0.03


def drops(
    t: Array, loss: Array, contrast: float = CONTRAST, least: float = LEAST
) -> list[dict[str, float]]:
    """Find the abrupt drops of a loss curve.

    A drop is a stretch of the curve around a peak of its rate of fall ``-dL/dt`` (mean over five
    records): on both sides, before any higher peak, the rate must sink to a fraction
    ``1/contrast`` of the peak. Two drops part where the rate between their peaks is least; those
    that take less than ``least`` of the whole fall are left out.

    Parameters
    ----------
    t, loss : array (K,)
        A smooth curve, evenly recorded.
    contrast, least : float

    Returns
    -------
    list of dict
        ``step`` of the fastest fall, ``before`` and ``after`` the loss at the drop's ends.
    """
    fall = np.convolve(-np.diff(loss) / np.diff(t), np.ones(5) / 5, mode="valid")
    middle = ((t[1:] + t[:-1]) / 2)[2:-2]
    speed = np.log(np.maximum(fall, 1e-4 * fall.max()))
    # Before the start and after the end nothing falls: a peak at an end of the record counts.
    rest = [speed.min() - np.log(contrast)]
    found, _ = find_peaks(np.concatenate([rest, speed, rest]), prominence=np.log(contrast))
    peaks = found - 1
    cuts = [a + int(np.argmin(speed[a:b])) for a, b in zip(peaks[:-1], peaks[1:], strict=True)]
    levels = np.interp(np.array([t[0], *middle[cuts], t[-1]]), t, loss)
    whole = loss[0] - loss[-1]
    return [
        {"step": float(middle[peak]), "before": float(before), "after": float(after)}
        for peak, before, after in zip(peaks, levels[:-1], levels[1:], strict=True)
        if before - after >= least * whole
    ]
