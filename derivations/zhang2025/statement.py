"""A statement of the paper, with what it rests on and the checks that were just run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import odekit as ok
from odekit.claims import Check
from odekit.claims import identity as identical

__all__ = ["Check", "Statement", "body", "identical", "named"]


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
