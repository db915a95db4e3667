"""Drive a training run block by block: record, checkpoint, and stop where it goes wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from odekit.simulate import loops
from odekit.simulate.layer import Floats
from odekit.simulate.record import Checkpoint
from odekit.solution import Status

__all__ = ["Log", "Trainer", "run"]

_CODES = {loops.NOT_A_NUMBER: Status.nan, loops.BLOWN_UP: Status.blow_up}
_CHECKPOINT_SECONDS = 5.0


@dataclass
class Log:
    """What a run leaves as it goes; the compiled loops write into its arrays."""

    at: NDArray[np.int64]
    states: Floats
    losses: Floats
    saved: NDArray[np.int64]
    memory: Floats
    ceiling: float

    @classmethod
    def empty(cls, at: NDArray[np.int64], size: int) -> Log:
        """Return a log for the steps to record."""
        return cls(
            at,
            np.empty((at.size, size)),
            np.empty(at.size),
            np.zeros(1, dtype=np.int64),
            np.array([np.nan]),
            np.inf,
        )


class Trainer(Protocol):
    """Steps of some model on some data."""

    def block(self, first: int) -> int:
        """Return the step after the last of the block that holds step `first`."""

    def lay_out(self, first: int, stop: int) -> Any:
        """Return the batches of steps first to stop - 1."""

    def advance(self, laid: Any, work: Sequence[Floats], span: NDArray[np.int64], log: Log) -> int:
        """Do the steps span[0] to span[1] - 1 in place; step span[2] only gives its loss."""


@dataclass(frozen=True)
class Outcome:
    """The recorded steps of a run and how it ended."""

    t: NDArray[np.int64]
    states: Floats
    loss: Floats
    status: Status
    step: int


def run(
    trainer: Trainer,
    theta: Floats,
    steps: int,
    at: NDArray[np.int64],
    checkpoint: Checkpoint,
    progress: Callable[[int, float], None] | None = None,
) -> Outcome:
    """Train for `steps` steps.

    Parameters
    ----------
    trainer : Trainer
    theta : array (n,)
        Start.
    steps : int
    at : array of int
        Steps to record.
    checkpoint : Checkpoint
        Read before the first step, written every few seconds and when interrupted.
    progress : callable, optional
        Called with (step, loss) after each block.
    """
    log = Log.empty(at, theta.size)
    work = [theta.copy(), np.zeros(theta.size), np.zeros(theta.size)]
    step, stored = 0, checkpoint.load()
    if stored is not None:
        step, work = _restore(stored, log)
    previous: tuple[int, list[Floats]] | None = None
    written, status = time.monotonic(), Status.success
    while step <= steps:
        stop = min(trainer.block(step), steps + 1)
        copy, kept = [array.copy() for array in work], (int(log.saved[0]), log.memory.copy())
        try:
            laid = trainer.lay_out(step, stop)
            if not np.isfinite(log.ceiling):
                log.ceiling = _bound(trainer, laid, copy, step)
            span = np.array([step, stop, steps])
            code = trainer.advance(laid, work, span, log)
        except KeyboardInterrupt:
            # Back to the block's start, whose random stream a resumed run draws again.
            work, status = copy, Status.interrupted
            log.saved[0], log.memory[0] = kept[0], kept[1][0]
            _write(checkpoint, step, work, log)
            break
        if code != loops.RUNNING:
            status, bad = _CODES[code], int(span[0])
            first, work = step, copy
            if bad == step and previous is not None:
                first, work = previous
            step = max(bad - 1, first)
            if step > first:
                again = trainer.lay_out(first, step)
                trainer.advance(again, work, np.array([first, step, steps]), log)
            break
        previous, step = (step, copy), stop
        if progress is not None:
            try:
                progress(min(step, steps), float(log.memory[0]))
            except KeyboardInterrupt:
                status, step = Status.interrupted, min(step, steps + 1)
                _write(checkpoint, step, work, log)
                break
        if time.monotonic() - written > _CHECKPOINT_SECONDS:
            _write(checkpoint, step, work, log)
            written = time.monotonic()
    if status is Status.success:
        step = steps
        _write(checkpoint, steps + 1, work, log)
    done = int(log.saved[0])
    t, states, losses = at[:done], log.states[:done], log.losses[:done]
    failed = status in (Status.nan, Status.blow_up)  # an interrupted run has no loss at its step
    if failed and (not done or t[-1] != step):
        t, states = np.append(t, step), np.vstack([states, work[0]])
        losses = np.append(losses, log.memory[0])
    return Outcome(t, states, losses, status, step)


def _bound(trainer: Trainer, laid: Any, work: Sequence[Floats], step: int) -> float:
    # Twelve decades above the first loss: no run comes back from there, and overflow is far.
    probe = Log.empty(np.zeros(0, dtype=np.int64), work[0].size)
    trainer.advance(laid, [a.copy() for a in work], np.array([step, step + 1, step]), probe)
    first = float(probe.memory[0])
    return 1e12 * (1.0 + abs(first)) if np.isfinite(first) else np.finfo(np.float64).max


def _restore(stored: dict[str, Any], log: Log) -> tuple[int, list[Floats]]:
    done = int(stored["saved"])
    log.saved[0], log.memory[0], log.ceiling = done, stored["loss"], float(stored["ceiling"])
    log.states[:done], log.losses[:done] = stored["states"], stored["losses"]
    return int(stored["step"]), [np.array(stored[name]) for name in ("theta", "first", "second")]


def _write(checkpoint: Checkpoint, step: int, work: Sequence[Floats], log: Log) -> None:
    done = int(log.saved[0])
    checkpoint.save(
        step=step,
        theta=work[0],
        first=work[1],
        second=work[2],
        saved=done,
        states=log.states[:done],
        losses=log.losses[:done],
        loss=log.memory[0],
        ceiling=log.ceiling,
    )
