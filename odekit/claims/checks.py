"""What a claim rests on: identities that were proved and comparisons that were made."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from odekit.tensor.arithmetic import Arithmetic
from odekit.tensor.coefficient import to_sympy

__all__ = ["Check", "agreement", "identity"]

_LINE = 400  # characters of LaTeX that a reader takes in as one line


@dataclass(frozen=True)
class Check:
    """One comparison: it passes when the deviation does not exceed the bound.

    Attributes
    ----------
    what : str
        What is compared.
    deviation : float
        How far apart the two sides are. For an identity: the number of terms that are left of a
        difference which ought to vanish.
    bound : float
        What deviation is allowed; zero marks an exact identity.
    why : str
        Where the bound comes from.
    latex : str
        An identity's two sides; empty where one line does not hold them.
    """

    what: str
    deviation: float
    bound: float = 0.0
    why: str = ""
    latex: str = ""

    @property
    def passes(self) -> bool:
        """Whether the deviation is within its bound; NaN never is."""
        return bool(self.deviation <= self.bound)

    @property
    def exact(self) -> bool:
        """Whether it is an identity between polynomials or symbols."""
        return self.bound == 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        finite = bool(np.isfinite(self.deviation))
        return {
            "what": self.what,
            "deviation": self.deviation if finite else str(self.deviation),
            "bound": self.bound,
            "why": self.why,
            "latex": self.latex,
            "passes": self.passes,
        }


def identity(what: str, left: Any, right: Any = 0) -> Check:
    """Compare two expressions as polynomials: of tensors (definitions multiplied out) or symbols.

    Raises nothing: a difference that does not vanish is a check that fails.
    """
    difference = left - right
    if isinstance(difference, Arithmetic):
        return Check(what, _terms_left(difference), latex=_sides(left, right))
    left_over = sp.simplify(sp.sympify(difference))
    terms = 0 if left_over == 0 else max(1, len(sp.Add.make_args(left_over)))
    return Check(what, float(terms), latex=_sides(left, right))


def _terms_left(difference: Arithmetic) -> float:
    """Products of tensors whose coefficients, rational in the sizes, do not add up to zero."""
    coefficients: dict[Any, sp.Expr] = defaultdict(lambda: sp.S.Zero)
    for (factors, monomial), number in difference.as_expression().expand().terms.items():
        coefficients[factors] += to_sympy(monomial, number)
    return float(sum(sp.simplify(each) != 0 for each in coefficients.values()))


def _sides(left: Any, right: Any) -> str:
    first, second = (_latex(side) for side in (left, right))
    shown = first if first == second else f"{first} = {second}"
    return shown if first != "0" and len(shown) <= _LINE else ""


def _latex(side: Any) -> str:
    if isinstance(side, Arithmetic):
        return side.as_expression().latex()
    return str(sp.latex(sp.sympify(side)))


def agreement(what: str, left: Any, right: Any, bound: float, why: str = "") -> Check:
    """Compare numbers or arrays by their largest absolute difference."""
    first, second = np.asarray(left, dtype=np.float64), np.asarray(right, dtype=np.float64)
    gap = np.max(np.abs(first - second), initial=0.0)
    return Check(what, float(gap), bound, why)
