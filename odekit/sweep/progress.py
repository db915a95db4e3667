"""How far a sweep is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Progress"]


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    Attributes
    ----------
    done, failed, total : int
        Runs that went well, that failed, and all of the plan, earlier ones included.
    elapsed : float
        Seconds since this call began.
    remaining : float or None
        Estimated seconds to go, from the rate so far; None before the first run is in.
    """

    done: int
    failed: int
    total: int
    elapsed: float
    remaining: float | None

    def __str__(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        left = "" if self.remaining is None else f", about {_duration(self.remaining)} to go"
        return f"{self.done + self.failed} of {self.total} runs{failed}{left}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
