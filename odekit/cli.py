"""The command line: it parses, calls and prints; the work is done in the rooms it calls."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from odekit.errors import InputError, OdekitError, OdekitWarning, SolveError, unknown_name

if TYPE_CHECKING:
    from rich.progress import TaskID

    from odekit.problem import Problem
    from odekit.reproduce import Target
    from odekit.solution import Solution

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
Out = Annotated[Path | None, typer.Option(help="File to save the solution to.")]
Spectrum = Annotated[str | None, typer.Option(help="Eigenvalues of Lambda, as .4,.3,.2,.1")]
Init = Annotated[float | None, typer.Option(help="Standard deviation of the start.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the start.")]
Others = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="Any other size or option, as depth=3."),
]
Size = Annotated[int | None, typer.Option(help="A size of the model; a symbol if not given.")]


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


@app.command()
def derive(
    model: Annotated[str, typer.Argument(help="A published model, such as attention_merged.")],
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX.")] = False,
    heads: Size = None,
    dim: Size = None,
    context: Size = None,
    rank: Size = None,
    others: Others = None,
    as_json: Json = False,
) -> None:
    """Derive a model's expected loss and gradient flow, exact for symbolic sizes."""
    from odekit.problem import build_model

    sizes = _sizes(others, heads=heads, dim=dim, context=context, rank=rank)
    built = build_model(model, sizes)
    flow: Any = built.flow  # a tensor field or a scalar field: both have equations
    loss = None if built.loss is None else str(built.loss.as_expression())
    if as_json:
        rates = {name: str(rate) for name, rate in flow.equations.items()}
        named = {"model": model, "source": built.source, "loss": loss}
        _print_json({**named, "equations": rates, "latex": flow.latex()})
    elif latex:
        print(flow.latex())
    else:
        print(
            f"{model} ({built.source})",
            *([] if loss is None else [f"loss = {loss}"]),
            flow,
            sep="\n",
        )


@app.command()
def solve(
    source: Annotated[str, typer.Argument(metavar="FILE|MODEL", help="A problem file or a model.")],
    heads: Size = None,
    dim: Size = None,
    context: Size = None,
    rank: Size = None,
    others: Others = None,
    spectrum: Spectrum = None,
    init: Init = None,
    seed: Seed = None,
    time: Annotated[float | None, typer.Option(help="End time, in the flow's unit.")] = None,
    points: Annotated[int | None, typer.Option(help="Number of output times.")] = None,
    method: Annotated[str | None, typer.Option(help="auto, LSODA, Radau, BDF, DOP853 ...")] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Integrate a problem file, or a published model from a random start."""
    problem = _problem(
        source,
        sizes=_sizes(others, heads=heads, dim=dim, context=context, rank=rank),
        random=_given(scale=init, seed=seed),
        solve=_given(method=method),
        parameters=_spectrum(spectrum),
        **_given(time=time, points=points),
    )
    _check_parent(out)
    _show_solution(problem.solve(progress=sys.stderr.isatty()), out, as_json)


@app.command()
def simulate(
    source: Annotated[str, typer.Argument(metavar="FILE|MODEL", help="A problem file or a model.")],
    heads: Size = None,
    dim: Size = None,
    context: Size = None,
    rank: Size = None,
    others: Others = None,
    spectrum: Spectrum = None,
    init: Init = None,
    seed: Seed = None,
    lr: Annotated[float, typer.Option(help="Learning rate.")] = 0.05,
    steps: Annotated[int, typer.Option(help="Number of steps.")] = 10_000,
    batch: Annotated[
        int | None, typer.Option(help="Fresh samples a step: SGD instead of the exact loss.")
    ] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Train a published model: gradient descent on its exact expected loss, or SGD with --batch."""
    from odekit import simulate as training

    problem = _problem(
        source,
        sizes=_sizes(others, heads=heads, dim=dim, context=context, rank=rank),
        random=_given(scale=init, seed=seed),
        parameters=_spectrum(spectrum),
        time=steps,
    )
    if problem.model is None:
        raise InputError("Only a model can be trained; own [equations] have no data.")
    _check_parent(out)
    options: dict[str, Any] = {"y0": problem.y0, "lr": lr, "steps": steps}
    if batch is None:
        data = training.Population(problem.params)
        solution = training.gradient_descent(problem.model, data, **options)
    else:
        options |= {"params": problem.params, "batch": batch, "seed": seed or 0}
        solution = training.sgd(problem.model, **options)
    _show_solution(solution, out, as_json)


@app.command()
def sweep(
    file: Annotated[Path, typer.Argument(help="A problem file with a [sweep].")],
    out: Annotated[
        Path | None, typer.Option(help="File of results; default the file's name + .sweep.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Runs at a time; default one a core.")] = None,
    threads: Annotated[bool, typer.Option("--threads", help="Threads, not processes.")] = False,
    dask: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler, as tcp://host:8786.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Run only what is missing.")] = False,
    retry: Annotated[bool, typer.Option("--retry", help="And what failed; with --resume.")] = False,
    as_json: Json = False,
) -> None:
    """Run a problem file over a grid or list of points, into one file of results."""
    from odekit import sweep as sweeps
    from odekit.problem import read_sweep

    if threads and dask is not None:
        raise InputError("--threads and --dask exclude each other.")
    if dask is not None and "://" not in dask:
        raise InputError(f"--dask takes an address such as tcp://127.0.0.1:8786, got {dask!r}.")
    plan = read_sweep(file)
    store = out or file.with_suffix(".sweep")
    if store == file:
        raise InputError(f"The results would replace {str(file)!r}; name another file with --out.")
    with _counter() as show:
        results = sweeps.run(
            plan,
            store,
            workers=workers,
            executor=dask or ("threads" if threads else None),
            resume=resume,
            retry=retry,
            progress=show,
        )
    counts = {kind: results.status.count(kind) for kind in ("done", "failed", "missing")}
    if as_json:
        _print_json({"store": str(store), "runs": len(results), **counts, "names": results.names})
    else:
        print(f"{store}: {results}")
    if results.failures:
        number, reason = next(iter(results.failures.items()))
        point = ", ".join(f"{k} = {v}" for k, v in results.points[number].items())
        raise OdekitError(f"{counts['failed']} runs failed; the first, {point}: {reason}")


@contextlib.contextmanager
def _counter() -> Iterator[Callable[[Any], None]]:
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


@app.command()
def claims(
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID ...]", help="Claims' ids or papers' keys. Default: all."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Try fewer cases.")] = False,
    as_json: Json = False,
) -> None:
    """Put published statements to the test; exit code 3 if a verdict is not the recorded one."""
    from odekit import claims as published
    from odekit.claims.showing import story, table

    chosen = published.choose(ids or ())
    known = published.recorded()
    verdicts = []
    with _listener(len(chosen)) as listener:
        for claim in chosen:
            listener(claim.id, "searches for counterexamples")
            verdicts.append(claim.check(quick=quick))
            listener(claim.id, "done")
    changed = [v.id for v in verdicts if known.get(v.id, v.status) != v.status]
    if as_json:
        found = [{**v.as_dict(), "recorded": known.get(v.id)} for v in verdicts]
        _print_json({"claims": found, "changed": changed})
    elif len(chosen) == 1:
        print(story(chosen[0], verdicts[0]))
    else:
        from rich.console import Console

        Console().print(table(chosen, verdicts))
    for name in changed:
        print(f"odekit: {name}: recorded as {known[name]!r}", file=sys.stderr)
    if changed:
        raise typer.Exit(3)


