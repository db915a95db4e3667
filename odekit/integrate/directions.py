"""Directions in the space of initial states and parameters, and how a user names them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.codegen.layout import Layout
from odekit.errors import InputError, unknown_name

__all__ = ["Direction", "read_directions", "unit_of"]

Array = NDArray[np.float64]

LOG_SCALE = "log scale"
DEGENERATE = 1e-8
"""Eigenvalues closer than this share of the largest have no eigenvectors of their own."""


@dataclass(frozen=True, eq=False)
class Direction:
    """A direction in which the initial state and the parameters change together.

    Parameters
    ----------
    label : str
        Its name in the results.
    states : mapping
        State name -> array of the state's shape, the derivative of the initial state; zero for
        what is left out.
    params : mapping
        Parameter name -> number or array of the parameter's shape.
    """

    label: str
    states: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)


def read_directions(
    to: Any, layout: Layout, y0: Mapping[str, Array], params: Mapping[str, Array]
) -> list[Direction]:
    """Read what a user asks for.

    Parameters
    ----------
    to : str, Direction, or a sequence of them
        See `odekit.integrate.sensitivities`.
    layout : Layout
        Of the field.
    y0, params : mapping
        Arrays by name.

    Returns
    -------
    list of Direction
        With complete arrays for the states and parameters that each changes.
    """
    asked: Sequence[Any] = [to] if isinstance(to, str | Direction) else _listed(to)
    out: list[Direction] = []
    for item in asked:
        out += [item] if isinstance(item, Direction) else _named(item, layout, y0, params)
    if not out:
        raise InputError("sensitivities needs at least one direction in to=.")
    labels = [direction.label for direction in out]
    for label in labels:
        if labels.count(label) > 1:
            raise InputError(f"Two directions are called {label!r}; give each once.")
    return [_complete(direction, layout) for direction in out]


def unit_of(direction: Direction, y0: Mapping[str, Array], params: Mapping[str, Array]) -> float:
    """A natural size of a step along a direction: one that changes something by its own size."""
    shares = [
        float(np.max(np.abs(change))) / size
        for changes, values in ((direction.states, y0), (direction.params, params))
        for name, change in changes.items()
        if (size := float(np.max(np.abs(values[name]), initial=0.0))) > 0
    ]
    largest = max(shares, default=0.0)
    return 1 / largest if largest > 0 else 1.0


def _listed(to: Any) -> list[Any]:
    if not isinstance(to, Iterable) or isinstance(to, Mapping):
        raise InputError(f"to= takes names and ok.Direction values, got {type(to).__name__}.")
    return list(to)


def _named(
    text: Any, layout: Layout, y0: Mapping[str, Array], params: Mapping[str, Array]
) -> list[Direction]:
    if not isinstance(text, str):
        text = getattr(text, "name", text)
    if not isinstance(text, str):
        raise InputError(f"A direction is a name or an ok.Direction, got {type(text).__name__}.")
    if text == LOG_SCALE:
        return [Direction(LOG_SCALE, dict(y0))]
    eigenvalues = re.fullmatch(r"\s*eigenvalues\((?P<name>.+)\)\s*", text)
    if eigenvalues:
        return _eigenvalues(eigenvalues["name"].strip(), params)
    match = re.fullmatch(r"\s*(?P<name>[^\[\]]+?)\s*(\[(?P<index>[\d\s,]+)\])?\s*", text)
    name = match["name"] if match else text
    shapes = {**dict(layout.parameters), **dict(layout.states)}
    if match is None or name not in shapes:
        raise unknown_name(
            "direction", name, [*shapes, LOG_SCALE, *(f"eigenvalues({n})" for n in _square(params))]
        )
    shape = shapes[name]
    groups = _symmetries(layout).get(name, ())
    if match["index"] is None:
        wanted = [index for index in np.ndindex(*shape) if index == _sorted(index, groups)]
    else:
        wanted = [tuple(int(part) for part in match["index"].split(",") if part.strip())]
    kind = "states" if name in layout.slices else "params"
    return [Direction(**_entry(name, shape, groups, kind, index)) for index in wanted]


def _entry(
    name: str, shape: tuple[int, ...], groups: Any, kind: str, index: tuple[int, ...]
) -> dict[str, Any]:
    if len(index) != len(shape) or any(i >= n for i, n in zip(index, shape, strict=True)):
        raise InputError(
            f"{name}{list(index)} is not an entry of {name!r}, which has shape {shape}."
        )
    change = np.zeros(shape)
    # The entries that a symmetry ties together move together.
    for other in np.ndindex(*shape):
        if _sorted(other, groups) == _sorted(index, groups):
            change[other] = 1.0
    return {"label": f"{name}{list(index)}" if shape else name, kind: {name: change}}


def _sorted(index: tuple[int, ...], groups: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    out = list(index)
    for group in groups:
        for axis, value in zip(group, sorted(index[axis] for axis in group), strict=True):
            out[axis] = value
    return tuple(out)


def _symmetries(layout: Layout) -> dict[str, tuple[tuple[int, ...], ...]]:
    matrices = {name: ((0, 1),) for name in (*layout.symmetric, *layout.covariances)}
    return {**matrices, **dict(layout.symmetries)}


def _square(params: Mapping[str, Array]) -> list[str]:
    return [n for n, a in params.items() if a.ndim == 2 and a.shape[0] == a.shape[1]]


def _eigenvalues(name: str, params: Mapping[str, Array]) -> list[Direction]:
    """Each eigenvalue of a symmetric parameter, its eigenvector held fixed; largest first."""
    if name not in _square(params):
        raise InputError(f"{name!r} is no square parameter; eigenvalues({name}) has no meaning.")
    values, vectors = np.linalg.eigh(params[name])
    values, vectors = values[::-1], vectors[:, ::-1]
    if bool(np.any(np.abs(np.diff(values)) <= DEGENERATE * np.max(np.abs(values)))):
        raise InputError(
            f"{name} has equal eigenvalues, whose eigenvectors are not unique; name the direction "
            f'yourself, as in ok.Direction("first", params={{"{name}": np.outer(e, e)}}).'
        )
    return [
        Direction(f"eigenvalue {k} of {name}", params={name: np.outer(e, e)})
        for k, e in enumerate(vectors.T)
    ]


def _complete(direction: Direction, layout: Layout) -> Direction:
    parts: list[dict[str, Array]] = []
    for kind, changes, entries in (
        ("state", direction.states, layout.states),
        ("parameter", direction.params, layout.parameters),
    ):
        shapes, own = dict(entries), {}
        if not isinstance(changes, Mapping):
            raise InputError(
                f"Direction {direction.label!r}: the {kind}s' changes must be a mapping from name "
                f"to array, got {type(changes).__name__}."
            )
        for name, change in changes.items():
            key = str(getattr(name, "name", name))
            if key not in shapes:
                raise unknown_name(kind, key, shapes)
            try:
                array = np.asarray(change, dtype=np.float64)
            except (TypeError, ValueError, OverflowError):
                raise InputError(
                    f"Direction {direction.label!r} changes {key!r} by something that is no array "
                    f"of numbers; give finite numbers of shape {shapes[key]}."
                ) from None
            if array.shape != shapes[key] or not bool(np.isfinite(array).all()):
                raise InputError(
                    f"Direction {direction.label!r} changes {key!r} by an array of shape "
                    f"{array.shape}; give finite numbers of shape {shapes[key]}."
                )
            own[key] = array
        parts.append(own)
    return Direction(direction.label, *parts)
