"""Sweeps in problem files: a ``[sweep]`` table beside the problem that it varies."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from odekit.errors import InputError, unknown_name
from odekit.problem.problem import Problem, read_document, read_value, shown

if TYPE_CHECKING:
    from odekit.sweep import Sweep

__all__ = ["first_document", "read_sweep", "run_document"]

_KINDS = ("solve", "ensemble", "simulate")
_KEYS = ("kind", "grid", "list", "record", "members", "seconds", "plateau", "lr", "steps", "batch")
_RANGE = ("from", "to", "points", "spacing")
_FORMULAS = ("parameters", "start", "random", "solve", "time", "points")
"""Where a text may be a formula in the sweep's names."""
_WORDS = ("method",)
_MOST_VALUES = 100_000
_MOST_STEPS = 1_000_000


def read_sweep(path: Path | str) -> Sweep:
    """Read a sweep from a problem file.

    Parameters
    ----------
    path : path
        A problem file (see `read_problem`) with a table ``[sweep]``:

        - ``grid``: name -> list of values, or ``{from, to, points, spacing = "linear" | "log"}``;
          or ``list``: an array of tables, a run each. A name with a dot is a place in the file
          (``"random.seed"``); any other is a variable, which the numbers of ``parameters``,
          ``start``, ``random``, ``solve``, ``time`` and ``points`` may use in formulas.
        - ``kind``: "solve" (default), "ensemble" (``members`` starts from seeds that count up) or
          "simulate" (``lr``, ``steps``, and ``batch`` for SGD).
        - ``record``: some of "loss", "final" (default), "curve", "trajectory", "plateaus";
          ``plateau = {slope, lasting}`` says what a plateau is, ``seconds`` limits a run.

    Returns
    -------
    Sweep

    Raises
    ------
    InputError
        For a file that does not describe a sweep; nothing in it is evaluated as Python.
    """
    from odekit.sweep import plan

    document = read_document(path)
    title = str(document.get("title", Path(path).stem))
    if "sweep" not in document:
        raise InputError(f"{path} has no [sweep]; run it with 'odekit solve'.")
    table = _table(document["sweep"], "[sweep]")
    points, axes = _points(table)
    options = _options(table)
    base = {key: value for key, value in document.items() if key != "sweep"}

    def arguments(point: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"document": document_at(base, point), **options}

    # What is wrong at one point is mostly wrong at all: told before anything runs.
    for point in (points[0], points[-1]):
        problem = Problem.from_mapping(document_at(base, point), title, share=True)
        if options["kind"] == "simulate" and problem.model is None:
            raise InputError("Only a model can be trained; own [equations] have no data.")
    runs = plan.planned(run_document, points, {}, arguments)
    return plan.Sweep(run_document, runs, axes, title)


def first_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the problem at the first point of a sweep; any other document as it is."""
    if "sweep" not in document:
        return dict(document)
    points, _ = _points(_table(document["sweep"], "[sweep]"))
    base = {key: value for key, value in document.items() if key != "sweep"}
    return document_at(base, points[0])


def document_at(document: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    """Put a point's values into a document."""
    out = dict(document)
    names = _Names({name: value for name, value in point.items() if "." not in name})
    for path, value in point.items():
        if "." in path:
            *tables, last = path.split(".")
            place = out
            for table in tables:
                held = place.get(table, {})
                if not isinstance(held, dict):
                    raise InputError(f"{path!r} of the sweep is no place in the file.")
                # What is not changed is shared with the other points.
                place[table] = place = dict(held)
            place[last] = value
    for key in _FORMULAS:
        if key in out:
            out[key] = _filled(out[key], key, names)
    for name in names:
        if name not in names.used:
            raise InputError(
                f"{name!r} of the sweep is used in no formula; a place in the file is written with "
                "a dot, such as 'random.seed'."
            )
    return out


