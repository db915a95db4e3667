"""Training of the network of `odekit.simulate.regression`, on a law or on a set of sequences."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from odekit.errors import InputError, SolveError
from odekit.simulate.layer import Floats, positive_number
from odekit.simulate.loops import advance
from odekit.simulate.network_run import NetworkRun
from odekit.simulate.optimiser import Optimiser, as_optimiser
from odekit.simulate.record import configuration_of, steps_to_save, whole_number
from odekit.simulate.regression import (
    RegressionBatch,
    RegressionNetwork,
    RegressionWork,
    checked_batch,
    loss_and_gradient,
    predictions,
)
from odekit.simulate.streams import Fixed, Fresh, as_sequences
from odekit.simulate.tasks import SequenceLaw, Sequences

__all__ = ["train_regression"]

_SCHEDULES = ("constant", "linear")
_NUMBERS_AT_ONCE = 30_000


def train_regression(
    net: RegressionNetwork,
    data: SequenceLaw | Sequences | tuple[ArrayLike, ArrayLike],
    *,
    seed: int,
    tests: Mapping[str, Sequences] | None = None,
    steps: int = 4000,
    batch: int | None = 128,
    optimiser: str | Optimiser = "adamw",
    lr: float = 3e-3,
    schedule: str = "linear",
    save_at: ArrayLike | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> NetworkRun:
    """Train on fresh sequences of a law, or over and over on a fixed set.

    Parameters
    ----------
    net : RegressionNetwork
    data : SequenceLaw, Sequences or (x, y)
        A law draws fresh sequences for every step; give it ``pool=`` for a pool of tasks. A set is
        gone through in epochs, without replacement.
    seed : int
        Of weights and of the sequences' draw or order, in streams of their own.
    tests : mapping of str to Sequences, optional
        Sets on which the mean squared error is measured, by the name of the measure.
    steps : int
    batch : int or None
        Sequences in a step; None takes a whole fixed set.
    optimiser : str or Optimiser
        Default AdamW with rates (.9, .999) and decay .01.
    lr : float
    schedule : {"linear", "constant"}
        Whether the learning rate falls linearly, to ``lr/steps`` at the last step.
    save_at : array of int, optional
        Steps to record; default ten evenly spaced ones and the end.
    progress : callable, optional
        Called with (step, training loss) at each record.

    Returns
    -------
    NetworkRun
        States are the weights; measures "loss" (mean squared error on the step's batch) and one
        for each test set. The same seed gives the same run, bit for bit, on the same machine. The
        run ends early, with the last finite record, when the loss is no longer finite.

    Raises
    ------
    SolveError
        If the loss is not finite before the first record.
    """
    if schedule not in _SCHEDULES:
        raise InputError(f"schedule must be one of {', '.join(_SCHEDULES)}, got {schedule!r}.")
    lr, rule = positive_number(lr, "lr"), as_optimiser(optimiser)
    seed, steps = whole_number(seed, "seed", 0), whole_number(steps, "steps", 0)
    count = None if batch is None else whole_number(batch, "batch", 1)
    default = np.linspace(0, steps, min(steps, 10) + 1).round()
    at = steps_to_save(default if save_at is None else save_at, steps)
    probes = {name: checked_batch(net, test) for name, test in (tests or {}).items()}
    if "loss" in probes:
        raise InputError(
            '"loss" is the measure on the training batch; name the test set otherwise.'
        )
    started = time.process_time()
    stream = _stream(data, count, int(np.random.SeedSequence(seed).generate_state(1)[0]))
    theta = net.start(seed)
    grad, first, second = (np.zeros_like(theta) for _ in range(3))
    weights, slopes = net.unpack(theta), net.unpack(grad)
    hyper = rule.hyper(lr)
    work: RegressionWork | None = None
    kept: list[tuple[int, Floats, dict[str, float]]] = []
    due = set(at.tolist())
    for step, now in enumerate(_batches(net, stream, int(at[-1]) + 1)):
        if work is None:
            work = RegressionWork(net, len(now.target), now.context.shape[2])
        with np.errstate(over="ignore", invalid="ignore"):  # the run stops where they appear
            loss = loss_and_gradient(work, weights, now, slopes)
        if not np.isfinite(loss):
            if not kept:
                raise SolveError(
                    f"The loss is not finite at step {step}, before the first record; lower lr, or "
                    "record earlier steps."
                )
            break
        if step in due:
            errors = {name: _error(net, weights, probe) for name, probe in probes.items()}
            kept.append((step, theta.copy(), {"loss": loss, **errors}))
            if progress is not None:
                progress(step, loss)
        if schedule == "linear":
            hyper[0] = lr * (1.0 - step / max(steps, 1))
        advance(rule.code, hyper, step, theta, grad, first, second)
    return NetworkRun(
        t=np.array([row[0] for row in kept]),
        states=net.unpack(np.array([row[1] for row in kept])),
        measures={name: np.array([row[2][name] for row in kept]) for name in ("loss", *probes)},
        seconds=time.process_time() - started,
        configuration=configuration_of(
            "train_regression",
            network=asdict(net),
            seed=seed,
            steps=steps,
            batch=stream.batch,
            optimiser=repr(rule),
            lr=lr,
            schedule=schedule,
            **stream.describe(),
        ),
    )


def _error(net: RegressionNetwork, weights: Mapping[str, Floats], test: RegressionBatch) -> float:
    return float(np.mean((predictions(net, weights, test) - test.target) ** 2))


def _stream(data: Any, batch: int | None, seed: int) -> Fresh | Fixed:
    if not isinstance(data, SequenceLaw):
        return Fixed(as_sequences(data), batch, seed)
    if batch is None:
        raise InputError("batch is needed when every step draws fresh sequences.")
    # Blocks of a few steps: larger ones cost more in fresh pages of memory than in calls.
    return Fresh(data, batch, seed, at_once=_NUMBERS_AT_ONCE)


def _batches(
    net: RegressionNetwork, stream: Fresh | Fixed, count: int
) -> Iterator[RegressionBatch]:
    """Batches for the steps 0 to count - 1."""
    held = checked_batch(net, stream.data) if isinstance(stream, Fixed) else None
    step = 0
    while step < count:
        stop = min(stream.block(step), count)
        drawn, order = stream.take(step, stop)
        laid = RegressionBatch.of(net, drawn) if held is None else held
        whole = isinstance(stream, Fixed) and stream.whole
        for k in range(stop - step):
            yield laid if whole else laid[order[k]]
        step = stop
