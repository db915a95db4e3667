"""How a run ended: one enumeration for every method, each member with a remedy."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Status"]


class Status(StrEnum):
    """The way a run ended.

    A member equals its own name as a string, has a one-sentence ``message`` with a remedy, and
    an integer ``code`` for compiled loops, which cannot return enumeration members.
    """

    success = "success"
    event = "event"
    nan = "nan"
    blow_up = "blow_up"
    step_limit = "step_limit"
    time_limit = "time_limit"
    interrupted = "interrupted"
    stalled = "stalled"

    @property
    def message(self) -> str:
        """One sentence that says what happened and what to try."""
        return _MESSAGES[self]

    @property
    def code(self) -> int:
        """Number of this member in compiled loops; zero is success."""
        return list(Status).index(self)

    @property
    def ok(self) -> bool:
        """Whether the run went as asked: to the end, or to a terminal event."""
        return self in (Status.success, Status.event)

    @classmethod
    def from_code(cls, code: int) -> Status:
        """Return the member whose ``code`` this is."""
        return list(cls)[code]


_MESSAGES = {
    Status.success: "The run reached its end.",
    Status.event: "A terminal event ended the run; resume with y0 and start at its state and time.",
    Status.nan: (
        "The right-hand side is not finite; check the domain of the equations (roots, logarithms, "
        "divisions) near the last state, or stop before it with a terminal event."
    ),
    Status.blow_up: (
        "The solution leaves every bound; end the run earlier, or stop it with a terminal "
        "Crossing of its size."
    ),
    Status.step_limit: (
        "The limit on steps was reached; choose a method for stiff problems "
        '("auto", "Rodas5P", "LSODA"), looser tolerances, or raise Limits(steps=...).'
    ),
    Status.time_limit: (
        "The limit on time was reached; choose a faster method, looser tolerances, or raise "
        "Limits(seconds=...)."
    ),
    Status.interrupted: "The run was interrupted from the keyboard; resume from its last state.",
    Status.stalled: (
        "The step size fell below the spacing of floating-point numbers; choose a method for "
        'stiff problems ("auto", "Rodas5P", "LSODA") or looser tolerances.'
    ),
}
