"""Associative recall by an attention-only softmax network: in-context learning that emerges.

A sequence holds pairs (key, label) with distinct keys, and then one of the keys again; the answer
is that key's label. The mapping is fresh in every sequence, so that nothing can be learned but the
look-up: one layer must bind each label to its key, the next must find the key and read the label.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError
from odekit.simulate.network_run import NetworkRun
from odekit.simulate.record import configuration_of, steps_to_save, whole_number

__all__ = [
    "RecallNetwork",
    "RecallTask",
    "label_count_plateau",
    "recall_gradient",
    "recall_loss",
    "train_recall",
]

Floats = NDArray[np.float64]
Tokens = NDArray[np.int64]


@dataclass(frozen=True)
class RecallTask:
    """The law of a sequence.

    Parameters
    ----------
    pairs : int
        (key, label) pairs in a sequence, keys distinct.
    keys, labels : int
        Kinds of each. Tokens 0 to ``keys - 1`` are keys, the ``labels`` tokens after them labels.
    """

    pairs: int = 8
    keys: int = 16
    labels: int = 4

    def __post_init__(self) -> None:
        for name, least in (("pairs", 1), ("keys", 1), ("labels", 2)):
            whole_number(getattr(self, name), name, least)
        if self.pairs > self.keys:
            raise InputError(f"{self.pairs} pairs need as many distinct keys, got keys={self.keys}")

    @property
    def tokens(self) -> int:
        """Length of a sequence: the pairs and the query."""
        return 2 * self.pairs + 1

    @property
    def vocabulary(self) -> int:
        """Number of kinds of tokens."""
        return self.keys + self.labels

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
        """Draw sequences.

        Parameters
        ----------
        count : int
        rng : numpy.random.Generator

        Returns
        -------
        tokens : array (count, 2 pairs + 1) of int
        answer : array (count,) of int
            The token of the right label.
        """
        keys = np.argsort(rng.random((count, self.keys)), axis=1)[:, : self.pairs]
        labels = self.keys + rng.integers(self.labels, size=(count, self.pairs))
        asked = rng.integers(self.pairs, size=count)
        tokens = np.empty((count, self.tokens), dtype=np.int64)
        tokens[:, 0:-1:2], tokens[:, 1:-1:2] = keys, labels
        rows = np.arange(count)
        tokens[:, -1] = keys[rows, asked]
        return tokens, labels[rows, asked]


def label_count_plateau(task: RecallTask) -> tuple[float, float]:
    """Cross-entropy and accuracy of the best predictor that sees the labels but not whose they are.

    Given the counts ``n_c`` of the labels in the context, the answer is label c with probability
    ``n_c / pairs``. Summed over all counts with their multinomial weights.

    Parameters
    ----------
    task : RecallTask

    Returns
    -------
    cross_entropy : float
        In nats.
    accuracy : float
        Of the answer "the commonest label".
    """
    P, C = task.pairs, task.labels
    entropy, hits, total = 0.0, 0, C**P
    for multiset in combinations_with_replacement(range(C), P):
        counts = [multiset.count(c) for c in range(C)]
        weight = math.factorial(P) // math.prod(math.factorial(n) for n in counts)
        hits += weight * max(counts)
        entropy -= weight / total * sum(n / P * math.log(n / P) for n in counts if n)
    return entropy, hits / (total * P)


@dataclass(frozen=True)
class RecallNetwork:
    """Sizes of the network.

    Layers of causal softmax attention that add to the residual stream; learned absolute positions;
    no normalisation, no MLP. Scores are divided by ``sqrt(head width)``. One head a layer.

    Parameters
    ----------
    task : RecallTask
    layers : int
        2 can solve the task; 1 cannot bind a label to its key.
    dim : int
        Width d of the residual stream.
    width : int
        Width of the head.
    """

    task: RecallTask = RecallTask()
    layers: int = 2
    dim: int = 32
    width: int = 16

    def __post_init__(self) -> None:
        for name in ("layers", "dim", "width"):
            whole_number(getattr(self, name), name, 1)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Weights' names and shapes, in the order of the flat vector."""
        V, T, d, w = self.task.vocabulary, self.task.tokens, self.dim, self.width
        shapes: dict[str, tuple[int, ...]] = {"embedding": (V, d), "position": (T, d)}
        for layer in range(1, self.layers + 1):
            shapes |= {f"{name}{layer}": (d, w) for name in ("query", "key", "value")}
            shapes[f"output{layer}"] = (w, d)
        return shapes | {"unembedding": (d, V)}

    def start(self, seed: int) -> Floats:
        """Draw weights N(0, 1/fan-in), embeddings and positions N(0, 1/d), as one flat vector."""
        rng = np.random.default_rng(seed)
        parts = []
        for name, shape in self.shapes.items():
            fan = shape[1] if name in ("embedding", "position") else shape[0]
            parts.append(rng.standard_normal(shape).ravel() / np.sqrt(fan))
        return np.concatenate(parts)

    def unpack(self, theta: Floats) -> dict[str, Floats]:
        """Views of a flat vector (..., n), by name."""
        views, at = {}, 0
        for name, shape in self.shapes.items():
            size = math.prod(shape)
            views[name] = theta[..., at : at + size].reshape(*theta.shape[:-1], *shape)
            at += size
        return views


