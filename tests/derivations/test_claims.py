"""The published claims: recorded verdicts, runnable counterexamples, and a table of them all."""

from __future__ import annotations

import contextlib
import io
import json
import re
import time
from pathlib import Path

import pytest

import odekit.claims as claims
from odekit.report import write_report
from odekit.reproduce import Outcome, Target

CLAIMS = claims.all()
README = Path(__file__).parents[2] / "derivations" / "README.md"
OWN = [c for c in CLAIMS if c.id.split(".")[0] in ("zhang2025", "lu2025")]


def _ids(claim: claims.Claim) -> str:
    return claim.id


def test_each_verdict_is_recorded() -> None:
    assert {c.id for c in CLAIMS} == set(claims.recorded())


@pytest.mark.parametrize("claim", CLAIMS, ids=_ids)
def test_quick_verdicts_are_the_recorded_ones(claim: claims.Claim) -> None:
    verdict = claim.check(quick=True)
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


@pytest.mark.parametrize("claim", OWN, ids=_ids)
def test_each_verdict_rests_on_a_derivation(claim: claims.Claim) -> None:
    status = claims.recorded()[claim.id]
    proofs = {
        "proved": [claim.derivation],
        "holds numerically": [],
        "needs assumption": [need.derivation for need in claim.needs[-1:]],
        "refuted": [claim.derivation],
    }[status]
    assert (status == "holds numerically") == (not proofs)
    for proof in proofs:
        assert proof is not None
        checks = list(proof())
        assert checks
        assert all(check.exact and check.passes for check in checks)


@pytest.mark.parametrize("claim", OWN, ids=_ids)
def test_a_page_says_why(claim: claims.Claim) -> None:
    assert claim.equations
    assert len(claim.explanation) > 40
    if claims.recorded()[claim.id] in ("refuted", "needs assumption"):
        assert claim.run
        assert claim.needs or claim.correction is not None


@pytest.mark.parametrize("claim", [c for c in CLAIMS if c.run], ids=_ids)
def test_counterexamples_run_in_a_second(claim: claims.Claim) -> None:
    shown = io.StringIO()
    start = time.process_time()
    with contextlib.redirect_stdout(shown):
        exec(claim.run, {})
    # Processor time: a model is derived in a second at most, and nothing is compiled.
    assert time.process_time() - start < 3.0
    assert re.search(r"\d", shown.getvalue())


def test_the_table_names_each_claim() -> None:
    text = README.read_text(encoding="utf-8")
    missing = [c.id for c in CLAIMS if f"`{c.id}`" not in text]
    assert not missing
    named = set(re.findall(r"`((?:zhang|lu|mainali)2025\.[A-Za-z0-9-]+)`", text))
    extra = {c.correction.id for c in CLAIMS if c.correction is not None}
    assert named <= {c.id for c in CLAIMS} | extra


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