class _Names(dict[str, Any]):
    """Variables, remembering which were asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.used.add(name)
        return dict.__getitem__(self, name)


def _filled(value: Any, key: str, names: _Names) -> Any:
    from odekit.problem.formula import read_number

    kind = type(value)
    if kind is str and key not in _WORDS:
        return read_number(value, names)
    if kind is list:
        return [each if type(each) is float else _filled(each, key, names) for each in value]
    if kind is dict:
        return {name: _filled(each, name, names) for name, each in value.items()}
    return value


def _points(
    table: Mapping[str, Any],
) -> tuple[list[dict[str, Any]], dict[str, tuple[Any, ...]]]:
    from odekit.sweep.plan import MOST_RUNS

    for key in table:
        if key not in _KEYS:
            raise unknown_name("key in [sweep]", key, _KEYS)
    if ("grid" in table) == ("list" in table):
        raise InputError("[sweep] has either a grid or a list, and not both.")
    if "grid" in table:
        grid = _table(table["grid"], "[sweep.grid]")
        axes = {_name(name): _values(name, along) for name, along in grid.items()}
        count = 1
        for along in axes.values():
            count *= len(along)
        if not axes or count > MOST_RUNS:
            raise InputError(f"The grid has {count if axes else 0} points; 1 to {MOST_RUNS} do.")
        points = [dict(zip(axes, p, strict=True)) for p in itertools.product(*axes.values())]
        return points, axes
    rows = table["list"]
    if not isinstance(rows, list) or not 1 <= len(rows) <= MOST_RUNS:
        raise InputError(f"The list of [sweep] is 1 to {MOST_RUNS} tables, got {shown(rows)}.")
    return [
        {_name(name): _value(name, v) for name, v in _table(row, "[[sweep.list]]").items()}
        for row in rows
    ], {}


def _name(name: str) -> str:
    if not all(part.isidentifier() for part in name.split(".")):
        raise InputError(
            f"{shown(name)} is no name; use letters, digits, '_', and dots for places."
        )
    return name


def _values(name: str, along: Any) -> tuple[Any, ...]:
    if isinstance(along, Mapping):
        return _range(name, along)
    if not isinstance(along, list) or not 1 <= len(along) <= _MOST_VALUES:
        raise InputError(f"{name!r} takes 1 to {_MOST_VALUES} values in a list, or a range.")
    return tuple(_value(name, value) for value in along)


def _value(name: str, value: Any) -> Any:
    words = "." in name and isinstance(value, str)  # such as "solve.method"
    if isinstance(value, bool) or not (words or isinstance(value, int | float)):
        raise InputError(f"The values of {name!r} must be numbers, got {shown(value)}.")
    if not words:
        read_value(name, value)
    return value


def _range(name: str, along: Mapping[str, Any]) -> tuple[float, ...]:
    for key in along:
        if key not in _RANGE:
            raise unknown_name(f"key in the range of {name!r}", key, _RANGE)
    if any(key not in along for key in _RANGE[:3]):
        raise InputError(f"The range of {name!r} needs from, to and points.")
    low, high = (float(_value(name, along[key])) for key in ("from", "to"))
    count = _whole(f"points of {name!r}", along["points"], 1, _MOST_VALUES)
    spacing = along.get("spacing", "linear")
    if spacing not in ("linear", "log"):
        raise unknown_name(f"spacing of {name!r}", str(spacing), ("linear", "log"))
    if spacing == "log" and not (low > 0 and high > 0):
        raise InputError(f"The range of {name!r} is logarithmic: its ends must be positive.")
    make = np.geomspace if spacing == "log" else np.linspace
    return tuple(float(value) for value in make(low, high, count))


def _options(table: Mapping[str, Any]) -> dict[str, Any]:
    """Read what all runs of the sweep share."""
    from odekit.sweep.quantities import RECORDS

    kind = table.get("kind", "solve")
    if kind not in _KINDS:
        raise unknown_name("kind of sweep", str(kind), _KINDS)
    allowed = {"ensemble": ("members",), "simulate": ("lr", "steps", "batch"), "solve": ()}
    for key in ("members", "lr", "steps", "batch"):
        if key in table and key not in allowed[kind]:
            raise InputError(f"{key!r} does not go with a sweep of kind {kind!r}.")
    records = table.get("record", ["loss", "final"])
    if not isinstance(records, list) or not records:
        raise InputError(f"record is a list of {', '.join(RECORDS)}, got {shown(records)}.")
    for record in records:
        if record not in RECORDS:
            raise unknown_name("record", str(record), RECORDS)
    if kind != "solve" and not set(records) <= {"loss", "final", "curve"}:
        raise InputError(f"A sweep of kind {kind!r} records loss, final or curve.")
    options: dict[str, Any] = {"kind": kind, "record": list(records)}
    if kind == "ensemble":
        options["members"] = _whole("members", table.get("members", 10), 1, 100_000)
    if kind == "simulate":
        options["lr"] = _positive("lr", table.get("lr", 0.05))
        options["steps"] = _whole("steps", table.get("steps", 10_000), 1, 10**9)
        if "batch" in table:
            options["batch"] = _whole("batch", table["batch"], 1, 10**7)
    if "seconds" in table:
        options["seconds"] = _positive("seconds", table["seconds"])
    plateau = _table(table.get("plateau", {}), "plateau")
    for key, value in plateau.items():
        if key not in ("slope", "lasting"):
            raise unknown_name("key of plateau", key, ("slope", "lasting"))
        _positive(key, value)
    if plateau:
        options["plateau"] = dict(plateau)
    return options


def _whole(name: str, value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{name} is a whole number from {least} to {most}, got {shown(value)}.")
    return value


def _positive(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e300:
        raise InputError(f"{name} is a positive number, got {shown(value)}.")
    return float(value)


def _table(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"{name} must be a table, got {shown(value)}.")
    return value


_compiled: dict[tuple[Any, ...], Any] = {}


def _compiled_for(problem: Problem) -> Any:
    """Compile a problem's field once in each process; its runs share it."""
    from odekit.codegen import compile as compile_field

    field: Any = problem.field
    sizes = _size_names(field)
    key = (
        field,  # told apart by identity
        *((name, np.shape(value)) for name, value in problem.y0.items()),
        *((n, float(v) if n in sizes else np.shape(v)) for n, v in problem.params.items()),
    )
    found = _compiled.get(key)  # asked once: another thread may clear the memory
    if found is None:
        if len(_compiled) >= 64:
            _compiled.clear()
        inferred = field.infer_sizes(problem.y0, problem.params, {})
        found = _compiled[key] = compile_field(field, inferred)
    return found


