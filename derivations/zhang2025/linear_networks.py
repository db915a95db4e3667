r"""Attention as linear networks on cubic features ``z = vec(beta x_q^T)`` (statements 6 and 7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import odekit as ok

from .statement import Check, Statement

Array = NDArray[np.float64]


def network_flow() -> Any:
    """Gradient flow of a two-layer linear network ``w2 . W1 z`` on features of given moments.

    States ``w2`` (H,), ``W1`` (H, F); parameters ``C = E[z z^T]`` (F, F), ``c = E[y z]`` (F,) and
    ``y2 = E[y^2]``. Nothing in it knows of attention.
    """
    H, F = ok.dims("H F")
    w2, W1 = ok.weight("w2", (H,)), ok.weight("W1", (H, F))
    C, c = ok.parameter("C", (F, F), symmetric=True), ok.parameter("c", (F,))
    a = ok.define("a", ok.einsum("h,hf->f", w2, W1))
    loss = ok.parameter("y2") * 1 - 2 * ok.einsum("f,f->", c, a) + ok.einsum("f,fg,g->", a, C, a)
    return ok.gradient_flow(loss, weights=(w2, W1), time_scale=2)


def as_network(state: Mapping[str, ArrayLike]) -> dict[str, Array]:
    """The network's weights for those of merged attention: value weights, and flattened U_h."""
    v, U = np.asarray(state["v"]), np.asarray(state["U"])
    return {"w2": v.copy(), "W1": U.reshape(*U.shape[:-2], -1)}


def moments(statistics: Any) -> dict[str, Any]:
    """Moments of the features as parameters of `network_flow`."""
    return {"C": statistics.C, "c": statistics.c, "y2": statistics.y2}


def cubic_features(x: ArrayLike, y: ArrayLike) -> Array:
    """``z = vec(beta x_q^T)`` (P, D^2) of sequences x (P, N+1, D), y (P, N+1), query last."""
    tokens, labels = np.asarray(x), np.asarray(y)
    beta = np.einsum("pn,pnd->pd", labels[:, :-1], tokens[:, :-1]) / (labels.shape[1] - 1)
    return (beta[:, :, None] * tokens[:, -1, None, :]).reshape(len(tokens), -1)


def train_network(
    z: Array, target: Array, y0: Mapping[str, Array], lr: float, steps: int, every: int
) -> tuple[Array, Array]:
    """Plain gradient descent of the network on residuals, feature by feature.

    It shares no formula with the simulator of attention; steps and losses before them are
    returned.
    """
    w2, W1 = y0["w2"].copy(), y0["W1"].copy()
    at, losses = [], []
    for step in range(steps + 1):
        residual = z @ (w2 @ W1) - target
        if step % every == 0:
            at.append(step)
            losses.append(float(residual @ residual) / len(target))
        pull = (2 * lr / len(target)) * (residual @ z)
        w2, W1 = w2 - W1 @ pull, W1 - w2[:, None] * pull
    return np.array(at, dtype=np.float64), np.array(losses)


def strided_convolution(signal: Array, kernel: Array) -> Array:
    """Convolution (P, L/D) of signals (P, L) with a kernel (D,) at stride D."""
    windows = np.lib.stride_tricks.sliding_window_view(signal, len(kernel), axis=-1)
    return windows[:, :: len(kernel)] @ kernel


def draw_sequences(
    spectrum: ArrayLike, context: int, count: int, seed: int
) -> tuple[Array, Array, Array]:
    """Tokens (P, N+1, D), labels (P, N+1) and tasks (P, D) with diagonal covariance."""
    lam = np.asarray(spectrum, dtype=np.float64)
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, context + 1, len(lam))) * np.sqrt(lam)
    w = rng.standard_normal((count, len(lam)))
    return x, np.einsum("pnd,pd->pn", x, w), w


