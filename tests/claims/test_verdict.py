"""The verdict follows from the derivation and the search alone."""

from __future__ import annotations

import json

import pytest
import sympy as sp
from hypothesis import strategies as st

import odekit as ok
from odekit.claims import Assumption, Check, Claim, Property, Variant, find_counterexample, identity


def bounded(reach: int, bound: float = 100.0) -> Property:
    """The statement x^2 <= bound over the integers up to a reach."""
    return Property(
        lambda: st.fixed_dictionaries({"x": st.integers(-reach, reach)}),
        lambda case: Check("x^2", float(case["x"]) ** 2, bound),
    )


def claim(statement: Property, **more) -> Claim:
    return Claim(
        "doe2030.bound", "Doe 2030, eq. 1", "x^2 <= 100", (r"x^2 \le 100",), statement, **more
    )


N = ok.dims("N")


@pytest.mark.parametrize(
    ("derivation", "status"),
    [
        (None, "holds numerically"),
        (lambda: [], "holds numerically"),
        (lambda: [identity("N", N, N)], "proved"),
        (lambda: [identity("N", N, N), identity("wrong", N, N + 1)], "holds numerically"),
        (lambda: [Check("numeric", 1e-12, 1e-10)], "holds numerically"),
    ],
)
def test_only_identities_that_all_hold_prove(derivation, status) -> None:
    assert claim(bounded(10), derivation=derivation).check().status == status


def test_a_proof_does_not_outweigh_a_counterexample() -> None:
    verdict = claim(bounded(50), derivation=lambda: [identity("N", N, N)]).check()
    assert verdict.status == "refuted"
    # The smallest counterexample.
    assert abs(verdict.counterexample.case["x"]) == 11


def test_the_weakest_assumption_that_helps_is_named() -> None:
    needs = tuple(
        Assumption(f"|x| <= {reach}", bounded(reach), lambda: [identity("N", N, N)])
        for reach in (20, 10, 5)
    )
    verdict = claim(bounded(50), needs=needs, assumes=("x is an integer",)).check()
    assert verdict.status == "needs assumption"
    assert verdict.assumptions == ("x is an integer", "|x| <= 10")
    assert verdict.proved_under
    assert verdict.counterexample is not None


def test_a_derivation_that_leaves_something_does_not_prove() -> None:
    whole = lambda: [identity("N", N, N)]  # noqa: E731
    verdict = claim(bounded(10), derivation=whole, leaves="half of it").check()
    assert (verdict.status, verdict.left) == ("holds numerically", "half of it")
    need = Assumption("|x| <= 10", bounded(10), whole, "half of it")
    verdict = claim(bounded(50), needs=(need,)).check()
    assert (verdict.status, verdict.left) == ("needs assumption", "half of it")
    assert not verdict.proved_under


def test_without_shrinking_the_first_counterexample_is_returned() -> None:
    found, made = find_counterexample(bounded(1000), shrink=False)
    assert found is not None
    assert not found.check.passes
    assert len(made) < len(find_counterexample(bounded(1000))[1])


def test_identities_see_through_coefficients_in_the_sizes() -> None:
    D = ok.dims("D")
    L = ok.parameter("Lambda", (D, D), symmetric=True)
    square = ok.einsum("ij,jk->ik", L, L)
    M = N + 1
    assert identity("", N / M * square - N / M**2 * square, (N / M) ** 2 * square).passes
    assert not identity("", N / M * square - N / M**2 * square, N / M * square).passes


def test_an_identity_keeps_its_two_sides_in_latex() -> None:
    p, q = sp.symbols("p q")
    check = identity("square", (p + q) ** 2, p**2 + 2 * p * q + q**2)
    assert check.latex == r"\left(p + q\right)^{2} = p^{2} + 2 p q + q^{2}"
    assert identity("nothing", p - p).latex == ""
    assert check.as_dict()["latex"] == check.latex


def test_a_correction_is_judged_as_well() -> None:
    right = claim(bounded(50, bound=2500.0))
    verdict = claim(bounded(50), correction=right).check()
    assert verdict.status == "refuted"
    assert verdict.corrected.status == "holds numerically"
    assert verdict.correction == right.says


def test_nan_fails() -> None:
    assert not Check("nan", float("nan"), 1.0).passes


def test_verdicts_are_the_same_every_time_and_json() -> None:
    first, second = (claim(bounded(50)).check() for _ in range(2))
    assert first.counterexample == second.counterexample
    assert json.loads(json.dumps(first.as_dict(), allow_nan=False))["status"] == "refuted"


def test_quick_checks_try_fewer_cases() -> None:
    assert claim(bounded(10)).check(quick=True).cases < claim(bounded(10)).check().cases


def test_errors_in_a_statement_are_not_taken_for_counterexamples() -> None:
    broken = Property(
        lambda: st.fixed_dictionaries({"x": st.integers(0, 5)}), lambda case: case["missing"]
    )
    with pytest.raises(KeyError):
        claim(broken).check()


def test_unknown_claim() -> None:
    with pytest.raises(ok.InputError, match="Unknown claim 'mainali2025.eq99'"):
        ok.claims.get("mainali2025.eq99")


def published() -> list[Claim]:
    """Every claim and every correction that is not listed itself."""
    listed = list(ok.claims.all())
    names = {c.id for c in listed}
    extra = [c.correction for c in listed if c.correction is not None]
    return listed + [c for c in extra if c.id not in names]


@pytest.mark.parametrize("stated", published(), ids=lambda c: c.id)
def test_wrong_variants_are_refuted(stated: Claim) -> None:
    assert len(stated.variants) >= 2
    for variant in stated.variants:
        assert isinstance(variant, Variant)
        found, _ = find_counterexample(variant.property, shrink=False)
        assert found is not None, f"{stated.id}: '{variant.says}' passes its test"
