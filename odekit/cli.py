"""The command line: it parses, calls and prints; the work is done in the rooms it calls."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from odekit.errors import InputError, OdekitError, OdekitWarning

if TYPE_CHECKING:
    from rich.progress import TaskID

    from odekit.reproduce import Target

__all__ = ["app", "main"]

# Typer carries its own Click and exports subclasses of the root error, not the root itself.
_ClickError: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

app = typer.Typer(
    name="odekit",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    arguments : sequence of str, optional
        Instead of the process's own.

    Returns
    -------
    int
        Exit code: 0 on success, 2 on bad input (one line on stderr), 3 on a failed computation, 130
        when interrupted.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", OdekitWarning)
            warnings.showwarning = _show_warning
            code = app(args=arguments, prog_name="odekit", standalone_mode=False)
        return int(code or 0)
    except _ClickError as error:
        return _say(error.format_message(), 2)
    except InputError as error:
        return _say(str(error), 2)
    except OdekitError as error:
        return _say(str(error), 3)
    except OSError as error:  # a file that is not there, a folder that cannot be written
        place = f"{error.filename}: " if error.filename else ""
        return _say(f"{place}{error.strerror or error}", 2)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", 130)


def _say(message: str, code: int) -> int:
    print("odekit: " + " ".join(message.split()), file=sys.stderr)
    return code


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    kind = "" if issubclass(category, OdekitWarning) else f"{category.__name__}: "
    print(f"odekit: warning: {kind}{message}", file=sys.stderr)


@contextlib.contextmanager
def _listener(count: int) -> Iterator[Callable[[str, str], None]]:
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


def _list_targets(targets: Sequence[Target], as_json: bool) -> None:
    if as_json:
        _print_json([{"name": t.name, "title": t.title, "main": t.main} for t in targets])
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("target", "main", "title", box=None)
    for target in targets:
        table.add_row(target.name, "yes" if target.main else "", target.title)
    Console().print(table)


def _print_json(content: Any) -> None:
    from odekit.reproduce.files import plain

    print(json.dumps(plain(content, "output"), allow_nan=False, ensure_ascii=False))


@app.callback()
def _root(context: typer.Context) -> None:
    """Exact gradient-flow ODEs of learning models: derive, solve, reproduce."""
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def reproduce(
    targets: Annotated[
        list[str] | None,
        typer.Argument(help="Targets, papers' keys, or 'all'. Default: zhang2025's main figures."),
    ] = None,
    list_only: Annotated[bool, typer.Option("--list", help="List the targets.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer seeds, shorter runs.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("odekit-out"),
    workers: Annotated[int | None, typer.Option(help="Processes; default one a core.")] = None,
    as_json: Json = False,
) -> None:
    """Draw published figures anew: PNG, SVG and JSON for each, and one report.html."""
    from odekit import reproduce as reproduction

    known = reproduction.discover()
    if list_only:
        _list_targets(tuple(known.values()), as_json)
        return
    chosen = reproduction.choose(targets or (), known)
    with _listener(len(chosen)) as listener:
        outcomes = reproduction.run(chosen, out, quick=quick, workers=workers, listener=listener)
    from odekit.report import write_report

    page = write_report(out / "report.html", outcomes, tuple(known.values()))
    if as_json:
        _print_json(
            {
                "report": str(page),
                "targets": [
                    {
                        "name": outcome.target.name,
                        "seconds": round(outcome.seconds, 3),
                        "files": [str(file) for file in outcome.files],
                        "error": outcome.error,
                    }
                    for outcome in outcomes
                ],
            }
        )
    else:
        for outcome in outcomes:
            end = "failed" if outcome.error else f"{outcome.seconds:.1f} s"
            print(f"{outcome.target.name}: {end}")
        print(f"Report: {page}")
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    for outcome in failed:
        log = f" (traceback in {outcome.files[0]})" if outcome.files else ""
        print(f"odekit: {outcome.target.name} failed: {outcome.error}{log}", file=sys.stderr)
    if failed:
        raise typer.Exit(3)