def merged_is_a_two_layer_network() -> Statement:
    """6. Merged attention is a two-layer fully connected linear network on cubic features."""
    dim, context, heads = 3, 7, 4
    lam = np.array([1.0, 0.6, 0.3])
    rng = np.random.default_rng(0)
    state = {"v": rng.standard_normal(heads), "U": rng.standard_normal((heads, dim, dim))}
    x, y, w = draw_sequences(lam, context, 20, seed=1)
    layers = as_network(state)
    answers = cubic_features(x, y) @ (layers["w2"] @ layers["W1"])
    model: Any = ok.models.attention_merged()
    given = [
        model.prediction.evaluate(
            {**state, "x": x[p, :-1], "x_q": x[p, -1], "w": w[p], "N": context}
        )
        for p in range(len(x))
    ]
    scale = float(np.abs(given).max())
    checks = [Check("predictions", float(np.abs(answers - given).max()) / scale, 1e-13)]

    network, params = network_flow(), {"Lambda": np.diag(lam), "N": context}
    features = moments(ok.simulate.population_statistics(np.diag(lam), context))
    loss, other = model.flow.loss_value(state, params), network.loss_value(layers, features)
    checks.append(Check("losses", abs(loss - other) / loss, 1e-13))
    rates, others = model.flow.evaluate(state, params), network.evaluate(layers, features)
    size = float(np.abs(rates["U"]).max())
    gaps = [rates["v"] - others["w2"], rates["U"].reshape(heads, -1) - others["W1"]]
    checks.append(Check("gradients", max(float(np.abs(g).max()) for g in gaps) / size, 1e-13))

    small = {name: 1e-3 * value for name, value in state.items()}
    times = np.linspace(0.0, 20.0, 40)
    run: Any = ok.solve(model.flow, small, times, params)
    twin: Any = ok.solve(network, as_network(small), times, features)
    gap = np.abs(run["U"].reshape(len(times), heads, -1) - twin["W1"]).max()
    # Two runs, each within the solver's 1e-6.
    checks.append(Check("trajectories", float(gap) / float(np.abs(run["U"]).max()), 2e-6))
    return Statement(
        "6",
        "ATTN_M with value weights w2 and rows vec(U_h) of W1 is the two-layer linear network "
        "w2 . W1 z on z = vec(beta x_q^T): predictions, loss, gradient and trajectory agree.",
        (
            r"\hat y_q = \sum_h v_h\,\beta^\top U_h x_q = w_2^\top W_1 z,\qquad"
            r" z = \operatorname{vec}(\beta x_q^\top)",
        ),
        checks=tuple(checks),
    )


def separate_is_convolutional() -> Statement:
    """7. Separate attention is a sum of three-layer convolutional linear networks."""
    dim, context, heads, rank = 3, 7, 4, 2
    rng = np.random.default_rng(0)
    shapes = {"v": (heads,), "K": (heads, rank, dim), "Q": (heads, rank, dim)}
    state = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    x, y, w = draw_sequences([1.0, 0.6, 0.3], context, 20, seed=1)
    # The window of a stride runs over beta, so beta's index is the fast one here.
    z = cubic_features(x, y).reshape(-1, dim, dim).transpose(0, 2, 1).reshape(-1, dim * dim)
    answers = sum(
        v * sum(strided_convolution(z, k) @ q for k, q in zip(K, Q, strict=True))
        for v, K, Q in zip(state["v"], state["K"], state["Q"], strict=True)
    )
    model: Any = ok.models.attention_separate()
    given = [
        model.prediction.evaluate(
            {**state, "x": x[p, :-1], "x_q": x[p, -1], "w": w[p], "N": context}
        )
        for p in range(len(x))
    ]
    gap = float(np.abs(answers - given).max()) / float(np.abs(given).max())
    return Statement(
        "7",
        "ATTN_S is the sum of H three-layer linear networks on z: convolution with the keys at "
        "stride D, then the queries, then the value weight.",
        (
            r"\hat y_q = \sum_h v_h \sum_r q_{hr}^\top \left(k_{hr} \star_D z\right),\qquad"
            r" (k\star_D z)_b = \sum_a k_a z_{bD+a}",
        ),
        checks=(Check("predictions", gap, 1e-13),),
    )
