"""The compiled loops of exact descent for predictors that are linear in features, `W(theta) z`.

Two ways in which the weights make up W (O, F):

- a chain, ``W = W_L ... W_1``: deep linear networks, features z = x;
- a pair, ``W[i, (s, l)] = sum over slots[a, b] = s of p[i, a] q[b, l]``: the p, q transformer,
  features ``G[a, b] x_q[l]``, where a symmetric G has one slot for (a, b) and (b, a).

`sizes` are the widths of a chain, inputs first; (O, A, B, D) of a pair. `theta` is the flat state:
W_1, ..., W_L of a chain; p, q of a pair. `scratch` keeps what the pull-back needs of the
contraction.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from odekit.simulate.loops import (
    BLOWN_UP,
    FAST,
    KEPT_EVERY,
    NOT_A_NUMBER,
    RUNNING,
    record,
    times_symmetric,
)

__all__ = ["CHAIN", "PAIR", "contract", "descent", "loss_and_gradient", "scratch_size"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CHAIN, PAIR = 0, 1


def scratch_size(kind: int, sizes: Ints) -> int:
    """Numbers that `contract` and `pull` share: all partial products, and two of the widest."""
    if kind == PAIR:
        return 1
    return int(sizes[0] * (sizes[1:].sum() + 2 * sizes.max()))


@njit(cache=True, fastmath=FAST)
def contract_chain(sizes: Ints, slots: Ints, theta: Floats, W: Floats, scratch: Floats) -> None:
    """Fill W with the product of the layers, and scratch with the partial ones from the input."""
    inputs, depth = sizes[0], sizes.shape[0] - 1
    for i in range(sizes[1] * inputs):
        scratch[i] = theta[i]
    layer, before = sizes[1] * inputs, 0
    for k in range(2, depth + 1):
        rows, columns = sizes[k], sizes[k - 1]
        here = before + columns * inputs
        for i in range(rows):
            out = here + i * inputs
            for e in range(inputs):
                scratch[out + e] = 0.0
            for j in range(columns):
                w = theta[layer + i * columns + j]
                row = before + j * inputs
                for e in range(inputs):
                    scratch[out + e] += w * scratch[row + e]
        layer += rows * columns
        before = here
    for i in range(sizes[depth]):
        for e in range(inputs):
            W[i, e] = scratch[before + i * inputs + e]


@njit(cache=True, fastmath=FAST)
def pull_chain(
    sizes: Ints, slots: Ints, theta: Floats, g: Floats, grad: Floats, scratch: Floats
) -> None:
    """Gradient of every layer from the gradient g (O, F) of the product."""
    inputs, depth = sizes[0], sizes.shape[0] - 1
    layer, before, widest = theta.shape[0], 0, 0
    for k in range(1, depth + 1):
        before += sizes[k] * inputs
        widest = max(widest, sizes[k])
    above = before  # the gradient of the partial product, and below it that of the one before
    below = above + widest * inputs
    for i in range(sizes[depth]):
        for e in range(inputs):
            scratch[above + i * inputs + e] = g[i, e]
    before -= sizes[depth] * inputs
    for k in range(depth, 1, -1):
        rows, columns = sizes[k], sizes[k - 1]
        layer -= rows * columns
        before -= columns * inputs
        for j in range(columns):
            for e in range(inputs):
                scratch[below + j * inputs + e] = 0.0
        for i in range(rows):
            a = above + i * inputs
            for j in range(columns):
                b, c = before + j * inputs, below + j * inputs
                w = theta[layer + i * columns + j]
                total = 0.0
                for e in range(inputs):
                    total += scratch[a + e] * scratch[b + e]
                    scratch[c + e] += w * scratch[a + e]
                grad[layer + i * columns + j] = total
        above, below = below, above
    for i in range(sizes[1] * inputs):
        grad[i] = scratch[above + i]


@njit(cache=True, fastmath=FAST)
def contract_pair(sizes: Ints, slots: Ints, theta: Floats, W: Floats, scratch: Floats) -> None:
    """Fill W with the products p[i, a] q[b, l], added up where a and b share a slot."""
    outputs, rows, columns, dim = sizes[0], sizes[1], sizes[2], sizes[3]
    query = outputs * rows
    W[:] = 0.0
    for i in range(outputs):
        for a in range(rows):
            w = theta[i * rows + a]
            for b in range(columns):
                s, q = slots[a, b] * dim, query + b * dim
                for e in range(dim):
                    W[i, s + e] += w * theta[q + e]


@njit(cache=True, fastmath=FAST)
def pull_pair(
    sizes: Ints, slots: Ints, theta: Floats, g: Floats, grad: Floats, scratch: Floats
) -> None:
    """Gradients of p and q from the gradient g (O, F) of W."""
    outputs, rows, columns, dim = sizes[0], sizes[1], sizes[2], sizes[3]
    query = outputs * rows
    for i in range(columns * dim):
        grad[query + i] = 0.0
    for i in range(outputs):
        for a in range(rows):
            w, total = theta[i * rows + a], 0.0
            for b in range(columns):
                s, q = slots[a, b] * dim, query + b * dim
                for e in range(dim):
                    total += g[i, s + e] * theta[q + e]
                    grad[q + e] += w * g[i, s + e]
            grad[i * rows + a] = total


@njit(cache=True, fastmath=FAST)
def _loss(W: Floats, C: Floats, c: Floats, y2: float, g: Floats) -> float:
    """Loss `y2 - 2 tr(c W^T) + tr(W C W^T)`, and its gradient g with respect to W."""
    loss = y2
    for i in range(W.shape[0]):
        times_symmetric(C, W[i], g[i])
        for j in range(W.shape[1]):
            loss += W[i, j] * (g[i, j] - 2.0 * c[i, j])
            g[i, j] = 2.0 * (g[i, j] - c[i, j])
    return loss


@njit(cache=True, fastmath=FAST)
def contract(
    kind: int, sizes: Ints, slots: Ints, theta: Floats, W: Floats, scratch: Floats
) -> None:
    """Fill W for either kind."""
    if kind == CHAIN:
        contract_chain(sizes, slots, theta, W, scratch)
    else:
        contract_pair(sizes, slots, theta, W, scratch)


@njit(cache=True, fastmath=FAST)
def loss_and_gradient(
    kind: int,
    sizes: Ints,
    slots: Ints,
    theta: Floats,
    C: Floats,
    c: Floats,
    y2: float,
    grad: Floats,
    scratch: Floats,
) -> float:
    """Loss at theta, and its gradient."""
    W, g = np.empty(c.shape), np.empty(c.shape)
    contract(kind, sizes, slots, theta, W, scratch)
    loss = _loss(W, C, c, y2, g)
    if kind == CHAIN:
        pull_chain(sizes, slots, theta, g, grad, scratch)
    else:
        pull_pair(sizes, slots, theta, g, grad, scratch)
    return float(loss)


@cache
def descent(kind: int) -> Any:
    """Compile full-batch gradient descent for one kind; see `loops.descent` for its arguments."""
    fill, pull = ((contract_chain, pull_chain), (contract_pair, pull_pair))[kind]

    @njit(cache=True, fastmath=FAST)
    def descend(
        sizes: Ints,
        slots: Ints,
        scratch: Floats,
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
        W, g, grad = np.empty(c.shape), np.empty(c.shape), np.empty(n)
        step, last, code = span[0], span[1], RUNNING
        while True:
            fill(sizes, slots, theta, W, scratch)
            loss = _loss(W, C, c, y2, g)
            if not loss <= ceiling:
                code = BLOWN_UP if loss > ceiling else NOT_A_NUMBER
                break
            if loss > memory[0] + slack:
                count = saved[1]
                at = min(count, rises.shape[0]) - 1
                if count > 0 and step - rises[at, 1] <= gap:
                    rises[at, 1] = step
                else:
                    if count < rises.shape[0]:
                        rises[count, 0] = step - 1
                        rises[count, 1] = step
                        rise_states[count, :] = theta
                    saved[1] = count + 1
            memory[0] = loss
            record(step, loss, theta, save_at, saved, states, losses)
            if step == last:
                break
            if step % KEPT_EVERY == 0:
                kept[0, :] = theta
                kept[1, :] = velocity
                span[2] = step
            pull(sizes, slots, theta, g, grad, scratch)
            for i in range(n):
                velocity[i] = momentum * velocity[i] - lr * scales[i] * grad[i]
                theta[i] += velocity[i]
            step += 1
        span[0] = step
        return code

    return descend
