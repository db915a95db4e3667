"""Claims on merged keys and queries: fixed points and their stability."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import sympy as sp
from hypothesis import strategies as st
from numpy.typing import NDArray

import odekit as ok
from odekit.claims import Check, Claim, Property, Variant, agreement, identity
from odekit.testing import spectra

from . import merged, probes
from .probes import MODELS, NOTE, ROUNDING, Case, covariance, layers
from .statement import body, named

Array = NDArray[np.float64]


def _small_layers() -> Any:
    return layers("merged", dim=(1, 2), context=30)


# -- fixed points in function space -----------------------------------------------------------


def _rests_hold(case: Case, shift: int = 0, zero: bool = True) -> Check:
    """Every zero of the rates that a search finds has A = 0 or A = A*."""
    L, N = covariance(case), int(case["N"])
    points = [merged.optimum(L, N + shift)] + ([np.zeros_like(L)] if zero else [])
    scale = float(np.abs(points[0]).max())
    ends = probes.rests(case["state"], L, N, int(case["seed"]), 6)
    # Rests at A = 0 are built: v = 0 and U_h orthogonal to L^2.
    ends.append(_at_zero(case["state"], L))
    gaps = [min(float(np.abs(probes.product(e) - p).max()) for p in points) for e in ends]
    return Check(
        "distance of A at a rest from the two points",
        max(gaps) / scale,
        1e-5,
        "the search stops at rates of 1e-10, and A moves like their square root at worst",
    )


def _at_zero(state: Any, L: Array) -> dict[str, Array]:
    square = L @ L
    U = np.asarray(state["U"], dtype=np.float64)
    along = np.einsum("hij,ij->h", U, square) / np.sum(square**2)
    return {"v": np.zeros(len(U)), "U": U - along[:, None, None] * square}


def _proof_of_two_points() -> Iterable[Check]:
    """The rates, G at A diagonal in the eigenvectors, and that G has one zero."""
    yield from probes.proof(merged.fixed_points)()
    yield from _proof_of_minimum()


FIXED_POINTS = Claim(
    id="zhang2025.merged-fixed-points",
    source=f"{NOTE}, loss landscape of ATTN_M, read in function space",
    says="The flow rests at two values of A only: zero, and the optimum A*.",
    equations=(
        r"\dot U_h = v_h G = 0\;\Rightarrow\; v = 0\ (A = 0)\ \text{or}\ G = 0,\qquad"
        r" G = 0 \iff A_* = [(1+\tfrac1N)\Lambda + \tfrac{\operatorname{tr}\Lambda}{N}I]^{-1}",
    ),
    property=Property(_small_layers, _rests_hold, examples=25),
    assumes=("Lambda is invertible",),
    derivation=_proof_of_two_points,
    variants=(
        Variant(
            "N off by one in A*",
            Property(_small_layers, lambda c: _rests_hold(c, shift=1), examples=10),
        ),
        Variant(
            "the optimum only",
            Property(_small_layers, lambda c: _rests_hold(c, zero=False), examples=10),
        ),
    ),
    explanation=(
        "If one v_h is not zero, G must vanish, a linear equation in A with the one solution A* (G "
        "changes by -B (A - C) L between A and any C, and B and L are invertible); otherwise all "
        "v_h are zero and so is A."
    ),
)

# -- fixed points in weights ------------------------------------------------------------------


def _weights_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries(
        {
            "spectrum": spectra(dim=(1, 2), condition=20.0),
            "N": st.integers(1, 30),
            "entries": probes.tenths(4),
        }
    )


def _origin_holds(case: Case, kind: str = "origin") -> Check:
    L, N = covariance(case), int(case["N"])
    D = len(L)
    U = np.asarray(case["entries"])[: D * D].reshape(1, D, D)
    state = {"v": np.zeros(1), "U": U}
    if kind != "any U":
        state = _at_zero(state, L)
    rate = float(np.abs(probes.flat(probes.rates(state, L, N))).max())
    if kind == "origin":
        away = float(np.abs(state["U"]).max()) if rate < 1e-12 * probes.size_of(state, L) else 0.0
        return Check("distance of a rest with A = 0 from the origin", away, 1e-9, ROUNDING)
    if kind == "twice":
        state["U"] = state["U"] + L @ L
        rate = float(np.abs(probes.flat(probes.rates(state, L, N))).max())
    return Check("rates there", rate, 1e-14 * probes.size_of(state, L), ROUNDING)


def _proof_of_manifold() -> Iterable[Check]:
    model: Any = MODELS["merged"]
    v, U = model.weights
    flow, L = model.flow, named(model.flow, "Lambda")
    yield identity(
        "A = 0: dv_h/dt = tr(U_h^T L^2)",
        flow.rates[v]
        .substitute({named(flow, "G_A"): body(flow, "G_A")})
        .substitute({named(flow, "A"): 0 * named(flow, "A")}),
        ok.einsum("hij,ik,kj->h", U, L, L),
    )
    yield identity(
        "v = 0: dU_h/dt = 0", flow.rates[U].substitute({v: 0 * v}), 0 * ok.einsum("hij->hij", U)
    )


MANIFOLD = Claim(
    id="zhang2025.merged-fixed-points-manifold",
    source=f"{NOTE}, corrected reading in weights",
    says="In weights the flow rests on the whole manifold v = 0, tr(U_h^T L^2) = 0 (there A = 0).",
    equations=(r"\mathcal M_0 = \{v = 0,\ \operatorname{tr}(U_h^\top\Lambda^2) = 0\}",),
    property=Property(_weights_cases, lambda c: _origin_holds(c, "manifold")),
    derivation=_proof_of_manifold,
    variants=(
        Variant("v = 0 and any U", Property(_weights_cases, lambda c: _origin_holds(c, "any U"))),
        Variant(
            "tr(U_h^T L^2) = |L^2|^2", Property(_weights_cases, lambda c: _origin_holds(c, "twice"))
        ),
    ),
    explanation="With v = 0, dU/dt = v G vanishes and dv_h/dt is tr(U_h^T L^2).",
)

FIXED_POINTS_WEIGHTS = Claim(
    id="zhang2025.merged-fixed-points-weights",
    source=f"{NOTE}, loss landscape of ATTN_M, read in weights ('M_0: the zero point')",
    says="The flow rests at the origin, and elsewhere only where A = A*.",
    equations=(r"\mathcal M_0 = \{0\}",),
    property=Property(_weights_cases, _origin_holds),
    derivation=_proof_of_manifold,
    correction=MANIFOLD,
    variants=(
        Variant("v = 0 and any U", Property(_weights_cases, lambda c: _origin_holds(c, "any U"))),
        Variant(
            "v = 0 and tr(U_h^T L^2) = |L^2|^2",
            Property(_weights_cases, lambda c: _origin_holds(c, "twice")),
        ),
    ),
    explanation=(
        "With D >= 2 a matrix U can be orthogonal to L^2 without being zero; with v = 0 that is a "
        "rest away from the origin. 'Two fixed points' is right for A, see merged-fixed-points."
    ),
    run="""\