def _softmax(scores: Floats) -> Floats:
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    return scores


@dataclass
class _Layer:
    """What the backward pass needs of a layer's forward pass."""

    x: Floats  # (B, T, d)
    asking: Floats  # (B, S, d): the rows of x that attend, all of them or the last
    q: Floats
    k: Floats
    v: Floats
    p: Floats  # (B, S, T)
    mixed: Floats  # (B, S, w)


def _flat(array: Floats) -> Floats:
    return array.reshape(-1, array.shape[-1])


def _forward(
    net: RecallNetwork, weights: Mapping[str, Floats], tokens: Tokens
) -> tuple[Floats, Floats, list[_Layer]]:
    """Logits (B, V) at the query, the stream there (B, d), and each layer's intermediates."""
    T = net.task.tokens
    # The last layer's output is read at the query only; its other rows are never formed.
    hidden = np.where(np.tri(T, dtype=bool), 0.0, -np.inf)
    x = weights["embedding"][tokens] + weights["position"]
    kept = []
    for layer in range(1, net.layers + 1):
        last = layer == net.layers
        asking = x[:, -1:] if last else x
        k, v = x @ weights[f"key{layer}"], x @ weights[f"value{layer}"]
        q = asking @ weights[f"query{layer}"]
        scores = q @ k.swapaxes(1, 2) / math.sqrt(net.width)
        if not last:
            scores += hidden
        p = _softmax(scores)
        mixed = p @ v
        kept.append(_Layer(x, asking, q, k, v, p, mixed))
        x = asking + mixed @ weights[f"output{layer}"]
    end = x[:, 0]
    return end @ weights["unembedding"], end, kept


