"""Claims on the saddles of separate attention: their losses and stability."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import sympy as sp
from hypothesis import strategies as st
from numpy.typing import NDArray

import odekit as ok
from odekit.claims import Assumption, Check, Claim, Property, Variant, agreement, identity
from odekit.testing import spectra

from . import probes, separate
from .probes import MODELS, NOTE, ROUNDING, Case

Array = NDArray[np.float64]

# -- losses ---------------------------------------------------------------------------------------


@st.composite
def _plateaus(draw: st.DrawFn) -> Case:
    spectrum = draw(spectra(dim=(1, 4), condition=50.0))
    return {
        "spectrum": spectrum,
        "N": draw(st.integers(1, 100)),
        "m": draw(st.integers(0, len(spectrum))),
    }


def _loss_holds(case: Case, wrong: str = "") -> Check:
    lam, N, m = np.asarray(case["spectrum"]), int(case["N"]), int(case["m"])
    D, T = len(lam), float(np.sum(case["spectrum"]))
    state = probes.packed(separate.saddle(np.eye(D), lam, N, range(m)), D, 1)
    got = MODELS["separate"].flow.loss_value(state, {"Lambda": np.diag(lam), "N": N})
    n = N + (wrong == "N")
    c = 1 + (1 + T / lam) / n
    terms = lam * c if wrong == "not inverted" else lam / c
    stated = T - float(np.sum(terms[: m - 1 if wrong == "m - 1" and m else m]))
    return agreement("loss at M_m", got, stated, 1e-13 * T * D, ROUNDING)


LOSSES = Claim(
    id="zhang2025.loss-at-fixed-points",
    source=f"{NOTE}, loss formula at the m-th fixed point (equation 19 of the paper)",
    says="With m eigenvectors learned the loss is tr L - sum_{d <= m} lambda_d / c_d.",
    equations=(
        r"\mathcal L(\mathcal M_m) = \operatorname{tr}\Lambda - \sum_{d=1}^m\lambda_d"
        r"\left(1+\frac{1+\operatorname{tr}\Lambda/\lambda_d}{N}\right)^{-1}",
    ),
    property=Property(_plateaus, _loss_holds, examples=60),
    derivation=probes.proof(separate.plateau_losses),
    variants=(
        Variant("N off by one", Property(_plateaus, lambda c: _loss_holds(c, "N"))),
        Variant("c_d not inverted", Property(_plateaus, lambda c: _loss_holds(c, "not inverted"))),
        Variant("sum to m - 1", Property(_plateaus, lambda c: _loss_holds(c, "m - 1"))),
    ),
    explanation=(
        "With A = sum a_d e_d e_d^T the loss is a sum over modes; each learned one sits at its "
        "own minimum a_d = 1/(lambda_d c_d), which lowers the loss by lambda_d/c_d."
    ),
)

# -- stability ------------------------------------------------------------------------------------


def _fall_cases() -> st.SearchStrategy[Case]:
    return _plateaus().flatmap(
        lambda case: st.fixed_dictionaries(
            {
                **{name: st.just(value) for name, value in case.items()},
                "m": st.integers(0, len(case["spectrum"]) - 1),
                "x": st.integers(1, 10).map(lambda k: k / 10),
            }
        )
    )


def _fall_holds(case: Case, factor: float = 2.0, power: int = 3) -> Check:
    """Loss where a further head (v, k, q) = x (1, e, e) is added to M_m."""
    lam, N, m = np.asarray(case["spectrum"]), int(case["N"]), int(case["m"])
    D, x, T = len(lam), float(case["x"]), float(np.sum(case["spectrum"]))
    state = probes.packed(separate.saddle(np.eye(D), lam, N, range(m)), D, 1)
    state["v"][m] = x
    state["K"][m, 0, m] = state["Q"][m, 0, m] = x
    model = MODELS["separate"].flow
    got = model.loss_value(state, {"Lambda": np.diag(lam), "N": N})
    mu = (1 + 1 / N) * lam[m] + T / N
    level = float(ok.theory.plateau_losses(lam, N)[m])
    stated = level - factor * lam[m] ** 2 * x**power + lam[m] ** 2 * mu * x**6
    return agreement("loss beside M_m", got, stated, 1e-13 * (1 + T) ** 4 * D, ROUNDING)


def _proof_of_fall() -> Iterable[Check]:
    x, lam, T, n = sp.symbols("x lambda T n", positive=True)
    mu = (1 + 1 / n) * lam + T / n
    a = x**3
    mode = -2 * a * lam**2 + a**2 * lam**2 * mu
    yield identity(
        "a mode at a = x^3 adds -2 lambda^2 x^3 + lambda^2 mu x^6",
        mode,
        -2 * lam**2 * x**3 + lam**2 * mu * x**6,
    )
    yield from probes.proof(separate.plateau_losses)()


UNSTABLE = Claim(
    id="zhang2025.separate-saddles-unstable",
    source=f"{NOTE}, saddle-to-saddle dynamics (each M_m, m < D, is left)",
    says="From M_m, m < D, the loss falls along a further aligned head: -2 lambda^2 x^3 + O(x^6).",
    equations=(
        r"\mathcal L = \mathcal L(\mathcal M_m) - 2\lambda_{m+1}^2x^3"
        r" + \lambda_{m+1}^3c_{m+1}x^6",
    ),
    property=Property(_fall_cases, _fall_holds),
    assumes=("a head is left over: the further head is (v, k, q) = x (1, e, e)",),
    derivation=_proof_of_fall,
    variants=(
        Variant(
            "without the factor 2", Property(_fall_cases, lambda c: _fall_holds(c, factor=1.0))
        ),
        Variant("a quadratic fall", Property(_fall_cases, lambda c: _fall_holds(c, power=2))),
    ),
    explanation=(
        "Only the last point, with all eigenvectors, is the minimum. The fall is cubic: the "
        "saddle is left in a time 1/(lambda^2 x), not ln(1/x)."
    ),
)


@st.composite
def _saddles(draw: st.DrawFn, leading: bool = False, empty: bool = False) -> Case:
    # The plainest draw comes first: the smaller one of two eigenvalues learned.
    D = draw(st.sampled_from([2, 3, 1]))
    spectrum = draw(spectra(dim=D, condition=10.0, least_gap=1.2))
    subsets = sorted(probes.subsets(D), key=lambda s: s == tuple(range(len(s))))
    if leading:
        chosen = list(range(draw(st.integers(0, D))))
    else:
        chosen = list(draw(st.sampled_from(subsets)))
    return {
        "spectrum": spectrum,
        "N": draw(st.integers(1, 30)),
        "learned": chosen,
        "spare value": 0.0 if empty else draw(st.sampled_from([0.1, 0.5, 1.0, 0.0])),
    }


def _curvature(case: Case, expected: str = "none") -> Check:
    """Largest eigenvalue of the Jacobian at a saddle, relative to its largest entry."""
    lam, N = np.asarray(case["spectrum"]), int(case["N"])
    D, L = len(lam), np.diag(case["spectrum"])
    state = separate.at_saddle(separate.saddle(np.eye(D), lam, N, case["learned"]), D + 1)
    state["v"][D] = float(case["spare value"])
    matrix = probes.jacobian(state, L, N)
    size = max(float(np.abs(matrix).max()), 1e-3)
    top = float(np.linalg.eigvalsh(matrix)[-1]) / size
    if expected == "strict":
        top = 1e-6 - top  # positive curvature of the flow is what this variant states
    if expected == "definite":
        top = float(np.linalg.eigvalsh(matrix)[-1]) / size + 1e-6
    return Check(
        "steepest growth at the saddle, relative", top, 1e-10, "rounding of an eigenvalue problem"
    )


def _proof_of_degeneracy() -> Iterable[Check]:
    """Second variation of a learned head towards an eigenvector u that is not learned.

    With (v, k, q) = (s, s e_1, s e_1), s^3 = 1/mu_1, and k += a e_u, q += b e_u it is
    s^4 lambda_u lambda_1 (mu_u a^2 + mu_1 b^2) - 2 s lambda_u^2 a b.
    """
    one, u, T, n, s, a, b = sp.symbols("lambda_1 lambda_u T n s a b", positive=True)
    mu1, muu = ((1 + 1 / n) * z + T / n for z in (one, u))
    # Half of the loss' second order in (a, b): the first variation of A is s^2 (a e_u e_1^T +
    # b e_1 e_u^T), the second s a b e_u e_u^T, and G e_u = lambda_u^2 e_u.
    A = {"uu": s * a * b, "u1": s**2 * a, "1u": s**2 * b, "11": 1 / mu1}
    level = -2 * (A["uu"] * u**2 + A["11"] * one**2)
    level += u * muu * (u * A["uu"] ** 2 + one * A["u1"] ** 2)
    level += one * mu1 * (u * A["1u"] ** 2 + one * A["11"] ** 2)
    form = s**4 * u * one * (muu * a**2 + mu1 * b**2) - 2 * s * u**2 * a * b
    rest = -2 * one**2 / mu1 + one**2 / mu1 + u**2 * muu * (s * a * b) ** 2
    yield identity("loss = level + quadratic form + fourth order", sp.expand(level - form - rest))
    # It is nonnegative iff s^6 lambda_1^2 mu_u mu_1 >= lambda_u^2, that is (s^6 = 1/mu_1^2):
    gap = one**2 * muu - u**2 * mu1
    yield identity(
        "lambda_1^2 mu_u - lambda_u^2 mu_1 has the sign of lambda_1 - lambda_u",
        gap,
        (one - u) * ((1 + 1 / n) * one * u + T / n * (one + u)),
    )


DEGENERATE = Claim(
    id="zhang2025.separate-saddles-degenerate",
    source=f"{NOTE}, saddle-to-saddle dynamics: the plateaus of rank-one ATTN_S",
    says="The saddles A_S are degenerate: no direction has negative curvature of the loss.",
    equations=(r"\nabla^2\mathcal L \succeq 0 \ \text{at}\ \mathcal M_m",),
    property=Property(_saddles, _curvature, examples=40),
    assumes=("rank R = 1", "balanced learned heads, and a head left over with k = q = 0"),
    needs=(
        Assumption(
            "the head left over has v = 0",
            Property(lambda: _saddles(empty=True), _curvature, examples=40),
        ),
        Assumption(
            "the learned eigenvectors are the leading ones",
            Property(lambda: _saddles(leading=True), _curvature, examples=40),
        ),
        Assumption(
            "the head left over has v = 0, and the learned eigenvectors are the leading ones",
            Property(lambda: _saddles(leading=True, empty=True), _curvature, examples=40),
            _proof_of_degeneracy,
        ),
    ),
    variants=(
        Variant(
            "a strict saddle (some direction grows exponentially)",
            Property(
                lambda: _saddles(leading=True, empty=True), lambda c: _curvature(c, "strict"), 10
            ),
        ),
        Variant(
            "every direction strictly stable",
            Property(
                lambda: _saddles(leading=True, empty=True), lambda c: _curvature(c, "definite"), 10
            ),
        ),
    ),
    explanation=(
        "A head that is wholly zero enters the loss at third order, so it gives no curvature; a "
        "head with v != 0 and k = q = 0 does (k and q grow at rate v lambda^2). A learned head "
        "can also turn: towards an eigenvector u of larger eigenvalue than its own that costs "
        "nothing up to second order, and the curvature is negative. So the points M_m on the way "
        "are degenerate, while those with a leading eigenvector left out are strict saddles. The "
        "derivation treats one head and one direction at a time: different heads and directions "
        "change different entries of A, so that they add up, and among learned ones G vanishes."
    ),
    run="""\
import numpy as np, odekit as ok
flow, N, lam = ok.models.attention_separate().flow, 9, np.array([1.0, 0.5])
values = {"Lambda": np.diag(lam), "N": N}
for d in (0, 1):  # learned: the larger eigenvalue, or the smaller one
    s = (1 / ((1 + 1 / N) * lam[d] + lam.sum() / N)) ** (1 / 3)
    e, u = np.eye(2)[d], np.eye(2)[1 - d]
    loss = lambda x: flow.loss_value(
        {"v": np.array([s]), "K": (s * e + x * u)[None, None], "Q": (s * e + x * u)[None, None]},
        values)
    print(d, loss(0.01) - loss(0.0))  # rises from the larger, falls from the smaller
""",
)

CLAIMS = (LOSSES, UNSTABLE, DEGENERATE)
