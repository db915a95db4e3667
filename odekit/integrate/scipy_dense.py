"""SciPy's dense outputs as polynomials in the fraction of the step, from 0 to 1."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["NESTED", "polynomial"]

Array = NDArray[np.float64]

NESTED = {"DOP853": True}
"""Methods whose interpolant is kept in Hairer's nested form; the others in powers of theta."""


def polynomial(method: str, dense: Any) -> Array:
    """Return the interpolant of one step as coefficients ``(degree+1, n)``.

    Parameters
    ----------
    method : str
        SciPy's name of the method.
    dense : scipy.integrate.DenseOutput
        Of the step that was just accepted.

    Returns
    -------
    ndarray (degree+1, n)
        The same polynomial, in powers of theta, or nested for DOP853.
    """
    return _CONVERT[method](dense)


def _dop853(dense: Any) -> Array:
    return np.vstack([dense.y_old, dense.F])


def _rk45(dense: Any) -> Array:
    return np.vstack([dense.y_old, dense.h * dense.Q.T])


def _radau(dense: Any) -> Array:
    return np.vstack([dense.y_old, dense.Q.T])


def _lsoda(dense: Any) -> Array:
    # sum_k yh_k ((t - t_new) / h)^k with t - t_new = (theta - 1) * width
    ratio = (dense.t - dense.t_old) / dense.h
    order = dense.yh.shape[1] - 1
    shift = np.zeros((order + 1, order + 1))
    for k in range(order + 1):
        for j in range(k + 1):
            shift[j, k] = comb(k, j) * (-1.0) ** (k - j) * ratio**k
    return shift @ dense.yh.T


def _bdf(dense: Any) -> Array:
    # Newton's form: D_0 + sum_k D_k prod_{j<k} (t - shift_j) / denominator_j
    width = dense.t - dense.t_old
    out = np.zeros((dense.order + 1, dense.D.shape[1]))
    product = np.zeros(dense.order + 1)
    product[0] = 1.0
    out[0] = dense.D[0]
    for k in range(dense.order):
        offset, denominator = dense.t_old - dense.t_shift[k], dense.denom[k]
        grown = product * (offset / denominator)
        grown[1:] += product[:-1] * (width / denominator)
        product = grown
        out += product[:, None] * dense.D[k + 1]
    return out


_CONVERT = {"DOP853": _dop853, "RK45": _rk45, "Radau": _radau, "LSODA": _lsoda, "BDF": _bdf}
