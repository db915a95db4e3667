"""Time against achieved error: what `bench_solve` and its kin measure, for any tool.

A tool is called with a relative and an absolute tolerance. Its achieved error is the largest
relative error of the loss curve against a reference at 1e-13. A scan finds the loosest tolerance
that reaches each wanted error; times are CPU times of the process, all threads included.
"""

from __future__ import annotations

import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.hand_written import Problem

ERRORS = (1e-6, 1e-9)
LOOSEST, TIGHTEST = 1e-3, 1e-13

# A tool is given up on a problem where a solve takes more than this multiple of the first tool's
# (odekit's), between these CPU seconds.
SLOW_RATIO, SLOW_LEAST, SLOW_MOST = 100.0, 0.3, 3.0


REPEAT = 0.005  # CPU seconds that one timing lasts at least


@dataclass(frozen=True)
class Tool:
    """`solve(rtol, atol)` is what is timed; `curve` makes the loss curve of its result."""

    name: str
    solve: Callable[[float, float], Any]
    curve: Callable[[Any], np.ndarray]


@dataclass(frozen=True)
class Point:
    """One tolerance, the error it achieved and the CPU seconds it took (one timing)."""

    rtol: float
    error: float
    seconds: float


@dataclass
class Scan:
    """What a tool did on a problem; `loosest` maps a wanted error to its tolerance."""

    points: list[Point] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def loosest(self) -> dict[float, float]:
        found = {}
        for goal in ERRORS:
            reached = [point.rtol for point in self.points if point.error <= goal]
            if reached:
                found[goal] = max(reached)
        return found


def absolute(p: Problem, rtol: float) -> float:
    """Absolute tolerance that follows the initial scale."""
    return rtol * 0.1 * float(np.sqrt(np.mean(p.y0**2)))


def error_of(curve: np.ndarray, truth: np.ndarray) -> float:
    """Largest relative error along the curve."""
    return float(np.max(np.abs(curve / truth - 1)))


DROP_LEVEL, DROP_SPAN, DROP_WIDTH = 0.18, 3e-6, 3000.0


def drop_time(times: np.ndarray, loss: np.ndarray) -> np.ndarray:
    """When the loss falls below the last drop's level, one number; infinite outside the window.

    From small starts the time of escape is all that a run can get wrong: between drops the loss
    is exact to rounding, and a drop is short against the plateaus. Errors are then those of the
    time, relative.
    """
    below = np.flatnonzero(loss < DROP_LEVEL)
    if loss.shape != times.shape or not len(below) or below[0] == 0:
        return np.array([np.inf])
    k = below[0]
    share = (loss[k - 1] - DROP_LEVEL) / (loss[k - 1] - loss[k])
    return np.array([times[k - 1] + share * (times[k] - times[k - 1])])


def around_the_drop(p: Problem, when: float) -> Problem:
    """The problem up to its last drop, with outputs around it alone, close enough to time it."""
    reach = DROP_WIDTH + DROP_SPAN * when
    times = np.linspace(when - reach, when + reach, 1201)
    return replace(p, times=times, t_end=float(times[-1]))


def loosest(p: Problem, tool: Tool, truth: np.ndarray, error: float) -> float:
    """Loosest tolerance, in steps of a quarter decade, that reaches one error."""
    for quarter in range(12, 57):
        rtol = 10.0 ** (-quarter / 4)
        if error_of(tool.curve(tool.solve(rtol, absolute(p, rtol))), truth) <= error:
            return rtol
    raise ValueError(f"{tool.name} does not reach {error:g} on {p.name}")


