"""Claims on separate keys and queries: where the flow rests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import sympy as sp
from hypothesis import strategies as st
from numpy.typing import NDArray

import odekit as ok
from odekit.claims import Assumption, Check, Claim, Property, Variant, identity
from odekit.testing import spectra

from . import probes, separate
from .probes import MODELS, NOTE, ROUNDING, Case
from .statement import body, named

Array = NDArray[np.float64]

# -- the number of fixed points -----------------------------------------------------------------


@st.composite
def _landscapes(draw: st.DrawFn, enough: bool = False, distinct: bool = False) -> Case:
    # The plainest draw comes first: D = 2, where each assumption matters.
    D = draw(st.sampled_from([2, 1]))
    R = draw(st.integers(1, 2))
    least = -(-D // R) if enough else 1
    degenerate = D > 1 and not distinct and draw(st.sampled_from([True, False]))
    spectrum = draw(spectra(dim=D, condition=10.0, least_gap=1.3 if D > 1 else 1.0))
    return {
        "spectrum": np.full(D, spectrum[0]) if degenerate else spectrum,
        "N": draw(st.integers(1, 30)),
        "H": draw(st.integers(least, 3)),
        "R": R,
        "turn": draw(st.integers(1, 9)) / 10,
        "seed": draw(st.integers(0, 1000)),
    }


def _count_holds(case: Case, wrong: str = "") -> Check:
    """Rests that the layer can and cannot reach, against one for each subset of eigenvectors."""
    lam, N = np.asarray(case["spectrum"], dtype=np.float64), int(case["N"])
    D, H, R = len(lam), int(case["H"]), int(case["R"])
    L = np.diag(lam)
    subsets = probes.subsets(D)
    if wrong == "chain":
        subsets = [tuple(range(m)) for m in range(D + 1)]
    points = [separate.saddle(np.eye(D), lam, N + (wrong == "N"), s) for s in subsets]
    like = {"v": np.zeros(H), "K": np.zeros((H, R, D)), "Q": np.zeros((H, R, D))}
    ends = [probes.product(s) for s in probes.rests(like, L, N, int(case["seed"]), 5)]
    # Built rests: eigenvectors, and a turned one, where the rates vanish at it.
    angle = float(case["turn"])
    turned = np.eye(D)
    if D == 2:
        turned = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    for vectors in (np.eye(D), turned):
        for subset in probes.subsets(D):
            if len(subset) <= H * R:
                A = separate.saddle(vectors, lam, N, subset)
                state = probes.packed(A, H, R)
                rate = np.abs(probes.flat(probes.rates(state, L, N))).max()
                if rate < 1e-13 * probes.size_of(state, L):
                    ends.append(A)
    scale = max(float(np.abs(p).max()) for p in points)
    gaps = np.array([[float(np.abs(A - p).max()) for p in points] for A in ends]) / scale
    missing = len(points) - len(set(gaps.argmin(axis=1)[gaps.min(axis=1) < 1e-4]))
    return Check(
        "points missing, plus distance of a rest from the nearest point",
        float(missing) + float(gaps.min(axis=1).max()),
        1e-4,
        "the search stops at rates of 1e-10, and A moves like their square root at worst",
    )


def _proof_of_rests() -> Iterable[Check]:
    model: Any = MODELS["separate"]
    flow = model.flow
    _, K, Q = model.weights
    A, G = named(flow, "A"), named(flow, "G_A")
    made = body(flow, "A")
    with_keys = ok.einsum("hri,hrj->ij", K, flow.rates[K])
    with_queries = ok.einsum("hri,hrj->ij", Q, flow.rates[Q])
    yield identity(
        "sum k (dk/dt)^T = A G^T",
        with_keys,
        ok.einsum("ij,kj->ik", A, G).substitute({A: made}),
    )
    yield identity(
        "sum q (dq/dt)^T = A^T G",
        with_queries,
        ok.einsum("ji,jk->ik", A, G).substitute({A: made}),
    )
    lam, T, n, x = sp.symbols("lambda T n x", positive=True)
    mu = (1 + 1 / n) * lam + T / n
    g = lam**2 * (1 - mu * x)
    roots = sp.Poly(sp.expand(x * g), x)
    yield identity("an eigenvector rests at x = 0", roots.eval(0))
    yield identity(
        "and at x = 1/(lambda c)",
        sp.simplify(roots.eval(1 / (lam * (1 + (1 + T / lam) / n)))),
    )
    # G^T A = 0 gives L A = A^T M L A, symmetric, hence A = A M A; A G^T = 0 makes L A M^-1
    # symmetric. Then A commutes with L^2 M^-1, whose eigenvalues f increase with those of L:
    other = sp.Symbol("lambda_2", positive=True)
    f, h = (z**2 / ((1 + 1 / n) * z + T / n) for z in (lam, other))
    wanted = (lam - other) * ((1 + 1 / n) * lam * other + T / n * (lam + other))
    both = mu * ((1 + 1 / n) * other + T / n)
    yield identity("L^2 M^-1 separates the eigenvalues of L", (f - h) * both, wanted)


_PROOF_WORDS = (
    "At a rest sum k (dk/dt)^T = A G^T and sum q (dq/dt)^T = A^T G vanish, with G = L(I - M A)L. "
    "For invertible L that makes A = A M A, L A and L A M^-1 symmetric, so that A commutes with "
    "L^2 M^-1, and, this increasing with the eigenvalues of L, with L: A M projects on a subspace "
    "that L keeps. "
)

COUNT = Claim(
    id="zhang2025.separate-fixed-points",
    source=f"{NOTE}, loss landscape of ATTN_S, in function space",
    says="The flow rests at 2^D values of A, one for each subset of the eigenvectors of L.",
    equations=(
        r"A_S = \sum_{d\in S}\frac{e_d e_d^\top}{\lambda_d c_d},\quad S\subseteq\{1,\dots,D\},"
        r"\qquad c_d = 1+\frac{1+\operatorname{tr}\Lambda/\lambda_d}{N}",
    ),
    symbols=(
        "M = (1 + 1/N) L + (tr L/N) I, so that B = L M; S: a set of eigenvectors",
        "turn: a test direction that is no eigenvector, rests along which count if rates vanish",
    ),
    property=Property(_landscapes, _count_holds, examples=30),
    assumes=("Lambda is invertible",),
    needs=(
        Assumption(
            "H R >= D",
            Property(lambda: _landscapes(enough=True), _count_holds, examples=30),
        ),
        Assumption(
            "Lambda has distinct eigenvalues",
            Property(lambda: _landscapes(distinct=True), _count_holds, examples=30),
        ),
        Assumption(
            "H R >= D and Lambda has distinct eigenvalues",
            Property(lambda: _landscapes(enough=True, distinct=True), _count_holds, examples=30),
            _proof_of_rests,
        ),
    ),
    variants=(
        Variant(
            "N off by one",
            Property(
                lambda: _landscapes(enough=True, distinct=True), lambda c: _count_holds(c, "N"), 10
            ),
        ),
        Variant(
            "D + 1 points, the leading subsets only",
            Property(
                lambda: _landscapes(enough=True, distinct=True),
                lambda c: _count_holds(c, "chain"),
                20,
            ),
        ),
    ),
    explanation=_PROOF_WORDS
    + "With distinct eigenvalues these subspaces are spanned by subsets of eigenvectors; a "
    "repeated eigenvalue has a continuum of them. Fewer than D pairs (H R < D) cannot make the "
    "larger subsets: only sum_{m <= H R} (D over m) points are left.",
    run="""\
