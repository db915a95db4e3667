"""Single solves against what a user would pick instead, at matched achieved error, in one run.

For every problem and tool the loosest tolerance that reaches the achieved error (largest relative
error of the loss curve against a reference at 1e-13) is found, then all tools are timed in
alternated rounds; times are medians of CPU milliseconds. All tools call the same hand-written
compiled right-hand side, so ratios are between integrators.

Run: python -m benchmarks.bench_solve [--problems S4 M4 ...] [--rounds 7]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np

from benchmarks.hand_written import Problem, problem
from benchmarks.peers.integrators import PEERS, Solve, missing
from odekit.integrate.compiled.components import block_classes
from odekit.integrate.compiled.run import Run, solve_blocks
from odekit.integrate.compiled.slots import Code

ERRORS = (1e-6, 1e-9)
SLOW = 3.0  # seconds for one solve beyond which a tool is given up on a problem
# Goals of PERFORMANCE: times faster than the fastest peer.
GOALS = {
    "S4": 2.0,
    "S8": 2.0,
    "M4": 2.0,
    "M32": 2.0,
    "S4tiny": 1.6,
    "S32": 1.6,
    "P16": 40.0,
    "P1000": 20.0,
}
CHOICES = {
    "S4": ("explicit", "explicit-8"),
    "S4tiny": ("explicit", "explicit-8", "Rodas5P"),
    "S8": ("explicit", "explicit-8"),
    "S32": ("explicit", "explicit-8"),
    "M4": ("Tsit5", "DOP853", "explicit", "explicit-8"),
    "M32": ("Tsit5", "DOP853", "explicit", "explicit-8"),
    "P16": ("blocks",),
    "P1000": ("blocks",),
}


def odekit(method: str) -> Callable[[Problem], Solve]:
    """A compiled loop, called as `ok.solve` calls it."""

    def make(p: Problem) -> Solve:
        if method == "blocks":
            assert p.pattern is not None
            classes = block_classes(p.y0.size, *p.pattern)

            def solve(rtol: float, atol: float) -> np.ndarray:
                result = solve_blocks(
                    p.rhs, classes, p.p, 0.0, p.y0, p.t_end, rtol=rtol, atol=atol,
                    values=p.values, nonzeros=p.pattern[0].size, t_out=p.times,
                )  # fmt: skip
                assert result.code == Code.DONE
                return result.y_out

            return solve
        name, plain = (
            (method.split("-")[0], "DOP853") if method.endswith("-8") else (method, "Tsit5")
        )

        def step(rtol: float, atol: float) -> np.ndarray:
            run = Run(
                name, p.rhs, p.p, 0.0, p.y0, p.t_end, rtol=rtol, atol=atol, t_out=p.times,
                jacobian=p.jacobian if name == "Rodas5P" else None, autonomous=True, plain=plain,
            )  # fmt: skip
            assert run.advance() == Code.DONE
            return run.y_out

        return step

    return make


def reference(p: Problem) -> np.ndarray:
    """Loss curve at 1e-13."""
    scale = float(np.sqrt(np.mean(p.y0**2)))
    method = "blocks" if p.pattern is not None else "DOP853"
    return p.loss(odekit(method)(p)(1e-13, 1e-15 * scale))


def absolute(p: Problem, rtol: float) -> float:
    """Absolute tolerance that follows the initial scale."""
    return rtol * 0.1 * float(np.sqrt(np.mean(p.y0**2)))


def tolerances(p: Problem, solve: Solve, truth: np.ndarray) -> dict[float, float]:
    """Loosest relative tolerance, in steps of 10^(1/4), that reaches each error."""
    found: dict[float, float] = {}
    for quarter in range(12, 50):
        rtol = 10.0 ** (-quarter / 4)
        begun = time.process_time()
        curve = p.loss(solve(rtol, absolute(p, rtol)))
        if curve.shape != truth.shape:
            continue
        error = float(np.max(np.abs(curve / truth - 1)))
        for goal in ERRORS:
            if error <= goal and goal not in found:
                found[goal] = rtol
        if len(found) == len(ERRORS) or time.process_time() - begun > SLOW:
            break
    return found


def compare(name: str, rounds: int) -> dict[str, dict[float, float]]:
    """CPU milliseconds of every tool at each achieved error."""
    p = problem(name)
    truth = reference(p)
    tools: dict[str, Solve] = {}
    plan: dict[str, dict[float, float]] = {}
    makers = {f"odekit {m}": odekit(m) for m in CHOICES[name]} | {
        tool: make
        for tool, make in PEERS.items()
        # A billion explicit steps would be needed for the stiff modes.
        if not (p.pattern is not None and tool.lower().endswith(("dop853", "tsit45")))
    }
    for tool, make in makers.items():
        try:
            solve = make(p)
            plan[tool] = tolerances(p, solve, truth)
            tools[tool] = solve
        except Exception as problem_of_peer:  # noqa: BLE001  a peer that fails is reported
            if tool.startswith("odekit"):
                raise
            print(
                f"{name}: {tool} does not run: {type(problem_of_peer).__name__}: {problem_of_peer}"
            )
    times: dict[tuple[str, float], list[float]] = {}
    for _ in range(rounds):
        for tool, solve in tools.items():
            for goal, rtol in plan[tool].items():
                begun = time.process_time()
                solve(rtol, absolute(p, rtol))
                times.setdefault((tool, goal), []).append(time.process_time() - begun)
    return {
        tool: {g: 1e3 * statistics.median(times[tool, g]) for g in ERRORS if (tool, g) in times}
        for tool in tools
    }


def table(results: dict[str, dict[str, dict[float, float]]]) -> str:
    """Markdown: milliseconds at the two errors, the ratio to the fastest peer and its goal."""
    lines = ["| problem | tool | ms at 1e-6 | ms at 1e-9 |", "| --- | --- | --- | --- |"]
    ratios = [
        "| problem | faster than the fastest peer at 1e-6 | at 1e-9 | goal |",
        "| --- | --- | --- | --- |",
    ]
    for name, tools in results.items():
        cells = []
        for tool, t in tools.items():
            shown = " | ".join(f"{t[g]:.3f}" if g in t else "not reached" for g in ERRORS)
            lines.append(f"| {name} | {tool} | {shown} |")
        for g in ERRORS:
            own = {k: t[g] for k, t in tools.items() if g in t and k.startswith("odekit")}
            peers = {k: t[g] for k, t in tools.items() if g in t and not k.startswith("odekit")}
            if own and peers:
                best, other = min(own, key=own.__getitem__), min(peers, key=peers.__getitem__)
                cells.append(f"{peers[other] / own[best]:.1f} ({best[7:]} against {other})")
            else:
                cells.append("-")
        ratios.append(f"| {name} | {' | '.join(cells)} | {GOALS[name]:g} |")
    absent = missing()
    note = f"Missing peers: {', '.join(absent)}." if absent else "No peer is missing."
    return "\n".join([*ratios, "", *lines, "", note])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--problems", nargs="*", default=list(GOALS), choices=list(GOALS))
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    results = {}
    for name in options.problems:
        results[name] = compare(name, options.rounds)
        print(f"{name}: {results[name]}", flush=True)
    print(table(results))


if __name__ == "__main__":
    main()