def keep_stdout() -> None:
    """Send what libraries print from Fortran nowhere, so that the Markdown stays whole.

    They write to the file descriptor, some of it when the process ends; Python keeps a copy.
    """
    sys.stdout.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def try_tolerance(p: Problem, tool: Tool, truth: np.ndarray, rtol: float) -> Point | str:
    """Solve twice: the first call may compile, the second is timed."""
    atol = absolute(p, rtol)
    try:
        curve = tool.curve(tool.solve(rtol, atol))
        if curve.shape != truth.shape or not np.isfinite(curve).all():
            return f"stopped early, or far off, at rtol = {rtol:.1g}"
        begun = time.process_time()
        tool.solve(rtol, atol)
        seconds = time.process_time() - begun
    except Exception as problem:  # noqa: BLE001  a tool that fails is reported
        return f"{type(problem).__name__} at rtol = {rtol:.1g}: {str(problem)[:80]}"
    return Point(rtol, error_of(curve, truth), seconds)


def scan(p: Problem, tool: Tool, truth: np.ndarray, slow: float, quick: bool) -> Scan:
    """Half decades from the loosest tolerance down, then the quarter decade above each hit.

    A quick scan takes whole decades, and the half decade above each hit.
    """
    step = 1.0 if quick else 0.5
    found = Scan()

    def take(rtol: float) -> bool:
        begun = time.process_time()
        point = try_tolerance(p, tool, truth, rtol)
        if isinstance(point, str):
            found.failures.append(point)
            return time.process_time() - begun < slow
        if point.seconds < slow:
            found.points.append(point)
        return point.seconds < slow

    for power in np.arange(-math.log10(LOOSEST), -math.log10(TIGHTEST) + step / 2, step):
        if not take(10.0**-power):
            found.failures.append(f"given up beyond {slow:.2g} s a solve")
            break
        if len(found.loosest) == len(ERRORS):
            break
        errors = [point.error for point in found.points]
        if len(errors) > 3 and min(errors[-2:]) >= min(errors[:-2]):
            found.failures.append(f"no better than {min(errors):.1g} at any tolerance")
            break
    for rtol in set(found.loosest.values()):
        if rtol < LOOSEST:
            take(rtol * 10 ** (step / 2))
    found.points.sort(key=lambda point: -point.rtol)
    return found


def alternate(calls: dict[Any, Callable[[], Any]], rounds: int) -> dict[Any, float]:
    """Median CPU milliseconds of each call, over rounds that take every call in turn.

    In each round a call is warmed up by itself, so that it pays neither for caches that the one
    before has filled nor for threads that it left spinning, and repeated to a few milliseconds.
    """
    times: dict[Any, list[float]] = {key: [] for key in calls}
    for _ in range(rounds):
        for key, call in calls.items():
            begun = time.process_time()
            call()
            first = time.process_time() - begun
            repeats = min(max(int(REPEAT / max(first, 1e-6)), 1), 50)
            begun = time.process_time()
            for _ in range(repeats):
                call()
            times[key].append((time.process_time() - begun) / repeats)
    return {key: 1e3 * statistics.median(values) for key, values in times.items() if values}


def measure(
    p: Problem, tools: Sequence[Tool], truth: np.ndarray, rounds: int, quick: bool
) -> tuple[dict[str, Scan], dict[str, dict[float, float]]]:
    """Scan every tool, then time all at their matched tolerances: ms by tool and error."""
    scans: dict[str, Scan] = {}
    slow = SLOW_MOST
    for tool in tools:
        print(f"{p.name}: {tool.name}", file=sys.stderr, flush=True)
        scans[tool.name] = scan(p, tool, truth, slow, quick)
        if tool is tools[0]:
            own = max((point.seconds for point in scans[tool.name].points), default=SLOW_MOST)
            slow = min(max(SLOW_RATIO * own, SLOW_LEAST), SLOW_MOST)
    calls: dict[Any, Callable[[], Any]] = {}
    for tool in tools:
        for goal, rtol in scans[tool.name].loosest.items():
            calls[tool.name, goal] = lambda tool=tool, rtol=rtol: tool.solve(
                rtol, absolute(p, rtol)
            )
    times = alternate(calls, rounds)
    return scans, {
        tool.name: {goal: times[tool.name, goal] for goal in ERRORS if (tool.name, goal) in times}
        for tool in tools
    }