@functools.lru_cache(maxsize=64)
def _size_names(field: Any) -> frozenset[str]:
    return frozenset(str(symbol) for symbol in getattr(field, "size_symbols", ()))


def run_document(
    document: Mapping[str, Any],
    kind: str,
    record: list[str],
    members: int = 1,
    seconds: float | None = None,
    plateau: Mapping[str, Any] | None = None,
    lr: float = 0.05,
    steps: int = 1,
    batch: int | None = None,
) -> Mapping[str, Any]:
    """Do one run of a sweep file: the task of `read_sweep`.

    Returns
    -------
    mapping
        Name -> array, as ``record`` says.
    """
    from odekit.integrate import Limits, Tolerance, ensemble, solve
    from odekit.sweep.quantities import ensemble_quantities, solution_quantities

    problem = Problem.from_mapping(document, share=True)
    records = tuple(record)
    if kind == "simulate":
        return solution_quantities(_trained(problem, document, lr, steps, batch), records)
    compiled = _compiled_for(problem)
    given = (problem.relative, problem.absolute) != (None, None)
    options: dict[str, Any] = {"method": problem.method}
    if given:
        options["tolerance"] = Tolerance(problem.relative, problem.absolute)
    if seconds is not None:
        options["limits"] = Limits(seconds=seconds)
    if kind == "ensemble":
        seed = dict(document.get("random", {})).get("seed", 0)
        starts = []
        for number in range(members):
            random = {**document.get("random", {}), "seed": seed + number}
            starts.append(Problem.from_mapping({**document, "random": random}, share=True).y0)
        runs = ensemble(compiled, starts, problem.t, problem.params, workers=1, **options)
        return ensemble_quantities(runs)
    times: Any = problem.t
    if not {"curve", "trajectory"} & set(records):
        times = np.atleast_1d(times)[-1:]  # the way there is not kept
    out: dict[str, Any] = {}
    if set(records) != {"plateaus"}:
        run = solve(compiled, problem.y0, times, problem.params, **options)
        out = solution_quantities(run, records)
    if "plateaus" in records:
        out |= _plateaus(compiled, problem, plateau or {}, options)
    return out


def _plateaus(
    compiled: Any, problem: Problem, plateau: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """Read the plateaus off the steps of a run to the end, which lie close where the loss falls."""
    from odekit.integrate import Plateau, Save, solve
    from odekit.sweep.plateaus import can_read, read_plateaus
    from odekit.sweep.quantities import plateau_quantities, solution_quantities, watched_plateaus

    if compiled.loss is None:
        raise InputError("record 'plateaus' needs a loss; give the file one, or leave it out.")
    end = float(np.atleast_1d(problem.t)[-1])
    save = Save(dense=False, points=_MOST_STEPS)
    run = solve(compiled, problem.y0, end, problem.params, save=save, **options)
    solution_quantities(run, ())  # raises for a run that failed
    blocks = run.stats["method"] == "Rodas5P-blocks"
    if blocks or run.loss is None or not can_read(run.t, run.loss):
        # Components have no common steps; few steps, or a loss without a sign, are looked into.
        watched = Plateau(**plateau)
        run = solve(compiled, problem.y0, [end], problem.params, events=watched, **options)
        return plateau_quantities(watched_plateaus(run))
    return plateau_quantities(read_plateaus(run.t, run.loss, **plateau))


def _trained(
    problem: Problem, document: Mapping[str, Any], lr: float, steps: int, batch: int | None
) -> Any:
    from odekit.simulate import Population, gradient_descent, sgd

    options: dict[str, Any] = {"y0": problem.y0, "lr": lr, "steps": steps}
    if batch is None:
        return gradient_descent(problem.model, Population(problem.params), **options)
    seed = dict(document.get("random", {})).get("seed", 0)
    return sgd(problem.model, params=problem.params, batch=batch, seed=seed, **options)
