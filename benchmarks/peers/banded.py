"""The modes with each pair side by side, so that the Jacobian has a band of three."""

from __future__ import annotations

import numpy as np
from numba import float64, njit, void

_V = float64[::1]


@njit(void(float64, _V, _V, _V), nogil=True)
def rhs(t, z, p, out):
    m = z.size // 2
    for i in range(m):
        rate = p[i] * p[i] * (1.0 - z[2 * i] * z[2 * i + 1] * p[m + i])
        out[2 * i] = rate * z[2 * i + 1]
        out[2 * i + 1] = rate * z[2 * i]


@njit(void(float64, _V, _V, float64[:, ::1]), nogil=True)
def jacobian(t, z, p, out):
    """LAPACK's band storage: `out[1 + i - j, j]` is the derivative of rate i by state j."""
    m = z.size // 2
    out[:, :] = 0.0
    for i in range(m):
        square, a, x, y = p[i] * p[i], p[m + i], z[2 * i], z[2 * i + 1]
        mixed = square * (1.0 - 2.0 * x * y * a)
        out[1, 2 * i] = -square * y * y * a
        out[1, 2 * i + 1] = -square * x * x * a
        out[2, 2 * i] = mixed
        out[0, 2 * i + 1] = mixed


def interleave(y: np.ndarray) -> np.ndarray:
    """From (..., all p, then all q) to (..., p and q in turn)."""
    m = y.shape[-1] // 2
    return np.ascontiguousarray(np.stack([y[..., :m], y[..., m:]], -1).reshape(y.shape))


def separate(z: np.ndarray) -> np.ndarray:
    """The inverse of `interleave`."""
    return np.concatenate([z[..., ::2], z[..., 1::2]], -1)
