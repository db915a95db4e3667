"""What `conserved` returns: conserved quantities and the symmetries behind them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import sympy as sp

__all__ = ["Invariant", "Invariants", "Symmetry"]


@dataclass(frozen=True)
class Symmetry:
    """A one-parameter group of linear maps that leaves the loss unchanged.

    Parameters
    ----------
    description : str
        In words: a scaling, or a mixing of states.
    generator : object
        X of the group ``theta -> exp(s X) theta``: a SymPy matrix over the flat states, or for a
        tensor family a mapping state -> its infinitesimal change.
    infinitesimal : bool
        Whether ``grad L . X theta = 0`` was proved.
    finite : bool
        Whether ``L(exp(s X) theta) = L(theta)`` was confirmed at numbers and finite s.
    """

    description: str
    generator: Any
    infinitesimal: bool
    finite: bool


@dataclass(frozen=True)
class Invariant:
    """One conserved quantity.

    Parameters
    ----------
    expression : sympy.Expr or TensorExpr
        The quantity; a tensor family has one conserved number for each entry.
    degree : int
        Its degree in the states.
    generator : object or None
        Generator of the symmetry of the loss (see `Symmetry`); None without a loss.
    symmetry : Symmetry or None
        The symmetry that it comes from; None when the field is not a gradient flow.
    proof : str
        "exact" (the time derivative was brought to zero symbolically), or "modular": it vanishes
        at random points modulo a prime, in number enough to leave a chance of error below 1e-30.
    """

    expression: Any
    degree: int
    generator: Any = None
    symmetry: Symmetry | None = None
    proof: Literal["exact", "modular"] = "exact"

    def __str__(self) -> str:
        return f"{self.expression} = constant"

    def latex(self) -> str:
        """The quantity as LaTeX, without delimiters."""
        own = getattr(self.expression, "latex", None)
        return str(own() if own is not None else sp.latex(self.expression))

    def _repr_latex_(self) -> str:
        return rf"$\displaystyle {self.latex()} = \mathrm{{const}}$"


@dataclass(frozen=True)
class Invariants(Sequence[Invariant]):
    """Conserved quantities, in order of degree.

    Parameters
    ----------
    items : tuple of Invariant
        The quantities.
    complete : {"degree", "class", None}
        "degree": every polynomial invariant of at most this degree is a combination (of products)
        of these, at these sizes and for generic parameters. "class": every invariant of the class
        of tensor contractions that was searched, at every size. None: others may exist.
    note : str
        What was searched, and what was not.
    """

    items: tuple[Invariant, ...]
    complete: Literal["degree", "class"] | None
    note: str = ""

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> Invariant: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Invariant]: ...
    def __getitem__(self, index: int | slice) -> Invariant | Sequence[Invariant]:
        return self.items[index]

    def __iter__(self) -> Iterator[Invariant]:
        return iter(self.items)

    def __str__(self) -> str:
        lines = [str(item) for item in self.items] or ["no conserved quantity found"]
        return "\n".join([*lines, f"({self.note})"] if self.note else lines)

    def _repr_latex_(self) -> str:
        rows = [rf"{item.latex()} &= \mathrm{{const}}" for item in self.items]
        rows = rows or [r"&\text{no conserved quantity found}"]
        return r"$\displaystyle \begin{aligned}" + r" \\ ".join(rows) + r"\end{aligned}$"
