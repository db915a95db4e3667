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
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.hand_written import Problem

ERRORS = (1e-6, 1e-9)
LOOSEST, TIGHTEST = 1e-3, 1e-14
SLOW = 3.0  # CPU seconds of one solve beyond which a tool is given up on a problem


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
            return f"stopped early at rtol = {rtol:.1g}"
        begun = time.process_time()
        tool.solve(rtol, atol)
        seconds = time.process_time() - begun
    except Exception as problem:  # noqa: BLE001  a tool that fails is reported
        return f"{type(problem).__name__} at rtol = {rtol:.1g}: {str(problem)[:80]}"
    return Point(rtol, error_of(curve, truth), seconds)


def scan(p: Problem, tool: Tool, truth: np.ndarray) -> Scan:
    """Half decades from the loosest tolerance down, then the quarter decade above each hit."""
    found = Scan()

    def take(rtol: float) -> bool:
        point = try_tolerance(p, tool, truth, rtol)
        if isinstance(point, str):
            found.failures.append(point)
            return True
        found.points.append(point)
        return point.seconds < SLOW

    for half in range(math.ceil(-2 * math.log10(LOOSEST)), int(-2 * math.log10(TIGHTEST)) + 1):
        if not take(10.0 ** (-half / 2)):
            found.failures.append(f"given up beyond {SLOW:g} s a solve")
            break
        if len(found.loosest) == len(ERRORS):
            break
    for rtol in set(found.loosest.values()):
        if rtol < LOOSEST:
            take(rtol * 10**0.25)
    found.points.sort(key=lambda point: -point.rtol)
    return found


def alternate(calls: dict[Any, Callable[[], Any]], rounds: int) -> dict[Any, float]:
    """Median CPU milliseconds of each call, over rounds that take every call in turn."""
    times: dict[Any, list[float]] = {key: [] for key in calls}
    for _ in range(rounds):
        for key, call in calls.items():
            begun = time.process_time()
            call()
            times[key].append(time.process_time() - begun)
    return {key: 1e3 * statistics.median(values) for key, values in times.items() if values}


def measure(
    p: Problem, tools: Sequence[Tool], truth: np.ndarray, rounds: int
) -> tuple[dict[str, Scan], dict[str, dict[float, float]]]:
    """Scan every tool, then time all at their matched tolerances: ms by tool and error."""
    scans = {tool.name: scan(p, tool, truth) for tool in tools}
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
