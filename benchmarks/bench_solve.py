"""Single solves against what a user would pick instead, at matched achieved error, in one run.

    python -m benchmarks.bench_solve [--problem S4 M4 ...] [--tools odekit numbalsoda ...]
                                     [--rounds 7] [--quick] [--out DIR]

odekit is timed as a user calls it: `ok.solve` on the compiled model, output times and all. Every
peer calls a hand-written compiled right-hand side, or the problem in its own language. For each
tool the loosest tolerance that reaches the achieved error is found (`work_precision`), then all
are timed in alternated rounds: medians of CPU milliseconds. Errors are those of the loss curve,
from small starts (S4e-4 to S4e-8) of the time of the last drop, where the run ends. What cannot be
run is said with its reason. `--tools` takes beginnings of names; `--out` writes a work-precision
picture a problem.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import odekit as ok
from benchmarks import own
from benchmarks.hand_written import SMALL, Problem, problem
from benchmarks.peers import PEERS, missing
from benchmarks.work_precision import (
    DROP_LEVEL,
    ERRORS,
    Scan,
    Tool,
    around_the_drop,
    drop_time,
    keep_stdout,
    measure,
)

# Goals of PERFORMANCE: times faster than the fastest peer; for the small starts at most twice it.
GOALS = {
    "S4": 2.0,
    "S8": 2.0,
    "M4": 2.0,
    "M32": 2.0,
    "S4tiny": 1.6,
    "S32": 1.6,
    "P16": 40.0,
    "P1000": 20.0,
    "S4e-4": 0.5,
    "S4e-6": 0.5,
    "S4e-8": 0.5,
}
QUICK = ("S4", "M4", "P16")


@dataclass
class Result:
    """One problem: milliseconds by tool and error, the scans, and why the others are not here."""

    times: dict[str, dict[float, float]]
    scans: dict[str, Scan]
    absent: dict[str, str]

    def fastest(self, goal: float, of_odekit: bool) -> str | None:
        reached = {
            name: t[goal]
            for name, t in self.times.items()
            if goal in t and name.startswith("odekit") == of_odekit
        }
        return min(reached, key=reached.__getitem__) if reached else None


def reference(p: Problem, tools: list[Tool]) -> np.ndarray:
    """Loss curve at 1e-13, by the method that `auto` takes."""
    return tools[0].curve(tools[0].solve(1e-13, 1e-15 * float(np.sqrt(np.mean(p.y0**2)))))


def compare(name: str, rounds: int, wanted: list[str], quick: bool) -> Result:
    p = problem(name)
    if name in SMALL:
        p = around_the_drop(p, last_drop(p))
    ours = [_judged(p, tool) for tool in own.tools(p)]
    truth = reference(p, ours)
    tools = [tool for tool in ours if _chosen(tool.name, wanted)]
    absent: dict[str, str] = {}
    lacking = missing()
    for peer in PEERS:
        if not _chosen(peer.name, wanted):
            continue
        reason = "not installed" if peer.package in lacking else peer.unfit(p)
        if not reason:
            print(f"{name}: preparing {peer.name}", file=sys.stderr, flush=True)
            try:
                tools.append(_judged(p, Tool(peer.name, peer.make(p), p.loss)))
            except Exception as failure:  # noqa: BLE001  a peer that fails is reported
                reason = f"{type(failure).__name__}: {str(failure)[:80]}"
        if reason:
            absent[peer.name] = reason
    scans, times = measure(p, tools, truth, rounds, quick)
    for tool, found in scans.items():
        if not found.loosest:
            absent[tool] = "; ".join(found.failures[-1:]) or "1e-6 is not reached"
    return Result({tool: t for tool, t in times.items() if t}, scans, absent)


def last_drop(p: Problem) -> float:
    """When the loss drops for the last time, from a run of odekit's at 1e-12."""
    compiled, y0, params = own.prepare(p)
    run = ok.solve(
        compiled, y0, p.t_end, params, method="Rodas5P", tolerance=ok.Tolerance(relative=1e-12),
        events=ok.Crossing("loss", DROP_LEVEL, terminal=True),
    )  # fmt: skip
    return run.events[0].t


def _judged(p: Problem, tool: Tool) -> Tool:
    """From small starts a tool is judged by the time of the last drop."""
    if p.name not in SMALL:
        return tool
    return Tool(tool.name, tool.solve, lambda result: drop_time(p.times, tool.curve(result)))


def _chosen(name: str, wanted: list[str]) -> bool:
    return not wanted or any(name.lower().startswith(w.lower()) for w in wanted)


def ratios(results: dict[str, Result]) -> str:
    """Markdown: `auto`, and the best of odekit's methods, against the fastest peer."""
    lines = [
        "| problem | auto at 1e-6 | at 1e-9 | goal | best method at 1e-6 | at 1e-9 |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, result in results.items():
        auto, best = [], []
        for goal in ERRORS:
            peer, own_best = result.fastest(goal, False), result.fastest(goal, True)
            mine = result.times.get("odekit auto", {}).get(goal)
            if peer is None:
                auto.append("no peer")
                best.append("no peer")
                continue
            bar = result.times[peer][goal]
            auto.append("-" if mine is None else f"{bar / mine:.2f} (against {peer})")
            best.append(
                "-"
                if own_best is None
                else f"{bar / result.times[own_best][goal]:.2f} ({own_best[7:]})"
            )
        lines.append(f"| {name} | {' | '.join(auto)} | {GOALS[name]:g} | {' | '.join(best)} |")
    return "\n".join(lines)


def details(results: dict[str, Result]) -> str:
    """Markdown: milliseconds of every tool, then what was not run and why."""
    lines = ["| problem | tool | ms at 1e-6 | ms at 1e-9 |", "| --- | --- | --- | --- |"]
    for name, result in results.items():
        for tool, t in sorted(result.times.items(), key=lambda item: min(item[1].values())):
            shown = " | ".join(f"{t[g]:.3f}" if g in t else "not reached" for g in ERRORS)
            lines.append(f"| {name} | {tool} | {shown} |")
    lines += ["", "Not run:", ""]
    for name, result in results.items():
        by_reason: dict[str, list[str]] = {}
        for tool, reason in result.absent.items():
            by_reason.setdefault(reason, []).append(tool)
        lines += [f"- {name}: {', '.join(who)}: {why}" for why, who in by_reason.items()]
    absent = missing()
    return "\n".join([*lines, "", f"Missing peers: {', '.join(absent) or 'none'}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", nargs="+", choices=list(GOALS), metavar="NAME")
    parser.add_argument("--tools", nargs="+", default=[], help="beginnings of tools' names")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quick", action="store_true", help="three problems, a coarse scan")
    parser.add_argument("--out", type=Path, help="folder for the pictures")
    options = parser.parse_args()
    keep_stdout()
    names = options.problem or (QUICK if options.quick else GOALS)
    rounds = options.rounds or (3 if options.quick else 7)
    results = {name: compare(name, rounds, options.tools, options.quick) for name in names}
    print("Times faster than the fastest peer of this run, by achieved error:\n")
    print(ratios(results))
    print()
    print(details(results))
    if options.out is not None:
        from benchmarks.pictures import work_precision

        for name, result in results.items():
            file = work_precision(name, result.scans, options.out)
            print(f"\n![Work against precision, {name}]({file.name})")


if __name__ == "__main__":
    main()
