"""Drive exact gradient descent: long compiled stretches, checkpoints, and what goes wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from odekit.simulate import loops
from odekit.simulate.edge import WINDOWS, report_edge
from odekit.simulate.layer import Floats
from odekit.simulate.record import Checkpoint
from odekit.solution import Status

__all__ = ["Descent", "Outcome", "Work", "aligned", "run"]

# Steps between two returns to Python: an interrupt waits this long at most.
_CALL_STEPS = 800 * loops.KEPT_EVERY
_GAP = 50  # rises of the loss closer than this many steps are one window
_CODES = {loops.NOT_A_NUMBER: Status.nan, loops.BLOWN_UP: Status.blow_up}
_CHECKPOINT_SECONDS = 5.0


def aligned(array: Floats, offset: int = 0) -> Floats:
    """Return a copy whose flat entry `offset` lies on a 64-byte border.

    Rows of whole SIMD registers that straddle cache lines cost the loops up to a fifth.
    """
    room = np.empty(array.size + 8)
    start = (-(room.ctypes.data // 8) - offset) % 8
    out = room[start : start + array.size].reshape(array.shape)
    out[...] = array
    return out


@dataclass
class Work:
    """All that a run changes as it goes; the compiled loops write into the arrays."""

    theta: Floats
    velocity: Floats
    lr: float
    momentum: float
    scales: Floats  # of lr, for each weight
    span: NDArray[np.int64]
    at: NDArray[np.int64]
    saved: NDArray[np.int64]
    states: Floats
    losses: Floats
    ceiling: float
    slack: float
    rises: NDArray[np.int64]
    starts: Floats
    memory: Floats
    kept: Floats

    @classmethod
    def begin(
        cls, theta: Floats, lr: float, momentum: float, at: NDArray[np.int64], loss: float,
        scale: float, scales: Floats | None = None, offset: int = 0,
    ) -> Work:  # fmt: skip
        """Return the state of a run before its first step."""
        n = theta.size
        return cls(
            theta=aligned(theta, offset),
            velocity=np.zeros(n),
            lr=lr,
            momentum=momentum,
            scales=np.ones(n) if scales is None else scales,
            span=np.array([0, 0, 0]),
            at=at,
            saved=np.zeros(2, dtype=np.int64),
            states=np.empty((at.size, n)),
            losses=np.empty(at.size),
            # Twelve decades above the start: no run comes back from there, and overflow is far.
            ceiling=1e12 * (abs(loss) + scale) + 1.0,
            slack=1e-12 * scale,  # rounding of the loss, a difference of terms of this size
            rises=np.zeros((WINDOWS, 2), dtype=np.int64),
            starts=np.zeros((WINDOWS, n)),
            memory=np.array([np.nan]),
            kept=np.zeros((2, n)),
        )

    @property
    def tail(self) -> tuple[Any, ...]:
        """The arguments from `span` to `memory`, in the order of all compiled loops."""
        return (
            self.span, self.at, self.saved, self.states, self.losses, self.ceiling, self.slack,
            _GAP, self.rises, self.starts, self.memory,
        )  # fmt: skip

    def write(self, checkpoint: Checkpoint) -> None:
        """Keep what a later call needs to go on."""
        done = int(self.saved[0])
        checkpoint.save(
            step=self.span[0], theta=self.theta, velocity=self.velocity, saved=self.saved,
            states=self.states[:done], losses=self.losses[:done], rises=self.rises,
            starts=self.starts, memory=self.memory,
        )  # fmt: skip

    def restore(self, stored: dict[str, Any]) -> None:
        """Go on from what `write` kept."""
        done = int(stored["saved"][0])
        self.span[0] = stored["step"]
        self.states[:done], self.losses[:done] = stored["states"], stored["losses"]
        for name in ("theta", "velocity", "saved", "rises", "starts", "memory"):
            getattr(self, name)[...] = stored[name]


class Descent(Protocol):
    """A loss with compiled steps of gradient descent."""

    replays: bool  # whether a failed stretch leaves the run beyond its last good step
    offset: int  # weights before those that the loops take in rows

    @property
    def scale(self) -> float:
        """Size of the terms whose difference the loss is; NaN for that of the first loss."""

    def loss(self, theta: Floats) -> float:
        """Return the loss."""

    def gradient(self, theta: Floats) -> Floats:
        """Return the gradient (n,)."""

    def advance(self, work: Work) -> int:
        """Do the steps from work.span[0] to work.span[1]; return a code."""


@dataclass(frozen=True)
class Outcome:
    """The recorded steps of a run, how it ended, and what its edge of stability was."""

    t: NDArray[np.int64]
    states: Floats
    loss: Floats
    status: Status
    step: int
    edge: dict[str, Any]
    seconds: float


def run(
    problem: Descent,
    theta: Floats,
    *,
    lr: float,
    momentum: float,
    steps: int,
    at: NDArray[np.int64],
    checkpoint: Checkpoint,
    progress: Callable[[int, float], None] | None = None,
    scales: Floats | None = None,
) -> Outcome:
    """Train for `steps` steps.

    Parameters
    ----------
    problem : Descent
    theta : array (n,)
        Start.
    lr, momentum : float
    steps : int
    at : array of int
        Steps to record.
    checkpoint : Checkpoint
        Read before the first step, written every few seconds, when interrupted and at the end.
    progress : callable, optional
        Called with (step, loss) after each stretch.
    scales : array (n,), optional
        Each weight's rate in units of lr.
    """
    started = written = time.perf_counter()
    first = problem.loss(theta)
    scale = problem.scale if np.isfinite(problem.scale) else abs(first)
    work = Work.begin(theta, lr, momentum, at, first, scale, scales, problem.offset)
    stored = checkpoint.load()
    if stored is not None:
        work.restore(stored)
    status, code = Status.success, loops.RUNNING
    try:
        while True:
            work.span[1] = min(work.span[0] + _CALL_STEPS, steps)
            code = problem.advance(work)
            if code != loops.RUNNING:
                break
            if progress is not None:
                progress(int(work.span[0]), float(work.memory[0]))
            if work.span[0] >= steps:
                break
            if time.perf_counter() - written > _CHECKPOINT_SECONDS:
                work.write(checkpoint)
                written = time.perf_counter()
    except KeyboardInterrupt:
        status = Status.interrupted if work.span[0] < steps else Status.success
        # The signal may have hidden the code that the stretch came back with.
        if not problem.loss(work.theta) <= work.ceiling:
            code = loops.NOT_A_NUMBER
    if code == loops.RUNNING:
        work.write(checkpoint)
    else:
        status = _CODES[code]
        bad = int(work.span[0])
        if problem.replays and bad > 0:
            _go_back(problem, work, bad)
    # With rates of their own the weights descend as if all had lr, in these coordinates.
    root = np.sqrt(work.scales)

    def gradient(scaled: Floats) -> Floats:
        return root * problem.gradient(root * scaled)

    edge = report_edge(work.rises, work.starts / root, int(work.saved[1]), gradient, lr, momentum)
    done, step = int(work.saved[0]), int(work.span[0])
    t, states, losses = at[:done], work.states[:done], work.losses[:done]
    if status is not Status.success and (not done or t[-1] != step):
        t, states = np.append(t, step), np.vstack([states, work.theta])
        losses = np.append(losses, work.memory[0])
    seconds = time.perf_counter() - started
    return Outcome(t, states, losses, status, step, edge, seconds)


def _go_back(problem: Descent, work: Work, bad: int) -> None:
    # To the last copy, and on to the step before the bad one by the same code.
    work.theta[:], work.velocity[:] = work.kept
    work.span[0], work.span[1] = work.span[2], bad - 1
    at, saved, slack = work.at, work.saved, work.slack
    work.at, work.saved = np.zeros(0, dtype=np.int64), np.zeros(2, dtype=np.int64)
    work.slack = np.inf
    problem.advance(work)
    work.at, work.saved, work.slack = at, saved, slack
