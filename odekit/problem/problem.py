"""A problem: a field with its numbers, read from a TOML file or from a mapping of the same form."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError, unknown_name

if TYPE_CHECKING:
    from odekit.field import VectorField
    from odekit.models import Model
    from odekit.solution import Solution

__all__ = ["Problem", "build_model", "read_document", "read_problem"]

Array = NDArray[np.float64]

_KEYS = (
    "title",
    "model",
    "sizes",
    "equations",
    "loss",
    "parameters",
    "start",
    "random",
    "time",
    "points",
    "solve",
)
_RANDOM = {"scale": 1e-3, "seed": 0}
_SOLVE = ("method", "relative", "absolute")
MOST_POINTS = 10_000_000


@dataclasses.dataclass(frozen=True)
class Problem:
    """A vector field with everything that a run of it needs.

    Attributes
    ----------
    title : str
        What it is about.
    field : VectorField
        A published model's flow, or the user's equations.
    y0 : mapping
        State name to array, the state at t = 0.
    t : float or ndarray (K,)
        End time, or output times, in the field's unit of time.
    params : mapping
        Parameter name to number or array.
    method : str
        As in `odekit.solve`.
    relative, absolute : float or None
        As in `odekit.Tolerance`.
    model : Model or None
        The published model that the field is the flow of; None for own equations.
    """

    title: str
    field: VectorField
    y0: Mapping[str, Array]
    t: float | Array
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    method: str = "auto"
    relative: float | None = None
    absolute: float | None = None
    model: Model | None = None

    @classmethod
    def from_mapping(
        cls, document: Mapping[str, Any], title: str = "problem", *, share: bool = False
    ) -> Problem:
        """Make a problem from a mapping of the form of a problem file (see `read_problem`).

        Parameters
        ----------
        document : mapping
        title : str
            Where the document has none.
        share : bool
            Whether problems with the same equations share one field, as the runs of a sweep do.

        Raises
        ------
        InputError
            For an unknown key or name, a missing one, or a value of the wrong kind.
        """
        _check_keys("key", document, _KEYS)
        if ("model" in document) == ("equations" in document):
            raise InputError("A problem names either a model or its own [equations], and not both.")
        if "time" not in document:
            raise InputError("A problem needs its time: the end, or a list of output times.")
        params = {name: read_value(name, v) for name, v in _table(document, "parameters").items()}
        flow, model = (_shared_field if share else _field)(document, params)
        solve = _table(document, "solve")
        _check_keys("key in [solve]", solve, _SOLVE)
        for key in ("relative", "absolute"):
            if key in solve and (isinstance(solve[key], bool) or np.ndim(solve[key])):
                raise InputError(f"{key} in [solve] is a number, got {solve[key]!r}.")
            if key in solve:
                read_value(key, solve[key])
        return cls(
            title=str(document.get("title", title)),
            field=flow,
            model=model,
            y0=_start(document, flow),
            t=_times(document),
            params=params,
            **solve,
        )

    def solve(self, **options: Any) -> Solution:
        """Integrate it; options are passed on to `odekit.solve`.

        Returns
        -------
        Solution
        """
        from odekit.integrate import Tolerance, solve

        given = (self.relative, self.absolute) != (None, None)
        tolerance = Tolerance(self.relative, self.absolute) if given else None
        return solve(
            self.field,
            self.y0,
            self.t,
            self.params,
            method=self.method,
            tolerance=tolerance,
            **options,
        )


def read_problem(path: Path | str) -> Problem:
    """Read a problem file.

    Parameters
    ----------
    path : path
        TOML with a ``model`` and its ``[sizes]``, or ``[equations]`` and perhaps a ``loss`` as
        formulas; ``[parameters]`` (a number, an array, or ``{diagonal = [...]}``); the
        ``[start]`` of each state, or ``random = {scale = 1e-3, seed = 0}`` for those not given;
        ``time`` (its end, with ``points``, or a list); ``[solve]`` with ``method``, ``relative``
        and ``absolute`` tolerance. Of a sweep, the first point is taken (see `read_sweep`).

    Returns
    -------
    Problem

    Raises
    ------
    InputError
        For a file that is not TOML, and as in `Problem.from_mapping`.
    """
    from odekit.problem.sweeps import first_document

    return Problem.from_mapping(first_document(read_document(path)), Path(path).stem)


def read_document(path: Path | str) -> dict[str, Any]:
    """Read the mapping that a problem file holds; nothing in it is checked yet."""
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except RecursionError:
        raise InputError(f"{path} is nested too deeply.") from None
    except ValueError as error:  # not TOML, not UTF-8, a number of too many digits
        raise InputError(f"{path} is not TOML: {error}.") from error


def build_model(name: Any, sizes: Mapping[str, Any]) -> Model:
    """Build a published model by name, at the sizes given; the others stay symbols.

    Raises
    ------
    InputError
        For an unknown model, and for a size or an option that it does not have.
    """
    from odekit.models import REGISTRY

    if not isinstance(name, str) or name not in REGISTRY:
        raise unknown_name("model", str(name), REGISTRY)
    known = list(inspect.signature(REGISTRY[name]).parameters)
    for size in sizes:
        if size not in known:
            raise unknown_name(f"size of {name}", size, known)
    return REGISTRY[name](**sizes)


_built: dict[str, tuple[Any, Any]] = {}


def _shared_field(
    document: Mapping[str, Any], params: Mapping[str, Any]
) -> tuple[VectorField, Model | None]:
    """Build what a document names once in each process."""
    keys = ("model", "sizes", "equations", "loss")
    content = repr(
        [*(document.get(key) for key in keys), [(n, np.ndim(v)) for n, v in params.items()]]
    )
    found = _built.get(content)  # asked once: another thread may clear the memory
    if found is None:
        if len(_built) >= 64:
            _built.clear()
        found = _built[content] = _field(document, params)
    return found


def _field(
    document: Mapping[str, Any], params: Mapping[str, Any]
) -> tuple[VectorField, Model | None]:
    if "model" not in document:
        return _own_field(document, params), None
    if "loss" in document:
        raise InputError("A model brings its own loss; 'loss' goes with [equations].")
    model = build_model(document["model"], _table(document, "sizes"))
    return model.flow, model


def _own_field(document: Mapping[str, Any], params: Mapping[str, Any]) -> VectorField:
    import sympy as sp

    from odekit.field import vector_field
    from odekit.problem.formula import read_formula

    if "sizes" in document:
        raise InputError("[sizes] go with a model; own [equations] are scalar.")
    equations = _table(document, "equations")
    for name in (*equations, *params):
        if not name.isidentifier():
            raise InputError(f"{name!r} is no name; use letters, digits and '_'.")
    for name, value in params.items():
        if np.ndim(value):
            raise InputError(f"Parameter {name} of own equations is one number, got an array.")
    symbols = {name: sp.Symbol(name, real=True) for name in (*equations, *params)}
    rates = {symbols[name]: read_formula(text, symbols) for name, text in equations.items()}
    loss = read_formula(document["loss"], symbols) if "loss" in document else None
    return vector_field(rates, parameters=tuple(symbols[name] for name in params), loss=loss)


def _start(document: Mapping[str, Any], flow: VectorField) -> dict[str, Array]:
    """States as given; those that are not, drawn from one generator in the field's order."""
    given, names = _table(document, "start"), flow.state_names
    _check_keys("state in [start]", given, names)
    random = _table(document, "random")
    _check_keys("key in random", random, _RANDOM)
    if len(given) < len(names) and "equations" in document and not random:
        missing = [name for name in names if name not in given]
        raise InputError(f"[start] lacks {', '.join(missing)}; or give random = {{scale = 1e-3}}.")
    scale, seed = ({**_RANDOM, **random}[key] for key in _RANDOM)
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"The seed is a whole number of at least 0, got {seed!r}.")
    if not isinstance(scale, int | float) or not np.isfinite(scale) or scale < 0:
        raise InputError(f"The scale of the start is a number of at least 0, got {scale!r}.")
    values = {name: read_value(name, value) for name, value in given.items()}
    if len(given) == len(names):
        return values
    shapes = {name: s for name, s in _state_shapes(flow).items() if name not in given}
    for name, shape in shapes.items():
        if unknown := [size for size in shape if isinstance(size, str)]:
            raise InputError(
                f"State {name} has the open size {', '.join(unknown)}; give every size."
            )
    total = sum(map(math.prod, shapes.values()))
    draw = _few_normals if total <= _FEW else _normals
    normals, used, drawn = draw(seed, total), 0, {}
    for name, shape in shapes.items():
        size = math.prod(shape)
        drawn[name] = scale * normals[used : used + size].reshape(shape)
        used += size
    return {**drawn, **values}


