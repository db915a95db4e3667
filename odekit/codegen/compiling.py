"""`compile`: from a vector field to machine code."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from odekit.codegen.compiled_field import CompiledField
from odekit.codegen.recipe import Recipe, assemble
from odekit.codegen.store import read_record, write_record
from odekit.errors import InputError, unknown_name

if TYPE_CHECKING:
    from odekit.field import ScalarField, TensorField

__all__ = ["compile"]

_lock = threading.Lock()
_known: weakref.WeakKeyDictionary[Any, dict[Any, CompiledField]] = weakref.WeakKeyDictionary()


def compile(
    field: Any, sizes: Mapping[str, Any] | None = None, effort: str = "full"
) -> CompiledField:
    """Compile a vector field to machine code, or take it from the cache.

    Parameters
    ----------
    field : TensorField, ScalarField or Model
        A model is taken as its flow; a compiled field is returned as it is.
    sizes : mapping, optional
        Size name -> int, for sizes that are symbols in the field. They are fixed in the code, as
        is any other symbol that is named here; the remaining parameters stay arguments.
    effort : {"full", "quick"}
        "full" for the fastest call, "quick" for the least time to the first one.

    Returns
    -------
    CompiledField
        Functions of flat float64 arrays; its ``.layout`` says where things are.

    Raises
    ------
    InputError
        For a size that is missing, unknown or not a positive integer.

    Warns
    -----
    CacheWarning
        When the cache on the disk cannot be used; the field is compiled all the same.
    """
    started = time.perf_counter()
    if isinstance(field, CompiledField):
        return field
    field = getattr(field, "flow", field)
    if effort not in ("full", "quick"):
        raise InputError(f"effort is {effort!r}; give 'full' or 'quick'")
    from odekit.field import ScalarField, TensorField

    if not isinstance(field, TensorField | ScalarField):
        raise InputError(
            f"compile takes a vector field, got {type(field).__name__}; make one with "
            "ok.gradient_flow or ok.vector_field"
        )
    fixed = read_sizes(field, sizes or {})
    request = (tuple(sorted(fixed.items())), effort)
    with _lock:
        found = _known.get(field, {}).get(request)
    if found is not None:
        return found
    from odekit.codegen.fingerprint import fingerprint

    key = fingerprint(field, fixed, effort)
    record = read_record(key)
    if record is None:
        recipe = (
            _tensor_recipe(field, fixed, effort)
            if isinstance(field, TensorField)
            else _scalar_recipe(field, effort)
        )
        write_record(key, recipe.to_json())
    else:
        recipe = Recipe.from_json(record)
    compiled = assemble(recipe, key, field, started)
    with _lock:
        _known.setdefault(field, {})[request] = compiled
    return compiled


def read_sizes(field: Any, sizes: Mapping[str, Any]) -> dict[str, int]:
    """Check the sizes that a field is to be compiled for."""
    given = {str(name): number for name, number in sizes.items()}
    needed = [str(s) for s in getattr(field, "size_symbols", ())]
    known = dict.fromkeys([*needed, *(str(s) for s in getattr(field, "symbols", ()))])
    constants = getattr(field, "constants", {})
    for name, number in given.items():
        if name in constants:
            if number != constants[name]:
                raise InputError(
                    f"{name} is fixed at {constants[name]} in this field, not {number}"
                )
        elif name not in known:
            raise unknown_name("size", name, known)
        elif isinstance(number, bool) or int(number) != number or number < 1:
            raise InputError(f"size {name} is {number}; give a positive integer")
    missing = [name for name in needed if name not in given]
    if missing:
        raise InputError(
            f"compile needs the sizes {', '.join(missing)}, as in sizes={{'{missing[0]}': 4}}"
        )
    return {name: int(number) for name, number in given.items() if name in known}


def _tensor_recipe(field: TensorField, fixed: Mapping[str, int], effort: str) -> Recipe:
    from odekit.codegen.module_source import jacobian_module, main_module, values_module
    from odekit.codegen.program import plan_field

    by_name = {str(s): s for s in (*field.size_symbols, *field.symbols)}
    known = {by_name[name]: number for name, number in fixed.items()}
    program = plan_field(field, known, effort)
    open_symbols = [s for s in field.symbols if s not in known]
    layout = {
        "states": program.states,
        "parameters": program.parameters,
        "scratch": program.scratch,
        "symmetries": tuple(
            (t.name, t.symmetric_groups) for t in field.parameters if t.symmetric_groups
        ),
        "covariances": tuple(t.name for t in field.covariances),
        "positive": tuple(str(s) for s in open_symbols if s.is_positive),
        "integers": tuple(str(s) for s in open_symbols if s.is_integer),
        "constants": tuple(sorted({**field.constants, **fixed}.items())),
    }
    return Recipe(
        main_module(program, effort),
        jacobian_module(program, effort),
        layout,
        effort,
        field.uniform,
        program.pattern,
        values=values_module(program, effort),
    )


def _scalar_recipe(field: ScalarField, effort: str) -> Recipe:
    from odekit.codegen.scalar_program import plan_scalar

    program = plan_scalar(field)
    layout = {
        "states": program.states,
        "parameters": program.parameters,
        "scratch": program.scratch,
        "symmetries": tuple((name, ((0, 1),)) for name in program.symmetric),
    }
    return Recipe(
        program.main,
        program.jacobian,
        layout,
        effort,
        field.uniform,
        program.pattern,
        values=program.values,
    )
