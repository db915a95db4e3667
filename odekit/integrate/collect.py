"""Outputs of a run as it goes: requested times only, or thinned accepted steps."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from odekit.solution.interpolant import Interpolant

__all__ = ["Pieces", "Requested", "Steps"]

Array = NDArray[np.float64]
Dense = Callable[[Array], Array]
"""As SciPy has it: ``dense(t (M,)) -> (n, M)``."""


class Requested:
    """Values at the requested times; memory is that of the request."""

    def __init__(self, times: Array, size: int) -> None:
        self.times = times
        self.values = np.empty((len(times), size))
        self.filled = 0
        # Plain floats compare faster than array elements, and this is asked at each step.
        self.plain: list[float] = times.tolist()
        self.next = self.plain[0] if self.plain else np.inf

    def add(self, t: float, y: Array, dense: Callable[[], Dense]) -> None:
        """Take the outputs up to ``t`` from the step that ends in ``(t, y)``."""
        if t < self.next:
            return
        plain, first = self.plain, self.filled
        last = bisect_right(plain, t, first)
        inside = last - 1 if plain[last - 1] == t else last
        if inside > first:
            self.values[first:inside] = dense()(self.times[first:inside]).T
        if inside < last:
            self.values[inside] = y
        self.filled = last
        self.next = plain[last] if last < len(plain) else np.inf

    def arrays(self, t: float, y: Array, early: bool) -> tuple[Array, Array]:
        """Return times and values; a run that ended early gets its last point appended."""
        times, values = self.times[: self.filled], self.values[: self.filled]
        if early and (not self.filled or times[-1] < t):
            times, values = np.append(times, t), np.vstack([values, y])
        return times.copy(), values.copy() if early else values


class Steps:
    """Accepted steps; when there are too many, every second one is dropped."""

    def __init__(self, t: float, y: Array, limit: int) -> None:
        self.times = [t]
        self.values = [y]
        self.limit = limit
        self.stride = 1
        self.waiting = 0

    def add(self, t: float, y: Array, dense: Callable[[], Dense]) -> None:
        """Take the step that ends in ``(t, y)``."""
        self.waiting += 1
        if self.waiting < self.stride:
            return
        self.waiting = 0
        self.times.append(t)
        self.values.append(y)
        if len(self.times) >= self.limit:
            self.times, self.values = self.times[::2], self.values[::2]
            self.stride *= 2

    def arrays(self, t: float, y: Array, early: bool) -> tuple[Array, Array]:
        """Return times and values, the last point always included."""
        if self.times[-1] < t:
            self.times.append(t)
            self.values.append(y)
        return np.array(self.times), np.array(self.values)

    @property
    def filled(self) -> int:
        """How many are kept."""
        return len(self.times)


class Pieces:
    """The interpolants of all steps, up to a bound on memory."""

    def __init__(self, size: int, memory: float, nested: bool) -> None:
        self.size = size
        self.memory = memory
        self.nested = nested
        self.breaks: list[float] = []
        self.coefficients: list[Array] = []
        self.bytes = 0
        self.dropped = False

    def add(self, t_old: float, t: float, coefficients: Array) -> None:
        """Take the polynomial ``(degree+1, n)`` of one step."""
        if self.dropped:
            return
        self.bytes += coefficients.nbytes
        if self.bytes > self.memory:
            self.dropped = True
            self.coefficients.clear()
            self.breaks.clear()
            return
        if not self.breaks:
            self.breaks.append(t_old)
        self.breaks.append(t)
        self.coefficients.append(coefficients)

    def interpolant(self) -> Interpolant | None:
        """Return the whole; None when nothing was kept."""
        if not self.coefficients:
            return None
        rows = max(len(piece) for piece in self.coefficients)
        out = np.zeros((len(self.coefficients), rows, self.size))
        for target, piece in zip(out, self.coefficients, strict=True):
            target[: len(piece)] = piece
        return Interpolant(np.array(self.breaks), out, self.nested)

    def notes(self) -> list[str]:
        """Say when the interpolant was given up."""
        if not self.dropped:
            return []
        return [
            f"Dense output needed more than {self.memory:.3g} bytes and was dropped; give output "
            "times, or raise Save(memory=...)."
        ]
