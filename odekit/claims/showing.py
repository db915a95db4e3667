"""Claims and verdicts as text: a table of many, the whole story of one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odekit.claims.checks import Check
from odekit.claims.claim import Claim
from odekit.claims.verdict import Counterexample, Verdict

__all__ = ["story", "table"]

_MEANING = {
    "proved": "No case drawn is a counterexample, and the identities below prove it.",
    "holds numerically": "No case drawn is a counterexample; that is all that was shown.",
    "needs assumption": "It fails as it stands, and holds under an assumption not stated.",
    "refuted": "It fails as it stands, and under each assumption that was tried.",
}


def table(claims: Sequence[Claim], verdicts: Sequence[Verdict]) -> Any:
    """A rich table: id, verdict, statement."""
    from rich.table import Column, Table

    # An id is to be copied: it is never cut short.
    rows = Table(Column("claim", no_wrap=True, overflow="ignore"), "verdict", "statement", box=None)
    for claim, verdict in zip(claims, verdicts, strict=True):
        rows.add_row(claim.id, verdict.status, claim.says)
    return rows


def story(claim: Claim, verdict: Verdict) -> str:
    """Everything about one claim, for a reader who has nothing else."""
    meaning = _MEANING[verdict.status]
    if verdict.status == "refuted" and not claim.needs:
        meaning = "It fails as it stands."
    lines = [f"{claim.id}: {verdict.status}", meaning, "", f"Source: {claim.source}", claim.says]
    lines += [f"    {equation}" for equation in claim.equations]
    lines += _listed("Where", claim.symbols)
    lines += _listed("As stated it assumes", claim.assumes)
    if claim.explanation:
        lines += ["", f"Why: {claim.explanation}"]
    if verdict.counterexample is not None:
        lines += ["", "Smallest counterexample found:", *_case(verdict.counterexample)]
    for assumption, failure in verdict.too_weak:
        lines += ["", f"Not enough: {assumption}. Smallest counterexample:", *_case(failure)]
    if verdict.status == "needs assumption":
        lines += ["", f"Needed: {verdict.assumptions[-1]}.", f"    {_under(verdict)}"]
    if verdict.correction and claim.correction is not None and verdict.corrected is not None:
        lines += ["", f"Instead ({verdict.corrected.status}): {verdict.correction}"]
        lines += [f"    {equation}" for equation in claim.correction.equations]
        lines += _listed("It rests on", _evidence(verdict.corrected.evidence))
    lines += _evidence_of(claim, verdict)
    lines += _listed("The same test refutes, as wrong", (v.says for v in claim.variants))
    lines += ["", f"{verdict.cases} cases in {verdict.seconds:.1f} s"]
    if claim.run:
        lines += ["", "See it run:", *(f"    {line}" for line in claim.run.splitlines())]
    return "\n".join(lines)


def _under(verdict: Verdict) -> str:
    if verdict.proved_under:
        return "Then it is proved: see the derivation below."
    if verdict.left:
        return f"Then it passes its test; the derivation below leaves open: {verdict.left}."
    return "Then it passes its test."


def _evidence_of(claim: Claim, verdict: Verdict) -> list[str]:
    exact = [check for check in verdict.evidence if check.exact]
    tested = [check for check in verdict.evidence if not check.exact and check.passes]
    lines = _listed("Derivation, each line an identity that was just checked", _evidence(exact))
    if exact and verdict.left and verdict.status != "needs assumption":
        lines += ["", f"The derivation leaves to the test: {verdict.left}."]
    return lines + _listed("Closest that a case drawn came to failing", _evidence(tested))


def _evidence(checks: Iterable[Check]) -> Iterable[str]:
    for check in checks:
        if not check.exact:
            yield _compared(check)
            continue
        yield check.what if check.passes else f"{check.what}: FAILS"
        if check.latex:
            yield f"    {check.latex}"


def _case(found: Counterexample) -> list[str]:
    case: Mapping[str, Any] = found.as_dict()["case"]
    values = ", ".join(f"{name} = {value}" for name, value in case.items())
    return [f"    {values}", f"    {_compared(found.check)}"]


def _compared(check: Check) -> str:
    why = f" ({check.why})" if check.why else ""
    return f"{check.what}: {check.deviation:.6g}, allowed {check.bound:.3g}{why}"


def _listed(title: str, entries: Iterable[str]) -> list[str]:
    shown = [f"    {entry}" if entry.startswith("    ") else f"    - {entry}" for entry in entries]
    return ["", f"{title}:", *shown] if shown else []
