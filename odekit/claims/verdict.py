"""The verdict on a claim, computed by one piece of code for all claims."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import Any, Literal

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import HypothesisException

from odekit.claims.checks import Check
from odekit.claims.claim import Claim, Property

__all__ = ["Counterexample", "Status", "Verdict", "find_counterexample", "judge"]

Status = Literal["proved", "holds numerically", "needs assumption", "refuted"]


@dataclass(frozen=True)
class Counterexample:
    """The smallest case that was found for which a statement fails."""

    case: Mapping[str, Any]
    check: Check

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON and for a reader to run."""
        return {"case": _plain(self.case), "check": self.check.as_dict()}


@dataclass(frozen=True)
class Verdict:
    """What came of checking a claim.

    Attributes
    ----------
    id : str
        The claim's.
    status : {"proved", "holds numerically", "needs assumption", "refuted"}
        "proved": no counterexample, and every identity of a whole derivation holds. "holds
        numerically": no counterexample. "needs assumption": fails as stated, holds under the
        weakest unstated assumption that was tried. "refuted": fails, and under each of these too.
    assumptions : tuple of str
        Those stated, and the one that it needs.
    corrected : Verdict or None
        The verdict on the corrected statement.
    correction : str
        The corrected statement in words.
    counterexample : Counterexample or None
        The smallest one found, as stated.
    evidence : tuple of Check
        Identities and comparisons.
    too_weak : tuple of (str, Counterexample)
        Assumptions under which it still fails, each with the smallest case found.
    proved_under : bool
        For "needs assumption": whether the statement is proved under it, or only tested.
    left : str
        What the derivation leaves to the test.
    cases : int
        Cases that were tried.
    seconds : float
        Wall time.
    """

    id: str
    status: Status
    assumptions: tuple[str, ...] = ()
    corrected: Verdict | None = None
    correction: str = ""
    counterexample: Counterexample | None = None
    evidence: tuple[Check, ...] = ()
    too_weak: tuple[tuple[str, Counterexample], ...] = ()
    proved_under: bool = False
    left: str = ""
    cases: int = 0
    seconds: float = field(default=0.0, compare=False)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "id": self.id,
            "status": self.status,
            "assumptions": list(self.assumptions),
            "correction": self.correction,
            "corrected": None if self.corrected is None else self.corrected.as_dict(),
            "counterexample": (
                None if self.counterexample is None else self.counterexample.as_dict()
            ),
            "evidence": [check.as_dict() for check in self.evidence],
            "too_weak": [{"assumption": n, **c.as_dict()} for n, c in self.too_weak],
            "proved_under": self.proved_under,
            "left": self.left,
            "cases": self.cases,
            "seconds": round(self.seconds, 3),
        }

    def __repr__(self) -> str:
        return f"Verdict({self.id}: {self.status})"

    def _repr_html_(self) -> str:
        told = [f"<p><b>{escape(self.id)}</b>: {self.status}</p>"]
        if self.assumptions:
            told.append(f"<p>assuming {escape('; '.join(self.assumptions))}</p>")
        if self.counterexample is not None:
            case = self.counterexample.as_dict()["case"]
            told.append(f"<p>smallest counterexample: {escape(str(case))}</p>")
        if self.correction:
            status = f" ({self.corrected.status})" if self.corrected is not None else ""
            told.append(f"<p>instead{status}: {escape(self.correction)}</p>")
        rows = "".join(
            f"<tr><td>{escape(c.what)}</td><td>{c.deviation:.3g}</td><td>{c.bound:.3g}</td></tr>"
            for c in self.evidence
        )
        heads = "<tr><th>check</th><th>deviation</th><th>bound</th></tr>"
        return "".join(told) + f"<table>{heads}{rows}</table>"


def find_counterexample(
    statement: Property, *, quick: bool = False, shrink: bool = True
) -> tuple[Counterexample | None, list[Check]]:
    """Search for a case in which a statement fails, and shrink it.

    Parameters
    ----------
    statement : Property
    quick : bool
        Try a tenth of the cases, and at least three.
    shrink : bool
        Whether to look for the smallest one; without it the first that fails is returned.

    Returns
    -------
    Counterexample or None
        The smallest found, or the first.
    list of Check
        Every comparison that was made.
    """
    made: list[Check] = []
    failing: list[Counterexample] = []
    examples = max(3, statement.examples // 10) if quick else statement.examples

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
        print_blob=False,
    )
    @given(statement.cases())
    def search(case: Mapping[str, Any]) -> None:
        check = statement.holds(case)
        made.append(check)
        if not check.passes:
            failing.append(Counterexample(case, check))
            raise _Failed

    try:
        search()
    except _Failed:
        # Hypothesis ends by replaying the smallest failing case.
        return failing[-1], made
    except HypothesisException as error:
        raise RuntimeError(f"the cases of a claim cannot be drawn: {error}") from error
    return None, made


class _Failed(Exception):
    """Tells Hypothesis that a case fails."""


def _run(derivation: Callable[[], Iterable[Check]] | None) -> list[Check]:
    return [] if derivation is None else list(derivation())


def _prove(checks: list[Check], leaves: str) -> bool:
    """Whether identities that all hold prove a statement and leave nothing to its test."""
    return bool(checks) and not leaves and all(c.passes and c.exact for c in checks)


def judge(claim: Claim, *, quick: bool = False) -> Verdict:
    """Compute the verdict on a claim from its derivation and a search for counterexamples."""
    started = time.perf_counter()
    found, made = find_counterexample(claim.property, quick=quick)
    identities = _run(claim.derivation)
    worst = _worst(made)
    if found is None:
        return Verdict(
            claim.id,
            "proved" if _prove(identities, claim.leaves) else "holds numerically",
            claim.assumes,
            evidence=(*identities, *worst),
            left=claim.leaves,
            cases=len(made),
            seconds=time.perf_counter() - started,
        )
    corrected = None if claim.correction is None else judge(claim.correction, quick=quick)
    correction = "" if claim.correction is None else claim.correction.says
    too_weak: list[tuple[str, Counterexample]] = []
    for need in claim.needs:
        exception, tried = find_counterexample(need.property, quick=quick)
        if exception is not None:
            too_weak.append((need.says, exception))
            continue
        proofs = _run(need.derivation)
        return Verdict(
            claim.id,
            "needs assumption",
            (*claim.assumes, need.says),
            corrected=corrected,
            correction=correction,
            counterexample=found,
            evidence=(found.check, *proofs, *_worst(tried)),
            too_weak=tuple(too_weak),
            proved_under=_prove(proofs, need.leaves),
            left=need.leaves,
            cases=len(made) + len(tried),
            seconds=time.perf_counter() - started,
        )
    return Verdict(
        claim.id,
        "refuted",
        claim.assumes,
        corrected=corrected,
        correction=correction,
        counterexample=found,
        evidence=(found.check, *identities),
        too_weak=tuple(too_weak),
        cases=len(made),
        seconds=time.perf_counter() - started,
    )


def _worst(checks: list[Check]) -> tuple[Check, ...]:
    """The comparison that came closest to its bound."""
    if not checks:
        return ()
    return (max(checks, key=lambda c: c.deviation / c.bound if c.bound else c.deviation),)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)  # strict JSON has no literal for it
    return value if isinstance(value, str | int | float | bool | None) else str(value)
