"""Claims on double descent over the number of pretraining contexts."""

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
    identity,
)
from odekit.theory import learning_curve

Array = NDArray[np.float64]
Case = Mapping[str, Any]

_PAPER = "Lu et al. 2025 (arXiv:2405.11751), abstract"


# -- double descent: the peak ---------------------------------------------------------------------


def _pools() -> st.SearchStrategy[float]:
    return st.sampled_from([float("inf"), 4.0, 1.0, 0.5, 0.2])


def _peak_cases(ridges: tuple[float, ...] = (0.0,)) -> Any:
    return lambda: st.fixed_dictionaries(
        {
            "alpha": st.integers(1, 40).map(float),
            "kappa": _pools(),
            "noise": st.sampled_from([0.01, 0.1, 0.5]),
            "ridge": st.sampled_from(ridges),
        }
    )


def _curve(case: Case, tau: Any) -> Any:
    return learning_curve(case["alpha"], case["kappa"], tau, case["noise"], case["ridge"])


def _peak_holds(case: Case, at: float = 1.0, power: float = 1.0) -> Check:
    """Both errors grow like 1/|tau - 1| on either side: their product with it is settled."""
    worst = 0.0
    for side in (-1, 1):
        near, far = (_curve(case, at + side * gap) for gap in (1e-6, 1e-4))
        for a, b in zip(near, far, strict=True):
            worst = max(worst, abs(float(a / b) / 100**power - 1))
    return Check(
        "growth of the errors from |tau - 1| = 1e-4 to 1e-6, against a factor 100",
        worst,
        0.05,
        "the next term is of relative order |tau - 1| times the ratio of finite to singular part",
    )


def _proof_of_peak() -> Iterable[Check]:
    """Fresh tasks (kappa = inf): both branches diverge at tau = 1, with the same coefficient."""
    t, rho, q = sp.symbols("tau rho q", positive=True)
    c = 1 + q
    below = (1 + rho - t * (2 - t) / c) / (1 - t)
    above = t / (t - 1) * (rho + q / c)
    left = sp.limit(below * (1 - t), t, 1)
    right = sp.limit(above * (t - 1), t, 1)
    yield identity("coefficient below is 1 + rho - 1/c", left, 1 + rho - 1 / c)
    yield identity("coefficient above is the same", right, left)


PEAK = Claim(
    id="lu2025.double-descent-peak",
    source=f"{_PAPER} ('a double-descent learning curve'), place of the peak",
    says="Over the number of pretraining contexts both errors peak at n = d^2, that is tau = 1.",
    equations=(
        r"e \sim \frac{C}{|\tau-1|},\qquad C = 1+\rho-\frac1{1+q}\ (\kappa=\infty),\quad"
        r" q = \frac{1+\rho}{\alpha}",
    ),
    property=Property(_peak_cases((0.1, 1e-3, 0.0)), _peak_holds),
    assumes=("limit of large dimension",),
    needs=(
        Assumption(
            "no ridge (the solution of least norm)",
            Property(_peak_cases(), _peak_holds),
            _proof_of_peak,
            "finite pools of tasks (kappa < inf); the proof is for fresh tasks",
        ),
    ),
    variants=(
        Variant("a peak at tau = 2", Property(_peak_cases(), lambda c: _peak_holds(c, at=2.0))),
        Variant(
            "growth like 1/(tau - 1)^2", Property(_peak_cases(), lambda c: _peak_holds(c, power=2))
        ),
    ),
    explanation=(
        "At tau = 1 the number of contexts equals the number of weights, and the least-norm fit "
        "goes through noise. Any ridge keeps the error finite there; with the best ridge there is "
        "no peak at all. The proof is for fresh tasks, where the curve is a rational function."
    ),
    run="""\
import odekit as ok
for ridge in (0.0, 0.1):
    for gap in (1e-2, 1e-4, 1e-6):
        print(ridge, gap, ok.theory.learning_curve(10, float("inf"), 1 - gap, 0.01, ridge).icl)
""",
)

