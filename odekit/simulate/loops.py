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

import numpy as np
from numba import njit

FAST = {"contract", "reassoc", "nsz"}

MERGED_ZERO, SEPARATE_ZERO, MERGED_ALL, SEPARATE_ALL = 0, 1, 2, 3
RUNNING, NOT_A_NUMBER, BLOWN_UP = 0, 1, 2
PLAIN, HEAVY_BALL, ADAMW = 0, 1, 2


@njit(cache=True, fastmath=FAST)
def query_blocks(heads, rank, dim, theta, A):
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
def contract(case, heads, rank, dim, theta, P, A, M):
    """Fill P with the coefficients of the features; A and M are scratch."""
    if case == MERGED_ZERO:
        F = dim * dim
        w = theta[0]
        for j in range(F):
            P[j] = w * theta[heads + j]
        for h in range(1, heads):
            w = theta[h]
            base = heads + h * F
            for j in range(F):
                P[j] += w * theta[base + j]
        return
    if case == SEPARATE_ZERO:
        for j in range(dim * dim):
            P[j] = 0.0
        half = heads * rank * dim
        for h in range(heads):
            for r in range(rank):
                k = heads + (h * rank + r) * dim
                q = k + half
                for d in range(dim):
                    w = theta[h] * theta[k + d]
                    for e in range(dim):
                        P[d * dim + e] += w * theta[q + e]
        return
    E = dim + 1
    if case == SEPARATE_ALL:
        query_blocks(heads, rank, dim, theta, A)
    else:
        base = heads * E
        for i in range(heads * dim * E):
            A[i] = theta[base + i]
    for i in range(dim * E * E):
        M[i] = 0.0
    for h in range(heads):
        u = h * E
        for de in range(dim * E):
            w = A[h * dim * E + de]
            for f in range(E):
                M[de * E + f] += w * theta[u + f]
    j = 0
    for d in range(dim):
        for e in range(E):
            row = (d * E + e) * E
            P[j] = M[row + e]
            j += 1
            for f in range(e + 1, E):
                P[j] = M[row + f] + M[(d * E + f) * E + e]
                j += 1


@njit(cache=True, fastmath=FAST)
def pull_keys_queries(heads, rank, dim, theta, gA, grad):
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
def pull_back(case, heads, rank, dim, theta, g, grad, A, M, gA):
    """Fill grad with dP/dtheta^T g. A must hold what `contract` left there."""
    if case == MERGED_ZERO:
        F = dim * dim
        for h in range(heads):
            w = theta[h]
            base = heads + h * F
            total = 0.0
            for j in range(F):
                total += theta[base + j] * g[j]
                grad[base + j] = w * g[j]
            grad[h] = total
        return
    if case == SEPARATE_ZERO:
        half = heads * rank * dim
        for h in range(heads):
            v = theta[h]
            slope = 0.0
            for r in range(rank):
                k = heads + (h * rank + r) * dim
                q = k + half
                for e in range(dim):
                    grad[q + e] = 0.0
                for d in range(dim):
                    w = v * theta[k + d]
                    total = 0.0
                    for e in range(dim):
                        total += g[d * dim + e] * theta[q + e]
                        grad[q + e] += w * g[d * dim + e]
                    grad[k + d] = v * total
                    slope += theta[k + d] * total
            grad[h] = slope
        return
    E = dim + 1
    j = 0
    for d in range(dim):
        for e in range(E):
            row = (d * E + e) * E
            for f in range(e, E):
                M[row + f] = g[j]
                M[(d * E + f) * E + e] = g[j]
                j += 1
    base = heads * E
    for h in range(heads):
        u = h * E
        for f in range(E):
            grad[u + f] = 0.0
        for de in range(dim * E):
            w = A[h * dim * E + de]
            total = 0.0
            for f in range(E):
                total += M[de * E + f] * theta[u + f]
                grad[u + f] += w * M[de * E + f]
            gA[h * dim * E + de] = total
    if case == MERGED_ALL:
        for i in range(heads * dim * E):
            grad[base + i] = gA[i]
    else:
        pull_keys_queries(heads, rank, dim, theta, gA, grad)


