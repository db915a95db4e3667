"""Claims on the measures: effective rank and subspace distance."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

import odekit as ok
from odekit.claims import Check, Claim, Property, Variant, agreement

from .cases import (
    NOTE,
    Case,
)

Array = NDArray[np.float64]


def _matrix_cases() -> st.SearchStrategy[Case]:
    entry = st.integers(-30, 30).map(lambda k: k / 10)
    return st.fixed_dictionaries(
        {
            "values": st.lists(st.integers(1, 100).map(lambda k: k / 10), min_size=1, max_size=4),
            "entries": st.lists(entry, min_size=9, max_size=9),
        }
    )


def _effective_rank_holds(case: Case, power: float = 1.0, base: float = math.e) -> Check:
    values = np.asarray(case["values"])
    weights = values**power / np.sum(values**power)
    entropy = -np.sum(weights * np.log(weights)) / np.log(base)
    wanted = np.exp(entropy)
    got = ok.theory.effective_rank(np.diag(values))
    return agreement(
        "effective rank of a diagonal matrix", got, wanted, 1e-12 * 16, "rounding of an SVD"
    )


def _distance_holds(case: Case, kind: str = "stated") -> Check:
    """(16) is zero for every M(t) of full rank: it sees row spaces only."""
    M = np.asarray(case["entries"]).reshape(3, 3) + 10 * np.eye(3)
    reference = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
    distance = float(ok.theory.subspace_distance(M[:2], reference, side="row", relative=False))
    basis = np.linalg.svd(M[:2])[2][:2]
    if kind == "squared":
        wanted = float(np.linalg.norm(reference - reference @ basis.T @ basis)) ** 2
    elif kind == "columns":
        wanted = float(np.linalg.norm(reference - basis.T @ basis @ reference))
    else:
        wanted = float(np.linalg.norm(reference - reference @ basis.T @ basis))
    return agreement("min_A |A M - M_ref|", distance, wanted, 1e-11, "rounding of an SVD")


EQ15 = Claim(
    id="mainali2025.eq15",
    source=f"{NOTE}, equation (15)",
    says="Effective rank is the exponential of the normalised singular values' entropy.",
    equations=(r"\operatorname{EffRank} = \exp(-\sum_i \sigma_i \log\sigma_i)",),
    symbols=("sigma_i: singular values, divided by their sum",),
    property=Property(_matrix_cases, _effective_rank_holds),
    variants=(
        Variant(
            "squared singular values",
            Property(_matrix_cases, lambda c: _effective_rank_holds(c, 2.0)),
        ),
        Variant(
            "entropy in bits",
            Property(_matrix_cases, lambda c: _effective_rank_holds(c, base=2.0)),
        ),
    ),
    explanation=(
        "A definition, compared with odekit's own on diagonal matrices, where the singular "
        "values are known: their shares of the sum, not of the sum of squares, and natural "
        "logarithms."
    ),
)

EQ16 = Claim(
    id="mainali2025.eq16",
    source=f"{NOTE}, equation (16)",
    says="Subspace distance min_A |A M(t) - M_ref| is what the rows of M(t) leave of M_ref.",
    equations=(r"\min_A \lVert A M(t) - M(\infty)\rVert = \lVert M(\infty)(I - \Pi_t)\rVert_F",),
    symbols=(
        "M(t): a matrix of the network at time t; M_ref, or M(inf): the one compared with",
        "Pi_t: orthogonal projection on the row space of M(t)",
    ),
    property=Property(_matrix_cases, _distance_holds),
    variants=(
        Variant("squared", Property(_matrix_cases, lambda c: _distance_holds(c, "squared"))),
        Variant("column spaces", Property(_matrix_cases, lambda c: _distance_holds(c, "columns"))),
    ),
    explanation=(
        "It sees row spaces only: zero for every M(t) of full column rank, and zero at the end "
        "by construction, so that it needs a rank, a side and a named reference."
    ),
)

CLAIMS = (EQ15, EQ16)
