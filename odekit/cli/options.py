"""Options that several commands share, and what their text means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from odekit.errors import InputError, unknown_name

if TYPE_CHECKING:
    from odekit.problem import Problem

__all__ = [
    "Init",
    "Json",
    "Others",
    "Out",
    "Seed",
    "Size",
    "Source",
    "Spectrum",
    "check_parent",
    "given",
    "model_names",
    "problem_from",
    "sizes_from",
    "spectrum_from",
    "target_names",
]


def model_names(incomplete: str) -> list[str]:
    """Complete a published model's name in a shell."""
    from odekit.models import REGISTRY

    return [name for name in REGISTRY if name.startswith(incomplete)]


def target_names(incomplete: str) -> list[str]:
    """Complete a target's name in a shell."""
    from odekit.reproduce import discover

    return [name for name in discover() if name.startswith(incomplete)]


Source = Annotated[
    str,
    typer.Argument(
        metavar="FILE|MODEL", help="A problem file or a model.", autocompletion=model_names
    ),
]
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


def problem_from(source: str, **options: Any) -> Problem:
    """Make the problem of a file or of a model's name; options go over what the file says."""
    from odekit.problem import Problem, first_document, read_document

    is_file = source.endswith(".toml") or Path(source).is_file()
    if not is_file:
        from odekit.models import REGISTRY

        if source not in REGISTRY:
            raise unknown_name("file or model", source, REGISTRY)
    document = first_document(read_document(source)) if is_file else {"model": source}
    for key, value in options.items():
        if isinstance(value, dict):
            held: Any = document.get(key, {})
            if not isinstance(held, dict):
                raise InputError(f"{source}: {key!r} must be a table, got {held!r}.")
            value = {**held, **value}
        if value != {}:
            document[key] = value
    return Problem.from_mapping(document, Path(source).stem)


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


def sizes_from(others: Sequence[str] | None, **sizes: int | None) -> dict[str, Any]:
    """Merge the common sizes with ``--set`` options: numbers, comma-separated lists, or words."""
    chosen = given(**sizes)
    for item in others or ():
        name, equals, text = item.partition("=")
        if not equals or not text:
            raise InputError(f"--set takes NAME=VALUE, got {item!r}.")
        words = text.split(",")
        values = [int(word) if word.strip().isdecimal() else word for word in words]
        chosen[name] = values[0] if len(words) == 1 else values
    return chosen


def spectrum_from(text: str | None) -> dict[str, Any]:
    """Read eigenvalues into the parameter Lambda."""
    if text is None:
        return {}
    try:
        return {"Lambda": {"diagonal": [float(number) for number in text.split(",")]}}
    except ValueError:
        raise InputError(f"Expected numbers such as .4,.3,.2,.1, got {text!r}.") from None


def check_parent(out: Path | None) -> None:
    """Refuse an output file without a folder before the computation, not after it."""
    if out is not None and not out.parent.is_dir():
        raise InputError(f"Output folder {str(out.parent)!r} does not exist; make it first.")
