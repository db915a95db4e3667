"""Training loops of linear attention as one would write them by hand, for `bench_simulate`.

Two of each: the loop that follows the formulas, and the one that a patient expert arrives at. The
expert passes over the weights once a step (pull back, update, contract), lays the full features
out with the long axis last, keeps four rows of the moments in flight, and compiles the dimension D
in where that helps. Both do nothing else: no record, no stop at NaN, no edge of stability.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit


@njit(fastmath=True)
def merged_reduced(v, U, C, c, y2, lr, steps):
    H, F = U.shape
    loss = 0.0
    for _ in range(steps):
        P = np.zeros(F)
        for h in range(H):
            for j in range(F):
                P[j] += v[h] * U[h, j]
        g = np.zeros(F)
        loss = y2
        for i in range(F):
            s = 0.0
            for j in range(F):
                s += C[i, j] * P[j]
            loss += P[i] * (s - 2.0 * c[i])
            g[i] = 2.0 * (s - c[i])
        for h in range(H):
            s = 0.0
            w = v[h]
            for j in range(F):
                s += U[h, j] * g[j]
                U[h, j] -= lr * w * g[j]
            v[h] -= lr * s
    return loss


@njit(fastmath=True)
def separate_reduced(v, K, Q, C, c, y2, lr, steps):
    H, R, D = K.shape
    F = D * D
    gK, gQ = np.empty((R, D)), np.empty((R, D))
    loss = 0.0
    for _ in range(steps):
        P = np.zeros(F)
        for h in range(H):
            for r in range(R):
                for d in range(D):
                    for e in range(D):
                        P[d * D + e] += v[h] * K[h, r, d] * Q[h, r, e]
        g = np.zeros((D, D))
        loss = y2
        for i in range(F):
            s = 0.0
            for j in range(F):
                s += C[i, j] * P[j]
            loss += P[i] * (s - 2.0 * c[i])
            g[i // D, i % D] = 2.0 * (s - c[i])
        for h in range(H):
            gv = 0.0
            for r in range(R):
                for e in range(D):
                    gQ[r, e] = 0.0
                for d in range(D):
                    s = 0.0
                    for e in range(D):
                        s += g[d, e] * Q[h, r, e]
                        gQ[r, e] += v[h] * K[h, r, d] * g[d, e]
                    gK[r, d] = v[h] * s
                    gv += K[h, r, d] * s
            for r in range(R):
                for d in range(D):
                    K[h, r, d] -= lr * gK[r, d]
                    Q[h, r, d] -= lr * gQ[r, d]
            v[h] -= lr * gv
    return loss


@njit(fastmath=True)
def full(u, A, K, Q, C, c, y2, lr, steps, separate):
    H, E = u.shape
    D = E - 1
    R = Q.shape[1]
    F = c.shape[0]
    gA, gs = np.empty((D, E)), np.empty((D, E, E))
    loss = 0.0
    for _ in range(steps):
        if separate:
            A[:] = 0.0
            for h in range(H):
                for r in range(R):
                    for d in range(D):
                        for e in range(E):
                            A[h, d, e] += Q[h, r, d] * K[h, r, e]
        P = np.zeros(F)
        for h in range(H):
            j = 0
            for d in range(D):
                for e in range(E):
                    P[j] += A[h, d, e] * u[h, e]
                    j += 1
                    for f in range(e + 1, E):
                        P[j] += A[h, d, e] * u[h, f] + A[h, d, f] * u[h, e]
                        j += 1
        loss = y2
        j = 0
        for d in range(D):
            for e in range(E):
                for f in range(e, E):
                    s = 0.0
                    for k in range(F):
                        s += C[j, k] * P[k]
                    loss += P[j] * (s - 2.0 * c[j])
                    gs[d, e, f] = 2.0 * (s - c[j])
                    gs[d, f, e] = gs[d, e, f]
                    j += 1
        for h in range(H):
            gu = np.zeros(E)
            for d in range(D):
                for e in range(E):
                    s = 0.0
                    for f in range(E):
                        s += gs[d, e, f] * u[h, f]
                        gu[f] += A[h, d, e] * gs[d, e, f]
                    gA[d, e] = s
            if separate:
                for r in range(R):
                    old = K[h, r].copy()
                    for e in range(E):
                        s = 0.0
                        for d in range(D):
                            s += gA[d, e] * Q[h, r, d]
                        K[h, r, e] -= lr * s
                    for d in range(D):
                        s = 0.0
                        for e in range(E):
                            s += gA[d, e] * old[e]
                        Q[h, r, d] -= lr * s
            else:
                for d in range(D):
                    for e in range(E):
                        A[h, d, e] -= lr * gA[d, e]
            for f in range(E):
                u[h, f] -= lr * gu[f]
    return loss


@njit(fastmath=True)
def _slopes(C, c, y2, P, g):
    """Loss, and its gradient g with respect to the coefficients P."""
    F = P.shape[0]
    loss = y2
    for b in range(F // 4):
        i = 4 * b
        s0 = s1 = s2 = s3 = 0.0
        for j in range(F):
            s0 += C[i, j] * P[j]
            s1 += C[i + 1, j] * P[j]
            s2 += C[i + 2, j] * P[j]
            s3 += C[i + 3, j] * P[j]
        g[i], g[i + 1], g[i + 2], g[i + 3] = s0, s1, s2, s3
    for i in range(4 * (F // 4), F):
        s0 = 0.0
        for j in range(F):
            s0 += C[i, j] * P[j]
        g[i] = s0
    for i in range(F):
        loss += P[i] * (g[i] - 2.0 * c[i])
        g[i] = 2.0 * (g[i] - c[i])
    return loss


@njit(fastmath=True)
def _slopes_of_half(C, c, y2, P, g):
    """The same from the upper half of C, which is read from a slower cache when it is large."""
    F = P.shape[0]
    g[:] = 0.0
    for b in range(F // 4):
        i = 4 * b
        for k in range(4):
            for j in range(4):
                g[i + k] += C[i + k, i + j] * P[i + j]
        p0, p1, p2, p3 = P[i], P[i + 1], P[i + 2], P[i + 3]
        c0, c1, c2, c3 = C[i, i + 4 :], C[i + 1, i + 4 :], C[i + 2, i + 4 :], C[i + 3, i + 4 :]
        right, below = P[i + 4 :], g[i + 4 :]
        s0 = s1 = s2 = s3 = 0.0
        for j in range(right.shape[0]):
            p = right[j]
            s0 += c0[j] * p
            s1 += c1[j] * p
            s2 += c2[j] * p
            s3 += c3[j] * p
            below[j] += c0[j] * p0 + c1[j] * p1 + c2[j] * p2 + c3[j] * p3
        g[i] += s0
        g[i + 1] += s1
        g[i + 2] += s2
        g[i + 3] += s3
    for i in range(4 * (F // 4), F):
        for j in range(4 * (F // 4), F):
            g[i] += C[i, j] * P[j]
    loss = y2
    for i in range(F):
        loss += P[i] * (g[i] - 2.0 * c[i])
        g[i] = 2.0 * (g[i] - c[i])
    return loss


@njit(fastmath=True)
def expert_merged_reduced(v, U, C, c, y2, lr, steps):
    F = U.shape[1]  # left to run time: unrolled whole, these loops lose their SIMD lanes
    P, g = np.zeros(F), np.zeros(F)
    for h in range(v.shape[0]):
        for j in range(F):
            P[j] += v[h] * U[h, j]
    loss = 0.0
    for _ in range(steps):
        loss = y2
        for i in range(F):
            s = 0.0
            for j in range(F):
                s += C[i, j] * P[j]
            loss += P[i] * (s - 2.0 * c[i])
            g[i] = 2.0 * (s - c[i])
        for j in range(F):
            P[j] = 0.0
        for h in range(v.shape[0]):
            s = 0.0
            for j in range(F):
                s += U[h, j] * g[j]
            w, new = lr * v[h], v[h] - lr * s
            v[h] = new
            for j in range(F):
                x = U[h, j] - w * g[j]
                U[h, j] = x
                P[j] += new * x
    return loss


@cache
def expert_separate_reduced(D: int) -> Callable[..., Any]:
    F = D * D

    @njit(fastmath=True)
    def run(v, K, Q, C, c, y2, lr, steps):
        H, R = K.shape[:2]
        P, g, t = np.zeros(F), np.zeros(F), np.zeros(D)
        for h in range(H):
            for r in range(R):
                for d in range(D):
                    for e in range(D):
                        P[d * D + e] += v[h] * K[h, r, d] * Q[h, r, e]
        loss = 0.0
        for _ in range(steps):
            loss = _slopes(C, c, y2, P, g)
            for j in range(F):
                P[j] = 0.0
            for h in range(H):
                w, slope = lr * v[h], 0.0
                for r in range(R):
                    for e in range(D):
                        t[e] = 0.0
                    for d in range(D):
                        k, s = K[h, r, d], 0.0
                        for e in range(D):
                            s += g[d * D + e] * Q[h, r, e]
                            t[e] += k * g[d * D + e]
                        slope += k * s
                        K[h, r, d] = k - w * s
                    for e in range(D):
                        Q[h, r, e] -= w * t[e]
                v[h] -= lr * slope
                for r in range(R):
                    for d in range(D):
                        k = v[h] * K[h, r, d]
                        for e in range(D):
                            P[d * D + e] += k * Q[h, r, e]
        return loss

    return run


@cache
def expert_full(D: int, separate: bool) -> Callable[..., Any]:
    E, W = D + 1, D * (D + 1)
    F = W * (E + 1) // 2
    # The half pays once C has outgrown the first cache.
    slopes = _slopes if F < 100 else _slopes_of_half

    @njit(fastmath=True)
    def pack(M, P):
        j = 0
        for d in range(D):
            for e in range(E):
                P[j] = M[e, d * E + e]
                j += 1
                for f in range(e + 1, E):
                    P[j] = M[f, d * E + e] + M[e, d * E + f]
                    j += 1

    @njit(fastmath=True)
    def run(u, A, K, Q, C, c, y2, lr, steps):
        H, R = u.shape[0], Q.shape[1]
        P, g, gu, gA = np.zeros(F), np.zeros(F), np.zeros(E), np.zeros(W)
        M, G, gQ = np.zeros((E, W)), np.zeros((E, W)), np.zeros(D)
        for h in range(H):
            if separate:
                for r in range(R):
                    for d in range(D):
                        for e in range(E):
                            A[h, d * E + e] += Q[h, r, d] * K[h, r, e]
            for f in range(E):
                for i in range(W):
                    M[f, i] += u[h, f] * A[h, i]
        pack(M, P)
        loss = 0.0
        for _ in range(steps):
            loss = slopes(C, c, y2, P, g)
            j = 0
            for d in range(D):
                for e in range(E):
                    for f in range(e, E):
                        G[f, d * E + e] = g[j]
                        G[e, d * E + f] = g[j]
                        j += 1
            M[:] = 0.0
            for h in range(H):
                gA[:] = 0.0
                for f in range(E):
                    s, w = 0.0, lr * u[h, f]
                    for i in range(W):
                        s += A[h, i] * G[f, i]
                        gA[i] += w * G[f, i]
                    gu[f] = lr * s
                if separate:
                    A[h] = 0.0
                    for r in range(R):
                        for d in range(D):
                            s = 0.0
                            for e in range(E):
                                s += gA[d * E + e] * K[h, r, e]
                            gQ[d] = s
                        for d in range(D):
                            for e in range(E):
                                K[h, r, e] -= gA[d * E + e] * Q[h, r, d]
                        for d in range(D):
                            Q[h, r, d] -= gQ[d]
                            for e in range(E):
                                A[h, d * E + e] += Q[h, r, d] * K[h, r, e]
                else:
                    for i in range(W):
                        A[h, i] -= gA[i]
                for f in range(E):
                    u[h, f] -= gu[f]
                    for i in range(W):
                        M[f, i] += u[h, f] * A[h, i]
            pack(M, P)
        return loss

    return run


def loops(layer: Any, m: Any, y0: dict[str, Any], lr: float, steps: int) -> dict[str, Any]:
    """Return both hand-written runs of this case as calls that return the last loss."""
    H, D = layer.heads, layer.dim
    moments = (m.C, m.c, m.y2, lr, steps)
    separate = layer.family == "separate"

    def copies() -> dict[str, Any]:
        return {name: value.copy() for name, value in y0.items()}

    def simple() -> float:
        y = copies()
        if layer.blocks == "zero":
            if separate:
                return separate_reduced(y["v"], y["K"], y["Q"], *moments)
            return merged_reduced(y["v"], y["U"].reshape(H, -1), *moments)
        A = y.get("A", np.zeros((H, D, D + 1)))
        K, Q = y.get("K", np.zeros((H, 1, D + 1))), y.get("Q", np.zeros((H, 1, D)))
        return full(y["u"], A, K, Q, *moments, separate)

    def expert() -> float:
        y = copies()
        if layer.blocks == "zero":
            if separate:
                return expert_separate_reduced(D)(y["v"], y["K"], y["Q"], *moments)
            return expert_merged_reduced(y["v"], y["U"].reshape(H, -1), *moments)
        A = y.get("A", np.zeros((H, D, D + 1))).reshape(H, -1)
        K, Q = y.get("K", np.zeros((H, 1, D + 1))), y.get("Q", np.zeros((H, 1, D)))
        return expert_full(D, separate)(y["u"], A, K, Q, *moments)

    return {"simple": simple, "expert": expert}
