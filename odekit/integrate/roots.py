"""Sign changes of a function on one step, hidden pairs of them included."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

__all__ = ["crossings", "root"]

Array = NDArray[np.float64]
Function = Callable[[float], float]


def crossings(
    times: Array, values: Array, at: Function, sign: float
) -> tuple[list[tuple[float, int]], float]:
    """Find the sign changes of a function that was sampled on a step.

    Between samples of one sign a pair of crossings can hide at an extremum: where the parabola
    through three samples turns towards zero and could reach it, the extremum itself is sought.

    Parameters
    ----------
    times, values : ndarray (M,)
        Samples, the ends of the step included.
    at : callable
        The function inside the step.
    sign : float
        Sign before the step; 0 when the run started exactly on the level.

    Returns
    -------
    (list of (time, direction), float)
        In order of time; and the sign after the step.
    """
    knots, heights = _with_extrema(times, values, at)
    found: list[tuple[float, int]] = []
    last = 0
    for k in range(len(knots)):
        here = float(np.sign(heights[k]))
        if here == 0.0 or np.isnan(here):
            continue
        if sign != 0.0 and here != sign:
            # Where the step starts exactly on the level, the crossing is its start.
            time = (
                root(at, knots[last], knots[k], heights[last], heights[k])
                if heights[last] * here < 0
                else knots[last]
            )
            found.append((time, int(here)))
        sign, last = here, k
    return found, sign


def _with_extrema(times: Array, values: Array, at: Function) -> tuple[list[float], list[float]]:
    knots, heights = times.tolist(), values.tolist()
    extra: list[tuple[float, float]] = []
    searched: set[tuple[float, float]] = set()
    for k in range(1, len(times) - 1):
        a, b, c = values[k - 1 : k + 2]
        if not (a * b > 0 and b * c > 0):
            continue
        side = 1.0 if b > 0 else -1.0
        slope, bend = side * (c - a) / 2, side * (a - 2 * b + c)
        if not bend > 0:
            continue
        turn = -slope / bend  # of the parabola, in samples from the middle one
        drop = slope * slope / (2 * bend)
        # The parabola is a rough guess: look up to half a sample beyond, at three times its depth.
        if not -1.5 < turn < 1.5 or side * b > 3 * drop + 0.5 * bend:
            continue
        low = times[k - 1] if turn < 0 else times[k]
        high = times[k] if turn < 0 else times[k + 1]
        if (low, high) in searched:
            continue
        searched.add((low, high))
        time, height = _extremum(at, float(low), float(high), side)
        if height * side < 0:
            extra.append((time, height))
    if not extra:
        return knots, heights
    merged = sorted([*zip(knots, heights, strict=True), *extra])
    return [time for time, _ in merged], [height for _, height in merged]


def _extremum(at: Function, low: float, high: float, side: float) -> tuple[float, float]:
    """Golden-section search for the lowest ``side * at``; stops when it is below zero."""
    ratio = 0.6180339887498949
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    f_left, f_right = at(left), at(right)
    for _ in range(60):
        if side * f_left < 0:
            return left, f_left
        if side * f_right < 0:
            return right, f_right
        if high - low <= 1e-9 * (abs(low) + abs(high)):
            break
        if side * f_left < side * f_right:
            high, right, f_right = right, left, f_left
            left = high - ratio * (high - low)
            f_left = at(left)
        else:
            low, left, f_left = left, right, f_right
            right = low + ratio * (high - low)
            f_right = at(right)
    return left, f_left


def root(at: Function, low: float, high: float, f_low: float, f_high: float) -> float:
    """Locate a sign change to the spacing of floating-point numbers.

    Chandrupatla's method (Adv. Eng. Software 28, 145, 1997): inverse quadratic interpolation
    where it is safe, bisection elsewhere.

    Parameters
    ----------
    at : callable
    low, high : float
        Ends of the bracket.
    f_low, f_high : float
        Values there, of opposite signs; with equal signs the end with the smaller one is
        returned.

    Returns
    -------
    float
    """
    if not f_low * f_high < 0:
        return low if abs(f_low) < abs(f_high) else high
    b, a = low, high
    f_b, f_a = f_low, f_high
    c, f_c = a, f_a
    share = 0.5
    for _ in range(200):
        x = a + share * (b - a)
        f_x = at(x)
        if (f_x > 0) == (f_a > 0):
            c, f_c = a, f_a
        else:
            c, b, f_c, f_b = b, a, f_b, f_a
        a, f_a = x, f_x
        best, f_best = (a, f_a) if abs(f_a) < abs(f_b) else (b, f_b)
        tolerance = 2 * float(np.spacing(abs(best))) / abs(b - a) if b != a else 1.0
        if tolerance > 0.5 or f_best == 0.0:
            return best
        share = 0.5
        if f_c != f_b and f_c != f_a and f_b != f_a:
            xi, phi = (a - b) / (c - b), (f_a - f_b) / (f_c - f_b)
            if phi * phi < xi and (1 - phi) * (1 - phi) < 1 - xi:
                share = f_a / (f_b - f_a) * f_c / (f_b - f_c) + (c - a) / (b - a) * f_a / (
                    f_c - f_a
                ) * f_b / (f_c - f_b)
        share = min(1 - tolerance, max(tolerance, share))
    return best
