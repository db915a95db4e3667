"""Training of attention layers in plain NumPy, sequence by sequence: the independent reference.

Written from the formulas of the layer, with no sufficient statistics and no code of odekit.
"""

from __future__ import annotations

import numpy as np


def tokens_with_labels(x, y):
    tokens = np.concatenate([x, y[:, :, None]], axis=2)
    tokens[:, -1, -1] = 0.0
    return tokens


def reduced_loss(state, x, y, normalise=True):
    """Loss and gradients of `sum_h v_h beta^T U_h x_q` (or U_h = sum_r K_hr Q_hr^T)."""
    P, N = x.shape[0], x.shape[1] - 1
    query = x[:, -1]
    beta = np.einsum("pn,pnd->pd", y[:, :N], x[:, :N]) / (N if normalise else 1)
    v = state["v"]
    U = state["U"] if "U" in state else np.einsum("hri,hrj->hij", state["K"], state["Q"])
    heads = np.einsum("pi,hij,pj->ph", beta, U, query)
    r = heads @ v - y[:, -1]
    grad = {"v": 2 / P * r @ heads}
    gU = 2 / P * np.einsum("p,h,pi,pj->hij", r, v, beta, query)
    if "U" in state:
        grad["U"] = gU
    else:
        grad["K"] = np.einsum("hij,hrj->hri", gU, state["Q"])
        grad["Q"] = np.einsum("hij,hri->hrj", gU, state["K"])
    return np.mean(r**2), grad


def all_blocks_loss(state, x, y, attention="linear", normalise=True):
    """Loss and gradients of the layer with all blocks, linear or softmax attention."""
    P, N = x.shape[0], x.shape[1] - 1
    query, tokens = x[:, -1], tokens_with_labels(x, y)
    u = state["u"]
    A = state["A"] if "A" in state else np.einsum("hrd,hre->hde", state["Q"], state["K"])
    scores = np.einsum("pd,hde,pme->phm", query, A, tokens)
    values = np.einsum("he,pme->phm", u, tokens)
    if attention == "linear":
        scale = 1 / N if normalise else 1.0
        r = scale * np.einsum("phm,phm->p", scores, values) - y[:, -1]
        gu = 2 / P * scale * np.einsum("p,phm,pme->he", r, scores, tokens)
        gA = 2 / P * scale * np.einsum("p,pd,phm,pme->hde", r, query, values, tokens)
    else:
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        weights /= weights.sum(axis=2, keepdims=True)
        out = np.einsum("phm,phm->ph", weights, values)
        r = out.sum(axis=1) - y[:, -1]
        gu = 2 / P * np.einsum("p,phm,pme->he", r, weights, tokens)
        centred = weights * (values - out[:, :, None])
        gA = 2 / P * np.einsum("p,pd,phm,pme->hde", r, query, centred, tokens)
    grad = {"u": gu}
    if "A" in state:
        grad["A"] = gA
    else:
        grad["K"] = np.einsum("hde,hrd->hre", gA, state["Q"])
        grad["Q"] = np.einsum("hde,hre->hrd", gA, state["K"])
    return np.mean(r**2), grad


def loss_and_gradient(state, x, y, attention="linear", normalise=True):
    if "v" in state:
        return reduced_loss(state, x, y, normalise)
    return all_blocks_loss(state, x, y, attention, normalise)


def train(state, x, y, lr, steps, attention="linear", normalise=True, momentum=0.0):
    """Losses before each step and after the last, and the last state."""
    state = {name: value.copy() for name, value in state.items()}
    velocity = {name: np.zeros_like(value) for name, value in state.items()}
    losses = []
    for _ in range(steps):
        loss, grad = loss_and_gradient(state, x, y, attention, normalise)
        losses.append(loss)
        for name in state:
            velocity[name] = momentum * velocity[name] - lr * grad[name]
            state[name] = state[name] + velocity[name]
    losses.append(loss_and_gradient(state, x, y, attention, normalise)[0])
    return np.array(losses), state


def adamw(state, batches, lr, beta1, beta2, epsilon, decay):
    """AdamW (Loshchilov and Hutter 2019, algorithm 2 without schedule) on a list of batches."""
    state = {name: value.copy() for name, value in state.items()}
    first = {name: np.zeros_like(value) for name, value in state.items()}
    second = {name: np.zeros_like(value) for name, value in state.items()}
    for k, (x, y) in enumerate(batches, start=1):
        _, grad = loss_and_gradient(state, x, y)
        for name in state:
            first[name] = beta1 * first[name] + (1 - beta1) * grad[name]
            second[name] = beta2 * second[name] + (1 - beta2) * grad[name] ** 2
            mean = first[name] / (1 - beta1**k)
            square = second[name] / (1 - beta2**k)
            state[name] = state[name] - lr * (mean / (np.sqrt(square) + epsilon)
                                              + decay * state[name])  # fmt: skip
    return state
