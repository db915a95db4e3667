"""A time budget that is asked at every step of a long exact computation."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

__all__ = ["Budget", "BudgetSpent"]


class BudgetSpent(Exception):  # noqa: N818 - a signal to the caller inside this room, not an error
    """The budget ran out; whoever set it turns this into a partial answer."""


@dataclass(frozen=True)
class Budget:
    """Seconds that a computation may take.

    Parameters
    ----------
    seconds : float
        Wall-clock seconds from the creation of the budget.
    """

    seconds: float
    start: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float:
        """Seconds that are left, at least zero."""
        return max(0.0, self.seconds - (time.monotonic() - self.start))

    def check(self) -> None:
        """Raise `BudgetSpent` once the time is up."""
        if time.monotonic() - self.start > self.seconds:
            raise BudgetSpent

    def part(self, fraction: float) -> Budget:
        """A budget of a fraction of what is left."""
        return Budget(self.left * fraction)
