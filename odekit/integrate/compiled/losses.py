"""Losses of many states in one compiled call."""

# Loops are typed by their Numba signatures.
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import float64, int64, njit, void
from numpy.typing import NDArray

from odekit.integrate.compiled.addresses import LOSS_SIGNATURE, address_of, loss_at

__all__ = ["losses"]


@njit(void(int64, float64[:, ::1], float64[::1], float64[::1]), cache=True, nogil=True)
def _fill(loss_address, y, p, out):
    loss = loss_at(loss_address)
    for k in range(y.shape[0]):
        out[k] = loss(y[k], p)


def losses(loss: Any, y: NDArray[np.float64], p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Loss (K,) of the states y (K, n); ``loss`` is a compiled field's, p its packed parameters."""
    out = np.empty(len(y))
    _fill(address_of(loss, LOSS_SIGNATURE), np.ascontiguousarray(y), p, out)
    return out
