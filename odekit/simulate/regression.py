"""In-context linear regression by a nonlinear network: softmax attention, then an MLP.

One layer. The query attends to its context with H heads; what the heads bring and the query itself
go through an MLP of one hidden layer with a skip connection:

    c_m = (s x_m, y_m),  e = (s x_q, 1)                      context tokens and query, D + 1 entries
    p_h = softmax_m(e^T A_h c_m),  mu_h = sum_m p_hm c_m      heads
    f = (e, mu_1, ..., mu_H)
    prediction = r . f + w . silu(W^T f),  silu(z) = z/(1 + exp(-z))

Value, output, key and query matrices of width D + 1 or more could represent no more than whole
averages mu_h and merged key-query matrices A_h do. No mask, no normalisation, no positions, no
biases but the query's constant 1. Attention can do regression in the context; the MLP, which sees
query and averages together, can hold the pretraining tasks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError
from odekit.simulate.attention_loops import attend, attend_back
from odekit.simulate.layer import Floats, positive_number, real_array
from odekit.simulate.moments import checked_sequences
from odekit.simulate.record import whole_number
from odekit.simulate.streams import as_sequences
from odekit.simulate.tasks import Sequences

__all__ = [
    "RegressionBatch",
    "RegressionNetwork",
    "RegressionWork",
    "checked_batch",
    "loss_and_gradient",
    "predictions",
    "regression_gradient",
    "regression_prediction",
]

Integers = NDArray[np.int64]
_ROWS = 512  # sequences predicted at once: what a forward pass holds stays in the cache
# OpenBLAS starts threads above this many multiplications; for such small products they cost more
# than they bring, and much more where another process has the cores.
_SINGLE_THREAD = 2**18


@dataclass(frozen=True)
class RegressionNetwork:
    """Sizes of the network.

    Parameters
    ----------
    dim : int
        D, the width of a token without its label.
    heads : int
        H.
    hidden : int
        M, hidden units of the MLP; 0 leaves it out.
    scale : float
        s, by which tokens are multiplied; ``sqrt(D)`` gives tokens of covariance ``I/D`` entries
        of unit variance.
    """

    dim: int
    heads: int = 8
    hidden: int = 64
    scale: float = 1.0

    def __post_init__(self) -> None:
        for name, least in (("dim", 1), ("heads", 1), ("hidden", 0)):
            object.__setattr__(self, name, whole_number(getattr(self, name), name, least))
        object.__setattr__(self, "scale", positive_number(self.scale, "scale"))

    @property
    def features(self) -> int:
        """Entries of f."""
        return (self.heads + 1) * (self.dim + 1)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Weights' names and shapes, in the order of the flat vector.

        ``"A"`` (D+1, H, D+1), query's entries first; ``"W"`` (F, M), ``"w"`` (M,), ``"r"`` (F,).
        """
        E, F, M = self.dim + 1, self.features, self.hidden
        return {"A": (E, self.heads, E), "W": (F, M), "w": (M,), "r": (F,)}

    @property
    def size(self) -> int:
        """Number of weights."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def start(self, seed: int) -> Floats:
        """Draw weights N(0, 1/fan-in) as one flat vector; A has the fan-in (D+1)^2 of a score."""
        rng = np.random.default_rng(whole_number(seed, "seed", 0))
        fans = {"A": (self.dim + 1) ** 2, "W": self.features, "w": self.hidden, "r": self.features}
        return np.concatenate(
            [
                rng.standard_normal(math.prod(shape)) / math.sqrt(max(1, fans[name]))
                for name, shape in self.shapes.items()
            ]
        )

    def unpack(self, theta: Floats) -> dict[str, Floats]:
        """Views of a flat vector (..., n), by name."""
        views, at = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            views[name] = theta[..., at : at + size].reshape(*theta.shape[:-1], *shape)
            at += size
        return views


@dataclass(frozen=True, eq=False)
class RegressionBatch:
    """Sequences as the network reads them; rows can be taken by index."""

    context: Floats  # (B, D+1, l): one entry of all tokens in a row, for SIMD
    lengths: Integers
    query: Floats  # (B, D+1)
    target: Floats

    @classmethod
    def of(cls, net: RegressionNetwork, data: Sequences) -> RegressionBatch:
        """Scale tokens, append labels and the query's constant."""
        count, tokens, dim = data.x.shape
        if dim != net.dim:
            raise InputError(f"The sequences have D={dim}, the network has dim={net.dim}.")
        context = np.empty((count, dim + 1, tokens - 1))
        np.multiply(data.x[:, :-1].swapaxes(1, 2), net.scale, out=context[:, :-1])
        context[:, -1] = data.y[:, :-1]
        query = np.ones((count, dim + 1))
        np.multiply(data.x[:, -1], net.scale, out=query[:, :-1])
        lengths = np.ascontiguousarray(data.lengths, dtype=np.int64)
        return cls(context, lengths, query, np.ascontiguousarray(data.y[:, -1]))

    def __getitem__(self, rows: slice | Integers) -> RegressionBatch:
        return RegressionBatch(
            self.context[rows], self.lengths[rows], self.query[rows], self.target[rows]
        )


def checked_batch(net: RegressionNetwork, data: Any) -> RegressionBatch:
    """Return the batch for ``(x, y)`` or `Sequences` of a user's own making."""
    given = as_sequences(data)
    x, y, lengths = checked_sequences(given.x, given.y, given.lengths)
    return RegressionBatch.of(net, Sequences(x, y, lengths, given.in_context))


