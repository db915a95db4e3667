"""Claims and verdicts as text: a table of many, the whole story of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from odekit.claims.claim import Claim
from odekit.claims.verdict import Verdict

__all__ = ["story", "table"]


def table(claims: Sequence[Claim], verdicts: Sequence[Verdict]) -> Any:
    """A rich table: id, verdict, statement."""
    from rich.table import Table

    rows = Table("claim", "verdict", "statement", box=None)
    for claim, verdict in zip(claims, verdicts, strict=True):
        rows.add_row(claim.id, verdict.status, claim.says)
    return rows


def story(claim: Claim, verdict: Verdict) -> str:
    """Everything about one claim, for a reader who has nothing else."""
    lines = [f"{claim.id}: {verdict.status}", f"Source: {claim.source}", "", claim.says]
    lines += [f"    {equation}" for equation in claim.equations]
    lines += _listed("Assumes", verdict.assumptions)
    if verdict.counterexample is not None:
        check = verdict.counterexample.check
        lines += ["", f"Smallest counterexample: {verdict.counterexample.as_dict()['case']}"]
        lines.append(f"    {check.what}: {check.deviation:.6g} where {check.bound:.3g} is allowed")
    for assumption, failure in verdict.too_weak:
        lines += ["", f"Not enough: {assumption}", f"    fails at {failure.as_dict()['case']}"]
    if verdict.status == "needs assumption":
        how = "is proved" if verdict.proved_under else "passes its test"
        lines += ["", f"It {how} under the last of its assumptions: {verdict.assumptions[-1]}"]
    if verdict.correction and claim.correction is not None and verdict.corrected is not None:
        lines += ["", f"Instead ({verdict.corrected.status}): {verdict.correction}"]
        lines += [f"    {equation}" for equation in claim.correction.equations]
    if claim.explanation:
        lines += ["", claim.explanation]
    lines += _listed("Evidence", (_line(check) for check in verdict.evidence))
    lines += ["", f"{verdict.cases} cases in {verdict.seconds:.1f} s"]
    if claim.run:
        lines += ["", "See it run:", *(f"    {line}" for line in claim.run.splitlines())]
    return "\n".join(lines)


def _line(check: Any) -> str:
    if check.exact:
        return f"{check.what}: {'an identity' if check.passes else 'terms are left'}"
    mark = "within" if check.passes else "beyond"
    return f"{check.what}: {check.deviation:.3g}, {mark} {check.bound:.3g} {check.why}".rstrip()


def _listed(title: str, entries: Iterable[str]) -> list[str]:
    shown = [f"    - {entry}" for entry in entries]
    return ["", f"{title}:", *shown] if shown else []
