"""Small fields with hand-written right-hand sides for the tests of the compiled loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import float64, njit, void

RHS = void(float64, float64[::1], float64[::1], float64[::1])
JACOBIAN = void(float64, float64[::1], float64[::1], float64[:, ::1])


@njit(RHS)
def pendulum(t, y, p, out):
    """Forced pendulum: nonlinear, coupled and dependent on t, so that no order condition hides."""
    out[0] = y[1]
    out[1] = -np.sin(y[0]) - 0.3 * y[1] * y[0] + 0.5 * np.cos(1.3 * t)
    out[2] = y[0] * y[1] - 0.2 * y[2] * y[2]


@njit(JACOBIAN)
def pendulum_jacobian(t, y, p, out):
    out[:, :] = 0.0
    out[0, 1] = 1.0
    out[1, 0] = -np.cos(y[0]) - 0.3 * y[1]
    out[1, 1] = -0.3 * y[0]
    out[2, 0] = y[1]
    out[2, 1] = y[0]
    out[2, 2] = -0.4 * y[2]


@njit(RHS)
def modes(t, y, p, out):
    """Decoupled pairs x' = s^2 z (1 - a x z), z' = s^2 x (1 - a x z); p = (s, a)."""
    m = y.size // 2
    for i in range(m):
        r = p[i] * p[i] * (1.0 - p[m + i] * y[i] * y[m + i])
        out[i] = r * y[m + i]
        out[m + i] = r * y[i]


@njit(JACOBIAN)
def modes_jacobian(t, y, p, out):
    out[:, :] = 0.0
    m = y.size // 2
    for i in range(m):
        s, a, x, z = p[i] * p[i], p[m + i], y[i], y[m + i]
        out[i, i] = -s * a * z * z
        out[i, m + i] = s * (1.0 - 2.0 * a * x * z)
        out[m + i, i] = out[i, m + i]
        out[m + i, m + i] = -s * a * x * x


@njit(RHS)
def modes_values(t, y, p, out):
    m = y.size // 2
    for i in range(m):
        s, a, x, z = p[i] * p[i], p[m + i], y[i], y[m + i]
        out[i] = -s * a * z * z
        out[m + i] = s * (1.0 - 2.0 * a * x * z)
        out[2 * m + i] = out[m + i]
        out[3 * m + i] = -s * a * x * x


def modes_pattern(m: int) -> tuple[np.ndarray, np.ndarray]:
    """Nonzeros in the order of `modes_values`."""
    i = np.arange(m)
    return np.concatenate([i, i, i + m, i + m]), np.concatenate([i, i + m, i, i + m])


@njit(RHS)
def heat(t, y, p, out):
    """Diffusion on a line with a cubic source: symmetric Jacobian, spectral radius 4 p0."""
    n = y.size
    for i in range(n):
        left = y[i - 1] if i > 0 else 0.0
        right = y[i + 1] if i < n - 1 else 0.0
        out[i] = p[0] * (left - 2.0 * y[i] + right) + y[i] - y[i] ** 3


@njit(RHS)
def orbit(t, y, p, out):
    """Goes round for ever."""
    out[0] = y[1]
    out[1] = -y[0]


@njit(JACOBIAN)
def orbit_jacobian(t, y, p, out):
    out[0, 0] = out[1, 1] = 0.0
    out[0, 1] = 1.0
    out[1, 0] = -1.0


@njit(RHS)
def square(t, y, p, out):
    """y' = y^2: a pole at t = 1 / y0."""
    for i in range(y.size):
        out[i] = y[i] * y[i]


@njit(RHS)
def not_a_number(t, y, p, out):
    """Not finite from t = 1/2 on."""
    out[0] = 1.0 if t < 0.5 else np.nan


@njit(RHS)
def decay(t, y, p, out):
    """y' = -p y, entry by entry."""
    for i in range(y.size):
        out[i] = -p[i] * y[i]


@njit(JACOBIAN)
def decay_jacobian(t, y, p, out):
    out[:, :] = 0.0
    for i in range(y.size):
        out[i, i] = -p[i]


@njit(RHS)
def counter(t, y, p, out):
    """Writes to the tail of p, as generated code does with its scratch space."""
    p[1] += 1.0
    out[0] = -y[0] * p[0]


@dataclass(frozen=True)
class Reference:
    """A start with a reference trajectory."""

    rhs: Any
    jacobian: Any
    p: np.ndarray
    y0: np.ndarray
    t_end: float