@njit(cache=True, fastmath=FAST)
def times_symmetric(C, P, out):
    """Out = C P for symmetric C, by rows eight at a time: no horizontal sums."""
    F = P.shape[0]
    for j in range(F):
        out[j] = 0.0
    i = 0
    while i + 8 <= F:
        a, b, c, d = P[i], P[i + 1], P[i + 2], P[i + 3]
        p, q, r, s = P[i + 4], P[i + 5], P[i + 6], P[i + 7]
        for j in range(F):
            out[j] += (a * C[i, j] + b * C[i + 1, j] + c * C[i + 2, j] + d * C[i + 3, j]) + (
                p * C[i + 4, j] + q * C[i + 5, j] + r * C[i + 6, j] + s * C[i + 7, j]
            )
        i += 8
    while i < F:
        a = P[i]
        for j in range(F):
            out[j] += a * C[i, j]
        i += 1


@njit(cache=True, fastmath=FAST)
def moments_gradient(case, heads, rank, dim, theta, C, c, y2, grad, P, g, A, M, gA):
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
def descend(
    case,
    heads,
    rank,
    dim,
    theta,
    velocity,
    C,
    c,
    y2,
    lr,
    momentum,
    span,
    save_at,
    saved,
    states,
    losses,
    ceiling,
    slack,
    gap,
    rises,
    rise_states,
    memory,
):
    """Full-batch gradient descent on the moments from step span[0] to step span[1], in place.

    `save_at` are the steps to record and `saved[0]` how many are done. `rises` (W, 2) collects the
    windows of steps in which the loss rose by more than `slack` (rises closer than `gap` steps are
    one window), `saved[1]` counts them, `rise_states` holds the state at each window's start.
    `memory` = [loss of the step before]; nan at the start. Returns a code; span[0] is left at the
    first step not done, and on failure theta at the last good state, of step span[0].
    """
    n = theta.shape[0]
    F = c.shape[0]
    E = dim + 1
    P = np.empty(F)
    g = np.empty(F)
    A = np.empty(heads * dim * E)
    gA = np.empty(heads * dim * E)
    M = np.empty(dim * E * E)
    grad = np.empty(n)
    kept, kept_velocity, kept_step = theta.copy(), velocity.copy(), span[0]
    step, last = span[0], span[1]
    done = saved[0]
    before = memory[0]
    code = RUNNING
    while True:
        loss = moments_gradient(case, heads, rank, dim, theta, C, c, y2, grad, P, g, A, M, gA)
        if not loss <= ceiling:
            code = BLOWN_UP if loss > ceiling else NOT_A_NUMBER
            break
        if loss > before + slack:
            count = saved[1]
            if count > 0 and step - rises[min(count, rises.shape[0]) - 1, 1] <= gap:
                rises[min(count, rises.shape[0]) - 1, 1] = step
            else:
                if count < rises.shape[0]:
                    rises[count, 0] = step - 1
                    rises[count, 1] = step
                    for i in range(n):
                        rise_states[count, i] = theta[i]
                saved[1] = count + 1
        before = loss
        while done < save_at.shape[0] and save_at[done] <= step:
            for i in range(n):
                states[done, i] = theta[i]
            losses[done] = loss
            done += 1
        if step == last:
            break
        if (step - span[0]) % 256 == 0:
            for i in range(n):
                kept[i] = theta[i]
                kept_velocity[i] = velocity[i]
            kept_step = step
        if momentum == 0.0:
            for i in range(n):
                theta[i] -= lr * grad[i]
        else:
            for i in range(n):
                velocity[i] = momentum * velocity[i] - lr * grad[i]
                theta[i] += velocity[i]
        step += 1
    saved[0] = done
    memory[0] = before
    if code != RUNNING:
        # Replay from the last copy to the step before the bad one: cheaper than a copy each step.
        for i in range(n):
            theta[i] = kept[i]
            velocity[i] = kept_velocity[i]
        for _ in range(kept_step, step - 1):
            moments_gradient(case, heads, rank, dim, theta, C, c, y2, grad, P, g, A, M, gA)
            for i in range(n):
                if momentum == 0.0:
                    theta[i] -= lr * grad[i]
                else:
                    velocity[i] = momentum * velocity[i] - lr * grad[i]
                    theta[i] += velocity[i]
        step -= 1
    span[0] = step
    return code
