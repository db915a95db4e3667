"""The one product that conjugate gradients on in-context regression need, without temporaries."""

from __future__ import annotations

import numba


@numba.njit(
    "void(float64[:, ::1], float64[:, ::1], float64[:, ::1], float64[:, ::1])",
    cache=True,
    nogil=True,
    fastmath={"contract", "reassoc"},
)
def normal_product(x, h, gamma, total):  # type: ignore[no-untyped-def]
    """Add ``sum_i (x_i^T gamma h_i) x_i h_i^T`` to ``total``.

    Four rows share each pass over gamma and total. Compiled loops rather than BLAS: seeds run in
    threads, and the library's own threads would fight over the same cores.

    Parameters
    ----------
    x, h : ndarray, shapes (n, d) and (n, d + 1)
    gamma, total : ndarray, shape (d, d + 1)
    """
    n, d = x.shape
    width = h.shape[1]
    for i in range(0, n - 3, 4):
        p0 = p1 = p2 = p3 = 0.0
        for a in range(d):
            s0 = s1 = s2 = s3 = 0.0
            for b in range(width):
                g = gamma[a, b]
                s0 += g * h[i, b]
                s1 += g * h[i + 1, b]
                s2 += g * h[i + 2, b]
                s3 += g * h[i + 3, b]
            p0 += s0 * x[i, a]
            p1 += s1 * x[i + 1, a]
            p2 += s2 * x[i + 2, a]
            p3 += s3 * x[i + 3, a]
        for a in range(d):
            c0, c1, c2, c3 = p0 * x[i, a], p1 * x[i + 1, a], p2 * x[i + 2, a], p3 * x[i + 3, a]
            for b in range(width):
                total[a, b] += c0 * h[i, b] + c1 * h[i + 1, b] + c2 * h[i + 2, b] + c3 * h[i + 3, b]
    for i in range(n - n % 4, n):
        p0 = 0.0
        for a in range(d):
            s0 = 0.0
            for b in range(width):
                s0 += gamma[a, b] * h[i, b]
            p0 += s0 * x[i, a]
        for a in range(d):
            c0 = p0 * x[i, a]
            for b in range(width):
                total[a, b] += c0 * h[i, b]
