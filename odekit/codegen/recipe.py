"""All that a compiled field is but for its machine code: plain data, that keeps and travels.

This file and what it imports need neither SymPy nor SciPy, so a field that is known is loaded in
the time that NumPy and Numba take.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from odekit.codegen.compiled_field import CompiledField, Jacobian, RightHandSide
from odekit.codegen.layout import Layout
from odekit.codegen.store import digest, environment, load_module, read_record
from odekit.errors import InputError

__all__ = ["Recipe", "assemble", "load", "recall"]

Entries = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Recipe:
    """Source and layout of a compiled field.

    Parameters
    ----------
    main : str
        The module of ``rhs``, ``loss`` and ``prepare``.
    jacobian : str
        The module of ``jacobian``.
    layout : dict
        Arguments of `Layout`, without ``prepare``.
    effort : str
    symmetric : bool
    pattern : (rows, columns) or None
        Lists of int.
    autonomous : bool
    values : str
        The module of ``jacobian_values``; empty where there is none.
    """

    main: str
    jacobian: str
    layout: dict[str, Any]
    effort: str
    symmetric: bool
    pattern: tuple[list[int], list[int]] | None = None
    autonomous: bool = True
    values: str = ""

    def to_json(self) -> dict[str, Any]:
        """Plain data for a JSON file."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Recipe:
        """Read back what `to_json` wrote."""
        return cls(**{**data, "layout": {k: _tuples(v) for k, v in data["layout"].items()}})

    @functools.cached_property
    def key(self) -> str:
        """Content hash of the source, the layout and everything that machine code depends on."""
        return digest(json.dumps(self.to_json(), sort_keys=True), environment())[:32]


def assemble(
    recipe: Recipe, key: str = "", origin: Any = None, started: float | None = None
) -> CompiledField:
    """Load or compile a recipe's machine code.

    Parameters
    ----------
    recipe : Recipe
    key : str, optional
        Under which the field is known.
    origin : VectorField, optional
    started : float, optional
        When the caller began, by `time.perf_counter`.

    Returns
    -------
    CompiledField
    """
    started = time.perf_counter() if started is None else started
    module, from_cache = load_module(recipe.main)
    layout = Layout(**recipe.layout, prepare=getattr(module, "prepare", None))
    pattern = None
    if recipe.pattern is not None:
        rows, columns = (np.array(part, dtype=np.intp) for part in recipe.pattern)
        pattern = (rows, columns)
    return CompiledField(
        rhs=module.rhs,
        layout=layout,
        loss=getattr(module, "loss", None),
        source=recipe.main,
        key=key or recipe.key,
        effort=recipe.effort,
        compile_seconds=time.perf_counter() - started,
        from_cache=from_cache,
        symmetric=recipe.symmetric,
        pattern=pattern,
        autonomous=recipe.autonomous,
        make_jacobian=functools.partial(_jacobian, recipe.jacobian),
        make_values=functools.partial(_values, recipe.values) if recipe.values else None,
        rebuild=functools.partial(assemble, recipe, key),
        origin=origin,
    )


def _jacobian(source: str) -> Jacobian:
    module, _ = load_module(source)
    jacobian: Jacobian = module.jacobian
    return jacobian


def _values(source: str) -> RightHandSide:
    module, _ = load_module(source)
    values: RightHandSide = module.jacobian_values
    return values


def recall(key: str) -> CompiledField | None:
    """Load a field by the key it was compiled under, without deriving or planning anything.

    Parameters
    ----------
    key : str
        ``CompiledField.key`` of an earlier compilation by the same versions on this machine.

    Returns
    -------
    CompiledField or None
        None if the cache does not know it.
    """
    started = time.perf_counter()
    record = read_record(key)
    if record is None:
        return None
    return assemble(Recipe.from_json(record), key, None, started)


def save(compiled: CompiledField, path: str | Path) -> Path:
    """Write a compiled field's source and layout to a file, to be compiled or found elsewhere."""
    rebuild = compiled.rebuild
    if not isinstance(rebuild, functools.partial) or not isinstance(rebuild.args[0], Recipe):
        raise InputError("This compiled field was not made by ok.compile; it cannot be saved.")
    path = Path(path)
    path.write_text(json.dumps(rebuild.args[0].to_json()), encoding="utf-8")
    return path


def load(path: str | Path) -> CompiledField:
    """Load a compiled field that `save` wrote.

    The file holds Python source, which is run: load only files that you trust.
    """
    started = time.perf_counter()
    try:
        recipe = Recipe.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise InputError(f"{path} is not a saved compiled field ({error}).") from None
    return assemble(recipe, "", None, started)


def _tuples(value: Any) -> Any:
    """JSON's lists as the tuples they were."""
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value
