"""The outcome of a comparison: named numbers, each against its bound."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Any

__all__ = ["Check", "Report"]


@dataclass(frozen=True)
class Check:
    """One compared number.

    Parameters
    ----------
    name : str
        What was compared.
    value : float
        What was measured.
    bound : float
        The largest value that passes.
    reason : str
        Where the bound comes from.
    """

    name: str
    value: float
    bound: float
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Whether the value is within its bound; NaN never is."""
        return bool(self.value <= self.bound)


@dataclass(frozen=True)
class Report:
    """A sequence of checks under one title.

    Parameters
    ----------
    title : str
    checks : tuple of Check
    """

    title: str
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether there is at least one check and every one passed."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        return {
            "title": self.title,
            "passed": self.passed,
            "checks": [
                {
                    "name": check.name,
                    "value": float(check.value),
                    "bound": float(check.bound),
                    "passed": check.passed,
                    "reason": check.reason,
                }
                for check in self.checks
            ],
        }

    def __str__(self) -> str:
        lines = [f"{self.title}: {'agrees' if self.passed else 'disagrees'}"]
        for check in self.checks:
            mark = "ok  " if check.passed else "FAIL"
            reason = f"  ({check.reason})" if check.reason else ""
            lines.append(f"  {mark} {check.name}: {check.value:.3g} <= {check.bound:.3g}{reason}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"
