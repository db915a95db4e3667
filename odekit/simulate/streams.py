"""Where mini-batches come from: fresh sequences of a law, or a fixed set, step by step.

Steps are drawn in blocks of a fixed length, each block from its own random stream keyed by
(seed, block): a run that is resumed at a block's start sees the very same batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError
from odekit.simulate import loops
from odekit.simulate.layer import Floats, Layer
from odekit.simulate.moments import attention_features, checked_sequences
from odekit.simulate.population import Population
from odekit.simulate.record import digest, whole_number
from odekit.simulate.tasks import SequenceLaw, Sequences

__all__ = ["Batches", "Fixed", "Fresh", "feature_batches", "lane_batches", "stream_of"]

_BLOCK_NUMBERS = 200_000  # floats of sequences drawn at once: 1.6 MB stay in the cache
_BLOCK_STEPS = 256


class Batches(Protocol):
    """Sequences for the steps of a run."""

    batch: int

    def block(self, first: int) -> int:
        """Return the step after the last of the block that holds step `first`."""

    def take(self, first: int, stop: int) -> tuple[Sequences, NDArray[np.int64]]:
        """Return sequences and their positions (S, batch) for steps first to stop - 1."""

    def describe(self) -> dict[str, Any]:
        """Return what the configuration records."""


class Fresh:
    """New sequences for every step."""

    def __init__(
        self, law: SequenceLaw, batch: int, seed: int, at_once: int = _BLOCK_NUMBERS
    ) -> None:
        self.law, self.batch, self.seed = law, batch, seed
        tokens = max(law.context) + 1  # type: ignore[arg-type]
        numbers = batch * tokens * (law.dim + 1)
        self.length = max(1, min(_BLOCK_STEPS, at_once // numbers))

    def block(self, first: int) -> int:
        """Return the step after the last of the block that holds step `first`."""
        return (first // self.length + 1) * self.length

    def take(self, first: int, stop: int) -> tuple[Sequences, NDArray[np.int64]]:
        """Return sequences and their positions (S, batch) for steps first to stop - 1."""
        block = first // self.length
        start = first - block * self.length
        # The whole block is drawn even when a part is asked for: the numbers must not depend on it.
        drawn = self.law.draw(self.length * self.batch, np.random.default_rng([self.seed, block]))
        count = stop - first
        order = start * self.batch + np.arange(count * self.batch, dtype=np.int64)
        return drawn, order.reshape(count, self.batch)

    def describe(self) -> dict[str, Any]:
        """Return what the configuration records."""
        law = self.law
        arrays = [np.asarray(v) for v in (law.covariance, law.task)]
        fixed = None if law.fixed is None else np.asarray(law.fixed)
        pool = () if law.pool is None else (np.asarray(law.pool),)
        return {
            "data": "fresh sequences",
            "law": digest(*arrays, fixed if fixed is not None else "none", law.context, law.noise,
                          law.noisy_query, law.in_context, *pool),
        }  # fmt: skip


class Fixed:
    """A fixed set: whole at every step, or in mini-batches without replacement in each epoch."""

    def __init__(self, data: Sequences, batch: int | None, seed: int) -> None:
        self.data, self.seed = data, seed
        self.whole = batch is None or batch == len(data)
        self.batch = len(data) if batch is None else batch
        if self.batch > len(data):
            raise InputError(
                f"batch is {batch}, but the data set has {len(data)} sequences; "
                "take at most that, or None for all."
            )
        self.epoch = len(data) // self.batch

    def block(self, first: int) -> int:
        """Return the step after the last of the block that holds step `first`."""
        if self.whole:
            return first + _BLOCK_STEPS
        numbers = self.batch * self.data.x[0].size
        length = max(1, min(_BLOCK_STEPS, _BLOCK_NUMBERS // numbers))
        return min((first // self.epoch + 1) * self.epoch, first + length)

    def take(self, first: int, stop: int) -> tuple[Sequences, NDArray[np.int64]]:
        """Return sequences and their positions (S, batch) for steps first to stop - 1."""
        if self.whole:
            return self.data, np.arange(self.batch, dtype=np.int64)[None]
        epoch = first // self.epoch
        order = np.random.default_rng([self.seed, epoch]).permutation(len(self.data))
        start = first - epoch * self.epoch
        count = stop - first
        order = order[start * self.batch : (start + count) * self.batch]
        return self.data, order.reshape(count, self.batch)

    def describe(self) -> dict[str, Any]:
        """Return what the configuration records."""
        return {
            "data": f"fixed set of {len(self.data)} sequences",
            "law": digest(self.data.x, self.data.y, self.data.lengths),
        }


def stream_of(
    params: Mapping[str, Any] | None,
    data: Any,
    batch: int | None,
    seed: int,
    context: int | None = None,
) -> Fresh | Fixed:
    """Return the batches for `sgd`'s arguments."""
    if data is None:
        if params is None:
            raise InputError("Give params (Lambda, N) to draw sequences, or data= for a fixed set.")
        named = {str(name): value for name, value in params.items()}
        if context is not None and int(named.setdefault("N", context)) != context:
            raise InputError(f"The model has N={context}, params have N={named['N']}.")
        if set(named) != {"Lambda", "N"}:
            raise InputError(
                f"params of an attention model are Lambda and N, got {', '.join(named) or 'none'}; "
                "for noise, tasks or lengths pass data=SequenceLaw(...)."
            )
        data = SequenceLaw(covariance=named["Lambda"], context=named["N"])
    if isinstance(data, Population):
        return stream_of(data.params, None, batch, seed, context)
    if isinstance(data, SequenceLaw):
        if batch is None:
            raise InputError("batch is needed when every step draws fresh sequences.")
        return Fresh(data, batch, seed)
    return Fixed(as_sequences(data), batch, seed)


