"""What commands print: JSON and text on stdout, progress on stderr."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odekit.errors import SolveError

if TYPE_CHECKING:
    from rich.progress import TaskID

    from odekit.reproduce import Target
    from odekit.solution import Solution

__all__ = ["counter", "list_targets", "listener", "print_json", "show_solution", "step_teller"]


@contextlib.contextmanager
def listener(count: int) -> Iterator[Callable[[str, str], None]]:
    """Show on stderr what several named jobs are doing: live on a terminal, else line by line."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda name, message: print(f"{name}: {message}", file=sys.stderr, flush=True)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[message]}"),
    )
    with Progress(*columns, console=console) as bar:
        overall = bar.add_task("all", total=count, message="")
        rows: dict[str, TaskID] = {}

        def show(name: str, message: str) -> None:
            if name not in rows:
                rows[name] = bar.add_task(name, total=None, message="")
            bar.update(rows[name], message=message)
            if message in ("done", "failed"):
                bar.update(rows[name], total=1, completed=1)
                bar.advance(overall)

        yield show


@contextlib.contextmanager
def counter() -> Iterator[Callable[[Any], None]]:
    """Show on stderr how far a sweep is: a bar on a terminal, else a line every few seconds."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        last = [float("-inf")]

        def line(progress: Any) -> None:
            if progress.elapsed - last[0] >= 5:
                last[0] = progress.elapsed
                print(progress, file=sys.stderr, flush=True)

        yield line
        return
    with Progress(BarColumn(), TextColumn("{task.description}"), console=console) as bar:
        row = bar.add_task("starts", total=None)

        def show(progress: Any) -> None:
            reached = progress.done + progress.failed
            bar.update(row, total=progress.total, completed=reached, description=str(progress))

        yield show


def step_teller(steps: int) -> Callable[[int, float], None]:
    """Tell on stderr, every few seconds, how far a training run is and its loss."""
    last = [time.monotonic()]

    def tell(step: int, loss: float) -> None:
        if time.monotonic() - last[0] >= 5:
            last[0] = time.monotonic()
            print(f"step {step} of {steps}, loss {loss:.6g}", file=sys.stderr, flush=True)

    return tell


def show_solution(solution: Solution, out: Path | None, as_json: bool) -> None:
    """Save and print a run; a failed one then raises."""
    if out is not None:
        solution.save(out)
    if as_json:
        content = {"status": solution.status, "t": solution.t, "loss": solution.loss}
        print_json({**content, "final": solution.final, "stats": solution.stats})
    else:
        print(solution)
        if solution.loss is not None:
            print(f"loss {solution.loss[0]:.8g} at the start, {solution.loss[-1]:.8g} at the end")
    if not solution.status.ok:
        raise SolveError(solution.message or solution.status.message, solution)


def list_targets(targets: Sequence[Target], as_json: bool) -> None:
    """Print the targets of `odekit reproduce`."""
    if as_json:
        print_json([{"name": t.name, "title": t.title, "main": t.main} for t in targets])
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("target", "main", "title", box=None)
    for target in targets:
        table.add_row(target.name, "yes" if target.main else "", target.title)
    Console().print(table)


def print_json(content: Any) -> None:
    """Print strict JSON on one line."""
    from odekit.reproduce.files import plain

    print(json.dumps(plain(content, "output"), allow_nan=False, ensure_ascii=False))
