"""Claims on the time course of merged attention: the single drop, and white tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import sympy as sp
from hypothesis import strategies as st
from numpy.typing import NDArray

from odekit.claims import Assumption, Check, Claim, Property, Variant, agreement, identity
from odekit.testing import spectra

from . import merged, probes
from .probes import NOTE, ROUNDING, Case, covariance
from .staircase import staircase_of

Array = NDArray[np.float64]

# -- one drop ---------------------------------------------------------------------------------


def drops(kind: str, run: Any) -> int:
    """Count drops of a run's loss by `staircase` (depth one decade of the speed)."""
    fall = run.value(probes.speed_of(kind))
    return len(staircase_of(run.t, run.loss, fall, 1.0, 1e-2).drops)


def _drop_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries(
        {
            "spectrum": spectra(dim=2, condition=10.0),
            "N": st.integers(1, 50),
            "heads": st.just(2),  # one shape, compiled once
            "scale": st.sampled_from([1e-2, 1e-3, 1e-5]),
            "seed": st.integers(0, 1000),
        }
    )


def _drop_holds(case: Case, count: int = 1) -> Check:
    L, N, H = covariance(case), int(case["N"]), int(case["heads"])
    rng = np.random.default_rng(int(case["seed"]))
    D, scale = len(L), float(case["scale"])
    y0 = {
        "v": scale * rng.standard_normal(H),
        "U": scale * rng.standard_normal((H, D, D)),
    }
    rate = merged.escape_rate(L)
    # Started close to the stable manifold the run waits longer: as long as its growing part says.
    unit = L @ L / rate
    grown = float(np.linalg.norm(y0["v"] + np.einsum("hij,ij->h", y0["U"], unit)))
    end = (2 * np.log(10 / grown) + 20) / rate
    run = probes.solve("merged", y0, np.linspace(0, end, 600), L, N)
    return Check("drops counted minus drops stated", float(abs(drops("merged", run) - count)), 0.5)


def _figure_holds(case: Case, count: int = 1) -> Check:
    L, N = np.diag([0.4, 0.3, 0.2, 0.1]), 31
    rng = np.random.default_rng(int(case["seed"]))
    y0 = {"v": 1e-3 * rng.standard_normal(8), "U": 1e-3 * rng.standard_normal((8, 4, 4))}
    run = probes.solve("merged", y0, np.linspace(0, 150, 600), L, N)
    return Check("drops counted minus drops stated", float(abs(drops("merged", run) - count)), 0.5)


def _figure_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries({"seed": st.integers(0, 1000)})


_STAIRS = (
    "A drop is a peak of -dL/dt, one decade above its valleys, across which the loss falls by at "
    "least 1 percent of its start (staircase.py)."
)

SINGLE_DROP = Claim(
    id="zhang2025.merged-single-drop",
    source=f"{NOTE}, dynamics of ATTN_M",
    says="From a small random start the loss waits on one plateau and then drops once.",
    equations=(r"\#\{\text{drops of } \mathcal L\} = 1",),
    property=Property(_drop_cases, _drop_holds, examples=20),
    assumes=("small Gaussian start", "condition number of Lambda at most 10"),
    variants=(
        Variant("two drops", Property(_drop_cases, lambda c: _drop_holds(c, 2), examples=5)),
        Variant("no drop", Property(_drop_cases, lambda c: _drop_holds(c, 0), examples=5)),
    ),
    explanation=_STAIRS
    + " One growing direction (along L^2) leaves the plateau; A then relaxes to A* at "
    "rates that are finite from there on, without a second wait.",
)

FIGURE = Claim(
    id="zhang2025.fig1",
    source=f"{NOTE}, figure 1 (D = 4, N = 31, H = 8)",
    says="With D = 4, N = 31 and H = 8 merged attention shows a single abrupt drop.",
    equations=(r"D = 4,\ N = 31,\ H = 8:\quad \#\{\text{drops of }\mathcal L\} = 1",),
    property=Property(_figure_cases, _figure_holds, examples=8),
    assumes=("small Gaussian start (1e-3)", "spectrum .4 .3 .2 .1"),
    variants=(
        Variant("two drops", Property(_figure_cases, lambda c: _figure_holds(c, 2), examples=3)),
        Variant(
            "four drops, one for each eigenvector",
            Property(_figure_cases, lambda c: _figure_holds(c, 4), examples=3),
        ),
    ),
    explanation=_STAIRS
    + " That the curve coincides with the linear network's is network-merged-trajectory.",
)

