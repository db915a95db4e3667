"""The compiled loops of training: every Numba function of the room, in one file.

One file, because Numba's disk cache does not notice that a callee in another file was edited.

Four cases of one attention layer share the loops. `theta` is the flat state, C order:

====  =========  ======  ===================================================
case  family     blocks  states
====  =========  ======  ===================================================
0     merged     zero    v (H,), U (H, D, D)
1     separate   zero    v (H,), K (H, R, D), Q (H, R, D)
2     merged     all     u (H, D+1), A (H, D, D+1)
3     separate   all     u (H, D+1), K (H, R, D+1), Q (H, R, D)
====  =========  ======  ===================================================

With linear attention the prediction is linear in features, `yhat = z . P(theta)`, so a step is:
contract the weights to P, take the gradient g of the loss with respect to P, pull g back.
Sums may be reassociated (that is what lets them use SIMD lanes), but NaN and infinity keep
their meaning, because a run stops on them.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FAST = {"contract", "reassoc", "nsz"}

MERGED_ZERO, SEPARATE_ZERO, MERGED_ALL, SEPARATE_ALL = 0, 1, 2, 3
RUNNING, NOT_A_NUMBER, BLOWN_UP = 0, 1, 2
PLAIN, HEAVY_BALL, ADAMW = 0, 1, 2
KEPT_EVERY = 256  # steps between two copies of the state, to go back to on failure
_HALVED = 100  # features from which a product reads half of the symmetric matrix


@njit(cache=True, fastmath=FAST)
def query_blocks(heads: int, rank: int, dim: int, theta: Floats, A: Floats) -> None:
    """Fill A (H, D, D+1) of the separate layer with all blocks: A_h = sum_r Q_hr K_hr^T."""
    E = dim + 1
    key = heads * E
    query = key + heads * rank * E
    for i in range(heads * dim * E):
        A[i] = 0.0
    for h in range(heads):
        for r in range(rank):
            k = key + (h * rank + r) * E
            q = query + (h * rank + r) * dim
            for d in range(dim):
                w = theta[q + d]
                a = (h * dim + d) * E
                for e in range(E):
                    A[a + e] += w * theta[k + e]


@njit(cache=True, fastmath=FAST)
def contract_merged(heads: int, features: int, theta: Floats, P: Floats) -> None:
    """Fill P with sum_h v_h U_h, row-major."""
    w = theta[0]
    for j in range(features):
        P[j] = w * theta[heads + j]
    for h in range(1, heads):
        w = theta[h]
        base = heads + h * features
        for j in range(features):
            P[j] += w * theta[base + j]


@njit(cache=True, fastmath=FAST)
def contract_separate(heads: int, rank: int, dim: int, theta: Floats, P: Floats) -> None:
    """Fill P with sum_h v_h sum_r K_hr Q_hr^T, row-major."""
    half = heads * rank * dim
    for d in range(dim):
        for e in range(dim):
            P[d * dim + e] = 0.0
        for h in range(heads):
            for r in range(rank):
                k = heads + (h * rank + r) * dim
                w = theta[h] * theta[k + d]
                for e in range(dim):
                    P[d * dim + e] += w * theta[k + half + e]


@njit(cache=True, fastmath=FAST)
def pack_features(dim: int, M: Floats, P: Floats) -> None:
    """Fill P with M[f, d, e] + M[e, d, f] for e < f, and M[e, d, e] for e = f."""
    E = dim + 1
    width = dim * E
    j = 0
    for d in range(dim):
        for e in range(E):
            P[j] = M[e * width + d * E + e]
            j += 1
            for f in range(e + 1, E):
                P[j] = M[f * width + d * E + e] + M[e * width + d * E + f]
                j += 1


@njit(cache=True, fastmath=FAST)
def unpack_features(dim: int, g: Floats, G: Floats) -> None:
    """Fill G[f, d, e] = G[e, d, f] from the gradient g of P: the transpose of `pack_features`."""
    E = dim + 1
    width = dim * E
    j = 0
    for d in range(dim):
        for e in range(E):
            for f in range(e, E):
                G[f * width + d * E + e] = g[j]
                G[e * width + d * E + f] = g[j]
                j += 1


@njit(cache=True, fastmath=FAST)
def contract_all(heads: int, dim: int, theta: Floats, P: Floats, A: Floats, M: Floats) -> None:
    """Fill P with the coefficients of x_q[d] G[e, f] from u (in theta) and A.

    M (D+1, D, D+1) has u's index first, so that the inner loops run over the long row of A_h.
    """
    E = dim + 1
    width = dim * E
    for i in range(E * width):
        M[i] = 0.0
    for h in range(heads):
        a = h * width
        for f in range(E):
            w = theta[h * E + f]
            for i in range(width):
                M[f * width + i] += w * A[a + i]
    pack_features(dim, M, P)


@njit(cache=True, fastmath=FAST)
def key_query_blocks(case: int, heads: int, rank: int, dim: int, theta: Floats, A: Floats) -> None:
    """Fill A (H, D, D+1) of the layer with all blocks, either family."""
    if case == SEPARATE_ALL:
        query_blocks(heads, rank, dim, theta, A)
    else:
        base = heads * (dim + 1)
        for i in range(heads * dim * (dim + 1)):
            A[i] = theta[base + i]


@njit(cache=True, fastmath=FAST)
def contract(
    case: int,
    heads: int,
    rank: int,
    dim: int,
    theta: Floats,
    P: Floats,
    A: Floats,
    M: Floats,
) -> None:
    """Fill P with the coefficients of the features; A and M are scratch."""
    if case == MERGED_ZERO:
        contract_merged(heads, dim * dim, theta, P)
    elif case == SEPARATE_ZERO:
        contract_separate(heads, rank, dim, theta, P)
    else:
        key_query_blocks(case, heads, rank, dim, theta, A)
        contract_all(heads, dim, theta, P, A, M)


@njit(cache=True, fastmath=FAST)
def pull_keys_queries(
    heads: int, rank: int, dim: int, theta: Floats, gA: Floats, grad: Floats
) -> None:
    """Gradients of K and Q (all blocks) from the gradient of A_h = sum_r Q_hr K_hr^T."""
    E = dim + 1
    key = heads * E
    query = key + heads * rank * E
    for h in range(heads):
        for r in range(rank):
            k = key + (h * rank + r) * E
            q = query + (h * rank + r) * dim
            for e in range(E):
                grad[k + e] = 0.0
            for d in range(dim):
                a = (h * dim + d) * E
                w = theta[q + d]
                total = 0.0
                for e in range(E):
                    total += gA[a + e] * theta[k + e]
                    grad[k + e] += gA[a + e] * w
                grad[q + d] = total


@njit(cache=True, fastmath=FAST)
def pull_merged(heads: int, features: int, theta: Floats, g: Floats, grad: Floats) -> None:
    """Gradient of v and U from the gradient g of P."""
    for h in range(heads):
        w = theta[h]
        base = heads + h * features
        total = 0.0
        for j in range(features):
            total += theta[base + j] * g[j]
            grad[base + j] = w * g[j]
        grad[h] = total


@njit(cache=True, fastmath=FAST)
def pull_separate(heads: int, rank: int, dim: int, theta: Floats, g: Floats, grad: Floats) -> None:
    """Gradient of v, K and Q from the gradient g of P, four rows of g at a time."""
    half = heads * rank * dim
    for h in range(heads):
        v = theta[h]
        slope = 0.0
        for r in range(rank):
            k = heads + (h * rank + r) * dim
            q = k + half
            for e in range(dim):
                grad[q + e] = 0.0
            d = 0
            while d + 4 <= dim:
                k0, k1, k2, k3 = theta[k + d], theta[k + d + 1], theta[k + d + 2], theta[k + d + 3]
                i0 = d * dim
                i1, i2, i3 = i0 + dim, i0 + 2 * dim, i0 + 3 * dim
                t0 = t1 = t2 = t3 = 0.0
                for e in range(dim):
                    x = theta[q + e]
                    t0 += g[i0 + e] * x
                    t1 += g[i1 + e] * x
                    t2 += g[i2 + e] * x
                    t3 += g[i3 + e] * x
                for e in range(dim):
                    grad[q + e] += v * (
                        (k0 * g[i0 + e] + k1 * g[i1 + e]) + (k2 * g[i2 + e] + k3 * g[i3 + e])
                    )
                grad[k + d], grad[k + d + 1] = v * t0, v * t1
                grad[k + d + 2], grad[k + d + 3] = v * t2, v * t3
                slope += (k0 * t0 + k1 * t1) + (k2 * t2 + k3 * t3)
                d += 4
            while d < dim:
                w = v * theta[k + d]
                total = 0.0
                for e in range(dim):
                    total += g[d * dim + e] * theta[q + e]
                for e in range(dim):
                    grad[q + e] += w * g[d * dim + e]
                grad[k + d] = v * total
                slope += theta[k + d] * total
                d += 1
        grad[h] = slope


@njit(cache=True, fastmath=FAST)
def pull_all(
    case: int,
    heads: int,
    rank: int,
    dim: int,
    theta: Floats,
    g: Floats,
    grad: Floats,
    A: Floats,
    M: Floats,
    gA: Floats,
) -> None:
    """Gradient of u and A, or of u, K and Q, from the gradient g of P."""
    E = dim + 1
    width = dim * E
    base = heads * E
    unpack_features(dim, g, M)
    for h in range(heads):
        a = h * width
        for i in range(width):
            gA[a + i] = 0.0
        for f in range(E):
            w = theta[h * E + f]
            total = 0.0
            for i in range(width):
                total += A[a + i] * M[f * width + i]
                gA[a + i] += w * M[f * width + i]
            grad[h * E + f] = total
    if case == MERGED_ALL:
        for i in range(heads * dim * E):
            grad[base + i] = gA[i]
    else:
        pull_keys_queries(heads, rank, dim, theta, gA, grad)


@njit(cache=True, fastmath=FAST)
def pull_back(
    case: int,
    heads: int,
    rank: int,
    dim: int,
    theta: Floats,
    g: Floats,
    grad: Floats,
    A: Floats,
    M: Floats,
    gA: Floats,
) -> None:
    """Fill grad with dP/dtheta^T g. A must hold what `contract` left there."""
    if case == MERGED_ZERO:
        pull_merged(heads, dim * dim, theta, g, grad)
    elif case == SEPARATE_ZERO:
        pull_separate(heads, rank, dim, theta, g, grad)
    else:
        pull_all(case, heads, rank, dim, theta, g, grad, A, M, gA)


@njit(cache=True, fastmath=FAST)
def times_symmetric(C: Floats, P: Floats, out: Floats) -> None:
    """Out = C P for symmetric C, four rows at a time.

    Past some hundred features C no longer fits the first cache, and half of it is read instead.
    """
    F = P.shape[0]
    whole = 4 * (F // 4)
    if F < _HALVED:
        for b in range(F // 4):
            i = 4 * b
            s0 = s1 = s2 = s3 = 0.0
            for j in range(F):
                p = P[j]
                s0 += C[i, j] * p
                s1 += C[i + 1, j] * p
                s2 += C[i + 2, j] * p
                s3 += C[i + 3, j] * p
            out[i], out[i + 1], out[i + 2], out[i + 3] = s0, s1, s2, s3
        for i in range(whole, F):
            s0 = 0.0
            for j in range(F):
                s0 += C[i, j] * P[j]
            out[i] = s0
        return
    for j in range(F):
        out[j] = 0.0
    for b in range(F // 4):
        i = 4 * b
        for k in range(4):
            for j in range(4):
                out[i + k] += C[i + k, i + j] * P[i + j]
        p0, p1, p2, p3 = P[i], P[i + 1], P[i + 2], P[i + 3]
        # Slices: an index that starts above zero would keep the loop out of SIMD lanes.
        c0, c1, c2, c3 = C[i, i + 4 :], C[i + 1, i + 4 :], C[i + 2, i + 4 :], C[i + 3, i + 4 :]
        right, below = P[i + 4 :], out[i + 4 :]
        s0 = s1 = s2 = s3 = 0.0
        for j in range(right.shape[0]):
            p = right[j]
            x0, x1, x2, x3 = c0[j], c1[j], c2[j], c3[j]
            s0 += x0 * p
            s1 += x1 * p
            s2 += x2 * p
            s3 += x3 * p
            below[j] += (x0 * p0 + x1 * p1) + (x2 * p2 + x3 * p3)
        out[i] += s0
        out[i + 1] += s1
        out[i + 2] += s2
        out[i + 3] += s3
    for i in range(whole, F):
        for j in range(whole, F):
            out[i] += C[i, j] * P[j]


@njit(cache=True, fastmath=FAST)
def moments_gradient(
    case: int,
    heads: int,
    rank: int,
    dim: int,
    theta: Floats,
    C: Floats,
    c: Floats,
    y2: float,
    grad: Floats,
    P: Floats,
    g: Floats,
    A: Floats,
    M: Floats,
    gA: Floats,
) -> float:
    """Loss `y2 - 2 c.P + P.C P` and its gradient with respect to theta."""
    contract(case, heads, rank, dim, theta, P, A, M)
    times_symmetric(C, P, g)
    loss = y2
    for j in range(P.shape[0]):
        loss += P[j] * (g[j] - 2.0 * c[j])
        g[j] = 2.0 * (g[j] - c[j])
    pull_back(case, heads, rank, dim, theta, g, grad, A, M, gA)
    return loss


@njit(cache=True, fastmath=FAST)
def step_merged(heads: int, features: int, theta: Floats, g: Floats, lr: float, P: Floats) -> None:
    """Plain step along the gradient g of P, and the new P: each weight is read once."""
    for h in range(heads):
        base = heads + h * features
        w = theta[h]
        total = 0.0
        for j in range(features):
            total += theta[base + j] * g[j]
        new = w - lr * total
        theta[h] = new
        w *= lr
        if h == 0:
            for j in range(features):
                x = theta[base + j] - w * g[j]
                theta[base + j] = x
                P[j] = new * x
        else:
            for j in range(features):
                x = theta[base + j] - w * g[j]
                theta[base + j] = x
                P[j] += new * x


@njit(cache=True, fastmath=FAST)
def step_separate(
    heads: int,
    rank: int,
    dim: int,
    theta: Floats,
    g: Floats,
    lr: float,
    P: Floats,
    pulled: Floats,
) -> None:
    """Plain step along the gradient g of P, and the new P; `pulled` (D,) is scratch."""
    half = heads * rank * dim
    for i in range(dim * dim):
        P[i] = 0.0
    for h in range(heads):
        v = theta[h]
        w = lr * v
        slope = 0.0
        for r in range(rank):
            k = heads + (h * rank + r) * dim
            q = k + half
            for e in range(dim):
                pulled[e] = 0.0
            for b in range(dim // 4):
                d = 4 * b
                k0, k1, k2, k3 = theta[k + d], theta[k + d + 1], theta[k + d + 2], theta[k + d + 3]
                i0 = d * dim
                i1, i2, i3 = i0 + dim, i0 + 2 * dim, i0 + 3 * dim
                t0 = t1 = t2 = t3 = 0.0
                for e in range(dim):
                    x = theta[q + e]
                    g0, g1, g2, g3 = g[i0 + e], g[i1 + e], g[i2 + e], g[i3 + e]
                    t0 += g0 * x
                    t1 += g1 * x
                    t2 += g2 * x
                    t3 += g3 * x
                    pulled[e] += (k0 * g0 + k1 * g1) + (k2 * g2 + k3 * g3)
                slope += (k0 * t0 + k1 * t1) + (k2 * t2 + k3 * t3)
                theta[k + d] = k0 - w * t0
                theta[k + d + 1] = k1 - w * t1
                theta[k + d + 2] = k2 - w * t2
                theta[k + d + 3] = k3 - w * t3
            for d in range(4 * (dim // 4), dim):
                k0 = theta[k + d]
                t0 = 0.0
                for e in range(dim):
                    t0 += g[d * dim + e] * theta[q + e]
                    pulled[e] += k0 * g[d * dim + e]
                slope += k0 * t0
                theta[k + d] = k0 - w * t0
            for e in range(dim):
                theta[q + e] -= w * pulled[e]
        v -= lr * slope
        theta[h] = v
        for r in range(rank):
            k = heads + (h * rank + r) * dim
            q = k + half
            for d in range(dim):
                w = v * theta[k + d]
                for e in range(dim):
                    P[d * dim + e] += w * theta[q + e]


@njit(cache=True, fastmath=FAST)
def step_all(
    case: int,
    heads: int,
    rank: int,
    dim: int,
    theta: Floats,
    g: Floats,
    lr: float,
    P: Floats,
    A: Floats,
    M: Floats,
    G: Floats,
    gA: Floats,
    pulled: Floats,
) -> None:
    """Plain step along the gradient g of P, and the new P, of the layer with all blocks.

    A holds the key-query blocks (H, D, D+1) before and after: for the merged family it is that
    part of theta itself. G, gA (D (D+1),) and `pulled` (2 (D+1),) are scratch.
    """
    E = dim + 1
    width = dim * E
    unpack_features(dim, g, G)
    for i in range(E * width):
        M[i] = 0.0
    for h in range(heads):
        a = h * width
        for i in range(width):
            gA[i] = 0.0
        for f in range(E):
            w = lr * theta[h * E + f]
            total = 0.0
            for i in range(width):
                total += A[a + i] * G[f * width + i]
                gA[i] += w * G[f * width + i]
            pulled[f] = lr * total
        if case == MERGED_ALL:
            for i in range(width):
                A[a + i] -= gA[i]
        else:
            for i in range(width):
                A[a + i] = 0.0
            for r in range(rank):
                k = heads * E + (h * rank + r) * E
                q = heads * E * (1 + rank) + (h * rank + r) * dim
                for d in range(dim):
                    total = 0.0
                    for e in range(E):
                        total += gA[d * E + e] * theta[k + e]
                    pulled[E + d] = total
                for d in range(dim):
                    w = theta[q + d]
                    for e in range(E):
                        theta[k + e] -= w * gA[d * E + e]
                    theta[q + d] = w - pulled[E + d]
                for d in range(dim):
                    w = theta[q + d]
                    for e in range(E):
                        A[a + d * E + e] += w * theta[k + e]
        for f in range(E):
            w = theta[h * E + f] - pulled[f]
            theta[h * E + f] = w
            for i in range(width):
                M[f * width + i] += w * A[a + i]
    pack_features(dim, M, P)


@cache
def descent(case: int, known: int, heavy: bool) -> Any:
    """Compile full-batch gradient descent on the moments, for one case.

    With the case a constant the step is inlined; with the dimension `known` as well (0: read at
    run time) its short loops are unrolled, up to twice as fast. Without momentum and with one rate
    for all weights (not `heavy`) the pull-back, the update and the next contraction are one pass
    over the weights; else `scales` (n,) multiply lr.

    The compiled function trains in place from step span[0] to span[1], in blocks that end at
    multiples of KEPT_EVERY. A block contracts P anew, and looks at its first step's loss a second
    time: a run that is split at a block's end does not depend on it.
    `save_at` are the steps to record and `saved[0]` how many are done. `rises` (W, 2) collects the
    windows of steps in which the loss rose by more than `slack` (rises closer than `gap` steps are
    one window), `saved[1]` counts them, `rise_states` holds the state at each window's start.
    `memory` = [loss of the step before], nan at the start. `kept` (2, n) is the state and velocity
    at step span[2], where the last block began: on failure the caller goes back to it. Returns a
    code; span[0] is left at the last step looked at, whose loss is bad on failure.
    """

    @njit(cache=True, fastmath=FAST)
    def descend(
        heads: int,
        rank: int,
        size: int,
        theta: Floats,
        velocity: Floats,
        C: Floats,
        c: Floats,
        y2: float,
        lr: float,
        momentum: float,
        scales: Floats,
        span: Ints,
        save_at: Ints,
        saved: Ints,
        states: Floats,
        losses: Floats,
        ceiling: float,
        slack: float,
        gap: int,
        rises: Ints,
        rise_states: Floats,
        memory: Floats,
        kept: Floats,
    ) -> int:
        n = theta.shape[0]
        dim = known if known > 0 else size
        E = dim + 1
        F = dim * dim if case < MERGED_ALL else dim * E * (E + 1) // 2
        P, g, grad = np.empty(F), np.empty(F), np.empty(n)
        A = theta[heads * E :] if case == MERGED_ALL else np.empty(heads * dim * E)
        gA = np.empty(heads * dim * E)
        M, G, pulled = np.empty(dim * E * E), np.empty(dim * E * E), np.empty(2 * E)
        step, last = span[0], span[1]
        done, count, before = saved[0], saved[1], memory[0]
        due = save_at[done] if done < save_at.shape[0] else -1
        code = RUNNING
        while True:
            for i in range(n):
                kept[0, i] = theta[i]
                kept[1, i] = velocity[i]
            span[2] = step
            stop = min(last, (step // KEPT_EVERY + 1) * KEPT_EVERY)
            if case == MERGED_ZERO:
                contract_merged(heads, F, theta, P)
            elif case == SEPARATE_ZERO:
                contract_separate(heads, rank, dim, theta, P)
            else:
                if case == SEPARATE_ALL:
                    query_blocks(heads, rank, dim, theta, A)
                contract_all(heads, dim, theta, P, A, M)
            while True:
                times_symmetric(C, P, g)
                loss = y2
                for j in range(F):
                    loss += P[j] * (g[j] - 2.0 * c[j])
                    g[j] = 2.0 * (g[j] - c[j])
                if not loss <= ceiling:
                    code = BLOWN_UP if loss > ceiling else NOT_A_NUMBER
                    break
                if loss > before + slack:
                    at = min(count, rises.shape[0]) - 1
                    if count > 0 and step - rises[at, 1] <= gap:
                        rises[at, 1] = step
                    else:
                        if count < rises.shape[0]:
                            rises[count, 0] = step - 1
                            rises[count, 1] = step
                            for i in range(n):
                                rise_states[count, i] = theta[i]
                        count += 1
                before = loss
                if step == due:
                    for i in range(n):
                        states[done, i] = theta[i]
                    losses[done] = loss
                    done += 1
                    due = save_at[done] if done < save_at.shape[0] else -1
                if step == stop:
                    break
                step += 1
                if not heavy:
                    if case == MERGED_ZERO:
                        step_merged(heads, F, theta, g, lr, P)
                    elif case == SEPARATE_ZERO:
                        step_separate(heads, rank, dim, theta, g, lr, P, pulled)
                    else:
                        step_all(case, heads, rank, dim, theta, g, lr, P, A, M, G, gA, pulled)
                    continue
                if case == MERGED_ZERO:
                    pull_merged(heads, F, theta, g, grad)
                elif case == SEPARATE_ZERO:
                    pull_separate(heads, rank, dim, theta, g, grad)
                else:
                    pull_all(case, heads, rank, dim, theta, g, grad, A, M, gA)
                for i in range(n):
                    velocity[i] = momentum * velocity[i] - lr * scales[i] * grad[i]
                    theta[i] += velocity[i]
                contract(case, heads, rank, dim, theta, P, A, M)
            if code != RUNNING or step == last:
                break
        saved[0], saved[1] = done, count
        memory[0] = before
        span[0] = step
        return code

    return descend


@njit(cache=True, fastmath=FAST)
def samples_gradient(
    case: int,
    heads: int,
    rank: int,
    dim: int,
    theta: Floats,
    z: Floats,
    y: Floats,
    grad: Floats,
    P: Floats,
    g: Floats,
    A: Floats,
    M: Floats,
    gA: Floats,
) -> float:
    """Mean squared error on features z (B, F) and its gradient: the sum over samples itself."""
    B, F = z.shape
    contract(case, heads, rank, dim, theta, P, A, M)
    for j in range(F):
        g[j] = 0.0
    loss = 0.0
    for b in range(B):
        r = -y[b]
        for j in range(F):
            r += z[b, j] * P[j]
        loss += r * r
        for j in range(F):
            g[j] += r * z[b, j]
    for j in range(F):
        g[j] *= 2.0 / B
    pull_back(case, heads, rank, dim, theta, g, grad, A, M, gA)
    return loss / B


@njit(cache=True, fastmath=FAST)
def advance(
    optimiser: int,
    hyper: Floats,
    step: int,
    theta: Floats,
    grad: Floats,
    first: Floats,
    second: Floats,
) -> None:
    """One update in place; hyper = [lr, momentum or beta1, beta2, epsilon, decay, *scales].

    The scales, one for each weight, multiply lr; they may be left out.
    """
    n = theta.shape[0]
    own = hyper.shape[0] > 5
    lr = hyper[0]
    if optimiser == PLAIN:
        for i in range(n):
            rate = lr * hyper[5 + i] if own else lr
            theta[i] -= rate * grad[i]
    elif optimiser == HEAVY_BALL:
        for i in range(n):
            rate = lr * hyper[5 + i] if own else lr
            first[i] = hyper[1] * first[i] - rate * grad[i]
            theta[i] += first[i]
    else:
        small = 1.0 / (1.0 - hyper[1] ** (step + 1))
        large = 1.0 / (1.0 - hyper[2] ** (step + 1))
        for i in range(n):
            first[i] = hyper[1] * first[i] + (1.0 - hyper[1]) * grad[i]
            second[i] = hyper[2] * second[i] + (1.0 - hyper[2]) * grad[i] * grad[i]
            move = small * first[i] / (math.sqrt(large * second[i]) + hyper[3])
            rate = lr * hyper[5 + i] if own else lr
            theta[i] = theta[i] * (1.0 - rate * hyper[4]) - rate * move


@njit(cache=True)
def record(
    step: int,
    loss: float,
    theta: Floats,
    save_at: Ints,
    saved: Ints,
    states: Floats,
    losses: Floats,
) -> None:
    """Keep the state when the step is one to record."""
    done = saved[0]
    if done < save_at.shape[0] and save_at[done] == step:
        states[done, :] = theta
        losses[done] = loss
        saved[0] = done + 1


@njit(cache=True, fastmath=FAST)
def train_linear(
    case: int,
    heads: int,
    rank: int,
    dim: int,
    theta: Floats,
    first: Floats,
    second: Floats,
    z: Floats,
    y: Floats,
    optimiser: int,
    hyper: Floats,
    span: Ints,
    save_at: Ints,
    saved: Ints,
    states: Floats,
    losses: Floats,
    ceiling: float,
    memory: Floats,
) -> int:
    """Train on batches of features z (S, B, F), y (S, B) from step span[0] on.

    One step a batch (the only batch serves every step when S = 1), for steps span[0] to
    span[1] - 1; at step span[2] the loss is taken but no step. Returns a code; on failure span[0]
    is the step whose loss is bad. memory[0] is the last good loss.
    """
    F = z.shape[2]
    E = dim + 1
    P, g = np.empty(F), np.empty(F)
    A, gA = np.empty(heads * dim * E), np.empty(heads * dim * E)
    M = np.empty(dim * E * E)
    grad = np.empty(theta.shape[0])
    start = span[0]
    for step in range(start, span[1]):
        s = (step - start) % z.shape[0]
        loss = samples_gradient(case, heads, rank, dim, theta, z[s], y[s], grad, P, g, A, M, gA)
        if not loss <= ceiling:
            span[0] = step
            return BLOWN_UP if loss > ceiling else NOT_A_NUMBER
        memory[0] = loss
        record(step, loss, theta, save_at, saved, states, losses)
        if step < span[2]:
            advance(optimiser, hyper, step, theta, grad, first, second)
    return RUNNING


_LOG2E = 1.4426950408889634
_LN2_HIGH = 6.93147180369123816490e-01
_LN2_LOW = 1.90821492927058770002e-10
_MAGIC = 6755399441055744.0  # 1.5 * 2^52: adding it rounds to whole numbers, kept in the low bits


@njit(cache=True, fastmath={"contract"})
def exponentials(s: Floats, top: Floats, lanes: int, count: int, power: Floats, bits: Ints) -> None:
    """Replace s[i] by exp(s[i] - top[i % lanes]), two ulp, in SIMD lanes; `bits` views `power`.

    Not reassociated: the rounding by addition of a large number must stay.
    """
    for m in range(count):
        for j in range(lanes):
            i = m * lanes + j
            r = s[i] - top[j]
            r = -700.0 if r < -700.0 else r
            shifted = r * _LOG2E + _MAGIC
            power[i] = shifted
            k = shifted - _MAGIC
            r = (r - k * _LN2_HIGH) - k * _LN2_LOW
            # Taylor to degree 13 on |r| <= ln(2)/2: truncation below 1e-17.
            q = 1.0 / 6227020800.0
            q = q * r + 1.0 / 479001600.0
            q = q * r + 1.0 / 39916800.0
            q = q * r + 1.0 / 3628800.0
            q = q * r + 1.0 / 362880.0
            q = q * r + 1.0 / 40320.0
            q = q * r + 1.0 / 5040.0
            q = q * r + 1.0 / 720.0
            q = q * r + 1.0 / 120.0
            q = q * r + 1.0 / 24.0
            q = q * r + 1.0 / 6.0
            q = q * r + 0.5
            q = q * r + 1.0
            s[i] = q * r + 1.0
    for i in range(count * lanes):
        bits[i] = (bits[i] << 52) + (1023 << 52)
    for i in range(count * lanes):
        s[i] *= power[i]


@njit(cache=True)
def pack_lanes(
    x: Floats,
    y: Floats,
    lengths: Ints,
    order: Ints,
    lanes: int,
    X: Floats,
    target: Floats,
    weight: Floats,
) -> None:
    """Lay sequences out for SIMD: X (blocks, tokens, D+2, lanes), the last row of D+2 a mask.

    The query token, with label 0, comes first; `weight` is zero in the unused lanes of the last
    block, whose tokens are zero.
    """
    tokens, dim = x.shape[1], x.shape[2]
    X[:] = 0.0
    target[:] = 0.0
    weight[:] = 0.0
    for i in range(order.shape[0]):
        p = order[i]
        b, j = i // lanes, i % lanes
        weight[b, j] = 1.0
        target[b, j] = y[p, tokens - 1]
        for d in range(dim):
            X[b, 0, d, j] = x[p, tokens - 1, d]
        X[b, 0, dim + 1, j] = 1.0
        for m in range(lengths[p]):
            for d in range(dim):
                X[b, m + 1, d, j] = x[p, m, d]
            X[b, m + 1, dim, j] = y[p, m]
            X[b, m + 1, dim + 1, j] = 1.0


@njit(cache=True, fastmath=FAST)
def softmax_gradient(
    heads: int,
    dim: int,
    theta: Floats,
    A: Floats,
    X: Floats,
    target: Floats,
    weight: Floats,
    count: int,
    masked: bool,
    gu: Floats,
    gA: Floats,
    a: Floats,
    s: Floats,
    power: Floats,
    bits: Ints,
    mu: Floats,
    slope: Floats,
) -> float:
    """Mean squared error of softmax attention and its gradients gu (H E), gA (H D E).

    theta starts with u (H, D+1). Lanes are sequences, so that nothing is summed across lanes
    before the outer products of the gradient.
    """
    E = dim + 1
    blocks, tokens, _, lanes = X.shape
    for i in range(heads * E):
        gu[i] = 0.0
    for i in range(heads * dim * E):
        gA[i] = 0.0
    top, total, inner = np.empty(lanes), np.empty(lanes), np.empty(lanes)
    t, residual = np.empty(tokens * lanes), np.empty(lanes)
    loss = 0.0
    for b in range(blocks):
        for j in range(lanes):
            residual[j] = -target[b, j]
        for h in range(heads):
            for e in range(E):
                for j in range(lanes):
                    a[e, j] = 0.0
                for d in range(dim):
                    w = A[(h * dim + d) * E + e]
                    for j in range(lanes):
                        a[e, j] += w * X[b, 0, d, j]
            for m in range(tokens):
                base = m * lanes
                w = theta[h * E + dim]
                d = dim % 4
                if d == 0:
                    d = 4
                    u0, u1 = theta[h * E], theta[h * E + 1]
                    u2, u3 = theta[h * E + 2], theta[h * E + 3]
                    for j in range(lanes):
                        x0, x1 = X[b, m, 0, j], X[b, m, 1, j]
                        x2, x3, x4 = X[b, m, 2, j], X[b, m, 3, j], X[b, m, dim, j]
                        s[base + j] = (
                            a[0, j] * x0 + a[1, j] * x1 + a[2, j] * x2 + a[3, j] * x3
                        ) + a[dim, j] * x4
                        t[base + j] = (u0 * x0 + u1 * x1 + u2 * x2 + u3 * x3) + w * x4
                else:
                    for j in range(lanes):
                        x4 = X[b, m, dim, j]
                        s[base + j] = a[dim, j] * x4
                        t[base + j] = w * x4
                    for k in range(d):
                        w = theta[h * E + k]
                        for j in range(lanes):
                            x0 = X[b, m, k, j]
                            s[base + j] += a[k, j] * x0
                            t[base + j] += w * x0
                while d < dim:
                    u0, u1 = theta[h * E + d], theta[h * E + d + 1]
                    u2, u3 = theta[h * E + d + 2], theta[h * E + d + 3]
                    for j in range(lanes):
                        x0, x1 = X[b, m, d, j], X[b, m, d + 1, j]
                        x2, x3 = X[b, m, d + 2, j], X[b, m, d + 3, j]
                        s[base + j] += (a[d, j] * x0 + a[d + 1, j] * x1) + (
                            a[d + 2, j] * x2 + a[d + 3, j] * x3
                        )
                        t[base + j] += (u0 * x0 + u1 * x1) + (u2 * x2 + u3 * x3)
                    d += 4
            for j in range(lanes):
                top[j] = s[j]
                total[j] = 0.0
            for m in range(1, tokens):
                for j in range(lanes):
                    v = s[m * lanes + j]
                    top[j] = v if v > top[j] else top[j]
            exponentials(s, top, lanes, tokens, power, bits)
            if masked:
                for m in range(tokens):
                    for j in range(lanes):
                        s[m * lanes + j] *= X[b, m, E, j]
            for m in range(tokens):
                for j in range(lanes):
                    total[j] += s[m * lanes + j]
                    t[m * lanes + j] *= s[m * lanes + j]
            for e in range(E):
                row = h * E + e
                for j in range(lanes):
                    mu[row, j] = 0.0
                    slope[row, j] = 0.0
                m = 0
                while m + 4 <= tokens:
                    i = m * lanes
                    for j in range(lanes):
                        p, q = X[b, m, e, j], X[b, m + 1, e, j]
                        r, v = X[b, m + 2, e, j], X[b, m + 3, e, j]
                        mu[row, j] += (
                            s[i + j] * p + s[i + lanes + j] * q
                            + s[i + 2 * lanes + j] * r + s[i + 3 * lanes + j] * v
                        )  # fmt: skip
                        slope[row, j] += (
                            t[i + j] * p + t[i + lanes + j] * q
                            + t[i + 2 * lanes + j] * r + t[i + 3 * lanes + j] * v
                        )  # fmt: skip
                    m += 4
                while m < tokens:
                    for j in range(lanes):
                        mu[row, j] += s[m * lanes + j] * X[b, m, e, j]
                        slope[row, j] += t[m * lanes + j] * X[b, m, e, j]
                    m += 1
            for j in range(lanes):
                total[j] = 1.0 / total[j]
                inner[j] = 0.0
            for e in range(E):
                w = theta[h * E + e]
                for j in range(lanes):
                    mu[h * E + e, j] *= total[j]
                    inner[j] += w * mu[h * E + e, j]
            for e in range(E):
                for j in range(lanes):
                    slope[h * E + e, j] = (
                        slope[h * E + e, j] * total[j] - inner[j] * mu[h * E + e, j]
                    )
            for j in range(lanes):
                residual[j] += inner[j]
        for j in range(lanes):
            residual[j] *= weight[b, j]
            loss += residual[j] * residual[j]
        for h in range(heads):
            for e in range(E):
                row = h * E + e
                w = 0.0
                for j in range(lanes):
                    w += residual[j] * mu[row, j]
                    slope[row, j] *= residual[j]
                gu[row] += w
                for d in range(dim):
                    w = 0.0
                    for j in range(lanes):
                        w += X[b, 0, d, j] * slope[row, j]
                    gA[(h * dim + d) * E + e] += w
    scale = 2.0 / count
    for i in range(heads * E):
        gu[i] *= scale
    for i in range(heads * dim * E):
        gA[i] *= scale
    return loss / count


@njit(cache=True, fastmath=FAST)
def train_softmax(
    case: int,
    heads: int,
    rank: int,
    dim: int,
    theta: Floats,
    first: Floats,
    second: Floats,
    X: Floats,
    target: Floats,
    weight: Floats,
    count: int,
    masked: bool,
    optimiser: int,
    hyper: Floats,
    span: Ints,
    save_at: Ints,
    saved: Ints,
    states: Floats,
    losses: Floats,
    ceiling: float,
    memory: Floats,
) -> int:
    """Train softmax attention on batches X (S, blocks, tokens, D+2, lanes); see `train_linear`."""
    E = dim + 1
    tokens, lanes = X.shape[2], X.shape[4]
    A, gA = np.empty(heads * dim * E), np.empty(heads * dim * E)
    gu = np.empty(heads * E)
    a = np.empty((E, lanes))
    s, power = np.empty(tokens * lanes), np.empty(tokens * lanes)
    bits = power.view(np.int64)
    mu, slope = np.empty((heads * E, lanes)), np.empty((heads * E, lanes))
    grad = np.empty(theta.shape[0])
    start = span[0]
    for step in range(start, span[1]):
        i = (step - start) % X.shape[0]
        key_query_blocks(case, heads, rank, dim, theta, A)
        loss = softmax_gradient(
            heads, dim, theta, A, X[i], target[i], weight[i], count, masked,
            gu, gA, a, s, power, bits, mu, slope,
        )  # fmt: skip
        if not loss <= ceiling:
            span[0] = step
            return BLOWN_UP if loss > ceiling else NOT_A_NUMBER
        memory[0] = loss
        record(step, loss, theta, save_at, saved, states, losses)
        if step < span[2]:
            for k in range(heads * E):
                grad[k] = gu[k]
            if case == SEPARATE_ALL:
                pull_keys_queries(heads, rank, dim, theta, gA, grad)
            else:
                for k in range(heads * dim * E):
                    grad[heads * E + k] = gA[k]
            advance(optimiser, hyper, step, theta, grad, first, second)
    return RUNNING


@njit(cache=True, fastmath=FAST)
def token_features(
    x: Floats, y: Floats, lengths: Ints, divisor: Floats, z: Floats, full: bool
) -> None:
    """Fill z (P, F) with the features of each sequence; see `moments.attention_features`."""
    P, tokens, dim = x.shape
    E = dim + 1
    G = np.empty((E, E))
    for p in range(P):
        scale = 1.0 / divisor[p]
        if full:
            for e in range(dim):  # the query's own token, with label 0
                for f in range(e, dim):
                    G[e, f] = x[p, tokens - 1, e] * x[p, tokens - 1, f]
            for e in range(E):
                G[e, dim] = 0.0
            for m in range(lengths[p]):
                w = y[p, m]
                G[dim, dim] += w * w
                for e in range(dim):
                    v = x[p, m, e]
                    G[e, dim] += w * v
                    for f in range(e, dim):
                        G[e, f] += v * x[p, m, f]
            j = 0
            for d in range(dim):
                w = scale * x[p, tokens - 1, d]
                for e in range(E):
                    for f in range(e, E):
                        z[p, j] = w * G[e, f]
                        j += 1
        else:
            for e in range(dim):
                G[0, e] = 0.0
            for m in range(lengths[p]):
                w = y[p, m]
                for e in range(dim):
                    G[0, e] += w * x[p, m, e]
            for e in range(dim):
                w = scale * G[0, e]
                for d in range(dim):
                    z[p, e * dim + d] = w * x[p, tokens - 1, d]
