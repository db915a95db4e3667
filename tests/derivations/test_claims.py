"""The published claims: recorded verdicts, runnable counterexamples, and a table of them all."""

from __future__ import annotations

import contextlib
import io
import json
import re
import time
from functools import cache
from pathlib import Path

import pytest

import odekit.claims as claims
from odekit.report import write_report
from odekit.reproduce import Outcome, Target

CLAIMS = claims.all()
README = Path(__file__).parents[2] / "derivations" / "README.md"
_LISTED = {c.id for c in CLAIMS}
CORRECTIONS = [c.correction for c in CLAIMS if c.correction and c.correction.id not in _LISTED]
PUBLISHED = [*CLAIMS, *CORRECTIONS]


def _ids(claim: claims.Claim) -> str:
    return claim.id


@cache
def _quick(claim_id: str) -> claims.Verdict:
    """A quick check's verdict, computed once for all tests."""
    return next(c for c in PUBLISHED if c.id == claim_id).check(quick=True)


def test_each_verdict_is_recorded() -> None:
    assert {c.id for c in CLAIMS} == set(claims.recorded())


@pytest.mark.parametrize("claim", CLAIMS, ids=_ids)
def test_quick_verdicts_are_the_recorded_ones(claim: claims.Claim) -> None:
    verdict = _quick(claim.id)
    assert verdict.status == claims.recorded()[claim.id]
    json.dumps(verdict.as_dict(), allow_nan=False)
    if verdict.corrected is not None:
        assert verdict.corrected.status in ("proved", "holds numerically")


@pytest.mark.slow
@pytest.mark.parametrize("claim", CLAIMS, ids=_ids)
def test_full_verdicts_are_the_recorded_ones(claim: claims.Claim) -> None:
    verdict = claim.check()
    assert verdict.status == claims.recorded()[claim.id]
    if verdict.corrected is not None:
        assert verdict.corrected.status in ("proved", "holds numerically")


def _proof_of(claim: claims.Claim, status: str) -> list[claims.Check] | None:
    """The identities that a verdict other than "holds numerically" must rest on."""
    if status == "needs assumption":
        needed = _quick(claim.id).assumptions[-1]
        derivation = next(n.derivation for n in claim.needs if n.says == needed)
    else:
        derivation = claim.derivation
    return None if derivation is None else list(derivation())


@pytest.mark.parametrize("claim", PUBLISHED, ids=_ids)
def test_each_verdict_but_the_numeric_one_has_a_derivation(claim: claims.Claim) -> None:
    verdict = _quick(claim.id)
    if verdict.status == "holds numerically":
        return
    checks = _proof_of(claim, verdict.status)
    assert checks, f"{claim.id} is {verdict.status} and has no derivation"
    assert all(check.exact and check.passes for check in checks)
    if verdict.status in ("refuted", "needs assumption"):
        assert verdict.counterexample is not None
        assert claim.correction is not None or verdict.status == "needs assumption"


@pytest.mark.parametrize("claim", CORRECTIONS, ids=_ids)
def test_corrected_statements_pass_their_own_check(claim: claims.Claim) -> None:
    assert _quick(claim.id).status in ("proved", "holds numerically")


@pytest.mark.parametrize("claim", PUBLISHED, ids=_ids)
def test_a_page_says_why(claim: claims.Claim) -> None:
    assert claim.equations
    assert claim.symbols
    assert len(claim.explanation) > 40
    if claims.recorded().get(claim.id) in ("refuted", "needs assumption"):
        assert claim.run
        assert claim.needs or claim.correction is not None


@pytest.mark.parametrize("claim", [c for c in CLAIMS if c.run], ids=_ids)
def test_counterexamples_run_in_a_second(claim: claims.Claim) -> None:
    shown = io.StringIO()
    start = time.process_time()
    with contextlib.redirect_stdout(shown):
        exec(claim.run, {})
    # Processor time: a model is derived in a second at most, and nothing is compiled.
    assert time.process_time() - start < 2.0
    assert re.search(r"\d", shown.getvalue())


def test_the_table_names_each_claim() -> None:
    text = README.read_text(encoding="utf-8")
    missing = [c.id for c in CLAIMS if f"`{c.id}`" not in text]
    assert not missing
    named = set(re.findall(r"`((?:zhang|lu|mainali)2025\.[A-Za-z0-9-]+)`", text))
    extra = {c.correction.id for c in CLAIMS if c.correction is not None}
    assert named <= {c.id for c in CLAIMS} | extra


def test_the_table_has_the_recorded_verdicts() -> None:
    rows = re.findall(r"\| `([^`]+)` \| ([a-z ]+) \|$", README.read_text(encoding="utf-8"), re.M)
    known = {n: s.replace("holds ", "") for n, s in claims.recorded().items()}
    assert {n: s for n, s in rows if n in known} == known


def test_the_report_shows_recorded_verdicts(tmp_path: Path) -> None:
    target = Target("lu2025/nothing", "a figure that failed", "no.module")
    start = time.process_time()
    page = write_report(tmp_path / "report.html", [Outcome(target, 0.0, (), "no figure")])
    assert time.process_time() - start < 10.0
    text = page.read_text(encoding="utf-8")
    for claim in claims.all("lu2025"):
        assert f'id="{claim.id}"' in text
        assert f"<b>{claims.recorded()[claim.id]}</b>" in text
    assert "<math" in text
    assert "<code>\\" not in text  # each equation was turned into MathML
    assert "zhang2025." not in text


def test_a_report_of_a_paper_without_claims_has_no_such_section(tmp_path: Path) -> None:
    target = Target("doe2030/nothing", "a figure that failed", "no.module")
    page = write_report(tmp_path / "report.html", [Outcome(target, 0.0, (), "no figure")])
    assert 'id="claims' not in page.read_text(encoding="utf-8")
