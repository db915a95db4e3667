"""Mini-batch training on fresh or fixed sequences."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError
from odekit.simulate import loops
from odekit.simulate.blocks import Log, run
from odekit.simulate.layer import (
    Floats,
    Layer,
    checked_state,
    fixed_sizes,
    is_attention,
    layer_of,
)
from odekit.simulate.optimiser import Optimiser, as_optimiser, read_rate
from odekit.simulate.record import (
    Checkpoint,
    checked_progress,
    configuration_of,
    digest,
    solution_of,
    steps_to_save,
    whole_number,
)
from odekit.simulate.streams import (
    Batches,
    checked_batch,
    feature_batches,
    lane_batches,
    stream_of,
)
from odekit.solution import Solution

__all__ = ["sgd"]


def sgd(
    model_or_loss: Any,
    *,
    y0: Mapping[str, ArrayLike],
    params: Mapping[str, Any] | None = None,
    lr: float | Mapping[str, float],
    steps: int,
    batch: int | None = None,
    seed: int = 0,
    attention: str = "linear",
    optimiser: str | Optimiser = "sgd",
    data: Any = None,
    save_at: ArrayLike | None = None,
    normalise: bool = True,
    checkpoint: str | Path | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Solution:
    """Train by mini-batches on the mean squared error (no 1/2).

    Parameters
    ----------
    model_or_loss : Model or ExpectedLoss
        A merged or separate attention model, or any expected loss: then the loss's own Gaussian
        tensors are drawn, and the step follows the mean per-sample gradient.
    y0 : mapping
        State name to array: the weights at step 0.
    params : mapping
        Parameters of the law of fresh data: ``Lambda`` and ``N`` for attention.
    lr : float or mapping
        Learning rate, or one for each state by name.
    steps : int
    batch : int, optional
        Sequences a step; None with a fixed set takes all of it.
    seed : int
        Of the data: the same seed gives the same run, bit for bit, on the same machine.
    attention : {"linear", "softmax"}
        Softmax needs ``blocks="all"``: scores over all tokens, the query's included, no
        scaling, no residual.
    optimiser : str or Optimiser
        "sgd" and "gd" (plain), "heavy ball", "adamw".
    data : (x, y), Sequences or SequenceLaw, optional
        A fixed set, or the law of fresh sequences (noise, tasks, lengths, mixtures).
    save_at : array_like of int, optional
        Steps to record; default about 1000, the last included.
    normalise : bool
        Whether linear attention divides by the number of context tokens. Softmax has its own.
    checkpoint : path, optional
        Written as the run goes; the same call again goes on from it and ends the same.
    progress : callable, optional
        Called with (step, loss) between blocks of steps.

    Returns
    -------
    Solution
        ``.t`` counts steps; ``.loss[k]`` is the loss of the batch of step ``t[k]`` before that
        step, for a fixed set taken whole the training loss. A run whose loss is no longer
        finite ends with its last good state.

    Raises
    ------
    InputError
        For states, data or settings that do not fit the model.
    """
    rate = read_rate(lr, y0)
    if attention not in ("linear", "softmax"):
        raise InputError(f'attention must be "linear" or "softmax", got {attention!r}.')
    steps, seed = whole_number(steps, "steps", 0), whole_number(seed, "seed", 0)
    at = steps_to_save(save_at, steps)
    rule = as_optimiser(optimiser)
    batch = checked_batch(batch)
    checked_progress(progress)
    if params is not None and not isinstance(params, Mapping):
        raise InputError(f"params must map parameter names to values, got {params!r}.")
    if is_attention(model_or_loss):
        layer = layer_of(model_or_loss, y0)
        if attention == "softmax" and layer.blocks == "zero":
            raise InputError('Softmax attention uses the states of blocks="all".')
        context = fixed_sizes(model_or_loss).get("context")
        stream = stream_of(params, data, batch, seed, context)
        hyper = rule.hyper(rate.value, rate.scales(layer.pack, y0))
        trainer: Any = LayerTrainer(layer, stream, rule, hyper, attention, normalise)
        theta = layer.pack(checked_state(y0, layer.shapes))
        unpack = layer.unpack
    else:
        from odekit.simulate.derived import DerivedTrainer

        if attention == "softmax":
            raise InputError("Softmax attention is for the attention models only.")
        trainer = DerivedTrainer(model_or_loss, y0, params, batch, seed, rule, rate, data=data)
        theta, unpack = trainer.theta, trainer.unpack
    configuration = configuration_of(
        "sgd",
        model=str(getattr(model_or_loss, "name", type(model_or_loss).__name__)),
        lr=rate.given, steps=steps, batch=batch, seed=seed, attention=attention,
        normalise=normalise, optimiser=repr(rule), **trainer.describe(),
    )  # fmt: skip
    kept = Checkpoint.at(checkpoint, digest(configuration, theta, at))
    started = time.perf_counter()
    outcome = run(trainer, theta, steps, at, kept, progress)
    return solution_of(
        t=outcome.t,
        states=unpack(outcome.states),
        loss=outcome.loss,
        status=outcome.status,
        step=outcome.step,
        stats={
            "method": rule.name,
            "seconds": time.perf_counter() - started,
            "lr": rate.given,
            "configuration": configuration,
        },
        params=params,
        field=getattr(model_or_loss, "flow", None),
    )


class LayerTrainer:
    """Steps of one attention layer on the batches of a stream."""

    def __init__(
        self,
        layer: Layer,
        stream: Batches,
        rule: Optimiser,
        hyper: Floats,
        attention: str,
        normalise: bool,
    ) -> None:
        self.layer, self.stream, self.rule = layer, stream, rule
        self.attention, self.normalise = attention, normalise
        self.hyper = hyper
        self.whole: Any = None  # the laid-out batch of a fixed set that is taken whole

    def describe(self) -> dict[str, Any]:
        return {"layer": repr(self.layer), **self.stream.describe()}

    def block(self, first: int) -> int:
        return self.stream.block(first)

    def lay_out(self, first: int, stop: int) -> Any:
        if self.whole is not None:
            return self.whole
        drawn, order = self.stream.take(first, stop)
        if drawn.x.shape[2] != self.layer.dim:
            raise InputError(
                f"The data have D={drawn.x.shape[2]}, the weights in y0 have D={self.layer.dim}; "
                "they must be the same."
            )
        laid: Any
        if self.attention == "softmax":
            laid = lane_batches(drawn, order)
        else:
            laid = feature_batches(self.layer, drawn, order, self.normalise)
        if getattr(self.stream, "whole", False):
            self.whole = laid
        return laid

    def advance(
        self,
        laid: Any,
        work: Sequence[Floats],
        span: NDArray[np.int64],
        log: Log,
    ) -> int:
        """Do the steps span[0] to span[1] - 1 in place; step span[2] only gives its loss."""
        head: Any = (*self.layer.sizes, *work)
        tail: Any = (
            self.rule.code, self.hyper, span, log.at, log.saved, log.states, log.losses,
            log.ceiling, log.memory,
        )  # fmt: skip
        if self.attention == "softmax":
            X, target, weight, masked = laid
            train: Any = loops.train_softmax
            return int(train(*head, X, target, weight, self.stream.batch, masked, *tail))
        return int(loops.train_linear(*head, *laid, *tail))
