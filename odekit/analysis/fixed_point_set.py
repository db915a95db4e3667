"""What `fixed_points` returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.errors import unknown_name

__all__ = ["FixedManifold", "FixedPoint", "FixedPointSet"]


@dataclass(frozen=True)
class FixedPoint(Mapping[str, NDArray[np.float64]]):
    """A fixed point: a mapping from names of states (or of the intermediate) to arrays.

    Parameters
    ----------
    values_by_name : mapping
        name -> float64 array.
    exact : mapping or None
        State symbol -> exact SymPy value, where all coordinates have one.
    multiplicity : int
        Multiplicity as a solution of the fixed-point equations; above one it is degenerate.
    residual : float
        Largest absolute rate at these values.
    note : str
        What else is known of it, for example which eigenvectors it has learned.
    lift : mapping or None
        For a point of function space: a state of the weights that is fixed and maps to it.
    loss : float or None
        The loss there, in the units of the field's loss (points of function space).
    """

    values_by_name: Mapping[str, NDArray[np.float64]]
    exact: Mapping[sp.Symbol, sp.Expr] | None = None
    multiplicity: int = 1
    residual: float = 0.0
    note: str = ""
    lift: Mapping[str, NDArray[np.float64]] | None = None
    loss: float | None = None

    def __getitem__(self, name: str) -> NDArray[np.float64]:
        if name not in self.values_by_name:
            raise unknown_name("state", name, self.values_by_name)
        return self.values_by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_by_name)

    def __len__(self) -> int:
        return len(self.values_by_name)

    def __hash__(self) -> int:
        return hash(tuple((n, a.tobytes()) for n, a in self.values_by_name.items()))


@dataclass(frozen=True)
class FixedManifold:
    """A continuum of fixed points.

    Parameters
    ----------
    equations : tuple of Expr
        Polynomials that vanish on it (empty for a continuum known by its description).
    dimension : int
        Its dimension, confirmed at the sample by the rank of the equations' derivatives.
    sample : FixedPoint or None
        One real point of it.
    description : str
        In words.
    """

    equations: tuple[sp.Expr, ...]
    dimension: int
    sample: FixedPoint | None
    description: str = ""


@dataclass(frozen=True)
class FixedPointSet(Sequence[FixedPoint]):
    """Fixed points of a field.

    Parameters
    ----------
    points : tuple of FixedPoint
        Isolated real fixed points (in function space: isolated values of the intermediate).
    complete : bool
        Whether nothing is missing: every real fixed point is in ``points`` or satisfies the
        equations of one of ``manifolds``.
    method : str
        How they were found and certified.
    manifolds : tuple of FixedManifold
        Continua of fixed points.
    excluded : tuple of FixedPoint
        Real solutions that the assumptions on the states' symbols (such as ``positive``) rule out.
    note : str
        What is missing, what was filtered, what was assumed.
    """

    points: tuple[FixedPoint, ...]
    complete: bool
    method: str
    manifolds: tuple[FixedManifold, ...] = ()
    excluded: tuple[FixedPoint, ...] = field(default=())
    note: str = ""

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: Any) -> Any:
        return self.points[index]

    def __iter__(self) -> Iterator[FixedPoint]:
        return iter(self.points)

    def _repr_html_(self) -> str:
        complete = "complete" if self.complete else "perhaps not all"
        rows = [
            "".join(f"<td>{escape(text)}</td>" for text in (_shown(point), point.note))
            for point in self.points
        ]
        rows += [
            f"<td>a manifold of dimension {each.dimension}</td><td>{escape(each.description)}</td>"
            for each in self.manifolds
        ]
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<p>{complete}; {escape(self.method)}</p><table>{body}</table>"


def _shown(point: FixedPoint) -> str:
    if point.exact is not None:
        return ", ".join(f"{symbol} = {value}" for symbol, value in point.exact.items())
    with np.printoptions(precision=4, suppress=True):
        return ", ".join(f"{name} = {value}" for name, value in point.values_by_name.items())