# -- white tokens -----------------------------------------------------------------------------

_WHITE_BOUND = "the solver's 1e-6, and the start's second order"


def _white_cases(kinds: tuple[str, ...]) -> Any:
    return lambda: st.fixed_dictionaries(
        {
            "D": st.integers(1, 2),
            "N": st.integers(1, 50),
            "heads": st.just(2),  # one shape for each D: each is compiled once
            "scale": st.sampled_from([1e-2, 1e-3]),
            "seed": st.integers(0, 1000),
            "start": st.sampled_from(kinds),
        }
    )


def _white_start(case: Case) -> dict[str, Array]:
    rng = np.random.default_rng(int(case["seed"]))
    D, H, scale = int(case["D"]), int(case["heads"]), float(case["scale"])
    v = scale * rng.standard_normal(H)
    if case["start"] == "balanced":
        return merged.balanced_start(v, D)
    return {"v": v, "U": scale * rng.standard_normal((H, D, D))}


def _white_holds(case: Case, rate: float = 1.0, shift: int = 0) -> Check:
    D, N = int(case["D"]), int(case["N"])
    y0 = _white_start(case)
    w2 = merged.value_norm(y0)
    times = np.linspace(0, 2 * merged.half_rise(D, N, w2), 31)
    run = probes.solve("merged", y0, times, np.eye(D), N)
    c = 1 + (1 + D) / N
    stated = merged.sigmoid(rate * times, D, N + shift, w2)[:, None, None] * np.eye(D)
    return agreement("A(t) against sigma(t) I", c * run.value("A"), c * stated, 3e-6, "solver 1e-6")


def _generic_holds(case: Case, factor: float = 1.0, shift: int = 0) -> Check:
    """Sigma = tr A/D from any small start, at the stated half-rise time."""
    D, N = int(case["D"]), int(case["N"])
    y0 = _white_start(case)
    middle = merged.half_rise(D, N + shift, factor * merged.growing_mode(y0))
    run = probes.solve("merged", y0, [middle], np.eye(D), N)
    half = 0.5 / (1 + (1 + D) / N)
    got = float(np.trace(run.value("A")[0])) / D / half
    norm = float(np.sum(y0["v"] ** 2) + np.sum(y0["U"] ** 2))
    # Early the neglected terms move the growing part by its own relative second order, and the
    # logarithm of a small growing part gives them that much longer to act.
    left = norm * (10 + 2 * np.log(1 / norm)) * (1 + norm / merged.growing_mode(y0)) / 2
    return agreement("tr A at half rise", got, 1.0, left + 3e-6, _WHITE_BOUND)


def _proof_of_sigmoid_form() -> Iterable[Check]:
    c, w2, D, t = sp.symbols("c w2 D t", positive=True)
    grown = sp.exp(2 * sp.sqrt(D) * t)
    stated = grown / (c * (grown - 1) + sp.sqrt(D) / w2)
    scaled = 1 / (c * (1 + (sp.sqrt(D) / (c * w2) - 1) / grown))
    yield identity("sigma = (1/c) logistic(2 sqrt(D) t - ln(sqrt(D)/(c w^2) - 1))", stated, scaled)


WHITE_GENERIC = Claim(
    id="zhang2025.merged-white-closed-form-generic",
    source=f"{NOTE}, closed form for white input, corrected for a generic small start",
    says=(
        "From any small start tr(A)/D is at half its end when sigma is, w_init taken from the "
        "growing part of the start, v_h + tr(U_h)/sqrt(D)."
    ),
    equations=(
        r"w_\mathrm{init}^2 = \sum_h \tfrac14\left(v_h + \operatorname{tr}U_h/\sqrt D\right)^2",
    ),
    property=Property(_white_cases(("generic",)), _generic_holds, examples=20),
    assumes=("Lambda = I", "small start: corrections are of second order in it"),
    variants=(
        Variant(
            "twice the growing part",
            Property(_white_cases(("generic",)), lambda c: _generic_holds(c, 2.0), examples=8),
        ),
        Variant(
            "N off by one",
            Property(_white_cases(("generic",)), lambda c: _generic_holds(c, 1.0, 1), examples=8),
        ),
    ),
    explanation=(
        "Near zero v_h + tr(U_h)/sqrt(D) grows at rate sqrt(D)/tau and v_h - tr(U_h)/sqrt(D) "
        "decays at the same rate; the other entries of U_h stand still."
    ),
)

