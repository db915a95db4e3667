"""The commands, one function each: it parses, calls and prints."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from odekit.cli.options import (
    Init,
    Json,
    Others,
    Out,
    Seed,
    Size,
    Source,
    Spectrum,
    check_parent,
    given,
    model_names,
    problem_from,
    sizes_from,
    spectrum_from,
    target_names,
)
from odekit.cli.showing import (
    counter,
    list_targets,
    listener,
    print_json,
    show_solution,
    step_teller,
)
from odekit.errors import InputError, OdekitError, unknown_name

__all__ = ["app"]

app = typer.Typer(
    name="odekit",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    epilog="Start with: odekit reproduce --quick. Each command's --help ends with an example.",
)


def _command(*examples: str) -> Any:
    """Make a command whose help ends with examples."""
    word = "Example" if len(examples) == 1 else "Examples"
    # A blank line before each, or the help would run them together.
    return app.command(epilog="\n\n".join([f"{word}:", *examples]))


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Exact gradient-flow ODEs of learning models: derive, solve, reproduce."""
    if version:
        from odekit import __version__

        print(__version__)
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


@_command("odekit reproduce zhang2025/fig3 --quick --out figures")
def reproduce(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            help="Targets, papers' keys, or 'all'. Default: zhang2025's main figures.",
            autocompletion=target_names,
        ),
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
        list_targets(tuple(known.values()), as_json)
        return
    chosen = reproduction.choose(targets or (), known)
    with listener(len(chosen)) as listen:
        outcomes = reproduction.run(chosen, out, quick=quick, workers=workers, listener=listen)
    from odekit.report import write_report

    page = write_report(out / "report.html", outcomes, tuple(known.values()))
    if as_json:
        print_json(
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


@_command("odekit derive attention_merged --latex")
def derive(
    model: Annotated[
        str,
        typer.Argument(
            help="A published model, such as attention_merged.", autocompletion=model_names
        ),
    ],
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

    sizes = sizes_from(others, heads=heads, dim=dim, context=context, rank=rank)
    built = build_model(model, sizes)
    flow: Any = built.flow  # a tensor field or a scalar field: both have equations
    loss = None if built.loss is None else str(built.loss.as_expression())
    if as_json:
        rates = {name: str(rate) for name, rate in flow.equations.items()}
        named = {"model": model, "source": built.source, "loss": loss}
        print_json({**named, "equations": rates, "latex": flow.latex()})
    elif latex:
        print(flow.latex())
    else:
        print(
            f"{model} ({built.source})",
            *([] if loss is None else [f"loss = {loss}"]),
            flow,
            sep="\n",
        )


@_command(
    "odekit solve attention_separate --heads 2 --rank 1 --dim 2 --context 31 --spectrum .6,.4 "
    "--init 1e-2 --time 2000",
    "odekit solve problem.toml --out run.npz",
)
def solve(
    source: Source,
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
    problem = problem_from(
        source,
        sizes=sizes_from(others, heads=heads, dim=dim, context=context, rank=rank),
        random=given(scale=init, seed=seed),
        solve=given(method=method),
        parameters=spectrum_from(spectrum),
        **given(time=time, points=points),
    )
    check_parent(out)
    show_solution(problem.solve(progress=sys.stderr.isatty()), out, as_json)


@_command(
    "odekit simulate attention_merged --heads 8 --dim 2 --context 31 --spectrum .6,.4 --init .1 "
    "--steps 2000 --batch 64"
)
def simulate(
    source: Source,
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
    checkpoint: Annotated[
        Path | None, typer.Option(help="File to go on from if it exists; written on the way.")
    ] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Train a published model: gradient descent on its exact expected loss, or SGD with --batch."""
    from odekit import simulate as training

    problem = problem_from(
        source,
        sizes=sizes_from(others, heads=heads, dim=dim, context=context, rank=rank),
        random=given(scale=init, seed=seed),
        parameters=spectrum_from(spectrum),
        time=steps,
    )
    if problem.model is None:
        raise InputError("Only a model can be trained; own [equations] have no data.")
    check_parent(out)
    check_parent(checkpoint)
    options: dict[str, Any] = {"y0": problem.y0, "lr": lr, "steps": steps}
    options |= {"checkpoint": checkpoint, "progress": step_teller(steps)}
    if batch is None:
        data = training.Population(problem.params)
        solution = training.gradient_descent(problem.model, data, **options)
    else:
        options |= {"params": problem.params, "batch": batch, "seed": seed or 0}
        solution = training.sgd(problem.model, **options)
    show_solution(solution, out, as_json)


@_command(
    "odekit sweep phases.toml --workers 2",
    "odekit sweep phases.toml --resume --retry",
)
def sweep(
    file: Annotated[Path, typer.Argument(help="A problem file with a sweep table.")],
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
    with counter() as show:
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
        print_json({"store": str(store), "runs": len(results), **counts, "names": results.names})
    else:
        print(f"{store}: {results}")
    if results.failures:
        number, reason = next(iter(results.failures.items()))
        point = ", ".join(f"{k} = {v}" for k, v in results.points[number].items())
        raise OdekitError(f"{counts['failed']} runs failed; the first, {point}: {reason}")


@_command("odekit claims mainali2025.eqA84 --quick")
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
    with listener(len(chosen)) as listen:
        for claim in chosen:
            listen(claim.id, "searches for counterexamples")
            verdicts.append(claim.check(quick=quick))
            listen(claim.id, "done")
    changed = [v.id for v in verdicts if known.get(v.id, v.status) != v.status]
    if as_json:
        found = [{**v.as_dict(), "recorded": known.get(v.id)} for v in verdicts]
        print_json({"claims": found, "changed": changed})
    elif len(chosen) == 1:
        print(story(chosen[0], verdicts[0]))
    else:
        from rich.console import Console

        Console().print(table(chosen, verdicts))
    for name in changed:
        print(f"odekit: {name}: recorded as {known[name]!r}", file=sys.stderr)
    if changed:
        raise typer.Exit(3)


@_command("odekit cache clear")
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
        print_json({"action": action, **dataclasses.asdict(held), "path": str(held.path)})
        return
    size = f"{held.fields} fields, {held.modules} modules, {held.bytes / 1e6:.1f} MB"
    state = "off (ODEKIT_CACHE)" if not held.enabled else held.problem or "in use"
    print(f"{held.path}: {size}, {'cleared' if action == 'clear' else state}")
