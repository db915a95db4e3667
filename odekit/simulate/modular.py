"""Addition modulo p by a quadratic two-layer network: generalisation long after memorisation.

The network sees a pair (a, b) as two one-hot vectors; its answer is a + b mod p. Trained on part of
the table of all pairs, it fits that part early and the rest late ("grokking").
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError
from odekit.simulate.layer import Floats, positive_number, real_array
from odekit.simulate.network_run import NetworkRun
from odekit.simulate.record import configuration_of, steps_to_save, whole_number

__all__ = [
    "AdditionTask",
    "PairSets",
    "addition_gradient",
    "addition_start",
    "fourier_concentration",
    "random_concentration",
    "train_addition",
]

Integers = NDArray[np.int64]
_CHOICES = ("heavy ball", "adamw")


@dataclass(frozen=True, eq=False)
class PairSets:
    """Training and test pairs (a, b) with their labels.

    Parameters
    ----------
    train, test : array (n, 2) of int
    train_labels, test_labels : array (n,) of int
    commuted : array (n_test,) of bool
        Whether the test pair (a, b) has (b, a) in the training set: half a give-away.
    """

    train: Integers
    train_labels: Integers
    test: Integers
    test_labels: Integers
    commuted: NDArray[np.bool_]


@dataclass(frozen=True)
class AdditionTask:
    """The table of a + b mod p, and which part of it is for training.

    Parameters
    ----------
    modulus : int
        p.
    fraction : float
        Of the p^2 ordered pairs, drawn without replacement.
    random_labels : bool
        Control: every entry of the table gets a uniformly random label, the same for training and
        for test, so that there is nothing to generalise to.
    """

    modulus: int = 31
    fraction: float = 0.5
    random_labels: bool = False

    def __post_init__(self) -> None:
        whole_number(self.modulus, "modulus", 3)
        if not 0 < self.fraction < 1:
            raise InputError(f"fraction must lie between 0 and 1, got {self.fraction!r}.")
        if not 1 <= int(self.fraction * self.modulus**2) < self.modulus**2:
            raise InputError("fraction leaves no pair for training; choose a larger one.")

    def draw(self, seed: int) -> PairSets:
        """Draw the split (and the random labels).

        Parameters
        ----------
        seed : int

        Returns
        -------
        PairSets
        """
        p, rng = self.modulus, np.random.default_rng(seed)
        a, b = np.divmod(np.arange(p * p), p)
        label = rng.integers(p, size=p * p) if self.random_labels else (a + b) % p
        order = rng.permutation(p * p)
        count = int(self.fraction * p * p)
        chosen = np.zeros(p * p, dtype=np.bool_)
        chosen[order[:count]] = True
        train, test = np.flatnonzero(chosen), np.flatnonzero(~chosen)
        pairs = np.stack([a, b], axis=1)
        return PairSets(
            train=pairs[train],
            train_labels=label[train],
            test=pairs[test],
            test_labels=label[test],
            commuted=chosen[b[test] * p + a[test]],
        )


def addition_start(modulus: int, width: int, seed: int, scale: float = 0.25) -> dict[str, Floats]:
    """Draw weights: W1 ~ scale N(0, 1) for both entries of the pair, W2 ~ N(0, 1)/sqrt(width).

    Parameters
    ----------
    modulus, width, seed : int
    scale : float

    Returns
    -------
    dict
        ``"W1"`` (2 p, width), rows 0 to p - 1 for a and p to 2 p - 1 for b; ``"W2"`` (width, p).
    """
    rng = np.random.default_rng(seed)
    return {
        "W1": scale * rng.standard_normal((2 * modulus, width)),
        "W2": rng.standard_normal((width, modulus)) / np.sqrt(width),
    }


def addition_gradient(
    state: dict[str, Floats], pairs: Integers, labels: Integers, loss: str = "mse"
) -> tuple[float, float, dict[str, Floats]]:
    """Loss, accuracy and gradient of ``f = (W1[a] + W1[p + b])^2 W2``.

    Parameters
    ----------
    state : dict
        See `addition_start`.
    pairs : array (n, 2) of int
    labels : array (n,) of int
    loss : {"mse", "cross-entropy"}
        Mean over pairs and outputs of the squared distance from the one-hot label, or mean
        cross-entropy over pairs, in nats.

    Returns
    -------
    loss, accuracy : float
    gradient : dict
        Like `state`.
    """
    batch = _Batch(state, pairs, labels, loss)
    value, accuracy = batch.forward(state)
    return value, accuracy, batch.backward(state)


class _Batch:
    """A set of pairs with room for all that a step forms: fresh arrays would cost most of it."""

    def __init__(
        self, state: dict[str, Floats], pairs: Integers, labels: Integers, loss: str
    ) -> None:
        if loss not in ("mse", "cross-entropy"):
            raise InputError(f'loss must be "mse" or "cross-entropy", got {loss!r}.')
        self.loss, self.labels = loss, labels
        rows, width = state["W1"].shape
        n, p = len(pairs), rows // 2
        self.columns = [np.ascontiguousarray(pairs[:, 0]), p + pairs[:, 1]]
        # A weight's gradient sums over the pairs that hold its residue: consecutive, once sorted.
        self.orders = [np.argsort(column, kind="stable") for column in self.columns]
        self.groups = [
            np.unique(column[order], return_index=True)
            for column, order in zip(self.columns, self.orders, strict=True)
        ]
        self.rows = np.arange(n)
        self.hidden, self.squared, self.work = (np.empty((n, width)) for _ in range(3))
        self.out = np.empty((n, p))
        self.right = np.zeros(n, dtype=np.bool_)  # which pairs were answered right, when measured
        self.grad = {name: np.zeros_like(value) for name, value in state.items()}

    def forward(self, state: dict[str, Floats], measured: bool = True) -> tuple[float, float]:
        """Loss and accuracy (NaN unless asked for); leaves the derivative by the outputs."""
        hidden, out, rows, labels = self.hidden, self.out, self.rows, self.labels
        np.take(state["W1"], self.columns[0], axis=0, out=hidden, mode="clip")
        np.take(state["W1"], self.columns[1], axis=0, out=self.work, mode="clip")
        hidden += self.work
        np.multiply(hidden, hidden, out=self.squared)
        np.matmul(self.squared, state["W2"], out=out)
        if measured:
            self.right = out.argmax(axis=1) == labels
        accuracy = float(self.right.mean()) if measured else math.nan
        if self.loss == "mse":
            out[rows, labels] -= 1.0
            value = float(np.vdot(out, out)) / out.size
            out *= 2.0 / out.size
            return value, accuracy
        out -= out.max(axis=1, keepdims=True)
        chosen = out[rows, labels]
        np.exp(out, out=out)
        total = out.sum(axis=1, keepdims=True)
        value = float((np.log(total[:, 0]) - chosen).mean())
        out /= total
        out[rows, labels] -= 1.0
        out /= len(labels)
        return value, accuracy

    def backward(self, state: dict[str, Floats]) -> dict[str, Floats]:
        """Gradient after `forward` at the same state, in arrays that the next call overwrites."""
        back = self.work
        np.matmul(self.squared.T, self.out, out=self.grad["W2"])
        np.matmul(self.out, state["W2"].T, out=back)
        back *= self.hidden
        back *= 2.0
        for order, (residues, starts) in zip(self.orders, self.groups, strict=True):
            np.take(back, order, axis=0, out=self.squared, mode="clip")
            self.grad["W1"][residues] = np.add.reduceat(self.squared, starts, axis=0)
        return self.grad


def train_addition(
    task: AdditionTask,
    *,
    seed: int,
    width: int = 96,
    scale: float = 0.25,
    optimiser: str = "heavy ball",
    lr: float | None = None,
    decay: float | None = None,
    loss: str | None = None,
    steps: int = 6000,
    save_at: ArrayLike | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> NetworkRun:
    """Train on the whole training set at every step.

    Parameters
    ----------
    task : AdditionTask
    seed : int
        Of the weights; the split has the same seed in a stream of its own.
    width : int
        Hidden units.
    scale : float
        Of the first layer's start.
    optimiser : {"heavy ball", "adamw"}
        Heavy ball with momentum .9 and no decay; or AdamW with rates (.9, .98).
    lr : float, optional
        Default 20 (heavy ball on the mean over outputs) or .01 (AdamW).
    decay : float, optional
        Decoupled weight decay of AdamW, default .5; a step multiplies weights by 1 - lr decay.
    loss : {"mse", "cross-entropy"}, optional
        Default "mse" for the heavy ball, "cross-entropy" for AdamW.
    steps : int
    save_at : array of int, optional
        Steps to record; default every 25th.
    progress : callable, optional
        Called with (step, training loss) at each record.

    Returns
    -------
    NetworkRun
        States ``W1``, ``W2``; measures "loss", "accuracy" (training), "test loss",
        "test accuracy", and the latter on "commuted" and "new" pairs apart. The run ends early,
        with the last finite record, when the loss is no longer finite.
    """
    if optimiser not in _CHOICES:
        raise InputError(f"optimiser must be one of {', '.join(_CHOICES)}, got {optimiser!r}.")
    ball = optimiser == "heavy ball"
    if ball and decay:
        raise InputError("The heavy ball here has no decay; choose optimiser='adamw'.")
    lr = positive_number((20.0 if ball else 0.01) if lr is None else lr, "lr")
    decay = (0.0 if ball else 0.5) if decay is None else float(decay)
    objective = loss or ("mse" if ball else "cross-entropy")
    seed, steps = whole_number(seed, "seed", 0), whole_number(steps, "steps", 0)
    default = np.unique(np.append(np.arange(0, steps, 25), steps))
    at = steps_to_save(default if save_at is None else save_at, steps)
    started = time.process_time()
    sets = task.draw(int(np.random.SeedSequence(seed).generate_state(1)[0]))
    state = addition_start(task.modulus, whole_number(width, "width", 1), seed, scale)
    training = _Batch(state, sets.train, sets.train_labels, objective)
    testing = _Batch(state, sets.test, sets.test_labels, objective)
    moved = {name: np.empty_like(value) for name, value in state.items()}
    first = {name: np.zeros_like(value) for name, value in state.items()}
    second = {name: np.zeros_like(value) for name, value in state.items()}
    due = set(at.tolist())
    kept: list[tuple[int, dict[str, Floats], dict[str, float]]] = []
    for step in range(int(at[-1]) + 1):
        value, accuracy = training.forward(state, measured=step in due)
        if not np.isfinite(value):
            break
        if step in due:
            measured = {"loss": value, "accuracy": accuracy, **_tested(state, testing, sets)}
            kept.append((step, {name: w.copy() for name, w in state.items()}, measured))
            if progress is not None:
                progress(step, value)
        for name, g in training.backward(state).items():
            if ball:
                first[name] *= 0.9
                first[name] += g
                state[name] -= np.multiply(first[name], lr, out=moved[name])
                continue
            first[name] += 0.1 * (g - first[name])
            second[name] += 0.02 * (g * g - second[name])
            # Bias corrections of both averages, and decay apart from the gradient:
            # Loshchilov and Hutter, ICLR 2019.
            unbiased = np.sqrt(second[name] / (1 - 0.98 ** (step + 1))) + 1e-8
            state[name] *= 1 - lr * decay
            state[name] -= lr / (1 - 0.9 ** (step + 1)) * first[name] / unbiased
    return NetworkRun(
        t=np.array([row[0] for row in kept]),
        states={name: np.stack([row[1][name] for row in kept]) for name in state},
        measures={name: np.array([row[2][name] for row in kept]) for name in kept[0][2]},
        seconds=time.process_time() - started,
        configuration=configuration_of(
            "train_addition",
            task=asdict(task),
            seed=seed,
            width=width,
            scale=scale,
            optimiser=optimiser,
            lr=lr,
            decay=decay,
            loss=objective,
            steps=steps,
        ),
    )


def _tested(state: dict[str, Floats], testing: _Batch, sets: PairSets) -> dict[str, float]:
    value, accuracy = testing.forward(state)
    parts = {"commuted": sets.commuted, "new": ~sets.commuted}
    return {
        "test loss": value,
        "test accuracy": accuracy,
        **{name: float(testing.right[part].mean()) for name, part in parts.items() if part.any()},
    }


def fourier_concentration(W: ArrayLike) -> Floats:  # noqa: N803
    """Largest share of a unit's embedding power that one frequency holds, averaged over units.

    Parameters
    ----------
    W : array (..., p, width)
        Embedding of the residues 0 to p - 1, p odd; leading axes are checkpoints. The mean over
        the residues, frequency 0, is left out.

    Returns
    -------
    array (...)
        Between 1/m and 1, m = (p - 1)/2 the number of frequencies.
    """
    table = real_array(W, "W")
    if table.ndim < 2 or table.shape[-2] < 3 or table.shape[-2] % 2 == 0:
        raise InputError(f"W must have shape (..., p, width) with p odd, got {table.shape}.")
    power = np.abs(np.fft.rfft(table, axis=-2)[..., 1:, :]) ** 2
    total = power.sum(axis=-2)
    share = np.divide(power.max(axis=-2), total, out=np.zeros_like(total), where=total > 0)
    return np.asarray(share.mean(axis=-1))


def random_concentration(modulus: int) -> float:
    """Expected `fourier_concentration` of Gaussian weights: H_m / m, H_m the harmonic number.

    The m powers of a Gaussian unit are independent exponentials, and the largest of m shares of
    their sum has this mean.

    Parameters
    ----------
    modulus : int
        p, odd.

    Returns
    -------
    float
    """
    p = whole_number(modulus, "modulus", 3)
    if p % 2 == 0:
        raise InputError(f"modulus must be odd, got {p}: an even one has a lone real frequency.")
    m = (p - 1) // 2
    return sum(1 / k for k in range(1, m + 1)) / m
