"""A step of a derivation, with the checks that were run when it was made."""

from __future__ import annotations

from dataclasses import dataclass

from odekit.claims.checks import Check

__all__ = ["Statement"]


@dataclass(frozen=True)
class Statement:
    """A numbered statement of a derivation.

    A derivation package may hold a module ``steps`` with ``STEPS``, functions without arguments
    that each return one; the paper's page in the documentation and its notebook show them in order.

    Attributes
    ----------
    number : str
        Number in the derivation.
    says : str
        The statement in words, as it holds.
    equations : tuple of str
        LaTeX in the paper's notation.
    assumes : tuple of str
        What it needs beyond the data of the paper.
    corrects : str
        What is wrong or missing in the source; empty if nothing is.
    checks : tuple of Check
        Run when the statement was made.
    derived : tuple of str
        LaTeX that odekit printed of the very objects that the checks are about.
    """

    number: str
    says: str
    equations: tuple[str, ...] = ()
    assumes: tuple[str, ...] = ()
    corrects: str = ""
    checks: tuple[Check, ...] = ()
    derived: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether there are checks and all of them pass."""
        return bool(self.checks) and all(check.passes for check in self.checks)

    @property
    def exact(self) -> bool:
        """Whether every check is an identity."""
        return all(check.bound == 0 for check in self.checks)

    def _repr_markdown_(self) -> str:
        parts = [f"**{self.number}.** {self.says}"]
        parts += [f"$${latex}$$" for latex in self.equations]
        if self.derived:
            parts += ["As odekit derives it:", *(f"$${latex}$$" for latex in self.derived)]
        if self.assumes:
            parts.append("Assumes: " + "; ".join(self.assumes) + ".")
        if self.corrects:
            parts.append(f"Corrects: {self.corrects}")
        rows = [f"- {_told(check)}" for check in self.checks]
        return "\n\n".join([*parts, "\n".join(rows)])


def _told(check: Check) -> str:
    what = f"{'holds' if check.passes else 'FAILS'}: `{check.what}`"
    if check.exact:
        return f"{what}, exactly"
    why = f" ({check.why})" if check.why else ""
    return f"{what}, {check.deviation:.2g} where {check.bound:.2g} is allowed{why}"