@app.command()
def cache(
    action: Annotated[str, typer.Argument(metavar="[info|clear]")] = "info",
    as_json: Json = False,
) -> None:
    """Show what the cache of compiled fields holds, or clear it."""
    from odekit.codegen import cache_info, clear_cache

    actions = {"info": cache_info, "clear": clear_cache}
    if action not in actions:
        raise unknown_name("action", action, actions)
    held = actions[action]()
    if as_json:
        _print_json({"action": action, **dataclasses.asdict(held), "path": str(held.path)})
        return
    size = f"{held.fields} fields, {held.modules} modules, {held.bytes / 1e6:.1f} MB"
    state = "off (ODEKIT_CACHE)" if not held.enabled else held.problem or "in use"
    print(f"{held.path}: {size}, {'cleared' if action == 'clear' else state}")


def _problem(source: str, **options: Any) -> Problem:
    """Make the problem of a file or of a model's name; options go over what the file says."""
    from odekit.problem import Problem, first_document, read_document

    is_file = source.endswith(".toml") or Path(source).is_file()
    document = first_document(read_document(source)) if is_file else {"model": source}
    for key, value in options.items():
        if isinstance(value, dict):
            held: Any = document.get(key, {})
            value = {**held, **value}
        if value != {}:
            document[key] = value
    return Problem.from_mapping(document, Path(source).stem)


def _show_solution(solution: Solution, out: Path | None, as_json: bool) -> None:
    if out is not None:
        solution.save(out)
    if as_json:
        content = {"status": solution.status, "t": solution.t, "loss": solution.loss}
        _print_json({**content, "final": solution.final, "stats": solution.stats})
    else:
        print(solution)
        if solution.loss is not None:
            print(f"loss {solution.loss[0]:.8g} at the start, {solution.loss[-1]:.8g} at the end")
    if not solution.status.ok:
        raise SolveError(solution.message or solution.status.message, solution)


def _check_parent(out: Path | None) -> None:
    """Refuse an output file without a folder before the computation, not after it."""
    if out is not None and not out.parent.is_dir():
        raise InputError(f"Output folder {str(out.parent)!r} does not exist; make it first.")


def _given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _sizes(others: Sequence[str] | None, **sizes: int | None) -> dict[str, Any]:
    """Merge the common sizes with ``--set`` options: numbers, comma-separated lists, or words."""
    chosen = _given(**sizes)
    for item in others or ():
        name, equals, text = item.partition("=")
        if not equals or not text:
            raise InputError(f"--set takes NAME=VALUE, got {item!r}.")
        words = text.split(",")
        values = [int(word) if word.strip().isdecimal() else word for word in words]
        chosen[name] = values[0] if len(words) == 1 else values
    return chosen


def _spectrum(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        return {"Lambda": {"diagonal": [float(number) for number in text.split(",")]}}
    except ValueError:
        raise InputError(f"Expected numbers such as .4,.3,.2,.1, got {text!r}.") from None