def _matmul(left: Floats, right: Floats, out: Floats) -> Floats:
    strip = max(1, _SINGLE_THREAD // max(1, right.size))
    for start in range(0, len(left), strip):
        rows = slice(start, start + strip)
        np.matmul(left[rows], right, out=out[rows])
    return out


class RegressionWork:
    """A forward pass and room for all that it and its derivative form."""

    def __init__(self, net: RegressionNetwork, count: int, tokens: int) -> None:
        E, H, F, M = net.dim + 1, net.heads, net.features, net.hidden
        self.net = net
        self.p = np.empty((count, H, tokens))
        self.mu, self.g_mu, self.g_a = (np.empty((count, H, E)) for _ in range(3))
        self.f, self.g_f = np.empty((count, F)), np.empty((count, F - E))
        self.gate, self.act, self.slope = (np.empty((count, M)) for _ in range(3))

    def forward(self, weights: Mapping[str, Floats], batch: RegressionBatch) -> Floats:
        """Predictions (B,)."""
        E = self.net.dim + 1
        a = (batch.query @ weights["A"].reshape(E, -1)).reshape(self.mu.shape)
        attend(batch.context, batch.lengths, a, self.p, self.mu)
        self.f[:, :E] = batch.query
        self.f[:, E:] = self.mu.reshape(len(self.mu), -1)
        pre = _matmul(self.f, weights["W"], self.slope)
        # 1/(1 + exp(-z)); by tanh, which cannot overflow.
        gate = np.multiply(pre, 0.5, out=self.gate)
        np.tanh(gate, out=gate)
        gate += 1.0
        gate *= 0.5
        np.multiply(pre, gate, out=self.act)
        return self.f @ weights["r"] + self.act @ weights["w"]

    def backward(
        self,
        weights: Mapping[str, Floats],
        batch: RegressionBatch,
        back: Floats,
        grad: Mapping[str, Floats],
    ) -> None:
        """Fill `grad` from the derivative `back` (B,) by the predictions of the last `forward`."""
        E = self.net.dim + 1
        np.matmul(back, self.f, out=grad["r"])
        np.matmul(back, self.act, out=grad["w"])
        # silu'(z) = g + z g (1 - g) with g the gate.
        slope = self.slope
        np.subtract(1.0, self.gate, out=slope)
        slope *= self.act
        slope += self.gate
        slope *= weights["w"]
        slope *= back[:, None]
        _matmul(self.f.T, slope, grad["W"])
        g_mu = self.g_mu.reshape(len(back), -1)
        np.multiply(back[:, None], weights["r"][E:], out=g_mu)
        g_mu += _matmul(slope, weights["W"][E:].T, self.g_f)
        attend_back(batch.context, batch.lengths, self.p, self.mu, self.g_mu, self.g_a)
        np.matmul(batch.query.T, self.g_a.reshape(len(back), -1), out=grad["A"].reshape(E, -1))


def _checked(net: RegressionNetwork, theta: ArrayLike) -> Floats:
    flat = real_array(theta, "theta")
    if flat.shape != (net.size,):
        raise InputError(f"theta has shape {flat.shape}, this network has ({net.size},) weights.")
    return flat


def predictions(
    net: RegressionNetwork, weights: Mapping[str, Floats], batch: RegressionBatch
) -> Floats:
    """Predictions (B,), a few hundred sequences at a time."""
    count, _, tokens = batch.context.shape
    out = np.empty(count)
    for start in range(0, count, _ROWS):
        rows = slice(start, min(count, start + _ROWS))
        out[rows] = RegressionWork(net, rows.stop - start, tokens).forward(weights, batch[rows])
    return out


def regression_prediction(net: RegressionNetwork, theta: ArrayLike, data: Any) -> Floats:
    """What the network answers to each query.

    Parameters
    ----------
    net : RegressionNetwork
    theta : array (n,)
        Flat weights, see `RegressionNetwork.unpack`.
    data : Sequences or (x, y)
        Tokens x (B, l+1, D) and labels y (B, l+1), the query last; its label is not read.

    Returns
    -------
    array (B,)
    """
    batch = checked_batch(net, data)
    return predictions(net, net.unpack(_checked(net, theta)), batch)


def regression_gradient(
    net: RegressionNetwork, theta: ArrayLike, data: Any
) -> tuple[float, Floats]:
    """Mean squared error, without 1/2, and its gradient.

    Parameters
    ----------
    net, theta, data
        As for `regression_prediction`; the query's label is the target.

    Returns
    -------
    loss : float
    gradient : array (n,)
    """
    flat = _checked(net, theta)
    batch = checked_batch(net, data)
    grad = np.empty_like(flat)
    work = RegressionWork(net, len(batch.target), batch.context.shape[2])
    return loss_and_gradient(work, net.unpack(flat), batch, net.unpack(grad)), grad


def loss_and_gradient(
    work: RegressionWork,
    weights: Mapping[str, Floats],
    batch: RegressionBatch,
    grad: Mapping[str, Floats],
) -> float:
    """Mean squared error of a batch; fills `grad`."""
    residual = work.forward(weights, batch)
    residual -= batch.target
    loss = float(residual @ residual) / len(residual)
    residual *= 2.0 / len(residual)
    work.backward(weights, batch, residual, grad)
    return loss