WHITE = Claim(
    id="zhang2025.merged-white-closed-form",
    source=f"{NOTE}, closed form for white input",
    says=(
        "For Lambda = I and a small start the prediction is sigma(t) beta . x_q, with "
        "w_init^2 = sum_h v_h(0)^2."
    ),
    equations=(
        r"\sigma(t) = \frac{e^{2\sqrt D\,t/\tau}}{\left(1+\frac{1+D}{N}\right)"
        r"\left(e^{2\sqrt D\,t/\tau}-1\right) + \frac{\sqrt D}{w_\mathrm{init}^2}}",
    ),
    property=Property(_white_cases(("generic", "balanced")), _white_holds, examples=20),
    assumes=("Lambda = I", "small start"),
    needs=(
        Assumption(
            "a balanced aligned start, U_h(0) = v_h(0) I/sqrt(D)",
            Property(_white_cases(("balanced",)), _white_holds, examples=20),
            probes.proof(merged.white_closed_form),
        ),
    ),
    correction=WHITE_GENERIC,
    variants=(
        Variant(
            "half the rate",
            Property(_white_cases(("balanced",)), lambda c: _white_holds(c, 0.5), examples=5),
        ),
        Variant(
            "N off by one",
            Property(_white_cases(("balanced",)), lambda c: _white_holds(c, 1.0, 1), examples=5),
        ),
    ),
    explanation=(
        "On the line U_h = v_h I/sqrt(D) the flow is exactly the logistic equation that sigma "
        "solves. A generic start is not on that line: only part of it grows, and sigma with "
        "sum v_h^2 rises at another time, however small the start."
    ),
    run="""\
import numpy as np, odekit as ok
# D = 1, one head, v = 0.001: sigma starts at v^2 = 1e-6 and grows at rate 2.
flow = ok.models.attention_merged().flow
for U in (0.001, 0.0):  # balanced, and not
    state = {"v": np.array([0.001]), "U": np.full((1, 1, 1), U)}
    rate = flow.evaluate(state, {"Lambda": np.eye(1), "N": 31})
    A = 0.001 * U
    print("A(0) =", A, " dA/dt =", rate["v"][0] * U + 0.001 * rate["U"][0, 0, 0])
# The second starts at zero, and its growing part (v + U)/2 is half of v: a quarter of sigma.
""",
)


def _shape_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries(
        {
            "D": st.integers(1, 20),
            "N": st.integers(1, 100),
            "w2": st.sampled_from([1e-2, 1e-4, 1e-8]),
            "t": st.integers(0, 100).map(lambda k: k / 10),
        }
    )


def _shape_holds(case: Case, end: int = 1, rate: float = 2.0) -> Check:
    D, N, w2, t = int(case["D"]), int(case["N"]), float(case["w2"]), float(case["t"])
    c = 1 + (1 + D) / N
    offset = np.log(np.sqrt(D) / (c * w2) - 1)
    logistic = 1 / (1 + np.exp(offset - rate * np.sqrt(D) * t)) / c**end
    got = float(merged.sigmoid(t, D, N, w2))
    return agreement("sigma against a logistic function", got, logistic, 1e-12, ROUNDING)


SIGMOID = Claim(
    id="zhang2025.merged-white-sigmoid",
    source=f"{NOTE}, 'sigma is a rescaled sigmoid'",
    says="sigma is a logistic function of t: height 1/c, rate 2 sqrt(D)/tau, shifted by w_init.",
    equations=(
        r"\sigma(t) = \frac{1/c}{1 + \left(\frac{\sqrt D}{c\,w_\mathrm{init}^2} - 1\right)"
        r"e^{-2\sqrt D\,t/\tau}},\qquad c = 1+\tfrac{1+D}{N}",
    ),
    property=Property(_shape_cases, _shape_holds),
    assumes=("c w_init^2 < sqrt(D), so that sigma rises from below its half",),
    derivation=_proof_of_sigmoid_form,
    variants=(
        Variant("height c", Property(_shape_cases, lambda c: _shape_holds(c, end=-1))),
        Variant("rate sqrt(D)", Property(_shape_cases, lambda c: _shape_holds(c, rate=1.0))),
    ),
    explanation="Divide numerator and denominator by the exponential.",
)

CLAIMS = (SINGLE_DROP, FIGURE, WHITE, WHITE_GENERIC, SIGMOID)
