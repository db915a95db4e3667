"""The tree of exceptions: every message says what, where, and what to try."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

__all__ = [
    "CacheWarning",
    "CompileError",
    "InputError",
    "OdekitError",
    "OdekitWarning",
    "SolveError",
    "unknown_name",
]


class OdekitError(Exception):
    """Root of every error that odekit raises on purpose."""


class InputError(OdekitError, ValueError):
    """Bad input; one line that names the thing, what was expected and got, and the remedy."""


class CompileError(OdekitError, RuntimeError):
    """A field could not be turned into machine code."""


class SolveError(OdekitError, RuntimeError):
    """A failed integration.

    Attributes
    ----------
    solution : Solution or None
        What was integrated before the failure, with its status.
    """

    def __init__(self, message: str, solution: Any = None) -> None:
        super().__init__(message)
        self.solution = solution

    def __reduce__(self) -> tuple[type[SolveError], tuple[str, Any]]:
        # The default would drop the solution on the way back from a worker process.
        return type(self), (str(self), self.solution)


class OdekitWarning(UserWarning):
    """Root of odekit's own warnings."""


class CacheWarning(OdekitWarning):
    """The on-disk cache could not be used; results are unaffected, compilation is repeated."""


def unknown_name(kind: str, name: object, known: Iterable[object]) -> InputError:
    """Make the error for a name that is not among the known ones, with the nearest as a suggestion.

    Parameters
    ----------
    kind : str
        What the name stands for, for example ``"state"`` or ``"target"``.
    name : object
        The name that was given.
    known : iterable
        The names that would have been right, in the order to list them.

    Returns
    -------
    InputError
        To be raised by the caller.
    """
    choices = [str(choice) for choice in known]
    near = difflib.get_close_matches(str(name), choices, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = ", ".join(choices) if choices else "none"
    return InputError(f"Unknown {kind} {str(name)!r}.{hint} Known: {listed}.")
