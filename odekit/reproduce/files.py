"""The files of a target: picture, numbers and provenance, each written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from odekit.errors import InputError
from odekit.reproduce.targets import Picture, Target

__all__ = [
    "atomic",
    "plain",
    "remove",
    "versions",
    "writable_folder",
    "write_json",
    "write_picture",
]

SUFFIXES = (".png", ".svg", ".json")
_LIBRARIES = ("odekit", "numpy", "scipy", "sympy", "numba", "matplotlib")


def versions() -> dict[str, str]:
    """Versions of Python and of the libraries that numbers depend on."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def writable_folder(path: Path) -> Path:
    """Make the folder if needed and check that files can be written into it.

    Raises
    ------
    InputError
        When it cannot be made or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InputError(
            f"Output folder {str(path)!r} cannot be written ({error.strerror or error}); "
            "choose another one."
        ) from error
    return path


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Give a path to write to, which becomes `path` only if the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix is kept: Matplotlib reads the format from it.
    draft = path.with_name(f".{path.stem}-{os.getpid()}{path.suffix}")
    try:
        yield draft
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def plain(value: Any, where: str = "numbers") -> Any:
    """Turn NumPy values into what strict JSON holds; NaN and infinities become null.

    Raises
    ------
    InputError
        For a value that JSON cannot hold, naming its place.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{place}]") for place, item in enumerate(value)]
    raise InputError(
        f"{where} is a {type(value).__name__}, which JSON cannot hold; give a number, a string, "
        "an array, a list or a mapping."
    )


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write strict JSON (RFC 8259: no NaN literal)."""
    text = json.dumps(plain(content, path.stem), indent=1, allow_nan=False, ensure_ascii=False)
    with atomic(path) as draft:
        draft.write_text(text + "\n", encoding="utf-8")


def write_picture(
    target: Target, picture: Picture, folder: Path, *, quick: bool, seconds: float
) -> tuple[Path, ...]:
    """Write ``<target>.png``, ``.svg`` and ``.json`` below a folder.

    The JSON holds the picture's numbers at top level and its provenance under ``meta``.

    Returns
    -------
    tuple of Path
        The files written.
    """
    import matplotlib as mpl

    if "meta" in picture.numbers:
        raise InputError(f"{target.name}: 'meta' is kept for provenance; rename that number.")
    png, svg, numbers = (folder / f"{target.name}{suffix}" for suffix in SUFFIXES)
    # A fixed salt and no date: the same numbers give the same SVG, byte for byte.
    with mpl.rc_context({"svg.hashsalt": target.name}):
        with atomic(svg) as draft:
            picture.figure.savefig(draft, metadata={"Date": None})
        with atomic(png) as draft:
            picture.figure.savefig(draft, dpi=160)
    meta = {
        "target": target.name,
        "title": target.title,
        "caption": picture.caption,
        "equations": picture.equations,
        "quick": quick,
        "seconds": round(seconds, 3),
        "versions": versions(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }
    write_json(numbers, {"meta": meta, **picture.numbers})
    return png, svg, numbers


def remove(target: Target, folder: Path) -> None:
    """Remove what an earlier run wrote for a target, so that it cannot pass for this run's."""
    for suffix in (*SUFFIXES, ".log"):
        (folder / f"{target.name}{suffix}").unlink(missing_ok=True)
