"""Softmax averages of context tokens and their derivative: the compiled part of a network's step.

All else of the network is matrix products, which NumPy does as fast.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Sums may be reassociated, which is what lets them use SIMD lanes; NaN keeps its meaning.
_FAST = {"contract", "reassoc", "nsz"}


@njit(cache=True, fastmath=_FAST)
def attend(tokens: Floats, lengths: Ints, a: Floats, p: Floats, mu: Floats) -> None:
    """Fill p with ``softmax_m(a_h . token_m)`` and mu with ``sum_m p_hm token_m``.

    tokens (B, E, l), one entry of all tokens in a row; lengths (B,); a (B, H, E); p (B, H, l);
    mu (B, H, E). Past a sequence's length p is zero.
    """
    count, entries, longest = tokens.shape
    heads = a.shape[1]
    for b in range(count):
        n = lengths[b]
        for h in range(heads):
            row = p[b, h]
            for m in range(longest):
                row[m] = 0.0
            for e in range(entries):
                w = a[b, h, e]
                for m in range(n):
                    row[m] += w * tokens[b, e, m]
            top = row[0]
            for m in range(1, n):
                top = row[m] if row[m] > top else top
            total = 0.0
            for m in range(n):
                row[m] = math.exp(row[m] - top)
                total += row[m]
            total = 1.0 / total
            for m in range(n):
                row[m] *= total
            for e in range(entries):
                mean = 0.0
                for m in range(n):
                    mean += row[m] * tokens[b, e, m]
                mu[b, h, e] = mean


@njit(cache=True, fastmath=_FAST)
def attend_back(
    tokens: Floats, lengths: Ints, p: Floats, mu: Floats, g_mu: Floats, g_a: Floats
) -> None:
    """Take the derivative by mu (B, H, E) to that by a: ``Cov_p(token, g_mu . token)``."""
    count, entries, longest = tokens.shape
    heads = p.shape[1]
    pull = np.empty(longest)
    for b in range(count):
        n = lengths[b]
        for h in range(heads):
            centre = 0.0
            for e in range(entries):
                centre += g_mu[b, h, e] * mu[b, h, e]
            for m in range(n):
                pull[m] = -centre
            for e in range(entries):
                w = g_mu[b, h, e]
                for m in range(n):
                    pull[m] += w * tokens[b, e, m]
            for m in range(n):
                pull[m] *= p[b, h, m]
            for e in range(entries):
                slope = 0.0
                for m in range(n):
                    slope += pull[m] * tokens[b, e, m]
                g_a[b, h, e] = slope