def as_sequences(data: Any) -> Sequences:
    """Return checked sequences for ``(x, y)`` or `Sequences`."""
    if isinstance(data, Sequences):
        return data
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise InputError(
            f"data must be (x, y), Sequences or a SequenceLaw, got {type(data).__name__}."
        )
    x, y, lengths = checked_sequences(data[0], data[1])
    return Sequences(x, y, lengths, np.ones(len(x), dtype=np.bool_))


def feature_batches(
    layer: Layer, drawn: Sequences, order: NDArray[np.int64], normalise: bool
) -> tuple[Floats, Floats]:
    """Features (S, B, F) and targets (S, B) of batches."""
    rows = order.ravel()
    whole = rows.size == len(drawn) and bool((rows == np.arange(rows.size)).all())
    x, y, n = drawn.x, drawn.y, drawn.lengths
    if not whole:
        x, y, n = x[rows], y[rows], n[rows]
    z = attention_features(x, y, n, layer.kind, normalise)
    return z.reshape(*order.shape, -1), np.ascontiguousarray(y[:, -1]).reshape(order.shape)


def lane_batches(drawn: Sequences, order: NDArray[np.int64]) -> tuple[Floats, Floats, Floats, bool]:
    """Lay batches out for the softmax loop: X, targets, weights, and whether lengths differ."""
    count, batch = order.shape
    tokens, dim = drawn.x.shape[1:]
    lanes = min(64, -(-batch // 8) * 8)
    blocks = -(-batch // lanes)
    shape = (count, blocks, tokens, dim + 2, lanes)
    X = _aligned(shape)
    target, weight = np.empty((count, blocks, lanes)), np.empty((count, blocks, lanes))
    for s in range(count):
        loops.pack_lanes(
            drawn.x, drawn.y, drawn.lengths, order[s], lanes, X[s], target[s], weight[s]
        )
    return X, target, weight, bool(drawn.lengths.min() < tokens - 1)


def _aligned(shape: tuple[int, ...]) -> Floats:
    # Rows of 8 k numbers on 64-byte borders: no SIMD load crosses a cache line.
    size = int(np.prod(shape))
    raw = np.empty(size + 8)
    start = (-raw.ctypes.data // 8) % 8
    return raw[start : start + size].reshape(shape)


def checked_batch(batch: Any) -> int | None:
    """Return the batch size, or None for the whole set."""
    return None if batch is None else whole_number(batch, "batch", 1)
