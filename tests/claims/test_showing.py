"""The page of one claim says why its verdict is what it is."""

from __future__ import annotations

from hypothesis import strategies as st

import odekit as ok
from odekit.claims import Assumption, Check, Claim, Property, Variant, identity
from odekit.claims.showing import story

N = ok.dims("N")


def bounded(reach: int) -> Property:
    return Property(
        lambda: st.fixed_dictionaries({"x": st.integers(-reach, reach)}),
        lambda case: Check("x^2", float(case["x"]) ** 2, 100.0, "eleven is too far"),
    )


def claim(**more) -> Claim:
    given = {"assumes": ("x is whole",), "symbols": ("x: a number",), "explanation": "It grows."}
    return Claim(
        "doe2030.bound", "Doe 2030, eq. 1", "x^2 <= 100", (r"x^2 \le 100",),
        **{"property": bounded(50), **given, **more},
    )  # fmt: skip


def told(one: Claim) -> str:
    return story(one, one.check())


def test_a_refuted_claim() -> None:
    right = claim(property=bounded(5), derivation=lambda: [identity("twice", N + N, 2 * N)])
    text = told(claim(correction=right, variants=(Variant("x^2 <= 1", bounded(50)),)))
    assert text.startswith("doe2030.bound: refuted\nIt fails as it stands.")
    for part in ("x: a number", "x is whole", "Why: It grows.", "x = 11", "x^2: 121, allowed 100",
                 "eleven is too far", "Instead (proved)", "twice", "x^2 <= 1"):  # fmt: skip
        assert part in text


def test_a_claim_that_needs_an_assumption() -> None:
    proof = lambda: [identity("twice", N * 2, N + N)]  # noqa: E731
    needs = (Assumption("|x| <= 20", bounded(20)), Assumption("|x| <= 10", bounded(10), proof))
    text = told(claim(needs=needs))
    assert "Not enough: |x| <= 20" in text
    assert "Needed: |x| <= 10.\n    Then it is proved" in text
    assert "2 N" in text  # the derivation in LaTeX
    partly = (Assumption("|x| <= 10", bounded(10), proof, "the rest"),)
    assert "leaves open: the rest" in told(claim(needs=partly))
    assert "Then it passes its test." in told(
        claim(needs=needs[:1] + (Assumption("s", bounded(3)),))
    )


def test_a_claim_that_holds_with_a_derivation_of_a_part() -> None:
    proof = lambda: [identity("twice", N * 2, N + N)]  # noqa: E731
    text = told(claim(property=bounded(10), derivation=proof, leaves="the rest"))
    assert "holds numerically" in text
    assert "The derivation leaves to the test: the rest." in text
    failing = lambda: [identity("thrice", N * 2, 3 * N)]  # noqa: E731
    assert "thrice: FAILS" in told(claim(property=bounded(10), derivation=failing))