import numpy as np, odekit as ok
flow, N = ok.models.attention_separate().flow, 1
# Degenerate: L = I, one head along any direction at all rests.
for angle in (0.0, 0.3, 1.0):
    e = np.array([np.cos(angle), np.sin(angle)])
    s = (1 / (1 + 3 / N)) ** (1 / 3)
    rest = {"v": np.array([s]), "K": s * e[None, None], "Q": s * e[None, None]}
    rates = flow.evaluate(rest, {"Lambda": np.eye(2), "N": N})
    print(angle, max(abs(r).max() for r in rates.values()))  # zero each time
# H R = 1 < D = 2: A = v k q^T has rank one, so the point with both eigenvectors is missing.
""",
)


# -- in weights -----------------------------------------------------------------------------------


def _rescaled_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries(
        {
            "spectrum": spectra(dim=(1, 2), condition=10.0),
            "N": st.integers(1, 30),
            "scale": st.integers(2, 8).map(lambda k: k / 2),
        }
    )


def _rescaled(case: Case, kind: str) -> Check:
    lam, N, c = np.asarray(case["spectrum"]), int(case["N"]), float(case["scale"])
    L = np.diag(lam)
    rest = probes.packed(separate.saddle(np.eye(len(lam)), lam, N, [0]), 1, 1)
    key, query = {"isolated": (c, 1 / c), "orbit": (c, 1 / c), "both": (c, c), "one": (c, 1.0)}[
        kind
    ]
    moved = {"v": rest["v"], "K": key * rest["K"], "Q": query * rest["Q"]}
    rate = float(np.abs(probes.flat(probes.rates(moved, L, N))).max())
    bound = 1e-13 * probes.size_of(moved, L)
    if kind == "isolated":
        away = float(np.abs(moved["K"] - rest["K"]).max()) if rate < bound else 0.0
        return Check("distance to another rest with the same A", away, 1e-9, ROUNDING)
    return Check("rates at the rescaled rest", rate, bound, ROUNDING)


def _proof_of_orbit() -> Iterable[Check]:
    """The map k -> c k, q -> q/c keeps A, and takes rates to rescaled rates."""
    model: Any = MODELS["separate"]
    _, K, Q = model.weights
    c = ok.parameter("c")
    inverse = ok.parameter("d")  # stands for 1/c: only the product c d = 1 enters
    made = body(model.flow, "A").substitute(
        {K: ok.einsum(",hri->hri", c, K), Q: ok.einsum(",hri->hri", inverse, Q)}
    )
    wanted = ok.einsum(",,ij->ij", c, inverse, body(model.flow, "A"))
    yield identity("A(c k, d q) = c d A(k, q)", made, wanted)


ORBIT = Claim(
    id="zhang2025.separate-fixed-points-manifolds",
    source=f"{NOTE}, corrected reading in weights",
    says="In weights each rest belongs to a manifold: k -> c k, q -> q/c gives another rest.",
    equations=(r"(v, k, q)\ \text{rests} \;\Rightarrow\; (v, ck, q/c)\ \text{rests},\ c \ne 0",),
    property=Property(_rescaled_cases, lambda c: _rescaled(c, "orbit")),
    derivation=_proof_of_orbit,
    variants=(
        Variant("k -> c k, q -> c q", Property(_rescaled_cases, lambda c: _rescaled(c, "both"))),
        Variant("k -> c k alone", Property(_rescaled_cases, lambda c: _rescaled(c, "one"))),
    ),
    explanation="A, and with it G, does not change; every rate is G times weights of the head.",
)

COUNT_WEIGHTS = Claim(
    id="zhang2025.separate-fixed-points-weights",
    source=f"{NOTE}, loss landscape of ATTN_S, read in weights",
    says="The fixed points in weights are 2^D isolated points.",
    equations=(r"\#\{(v,K,Q) : \dot v = \dot K = \dot Q = 0\} = 2^D",),
    property=Property(_rescaled_cases, lambda c: _rescaled(c, "isolated")),
    derivation=_proof_of_orbit,
    correction=ORBIT,
    variants=(
        Variant("k -> c k, q -> c q", Property(_rescaled_cases, lambda c: _rescaled(c, "both"))),
        Variant("k -> c k alone", Property(_rescaled_cases, lambda c: _rescaled(c, "one"))),
    ),
    explanation=(
        "Each value of A is made by a continuum of weights, so that the count 2^D is one of "
        "values of A ('in function space', as the notes say): see separate-fixed-points."
    ),
    run="""\
import numpy as np, odekit as ok
flow, N = ok.models.attention_separate().flow, 1
for c in (1.0, 2.0):  # D = 1, optimum 1/(1 + 2/N)
    rest = {"v": np.ones(1), "K": np.full((1, 1, 1), c), "Q": np.full((1, 1, 1), 1 / c / 3)}
    print(c, flow.evaluate(rest, {"Lambda": np.eye(1), "N": N}))  # zero, at both
""",
)

CLAIMS = (COUNT, COUNT_WEIGHTS, ORBIT)
