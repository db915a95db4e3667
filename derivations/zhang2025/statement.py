"""A statement of the paper, with what it rests on and the checks that were just run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy as sp

import odekit as ok


@dataclass(frozen=True)
class Check:
    """One comparison: it passes when the deviation does not exceed the bound.

    A bound of zero marks an exact identity: the deviation then counts the terms that are left
    of a difference which ought to vanish.
    """

    what: str
    deviation: float
    bound: float = 0.0

    @property
    def passes(self) -> bool:
        """Whether the deviation is within its bound."""
        return self.deviation <= self.bound


@dataclass(frozen=True)
class Statement:
    """A numbered statement.

    Attributes
    ----------
    number : str
        Number in this derivation, as in derivations/README.md.
    says : str
        The statement in words, as it holds.
    equations : tuple of str
        LaTeX.
    assumes : tuple of str
        What it needs beyond the data of the paper.
    corrects : str
        What is wrong or missing in the notes on the paper; empty if nothing is.
    checks : tuple of Check
        Run when the statement was made.
    """

    number: str
    says: str
    equations: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()
    corrects: str = ""
    checks: tuple[Check, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether there are checks and all of them pass."""
        return bool(self.checks) and all(check.passes for check in self.checks)

    @property
    def exact(self) -> bool:
        """Whether every check is an identity."""
        return all(check.bound == 0 for check in self.checks)


def identical(what: str, left: Any, right: Any = 0) -> Check:
    """Compare two expressions as polynomials: of tensors, or of SymPy symbols."""
    difference = left - right
    if hasattr(difference, "terms") and hasattr(difference, "expand"):
        return Check(what, float(len(difference.expand().terms)))
    left_over = sp.simplify(sp.sympify(difference))
    return Check(what, float(0 if left_over == 0 else max(1, len(sp.Add.make_args(left_over)))))


def named(flow: Any, name: str) -> Any:
    """Return the named intermediate or parameter of a flow as a tensor."""
    tensors = (*(tensor for tensor, _ in flow.definitions), *flow.parameters)
    for tensor in tensors:
        if tensor.name == name:
            return tensor
    raise ok.InputError(f"the flow has no {name}; it has {', '.join(t.name for t in tensors)}")


def body(flow: Any, name: str) -> Any:
    """Return what a named intermediate of a flow stands for."""
    return dict(flow.definitions)[named(flow, name)]
