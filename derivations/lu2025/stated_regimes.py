"""Claims on task diversity, the scaling regime, and the model that is solved."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import sympy as sp
from hypothesis import strategies as st
from numpy.typing import NDArray

from odekit.claims import (
    Assumption,
    Check,
    Claim,
    Property,
    Variant,
    agreement,
    identity,
)
from odekit.simulate import ridge_experiment
from odekit.theory import finite_equivalent, learning_curve

Array = NDArray[np.float64]
Case = Mapping[str, Any]

_PAPER = "Lu et al. 2025 (arXiv:2405.11751), abstract"


# -- task diversity -------------------------------------------------------------------------------


def _diversity_cases(alphas: tuple[float, ...], taus: tuple[float, ...] = (np.inf,)) -> Any:
    return lambda: st.fixed_dictionaries(
        {
            "alpha": st.sampled_from(alphas),
            "kappa": st.sampled_from([0.5, 2.0, 0.1, 0.25, 0.75, 1.5, 4.0, 20.0]),
            "noise": st.sampled_from([0.01, 0.1, 0.5]),
            "tau": st.sampled_from(taus),
        }
    )


_LONG = 1e6


def _gap_holds(case: Case, wrong: str = "") -> Check:
    kappa = float(case["kappa"])
    icl, idg = learning_curve(case["alpha"], kappa, case["tau"], case["noise"])
    stated = max(0.0, 1 - kappa)
    if wrong == "squared":
        stated = max(0.0, 1 - kappa**2)
    if wrong == "threshold":
        stated = max(0.0, 1 - kappa / 2)
    # The gap's own correction is of order q = (1 + rho)/alpha, 1e-6 times a few.
    return agreement(
        "e_ICL - e_IDG against (1 - kappa)_+",
        icl - idg,
        stated,
        1e-3,
        "corrections of order q / |1 - kappa| at alpha = 10^6",
    )


def _proof_of_gap() -> Iterable[Check]:
    """Limit of q^2 [(1 + q)(-m') - m] as q -> 0, on either side of kappa = 1."""
    q, k = sp.symbols("q k", positive=True)
    for kappa, wanted, words in (
        (k / (1 + k), 1 - k / (1 + k), "kappa < 1: 1 - kappa"),
        (1 + k, sp.Integer(0), "kappa > 1: 0"),
    ):
        b = q + 1 - 1 / kappa
        # m solves q m^2 kappa^-1 + b m - 1 = 0; for kappa < 1 the branch without cancellation.
        root = sp.sqrt(b**2 + 4 * q / kappa)
        m = 2 / (b + root) if wanted == 0 else (root - b) * kappa / (2 * q)
        yield identity(
            f"m solves its equation ({words})", sp.simplify(q * m**2 / kappa + b * m - 1)
        )
        gap = q**2 * ((1 + q) * (-sp.diff(m, q)) - m)
        yield identity(f"gap at alpha -> infinity, {words}", sp.limit(gap, q, 0), wanted)


_GAP = (
    "m(q): the positive solution of q m^2/kappa + (q + 1 - 1/kappa) m = 1, the transform of the "
    "tasks' covariance; at tau = infinity the gap is q^2 ((1 + q)(-m') - m)"
)

TRANSITION = Claim(
    id="lu2025.task-diversity-transition",
    source=f"{_PAPER} ('a phase transition between low and high task diversity regimes')",
    says=(
        "The gap between fresh and pretraining tasks is 1 - kappa below kappa = 1 (memorisation) "
        "and 0 above (genuine in-context learning)."
    ),
    equations=(r"e_{\mathrm{ICL}} - e_{\mathrm{IDG}} \to (1-\kappa)_+",),
    symbols=(_GAP,),
    property=Property(_diversity_cases((1.0, 10.0, _LONG), (2.0, np.inf)), _gap_holds),
    assumes=("limit of large dimension",),
    needs=(
        Assumption(
            "population training, tau -> infinity",
            Property(_diversity_cases((1.0, 10.0, _LONG)), _gap_holds),
        ),
        Assumption(
            "endless contexts after population training, tau -> infinity, then alpha -> infinity "
            "(tested at alpha = 10^6)",
            Property(_diversity_cases((_LONG,)), _gap_holds),
            _proof_of_gap,
        ),
    ),
    variants=(
        Variant(
            "1 - kappa^2", Property(_diversity_cases((_LONG,)), lambda c: _gap_holds(c, "squared"))
        ),
        Variant(
            "a threshold at kappa = 2",
            Property(_diversity_cases((_LONG,)), lambda c: _gap_holds(c, "threshold")),
        ),
    ),
    explanation=(
        "kappa d tasks span a share kappa of all directions. With long contexts the layer solves "
        "tasks within their span and predicts nothing along the share 1 - kappa that it has never "
        "seen. At finite alpha or tau the gap is a smooth function of kappa: the transition is "
        "sharp in the limit only."
    ),
    run="""\
import odekit as ok
for alpha in (10.0, 1e6):
    for kappa in (0.5, 2.0):
        icl, idg = ok.theory.learning_curve(alpha, kappa, float("inf"), 0.01)
        print(alpha, kappa, icl - idg, max(0, 1 - kappa))
""",
)


def _genuine_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries(
        {
            "alpha": st.sampled_from([1.0, 10.0, 100.0]),
            "noise": st.sampled_from([0.01, 0.1, 0.5]),
            "kappa": st.sampled_from([100.0, 1000.0]),
        }
    )


def _genuine_holds(case: Case, power: float = 1.0) -> Check:
    gaps = []
    for factor in (1.0, 10.0):
        icl, idg = learning_curve(case["alpha"], factor * case["kappa"], np.inf, case["noise"])
        gaps.append(float(icl - idg))
    got = np.log10(gaps[0] / gaps[1])
    return agreement("power of 1/kappa", got, power, 0.05, "corrections of relative order 1/kappa")


def _proof_of_genuine() -> Iterable[Check]:
    q, x = sp.symbols("q x", positive=True)  # x = 1/kappa
    b = q + 1 - x
    m = 2 / (b + sp.sqrt(b**2 + 4 * q * x))
    gap = q**2 * ((1 + q) * (-sp.diff(m, q)) - m)
    yield identity("gap at kappa = infinity is 0", sp.simplify(gap.subs(x, 0)))
    first = sp.simplify(sp.diff(gap, x).subs(x, 0))
    yield identity("coefficient of 1/kappa is 2 q^2/(1+q)^3", first, 2 * q**2 / (1 + q) ** 3)


GENUINE = Claim(
    id="lu2025.genuine-in-context-learning",
    source=f"{_PAPER} ('generalization beyond the scope of pretrained tasks')",
    says="With many pretraining tasks the gap to fresh tasks vanishes, like 1/kappa.",
    equations=(r"e_{\mathrm{ICL}} - e_{\mathrm{IDG}} \simeq \frac{2q^2}{(1+q)^3}\,\frac1\kappa",),
    symbols=(_GAP,),
    property=Property(_genuine_cases, _genuine_holds),
    assumes=("limit of large dimension", "population training, tau -> infinity"),
    derivation=_proof_of_genuine,
    variants=(
        Variant("like 1/kappa^2", Property(_genuine_cases, lambda c: _genuine_holds(c, 2.0))),
        Variant("not at all", Property(_genuine_cases, lambda c: _genuine_holds(c, 0.0))),
    ),
    explanation="At kappa = infinity pretraining and fresh tasks have one and the same law.",
)

# -- scaling regime -------------------------------------------------------------------------------


def _scaling_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries(
        {
            "alpha": st.sampled_from([1, 2, 5, 10]),
            "tau": st.sampled_from([0.5, 2.0, 0.25, 4.0]),
            "noise": st.sampled_from([0.01, 0.1, 0.5]),
        }
    )


def _scaling_holds(case: Case, contexts: float = 2.0, length: float = 1.0) -> Check:
    """How the errors at d = 20 and 80 differ from the limit: by a quarter as much at the latter.

    ``contexts`` and ``length`` are the powers of d with which n and l grow.
    """
    limit = float(learning_curve(case["alpha"], np.inf, case["tau"], case["noise"]).icl)
    gaps = []
    for d in (20, 80):
        errors = finite_equivalent(
            None,
            dim=d,
            context=max(1, round(case["alpha"] * 20 * (d / 20) ** length)),
            samples=max(1, round(case["tau"] * 400 * (d / 20) ** contexts)),
            noise=case["noise"],
            fluctuations=False,
        )
        gaps.append(abs(errors.icl - limit) / limit)
    return Check(
        "distance to the limit at d = 80 over that at d = 20",
        gaps[1] / gaps[0],
        0.35,
        "the distance falls like 1/d: a quarter, up to corrections of relative order 1/20",
    )


SCALING = Claim(
    id="lu2025.scaling-regime",
    source=f"{_PAPER} ('a scaling regime ...'): limits of d, length, tasks and contexts",
    says=(
        "With context length in proportion to d and pretraining contexts to d^2 the errors tend "
        "to a limit, the learning curve; the distance falls like 1/d."
    ),
    equations=(r"\ell = \alpha d,\quad k = \kappa d,\quad n = \tau d^2,\qquad d\to\infty",),
    property=Property(_scaling_cases, _scaling_holds, examples=20),
    assumes=("fresh tasks, no ridge; finite d by its deterministic equivalent",),
    variants=(
        Variant(
            "contexts in proportion to d",
            Property(_scaling_cases, lambda c: _scaling_holds(c, 1.0)),
        ),
        Variant(
            "a context of fixed length",
            Property(_scaling_cases, lambda c: _scaling_holds(c, 2.0, 0.0)),
        ),
    ),
    explanation=(
        "The layer has d (d + 1) weights: n must grow like d^2 to keep the ratio. With n in "
        "proportion to d the ratio vanishes, with a fixed length the context's noise grows, and "
        "the errors tend elsewhere."
    ),
)


def _solvable_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries(
        {
            "alpha": st.sampled_from([2, 5]),
            "tau": st.sampled_from([0.5, 2.0]),
            "noise": st.sampled_from([0.1, 0.5]),
            "ridge": st.sampled_from([0.5, 1.0]),
        }
    )


def _solvable_holds(case: Case, factor: float = 1.0, ridge: float = 1.0) -> Check:
    """Errors of fitted layers at d = 16, measured exactly, against the equivalent at this d."""
    d, seeds = 16, 16
    context, samples = case["alpha"] * d, round(case["tau"] * d * d)
    found = ridge_experiment(
        None,
        dim=d,
        context=context,
        samples=samples,
        noise=case["noise"],
        ridge=case["ridge"],
        seeds=seeds,
    )
    theory = finite_equivalent(
        None,
        dim=d,
        context=context,
        samples=samples,
        noise=case["noise"],
        ridge=ridge * case["ridge"],
    )
    errors = np.asarray(found.icl)
    spread = float(errors.std(ddof=1) / np.sqrt(seeds))
    # Five standard errors, and O(1/d^2) that the equivalent leaves out.
    bound = 5 * spread + 3 / d**2 * float(errors.mean())
    return agreement(
        "mean error of fitted layers against theory",
        errors.mean(),
        factor * theory.icl,
        bound,
        "five standard errors and 3/d^2",
    )


SOLVABLE = Claim(
    id="lu2025.exact-solution",
    source=f"{_PAPER} ('an exactly solvable model')",
    says="The theory gives the error of layers that are fitted by ridge regression to contexts.",
    equations=(
        r"\min_\Gamma\ \sum_\mu (y_\mu-\langle\Gamma,H_\mu\rangle)^2"
        r" + \tfrac nd\lambda\lVert\Gamma\rVert^2",
    ),
    property=Property(_solvable_cases, _solvable_holds, examples=5),
    assumes=("fresh tasks; d = 16 and its finite-dimension equivalent",),
    variants=(
        Variant(
            "a fifth more error", Property(_solvable_cases, lambda c: _solvable_holds(c, 1.2), 5)
        ),
        Variant(
            "a tenfold ridge", Property(_solvable_cases, lambda c: _solvable_holds(c, 1.0, 10.0), 5)
        ),
    ),
    explanation=(
        "Layers are fitted to drawn contexts, and their test errors computed from exact moments, "
        "so that only the pretraining sets fluctuate. That the equivalent tends to the learning "
        "curve is scaling-regime."
    ),
)

CLAIMS = (TRANSITION, GENUINE, SCALING, SOLVABLE)
