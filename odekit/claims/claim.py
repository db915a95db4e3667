"""A published statement as an object: what it says, what it assumes, and how it is put to the test.

No claim states its own verdict: `odekit.claims.judge` computes it, the same way for all, from the
derivation and from a search for counterexamples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis.strategies import SearchStrategy

from odekit.claims.checks import Check

__all__ = ["Assumption", "Claim", "Property", "Variant"]

Case = Mapping[str, Any]


@dataclass(frozen=True)
class Property:
    """A statement as executable mathematics.

    Attributes
    ----------
    cases : callable
        Gives the Hypothesis strategy whose draws are all the cases that the statement speaks of:
        mappings of names to numbers and arrays.
    holds : callable
        Takes a case and gives the comparison between what the statement says and what is so.
    examples : int
        Cases to try (a tenth of them, at least 3, in a quick check).
    """

    cases: Callable[[], SearchStrategy[Case]]
    holds: Callable[[Case], Check]
    examples: int = 40


@dataclass(frozen=True)
class Assumption:
    """An assumption that the source does not state.

    Attributes
    ----------
    says : str
        In words.
    property : Property
        The same statement over the cases in which the assumption holds.
    derivation : callable or None
        Identities that prove the statement under the assumption, or what they can of it.
    leaves : str
        What the identities leave to the test; empty if they prove the whole.
    """

    says: str
    property: Property
    derivation: Callable[[], Iterable[Check]] | None = None
    leaves: str = ""


@dataclass(frozen=True)
class Variant:
    """A wrong form of a statement, which its test must refute.

    Attributes
    ----------
    says : str
        What was changed: a sign, a factor, a missing term, an N off by one.
    property : Property
        The wrong form over the cases for which the right one holds.
    """

    says: str
    property: Property


@dataclass(frozen=True)
class Claim:
    """A published statement.

    Attributes
    ----------
    id : str
        Paper key, then the number or a short name, as in ``mainali2025.eq14``.
    source : str
        Paper, and equation or sentence.
    says : str
        The statement in our own words, as it stands in the source.
    equations : tuple of str
        The statement in LaTeX.
    property : Property
        The statement over all cases that its stated assumptions admit.
    assumes : tuple of str
        The assumptions that the source states.
    derivation : callable or None
        Identities that prove the statement as it stands, or show why it cannot hold.
    leaves : str
        What the identities leave to the test; empty if they prove the whole.
    needs : tuple of Assumption
        Unstated assumptions to try where it fails, the weakest first.
    correction : Claim or None
        What holds instead, itself a claim.
    variants : tuple of Variant
        Wrong forms, at least two, that the test must tell from the right one.
    explanation : str
        Why the verdict is what it is, for a reader who has only this page.
    run : str
        Lines of Python that show the counterexample or an instance, in a second.
    symbols : tuple of str
        What the letters stand for.
    """

    id: str
    source: str
    says: str
    equations: tuple[str, ...]
    property: Property
    assumes: tuple[str, ...] = ()
    derivation: Callable[[], Iterable[Check]] | None = None
    leaves: str = ""
    needs: tuple[Assumption, ...] = ()
    correction: Claim | None = None
    variants: tuple[Variant, ...] = ()
    explanation: str = ""
    run: str = ""
    symbols: tuple[str, ...] = ()

    def check(self, *, quick: bool = False) -> Any:
        """Compute the verdict; see `odekit.claims.judge`."""
        from odekit.claims.verdict import judge

        return judge(self, quick=quick)

    def _repr_latex_(self) -> str:
        return "$$" + r" \\ ".join(self.equations) + "$$"
