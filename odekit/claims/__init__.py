"""Published statements, put to the test."""

from odekit.claims.checks import Check, agreement, identity
from odekit.claims.claim import Assumption, Claim, Property, Variant
from odekit.claims.glossary import with_symbols
from odekit.claims.registry import all_claims, choose, get, recorded
from odekit.claims.statement import Statement
from odekit.claims.verdict import Counterexample, Verdict, find_counterexample, judge

all = all_claims  # noqa: A001 - the public name is odekit.claims.all

__all__ = [
    "Assumption",
    "Check",
    "Claim",
    "Counterexample",
    "Property",
    "Statement",
    "Variant",
    "Verdict",
    "agreement",
    "all",
    "all_claims",
    "choose",
    "find_counterexample",
    "get",
    "identity",
    "judge",
    "recorded",
    "with_symbols",
]