# -- double descent: the first descent ---------------------------------------------------------


def _descent_cases(kind: str) -> Any:
    """Alphas and noises; "first": those with c (1 + rho) < 2, on whose side the theory decides."""

    def cases() -> st.SearchStrategy[Case]:
        pairs = [
            (alpha, noise)
            for noise in (0.01, 0.1, 0.5)
            for alpha in (0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 40.0)
            if kind == "any" or (1 + (1 + noise) / alpha) * (1 + noise) < 2
        ]
        return st.sampled_from(pairs).map(
            lambda p: {"alpha": p[0], "noise": p[1], "kappa": float("inf"), "ridge": 0.0}
        )

    return cases


def _descent_holds(case: Case, order: tuple[int, ...] = (-1, 1, -1)) -> Check:
    """Signs of the slope: down from tau = 0, up before 1, down after 1."""
    below = _curve(case, np.linspace(1e-3, 0.999, 999)).icl
    above = _curve(case, np.linspace(1.001, 10.0, 999)).icl
    signs = [int(s) for s in np.sign(np.diff(below))] + [int(s) for s in np.sign(np.diff(above))]
    found = tuple(s for i, s in enumerate(signs) if i == 0 or s != signs[i - 1])
    return Check(
        f"the error falls and rises as {order} over tau (0: yes, 1: no)", float(found != order), 0.5
    )


def _proof_of_descent() -> Iterable[Check]:
    t, rho, c = sp.symbols("tau rho c", positive=True)
    below = (1 + rho - t * (2 - t) / c) / (1 - t)
    slope = sp.diff(below, t)
    yield identity("slope at tau = 0 is 1 + rho - 2/c", slope.subs(t, 0), 1 + rho - 2 / c)
    yield identity(
        "slope times (1 - tau)^2 grows with tau",
        sp.diff(sp.simplify(slope * (1 - t) ** 2), t),
        2 * (1 - t) / c,
    )
    above = t / (t - 1) * (rho + 1 - 1 / c)
    yield identity(
        "slope above one is negative: -(1 + rho - 1/c)/(tau - 1)^2",
        sp.diff(above, t),
        -(rho + 1 - 1 / c) / (t - 1) ** 2,
    )


DESCENT = Claim(
    id="lu2025.double-descent",
    source=f"{_PAPER} ('a double-descent learning curve with increasing pretraining examples')",
    says="With more pretraining contexts the error falls, rises to a peak, and falls again.",
    equations=(
        r"e_{\mathrm{ICL}} = \frac{1+\rho-\tau(2-\tau)/c}{1-\tau}\ (\tau<1),\qquad"
        r"\frac{\tau}{\tau-1}\left(\rho+\frac qc\right)\ (\tau>1),\qquad c = 1+q",
    ),
    property=Property(_descent_cases("any"), _descent_holds),
    assumes=("limit of large dimension, fresh tasks (kappa = inf), no ridge",),
    needs=(
        Assumption(
            "c (1 + rho) < 2: contexts long enough for their noise",
            Property(_descent_cases("first"), _descent_holds),
            _proof_of_descent,
        ),
    ),
    variants=(
        Variant(
            "a single descent",
            Property(_descent_cases("first"), lambda c: _descent_holds(c, (-1,))),
        ),
        Variant(
            "a rise first", Property(_descent_cases("first"), lambda c: _descent_holds(c, (1, -1)))
        ),
    ),
    explanation=(
        "The slope at tau = 0 is 1 + rho - 2/c. Where a context says little (alpha about 1, or "
        "loud labels) that is positive: the first contexts already hurt, and the error rises "
        "from tau = 0 on. Otherwise it falls first: two descents."
    ),
    run="""\
import odekit as ok
for alpha in (10.0, 0.5):  # two descents; a rise from the start
    print(alpha, [round(float(ok.theory.learning_curve(alpha, float("inf"), t, 0.01).icl), 3)
                  for t in (0.01, 0.2, 0.4, 0.9, 1.1, 2.0)])
""",
)

CLAIMS = (DESCENT, PEAK)