def _log_probabilities(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


def recall_loss(
    net: RecallNetwork, theta: Floats, tokens: Tokens, answer: Tokens
) -> tuple[float, float]:
    """Cross-entropy at the query and accuracy.

    Parameters
    ----------
    net : RecallNetwork
    theta : array (n,)
        Flat weights, see `RecallNetwork.unpack`.
    tokens : array (B, T) of int
    answer : array (B,) of int

    Returns
    -------
    cross_entropy : float
        Mean over sequences, in nats, over the whole vocabulary.
    accuracy : float
    """
    logits, _, _ = _forward(net, net.unpack(theta), tokens)
    logs = _log_probabilities(logits)
    right = logits.argmax(axis=1) == answer
    return -float(logs[np.arange(len(answer)), answer].mean()), float(right.mean())


def recall_gradient(
    net: RecallNetwork, theta: Floats, tokens: Tokens, answer: Tokens
) -> tuple[float, Floats]:
    """Cross-entropy at the query and its gradient.

    Parameters
    ----------
    net, theta, tokens, answer
        As for `recall_loss`.

    Returns
    -------
    cross_entropy : float
    gradient : array (n,)
    """
    weights = net.unpack(theta)
    flat = np.zeros_like(theta)
    grad = net.unpack(flat)
    logits, end, kept = _forward(net, weights, tokens)
    logs = _log_probabilities(logits)
    rows = np.arange(len(answer))
    loss = -float(logs[rows, answer].mean())
    g_logits = np.exp(logs)
    g_logits[rows, answer] -= 1.0
    g_logits /= len(answer)
    grad["unembedding"][...] = end.T @ g_logits
    g_out = (g_logits @ weights["unembedding"].T)[:, None, :]
    for layer in range(net.layers, 0, -1):
        g_out = _layer_back(net, layer, kept[layer - 1], weights, grad, g_out)
    grad["position"][...] = g_out.sum(axis=0)
    np.add.at(grad["embedding"], tokens.ravel(), _flat(g_out))
    return loss, flat


def _layer_back(
    net: RecallNetwork,
    layer: int,
    kept: _Layer,
    weights: Mapping[str, Floats],
    grad: Mapping[str, Floats],
    g_out: Floats,
) -> Floats:
    """Fill the layer's gradients; take that of its output (B, S, d) to that of its input."""
    names = {name: f"{name}{layer}" for name in ("query", "key", "value", "output")}
    grad[names["output"]][...] = _flat(kept.mixed).T @ _flat(g_out)
    g_mixed = g_out @ weights[names["output"]].T
    g_v = kept.p.swapaxes(1, 2) @ g_mixed
    g_p = g_mixed @ kept.v.swapaxes(1, 2)
    # Softmax: dL/ds = p (dL/dp - sum p dL/dp); hidden tokens have p = 0 and drop out.
    g_p -= (kept.p * g_p).sum(axis=-1, keepdims=True)
    g_s = kept.p * g_p / math.sqrt(net.width)
    g_q, g_k = g_s @ kept.k, g_s.swapaxes(1, 2) @ kept.q
    x = _flat(kept.x)
    grad[names["value"]][...] = x.T @ _flat(g_v)
    grad[names["key"]][...] = x.T @ _flat(g_k)
    grad[names["query"]][...] = _flat(kept.asking).T @ _flat(g_q)
    g_x = g_v @ weights[names["value"]].T + g_k @ weights[names["key"]].T
    g_asking = g_out + g_q @ weights[names["query"]].T
    # The rows that attend are the whole stream or its end.
    g_x[:, -g_asking.shape[1] :] += g_asking
    return g_x


def train_recall(
    net: RecallNetwork,
    *,
    seed: int,
    steps: int = 4000,
    batch: int = 64,
    optimiser: str = "adam",
    lr: float = 1e-3,
    save_at: NDArray[np.int64] | list[int] | None = None,
    test: int = 1024,
    progress: Callable[[int, float], None] | None = None,
) -> NetworkRun:
    """Train on fresh sequences, by Adam or by SGD with momentum .9.

    Parameters
    ----------
    net : RecallNetwork
    seed : int
        Of weights, training and test sequences, in streams of their own.
    steps, batch : int
    optimiser : {"adam", "heavy ball"}
        Adam with decay rates (.9, .99) and no weight decay, or heavy ball with momentum .9.
    lr : float
        1e-3 for Adam and .03 for the heavy ball are known to work.
    save_at : array of int, optional
        Steps to record; default every 25th.
    test : int
        Fresh sequences on which loss and accuracy are measured.
    progress : callable, optional
        Called with (step, test loss) at each record.

    Returns
    -------
    NetworkRun
        States are the weights; measures "loss" and "accuracy", both on the test sequences. The run
        ends early, with the last finite record, when the loss is no longer finite.
    """
    if optimiser not in ("adam", "heavy ball"):
        raise InputError(f'optimiser must be "adam" or "heavy ball", got {optimiser!r}.')
    if not lr > 0:
        raise InputError(f"lr must be positive, got {lr!r}.")
    steps, batch = whole_number(steps, "steps", 0), whole_number(batch, "batch", 1)
    default = np.unique(np.append(np.arange(0, steps, 25), steps))
    at = steps_to_save(default if save_at is None else save_at, steps)
    started = time.process_time()
    streams = np.random.SeedSequence(whole_number(seed, "seed", 0)).spawn(2)
    drawing, testing = (np.random.default_rng(stream) for stream in streams)
    probe = net.task.draw(whole_number(test, "test", 1), testing)
    theta = net.start(seed)
    first, second = np.zeros_like(theta), np.zeros_like(theta)
    kept: list[tuple[int, Floats, float, float]] = []
    due = set(at.tolist())
    for step in range(int(at[-1]) + 1):
        if step in due:
            loss, accuracy = recall_loss(net, theta, *probe)
            if not np.isfinite(loss):
                break
            kept.append((step, theta.copy(), loss, accuracy))
            if progress is not None:
                progress(step, loss)
        _, g = recall_gradient(net, theta, *net.task.draw(batch, drawing))
        if optimiser == "adam":
            first += 0.1 * (g - first)
            second += 0.01 * (g * g - second)
            # Bias corrections of both averages: Kingma and Ba, ICLR 2015.
            scale = math.sqrt(1 - 0.99 ** (step + 1)) / (1 - 0.9 ** (step + 1))
            theta -= lr * scale * first / (np.sqrt(second) + 1e-8)
        else:
            first *= 0.9
            first += g
            theta -= lr * first
    return NetworkRun(
        t=np.array([row[0] for row in kept]),
        states=net.unpack(np.array([row[1] for row in kept])),
        measures={
            "loss": np.array([row[2] for row in kept]),
            "accuracy": np.array([row[3] for row in kept]),
        },
        seconds=time.process_time() - started,
        configuration=configuration_of(
            "train_recall",
            network=asdict(net),
            seed=seed,
            steps=steps,
            batch=batch,
            optimiser=optimiser,
            lr=lr,
            test=test,
        ),
    )
