"""Mini-batch training of any derived loss: its own Gaussian tensors are drawn.

The per-sample loss is `scale * |target - prediction|^2`; its gradient is taken by the tensor
layer, so a model that a user derived needs no code here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError
from odekit.field.losses import ExpectedLoss
from odekit.gaussian import sample
from odekit.simulate import loops
from odekit.simulate.batch_loss import BatchGradient
from odekit.simulate.blocks import Log
from odekit.simulate.layer import Floats, checked_state
from odekit.simulate.optimiser import LearningRate, Optimiser
from odekit.simulate.record import digest
from odekit.tensor import Tensor, TensorExpr
from odekit.tensor.evaluation import Bindings, match_sizes

__all__ = ["DerivedTrainer", "sample_gradient"]

_BLOCK_NUMBERS = 2_000_000
_BLOCK_STEPS = 64


class DerivedTrainer:
    """Steps of a derived loss on draws of its Gaussian tensors."""

    def __init__(
        self,
        model: Any,
        y0: Mapping[str, ArrayLike],
        params: Mapping[str, Any] | None,
        batch: int | None,
        seed: int,
        rule: Optimiser,
        rate: LearningRate,
        *,
        data: Any = None,
    ) -> None:
        loss = model if isinstance(model, ExpectedLoss) else getattr(model, "loss", None)
        if not isinstance(loss, ExpectedLoss) or not loss.samples:
            name = getattr(model, "name", type(model).__name__)
            raise InputError(
                f"{name} has no expected loss to draw samples of; nothing to train on."
            )
        if isinstance(data, Mapping):
            self.data: dict[str, Floats] | None = {
                str(name): np.asarray(value, dtype=np.float64) for name, value in data.items()
            }
        elif data is None:
            self.data = None
        else:
            raise InputError(
                "data of a derived loss maps each Gaussian tensor's name to draws (P, *shape), "
                f"got {type(data).__name__}."
            )
        self.loss, self.seed, self.rule = loss, seed, rule
        self.params = {str(name): value for name, value in (params or {}).items()}
        self.weights = _weights(model, loss)
        self.random = _random(loss)
        self.gradient = _gradient_of(loss, self.weights)
        self.held: dict[str, Floats] | None = None  # what the steps need of a fixed set
        self.shapes = {w.name: np.shape(y0[w.name]) for w in self.weights if w.name in y0}
        arrays = checked_state(y0, self.shapes | {w.name: () for w in self.weights
                                                  if w.name not in self.shapes})  # fmt: skip
        self.theta = self.pack(arrays)
        self.hyper = rule.hyper(rate.value, rate.scales(self.pack, arrays))
        # Sizes that only the arrays tell are needed to draw the data.
        known = [t for t in loss.expression.tensors(deep=True) if t.kind == "parameter"]
        self.sizes = _read_sizes(self.weights, arrays, self.params, known)
        if self.data is None and batch is None:
            raise InputError("batch is needed when every step draws fresh samples.")
        if self.data is not None:
            missing = [g.name for g in self.random if g.name not in self.data]
            if missing:
                raise InputError(f"data lacks the Gaussian tensors {', '.join(missing)}.")
            self.count = len(self.data[self.random[0].name])
            batch = self.count if batch is None else batch
            if batch > self.count:
                raise InputError(f"batch is {batch}, but the data have {self.count} draws.")
        assert batch is not None
        self.batch = batch
        numbers = batch * sum(_numbers(g, self.sizes) for g in self.random)
        self.length = max(1, min(_BLOCK_STEPS, _BLOCK_NUMBERS // max(numbers, 1)))

    def describe(self) -> dict[str, Any]:
        """Return what the configuration records."""
        params = {k: np.asarray(v).tolist() for k, v in sorted(self.params.items())}
        fixed = None if self.data is None else digest(*(self.data[k] for k in sorted(self.data)))
        return {
            "loss": str(self.loss.expression),
            "data": "fresh samples" if fixed is None else f"fixed samples {fixed}",
            "params": params,
        }

    def pack(self, arrays: Mapping[str, Floats]) -> Floats:
        """Flatten named states to one vector (n,)."""
        return np.concatenate([arrays[w.name].ravel() for w in self.weights])

    def unpack(self, flat: Floats) -> dict[str, Floats]:
        """Name the parts of flat states (..., n)."""
        out, start = {}, 0
        for name in (w.name for w in self.weights):
            shape = self.shapes[name]
            stop = start + prod(shape)
            out[name] = flat[..., start:stop].reshape(*flat.shape[:-1], *shape)
            start = stop
        return out

    def block(self, first: int) -> int:
        """Return the step after the last of the block that holds step `first`."""
        return (first // self.length + 1) * self.length

    def lay_out(self, first: int, stop: int) -> list[dict[str, Floats]]:
        """Return the draws of steps first to stop - 1, one mapping a step."""
        block = first // self.length
        rng = np.random.default_rng([self.seed, block])
        start = first - block * self.length
        if self.data is not None:
            if self.held is None:
                self.held = self._prepared(self.data)
            if self.batch == self.count:
                return [self.held] * (stop - first)
            rows = [rng.choice(self.count, self.batch, replace=False) for _ in range(self.length)]
            return [
                {name: array[rows[start + i]] for name, array in self.held.items()}
                for i in range(stop - first)
            ]
        values = {**self.sizes, **self.params}
        drawn = sample(self.random, values, size=self.length * self.batch, seed=rng)
        drawn = self._prepared(drawn)
        B = self.batch
        return [
            {name: array[(start + i) * B : (start + i + 1) * B] for name, array in drawn.items()}
            for i in range(stop - first)
        ]

    def _prepared(self, draws: Mapping[str, Floats]) -> dict[str, Floats]:
        if isinstance(self.gradient, BatchGradient):
            return self.gradient.features(draws, {**self.sizes, **self.params})
        return dict(draws)

    def advance(self, laid: Any, work: Sequence[Floats], span: NDArray[np.int64], log: Log) -> int:
        """Do the steps span[0] to span[1] - 1 in place; step span[2] only gives its loss."""
        theta, first, second = work
        start = int(span[0])
        for step in range(start, int(span[1])):
            with np.errstate(over="ignore", invalid="ignore"):
                loss, grad = self._evaluate(theta, laid[step - start])
            if not loss <= log.ceiling:
                span[0] = step
                return loops.BLOWN_UP if loss > log.ceiling else loops.NOT_A_NUMBER
            log.memory[0] = loss
            loops.record(step, loss, theta, log.at, log.saved, log.states, log.losses)
            if step < span[2]:
                loops.advance(self.rule.code, self.hyper, step, theta, grad, first, second)
        return loops.RUNNING

    def _evaluate(self, theta: Floats, draws: Mapping[str, Floats]) -> tuple[float, Floats]:
        if not np.isfinite(theta).all():
            return float("nan"), theta
        loss, parts = self.gradient(self.unpack(theta), draws, {**self.sizes, **self.params})
        return loss, np.concatenate([parts[w.name].ravel() for w in self.weights])


def _gradient_of(loss: ExpectedLoss, weights: Sequence[Tensor]) -> BatchGradient | SampleGradient:
    try:
        return BatchGradient(loss, weights)
    except InputError:  # a form that cannot be given a batch axis: ten times slower, never wrong
        return SampleGradient(loss, weights)


class SampleGradient:
    """Mean per-sample loss and its gradient on a batch of draws, term by term.

    Slower than `BatchGradient`, and independent of it.
    """

    def __init__(self, loss: ExpectedLoss, weights: Sequence[Tensor]) -> None:
        self.weights = tuple(weights)
        self.parts = []
        for part in loss.samples:
            residual = part.prediction - part.target
            slopes = {w: residual.diff(w) for w in self.weights if w in residual.tensors(deep=True)}
            self.parts.append((residual, part.scale, slopes))
        self.penalty = loss.penalty
        self.decay = {
            w: loss.penalty.diff(w)
            for w in self.weights
            if not loss.penalty.is_zero and w in loss.penalty.tensors(deep=True)
        }
        expressions = [self.penalty, *self.decay.values()]
        for residual, scale, slopes in self.parts:
            expressions += [residual, scale, *slopes.values()]
        self.tensors = sorted(
            {t for e in expressions for t in e.tensors(deep=True)}, key=lambda t: t.order
        )
        self.symbols = sorted({s for e in expressions for s in e.symbols(deep=True)}, key=str)
        self.random = [t for t in self.tensors if t.kind == "gaussian"]

    def __call__(
        self,
        state: Mapping[str, Floats],
        draws: Mapping[str, Floats],
        params: Mapping[str, Any],
    ) -> tuple[float, dict[str, Floats]]:
        """Return the mean loss over the draws and its gradient by weight name."""
        bindings = Bindings(
            self.tensors, self.symbols, {**params, **state, **draws},
            batched=[t.name for t in self.random],
        )  # fmt: skip
        gradient = {w.name: np.zeros_like(state[w.name]) for w in self.weights}
        total = 0.0
        for residual, scale, slopes in self.parts:
            r = _batched(bindings, residual)
            factor = float(bindings.evaluate(scale)) / len(r)
            flat = r.reshape(r.size)
            total += factor * float(flat @ flat)
            for w, slope in slopes.items():
                rows = _batched(bindings, slope)
                rows = np.broadcast_to(rows, (len(r), *rows.shape[1:]))
                shape = gradient[w.name].shape
                gradient[w.name] += (2 * factor * (flat @ rows.reshape(flat.size, -1))).reshape(
                    shape
                )
        if not self.penalty.is_zero:
            total += float(bindings.evaluate(self.penalty))
            for w, slope in self.decay.items():
                gradient[w.name] += bindings.evaluate(slope)
        return total, gradient


def sample_gradient(
    loss: ExpectedLoss,
    state: Mapping[str, ArrayLike],
    draws: Mapping[str, ArrayLike],
    params: Mapping[str, Any] | None = None,
) -> tuple[float, dict[str, Floats]]:
    """Mean per-sample loss over given draws, and its gradient.

    Parameters
    ----------
    loss : ExpectedLoss
    state : mapping
        Weight name to array.
    draws : mapping
        Name of each Gaussian tensor to draws ``(B, *shape)``, as `odekit.sample` returns them.
    params : mapping, optional

    Returns
    -------
    loss : float
    gradient : dict
        Weight name to array.
    """
    arrays = {str(name): np.asarray(value, dtype=np.float64) for name, value in state.items()}
    batch = {str(name): np.asarray(value, dtype=np.float64) for name, value in draws.items()}
    return SampleGradient(loss, loss.weights)(arrays, batch, dict(params or {}))


def _batched(bindings: Bindings, expression: TensorExpr) -> Floats:
    value = bindings.evaluate(expression)
    if any(bindings.is_batched(t) for t in expression.tensors()):
        return value
    return np.asarray(value)[None]


def _weights(model: Any, loss: ExpectedLoss) -> tuple[Tensor, ...]:
    declared = getattr(model, "weights", None)
    return tuple(declared) if declared else loss.weights


def _random(loss: ExpectedLoss) -> list[Any]:
    found = {
        t
        for part in loss.samples
        for e in (part.prediction, part.target)
        for t in e.tensors(deep=True)
        if t.kind == "gaussian"
    }
    return sorted(found, key=lambda t: t.order)


def _read_sizes(
    weights: Sequence[Tensor],
    arrays: Mapping[str, Floats],
    params: Mapping[str, Any],
    parameters: Sequence[Tensor],
) -> dict[str, float]:
    sizes: dict[Any, Any] = {}
    for w in weights:
        match_sizes(w.shape, arrays[w.name].shape, w.name, sizes)
    for p in parameters:
        if np.ndim(params.get(p.name, 0.0)) == p.rank:
            match_sizes(p.shape, np.shape(params.get(p.name, 0.0)), p.name, sizes)
    named = {str(symbol): float(number) for symbol, number in sizes.items()}
    for name, value in params.items():
        if np.ndim(value) == 0:
            number = float(value)
            if named.setdefault(name, number) != number:
                raise InputError(f"{name} is {number:g}, but the arrays say {named[name]:g}.")
    return named


def _numbers(tensor: Any, sizes: Mapping[str, float]) -> int:
    total = 1
    for size in tensor.shape:
        known = size.subs({s: sizes[str(s)] for s in size.free_symbols if str(s) in sizes})
        if not known.is_number:
            raise InputError(f"The size {known} of {tensor.name} is unknown; pass it in params.")
        total *= int(known)
    return total