import numpy as np, odekit as ok
flow = ok.models.attention_merged().flow
rest = {"v": np.zeros(1), "U": np.array([[[0.0, 1.0], [0.0, 0.0]]])}
print(flow.evaluate(rest, {"Lambda": np.diag([1.0, 0.5]), "N": 5}))  # all zero
""",
)

# -- stability --------------------------------------------------------------------------------


def _escape_holds(case: Case, power: int = 2, damped: bool = True) -> Check:
    """At a rest with A = 0 of one head the largest growth rate is positive and as stated."""
    L, N = covariance(case), int(case["N"])
    D = len(L)
    state = _at_zero(
        {"v": np.zeros(1), "U": np.asarray(case["entries"])[: D * D].reshape(1, D, D)}, L
    )
    U = state["U"][0]
    m = float(np.sum(U * (probes.second_moment(L, N) @ U @ L))) if damped else 0.0
    F = float(np.linalg.norm(np.linalg.matrix_power(L, power)))
    stated = 2 * F**2 / (m + np.sqrt(m * m + 4 * F * F))
    size = 1 + m + F
    return agreement(
        "largest eigenvalue of the Jacobian where A = 0",
        probes.growth(state, L, N),
        stated,
        1e-13 * size * D * D,
        "rounding of a symmetric eigenvalue problem",
    )


def _stable_cases() -> st.SearchStrategy[Case]:
    return layers("merged", dim=(1, 2), context=30)


def _stable_holds(case: Case, factor: float = 1.0) -> Check:
    """Where A = A* no eigenvalue of the Jacobian is positive."""
    L, N = covariance(case), int(case["N"])
    state = {n: np.array(x, dtype=np.float64) for n, x in case["state"].items()}
    state["v"][0] = 1.0
    rest = np.einsum("h,hij->ij", state["v"][1:], state["U"][1:])
    state["U"][0] = factor * merged.optimum(L, N) - rest
    size = float(np.abs(probes.jacobian(state, L, N)).max())
    top = probes.growth(state, L, N) / size
    return Check(
        "largest eigenvalue of the Jacobian where A = A*, relative",
        top,
        1e-12,
        "rounding of a symmetric eigenvalue problem",
    )


def _proof_of_escape() -> Iterable[Check]:
    x, m, F = sp.symbols("x m F", positive=True)
    root = (-m + sp.sqrt(m**2 + 4 * F**2)) / 2
    yield identity("the rate solves x^2 + m x = |L^2|^2", root**2 + m * root - F**2)
    yield from _proof_of_manifold()


def _proof_of_minimum() -> Iterable[Check]:
    """G(A) - G(C) = - B (A - C) L for any A, C: the loss is convex in A."""
    model: Any = MODELS["merged"]
    flow = model.flow
    A, L, G = named(flow, "A"), named(flow, "Lambda"), body(flow, "G_A")
    N = ok.dims("N")
    other = ok.parameter("C", A.shape)
    step = A - other
    trace = ok.einsum("ii->", L)
    curved = (1 + 1 / N) * ok.einsum("ij,jk,kl,lm->im", L, L, step, L)
    curved = curved + ok.einsum(",ij,jk,kl->il", trace, L, step, L) / N
    yield identity(
        "G(A) - G(C) + B (A - C) L = 0 for any A, C", G - G.substitute({A: other * 1}) + curved
    )


ESCAPE = Claim(
    id="zhang2025.merged-zero-unstable",
    source=f"{NOTE}, loss landscape of ATTN_M ('M_0 unstable')",
    says="Every rest with A = 0 is unstable; from the origin the growth rate is |L^2|_F / tau.",
    equations=(
        r"x^2 + m\,x = \lVert\Lambda^2\rVert_F^2,\qquad"
        r" m = \operatorname{tr}(U^\top B U\Lambda) \ge 0",
    ),
    property=Property(_weights_cases, _escape_holds),
    assumes=("Lambda is invertible; written for one head",),
    derivation=_proof_of_escape,
    variants=(
        Variant(
            "growth rate from |L| instead of |L^2|",
            Property(_weights_cases, lambda c: _escape_holds(c, power=1)),
        ),
        Variant(
            "|L^2|_F everywhere on the manifold (m left out)",
            Property(_weights_cases, lambda c: _escape_holds(c, damped=False)),
        ),
    ),
    explanation=(
        "Near such a rest dv/dt = <U', L^2> - m v and dU'/dt = v L^2, a 2 x 2 system of "
        "determinant -|L^2|^2 < 0: one eigenvalue is always positive. With several heads m is a "
        "positive semidefinite matrix and each of its eigenvalues gives such a pair."
    ),
)

STABLE = Claim(
    id="zhang2025.merged-optimum-stable",
    source=f"{NOTE}, loss landscape of ATTN_M ('M_* stable, the global minimum')",
    says="Where A = A* the loss is at its global minimum, and no direction grows.",
    equations=(
        r"G(A) - G(C) = -B(A-C)\Lambda\;\Rightarrow\;"
        r"\mathcal L(A) = \mathcal L(A_*) + \operatorname{tr}((A-A_*)^\top B(A-A_*)\Lambda)",
    ),
    property=Property(_stable_cases, _stable_holds),
    assumes=("Lambda is invertible",),
    derivation=_proof_of_minimum,
    variants=(
        Variant("at half of A*", Property(_stable_cases, lambda c: _stable_holds(c, factor=0.5))),
        Variant("at -A*", Property(_stable_cases, lambda c: _stable_holds(c, factor=-1.0))),
    ),
    explanation=(
        "G is linear in A with slope -B (.) L, B and L positive definite: the loss is a convex "
        "quadratic function of A with the one minimum A*. The directions within the manifold "
        "A = A* are neutral, so stability is meant transverse to it."
    ),
)

CLAIMS = (FIXED_POINTS, FIXED_POINTS_WEIGHTS, MANIFOLD, ESCAPE, STABLE)
