"""The hash of everything that determines a run: its code, its arguments, and the versions."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import inspect
import json
import sys
import types
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.metadata import distribution as metadata
from typing import Any

import numpy as np

from odekit.errors import InputError

__all__ = ["content_hash"]

_LIBRARIES = ("odekit", "numpy", "scipy", "sympy", "numba")


def content_hash(task: Any, arguments: Mapping[str, Any]) -> str:
    """Hash a task with its arguments.

    Parameters
    ----------
    task : callable
        Its source counts, and so do the functions and values that it names, as far as they are not
        from an installed package; of such a package the version counts.
    arguments : mapping
        Numbers, text, arrays, fields, and lists and mappings of them.

    Returns
    -------
    str
        32 hexadecimal digits, the same in every process and on every machine.

    Raises
    ------
    InputError
        For a value whose content cannot be read.
    """
    try:  # plain values, as from a file, the quick way
        description: Any = json.dumps(arguments, sort_keys=True)
    except (TypeError, ValueError):
        description = _described(arguments, "arguments")
    return _of(description, task_hash(task))


@functools.lru_cache(maxsize=64)
def task_hash(task: Any) -> str:
    """Hash the part that all runs of a task share."""
    return _of([_described(task, "task"), *(f"{name} {version(name)}" for name in _LIBRARIES)])


def _of(description: Any, first: str = "") -> str:
    return hashlib.sha256(f"{first}{description!r}".encode()).hexdigest()[:32]


def _described(value: Any, name: str, seen: tuple[int, ...] = ()) -> Any:
    """Describe a value by nested tuples of text, equal for equal contents."""
    if value is None or isinstance(value, bool | int | str | bytes):
        return (type(value).__name__, value)
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise InputError(f"{name} is an array of objects; give numbers.")
        content = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        return ("array", array.dtype.str, array.shape, content)
    if isinstance(value, Mapping):
        entries = ((str(k), _described(v, f"{name}[{k!r}]", seen)) for k, v in value.items())
        return ("mapping", *sorted(entries))
    if isinstance(value, list | tuple):
        return ("list", *(_described(v, f"{name}[{k}]", seen) for k, v in enumerate(value)))
    if isinstance(value, range):
        return ("range", value.start, value.stop, value.step)
    if isinstance(value, functools.partial):
        parts = (value.func, value.args, value.keywords)
        return ("partial", *(_described(part, name, seen) for part in parts))
    if isinstance(value, functools._lru_cache_wrapper):
        return ("remembered", _described(value.__wrapped__, name, seen))
    if isinstance(value, types.ModuleType):
        return ("module", value.__name__, _release(value.__name__))
    if isinstance(value, type | types.BuiltinFunctionType):
        return ("name", value.__module__, value.__qualname__, _release(value.__module__))
    if isinstance(value, types.FunctionType):
        return _function(value, name, seen)
    if _release(type(value).__module__) == "odekit" and hasattr(value, "infer_sizes"):
        from odekit.codegen.fingerprint import fingerprint

        return ("field", fingerprint(value, {}, ""))
    if type(value).__module__ == "odekit.codegen.compiled_field":
        return ("compiled", value.key)
    if isinstance(getattr(value, "py_func", None), types.FunctionType):  # compiled by Numba
        return ("compiled", _described(value.py_func, name, seen))
    if type(value).__module__ == "odekit.models.model":
        return ("model", value.name, repr(sorted(value.options.items(), key=str)))
    if dataclasses.is_dataclass(value):
        fields = ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value))
        described = (_described(v, f"{name}.{k}", seen) for k, v in fields)
        return ("dataclass", type(value).__module__, type(value).__qualname__, *described)
    if type(value).__module__.partition(".")[0] == "sympy":
        return ("sympy", str(value))
    raise InputError(
        f"The content of {name} ({type(value).__name__}) cannot be hashed; give it as numbers, "
        "text, arrays, lists, mappings or dataclasses, or make it inside the task."
    )


def _function(function: types.FunctionType, name: str, seen: tuple[int, ...]) -> Any:
    release = _release(function.__module__)
    if release:
        return ("name", function.__module__, function.__qualname__, release)
    if id(function) in seen:
        return ("again", seen.index(id(function)))
    seen = (*seen, id(function))
    code = function.__code__
    try:
        source: Any = inspect.getsource(function)
    except (OSError, TypeError):
        source = (code.co_code, repr([c for c in code.co_consts if not inspect.iscode(c)]))
    used: dict[str, Any] = {}
    for each in _names(code):
        if each in function.__globals__:
            used[each] = function.__globals__[each]
    for each, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        used[each] = cell.cell_contents
    inner = ((k, _described(v, f"{k!r}, which {name} uses", seen)) for k, v in used.items())
    defaults = _described([function.__defaults__, function.__kwdefaults__], name, seen)
    return ("function", function.__qualname__, source, defaults, *sorted(inner))


def _names(code: types.CodeType) -> set[str]:
    inner = (constant for constant in code.co_consts if inspect.iscode(constant))
    return set(code.co_names).union(*(_names(c) for c in inner))


@functools.cache
def _release(module: str) -> str:
    """Distribution and version that a module belongs to; empty for a user's own file.

    A package that is installed for editing is the user's own: its version says nothing.
    """
    top = module.partition(".")[0]
    if top == "odekit":
        return "odekit"  # its version counts for every task
    if top in sys.stdlib_module_names and top != "__main__":
        return f"python {sys.version_info[0]}.{sys.version_info[1]}"
    try:
        found = sorted(set(_distributions()[top]))
        return (
            ""
            if any(map(_edited, found))
            else " ".join(f"{name} {version(name)}" for name in found)
        )
    except (KeyError, PackageNotFoundError):
        return ""


def _edited(distribution: str) -> bool:
    """Whether a distribution is installed for editing (PEP 610)."""
    record = metadata(distribution).read_text("direct_url.json")
    return bool(record and json.loads(record).get("dir_info", {}).get("editable"))


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()