_FEW = 1024


def _normals(seed: int, count: int) -> Array:
    return np.random.default_rng(seed).standard_normal(count)


_few_normals = functools.lru_cache(maxsize=1024)(_normals)
"""The points of a sweep often share their seeds; a generator takes longer to make than to use."""


@functools.lru_cache(maxsize=64)
def _state_shapes(flow: VectorField) -> dict[str, tuple[Any, ...]]:
    """Shapes of the states by name; an open size is the text of its symbol."""
    from odekit.field import ScalarField, TensorField

    if isinstance(flow, TensorField):
        shapes: dict[str, tuple[Any, ...]] = {state.name: state.shape for state in flow.states}
    else:
        assert isinstance(flow, ScalarField)
        shapes = {name: shape for name, (shape, _) in flow.state_groups.items()}
    return {
        name: tuple(int(text) if (text := str(size)).isdecimal() else text for size in shape)
        for name, shape in shapes.items()
    }


def _times(document: Mapping[str, Any]) -> float | Array:
    time, points = read_value("time", document["time"]), document.get("points")
    if time.ndim:
        if points is not None:
            raise InputError("'points' goes with one end time; the list of times is given.")
        return time
    if points is None:
        return float(time)
    if isinstance(points, bool) or not isinstance(points, int) or not 2 <= points <= MOST_POINTS:
        raise InputError(
            f"'points' is a whole number of at least 2, at most {MOST_POINTS}, got {points!r}."
        )
    return np.linspace(0.0, float(time), points)


def read_value(name: str, value: Any) -> Array:
    if isinstance(value, Mapping):
        _check_keys(f"key of {name}", value, ("diagonal",))
        return np.diag(read_value(name, value.get("diagonal", [])))
    try:
        array = np.asarray(value)
        # NumPy would read the text "1" and the truth value true as numbers.
        if array.dtype.kind not in "iuf" and not all(
            isinstance(each, int) and not isinstance(each, bool) for each in array.flat
        ):
            raise TypeError
        array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{name} must be a number or an array of numbers, got {shown(value)}."
        ) from error
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite, got {shown(value)}.")
    return array


def shown(value: Any) -> str:
    """Show a value from a file in an error's one line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _table(document: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    table = document.get(key, {})
    if type(table) is not dict and not isinstance(table, Mapping):  # the quick way for a file's
        raise InputError(f"{key} must be a table ([{key}]), got {shown(table)}.")
    return table


def _check_keys(kind: str, table: Mapping[str, Any], known: Any) -> None:
    for key in table:
        if key not in known:
            raise unknown_name(kind, key, known)
