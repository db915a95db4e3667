"""Claims on the path of separate attention: scalar equation, order, saddles, rank, components."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import sympy as sp
from hypothesis import strategies as st
from numpy.typing import NDArray

import odekit as ok
from odekit.claims import Assumption, Check, Claim, Property, Variant, agreement, identity
from odekit.testing import spectra

from . import plateaus, probes, separate, staircase
from .probes import MODELS, NOTE, ROUNDING, Case
from .stated_separate import packed

Array = NDArray[np.float64]

# -- the scalar equation -------------------------------------------------------------------------


@st.composite
def _plateau_states(
    draw: st.DrawFn, others: tuple[str, ...] = ("alike", "turned", "zero", "small")
) -> Case:
    spectrum = draw(spectra(dim=(1, 3), condition=10.0))
    return {
        "spectrum": spectrum,
        "N": draw(st.integers(1, 50)),
        "m": draw(st.integers(0, len(spectrum) - 1)),
        "s": draw(st.integers(1, 12)) / 10,
        "others": draw(st.sampled_from(others)),
        "heads": draw(st.integers(2, 4)),
    }


def _scalar_holds(case: Case, shift: int = 0, power: int = 5, alike: bool = False) -> Check:
    """Rate of the growing head's value weight, from the flow, against the scalar equation."""
    lam, N, m = np.asarray(case["spectrum"]), int(case["N"]), int(case["m"])
    D, s, others, n = len(lam), float(case["s"]), case["others"], int(case["heads"])
    H = m + n
    state = packed(separate.saddle(np.eye(D), lam, N, range(m)), max(H, D), 1)
    e = np.eye(D)[m]
    copies = range(m, m + n) if others == "alike" else [m]
    for h in copies:
        state["v"][h] = s
        state["K"][h, 0] = state["Q"][h, 0] = s * e
    if others == "small" and m + 1 < H:
        state["v"][m + 1] = 0.1
        state["K"][m + 1, 0] = state["Q"][m + 1, 0] = 0.1 * e
    if others == "turned":
        state["Q"][m, 0] *= 0.5
    L = np.diag(lam)
    derived = MODELS["separate"].flow.evaluate(state, {"Lambda": L, "N": N})["v"][m]
    c = 1 + (1 + float(lam.sum()) / lam[m]) / (N + shift)
    stated = lam[m] ** 2 * s**2 - (n if alike else 1) * lam[m] ** 3 * c * s**power
    size = probes.size_of(state, L)
    return agreement("dv/dt of the growing head", derived, stated, 1e-14 * size, ROUNDING)


def _only(*others: str) -> Any:
    return lambda: _plateau_states(others)


def _proof_of_alike() -> Iterable[Check]:
    """N heads alike: A = learned + n s^3 e e^T, so that n enters the pull once."""
    n, s, lam, T, N = sp.symbols("n s lambda T N", positive=True)
    mu = (1 + 1 / N) * lam + T / N
    pull = lam**2 * (1 - mu * n * s**3)
    wanted = lam**2 * s**2 - n * lam**3 * (1 + (1 + T / lam) / N) * s**5
    yield identity("dv/dt with n heads alike", s**2 * pull, wanted)
    yield from probes.proof(plateaus.scalar_equation)()


ALIKE = Claim(
    id="zhang2025.scalar-equation-alike",
    source=f"{NOTE}, scalar reduction, read with all heads that are left starting alike",
    says="With n balanced aligned heads growing alike the quintic term is n times as large.",
    equations=(r"\tau\dot v = \lambda^2v^2 - n\,\lambda^3c\,v^5",),
    property=Property(_only("alike"), lambda c: _scalar_holds(c, alike=True)),
    assumes=("n heads share value, key and query",),
    derivation=_proof_of_alike,
    variants=(
        Variant("without n", Property(_only("alike"), _scalar_holds)),
        Variant("N off by one", Property(_only("alike"), lambda c: _scalar_holds(c, 1, 5, True))),
    ),
    explanation="Together the n heads make A = n s^3 e e^T; each feels the whole of it.",
)

SCALAR = Claim(
    id="zhang2025.scalar-equation",
    source=f"{NOTE}, scalar equation of the (m+1)-th plateau",
    says="At plateau m the growing head obeys dv/dt = lambda^2 v^2 - lambda^3 c v^5.",
    equations=(
        r"\tau\dot v_i = \lambda_{m+1}^2v_i^2 - \lambda_{m+1}^3\left(1+\frac{1+"
        r"\operatorname{tr}\Lambda/\lambda_{m+1}}{N}\right)v_i^5",
    ),
    property=Property(_plateau_states, _scalar_holds),
    assumes=("m eigenvectors are learned",),
    needs=(
        Assumption(
            "the growing head is balanced and aligned, k = q = v e (others may be small)",
            Property(_only("small", "alike", "zero"), _scalar_holds),
        ),
        Assumption(
            "the growing head is balanced and aligned, k = q = v e, and all others that are not "
            "learned are zero",
            Property(_only("zero"), _scalar_holds),
            probes.proof(plateaus.scalar_equation),
        ),
    ),
    correction=ALIKE,
    variants=(
        Variant("N off by one", Property(_only("zero"), lambda c: _scalar_holds(c, shift=1))),
        Variant("v^4 instead of v^5", Property(_only("zero"), lambda c: _scalar_holds(c, 0, 4))),
    ),
    explanation=(
        "On the line v = s, k = q = s e in one head the flow is exactly this equation, and the "
        "learned heads do not move. Another head along e, however small, adds to A; a key or query "
        "that has not turned to e changes the rate. From a random start it is the limit of small "
        "starts."
    ),
    run="""\
import numpy as np, odekit as ok
flow, N = ok.models.attention_separate().flow, 1  # D = 1, lambda = 1, c = 3
for n in (1, 2):  # one head at v = k = q = 0.5, then two alike
    state = {"v": np.full(n, 0.5), "K": np.full((n, 1, 1), 0.5), "Q": np.full((n, 1, 1), 0.5)}
    print(flow.evaluate(state, {"Lambda": np.eye(1), "N": N})["v"], 0.5**2 - 3 * 0.5**5)
""",
)

# -- order and path -------------------------------------------------------------------------------

_SIZES = (1, 2, 5, 20)


@st.composite
def _two_heads(draw: st.DrawFn, margin: float = 0.0) -> Case:
    """One aligned head for each of two eigenvectors, sizes in units of 1e-3."""
    ratio = draw(st.sampled_from([0.7, 0.5, 0.3]))
    # e_2's head far larger is the plainest draw.
    pairs = [(a, b) for a in _SIZES for b in reversed(_SIZES) if a >= margin * ratio**2 * b]
    return {
        "spectrum": [1.0, ratio],
        "N": draw(st.integers(1, 50)),
        "sizes": draw(st.sampled_from(pairs)),
    }


def _aligned_run(case: Case, factor: float = 1.0) -> tuple[Any, Array, Array]:
    lam, N = np.asarray(case["spectrum"], dtype=np.float64), int(case["N"])
    sizes = 1e-3 * factor * np.asarray(case["sizes"], dtype=np.float64)
    y0 = {"v": sizes, "K": np.diag(sizes)[:, None, :], "Q": np.diag(sizes)[:, None, :]}
    ends = 1 / (lam**2 * sizes)
    times = np.concatenate([[0.0], np.geomspace(0.3 * ends.min(), 3 * ends.max(), 800)])
    run = probes.solve("separate", y0, times, np.diag(lam), N, 1e-8)
    best = 1 / (lam * separate.shortfall(lam, float(lam.sum()), N))
    learned = np.einsum("tdd->td", run.value("A")) / best
    half = np.array([np.interp(0.5, learned[:, d], run.t) for d in range(2)])
    return run, best, half


def _order_holds(case: Case, reverse: bool = False, allowed: float = 1.0) -> Check:
    half = _aligned_run(case)[2]
    ratio = float(half[1] / half[0] if reverse else half[0] / half[1])
    return Check("time to learn e_1 over time to learn e_2", ratio, allowed, "e_1 comes first")


ORDER = Claim(
    id="zhang2025.order-of-learning",
    source=f"{NOTE}, saddle-to-saddle dynamics ('from the largest eigenvalue to the smallest')",
    says="Eigenvectors are learned in the order of their eigenvalues, the largest first.",
    equations=(r"t_1 < t_2 < \dots < t_D,\qquad t_d \approx \frac{\tau}{\lambda_d^2v_d(0)}",),
    property=Property(_two_heads, _order_holds, examples=20),
    assumes=("small start",),
    needs=(
        Assumption(
            "heads along e_1 and e_2 start with lambda_1^2 v_1 > 1.1 lambda_2^2 v_2, as heads of "
            "comparable size do",
            Property(lambda: _two_heads(1.1), _order_holds, examples=20),
            probes.proof(plateaus.scalar_equation),
        ),
    ),
    variants=(
        Variant(
            "the smallest eigenvalue first",
            Property(lambda: _two_heads(1.1), lambda c: _order_holds(c, reverse=True), 5),
        ),
        Variant(
            "e_1 takes less than a fiftieth of e_2's time",
            Property(lambda: _two_heads(1.1), lambda c: _order_holds(c, allowed=0.02), 20),
        ),
    ),
    explanation=(
        "Aligned heads do not see each other's modes, so that each obeys its scalar equation and "
        "is done at about 1/(lambda^2 v_0). A start that already holds more of e_2 learns e_2 "
        "first; that is no matter of scale: both times grow alike as the start shrinks."
    ),
    run="""\
# Times 1/(lambda^2 v0) for lambda = 1, 0.5: equal starts, then e_2's head ten times larger.
for v1, v2 in ((1e-3, 1e-3), (1e-3, 1e-2)):
    print("e_1 at", 1 / v1, " e_2 at", 1 / (0.25 * v2))
import numpy as np, odekit as ok
flow = ok.models.attention_separate().flow
v = np.array([1e-3, 1e-2])
state = {"v": v, "K": np.diag(v)[:, None], "Q": np.diag(v)[:, None]}
rates = flow.evaluate(state, {"Lambda": np.diag([1.0, 0.5]), "N": 9})["v"]
print("relative growth", rates / v)  # the second is 2.5 times the first
""",
)


def _path_holds(case: Case, wrong: str = "") -> Check:
    """How near A comes to M_0, M_1, M_2 in turn, relative to the largest entry."""
    run, best, _ = _aligned_run(case)
    lam, N = np.asarray(case["spectrum"]), int(case["N"])
    A = run.value("A")
    sets: list[list[int]] = [[], [0], [0, 1]]
    if wrong == "second":
        sets[1] = [1]
    points = [separate.saddle(np.eye(2), lam, N + (wrong == "N"), s) for s in sets]
    near = [float(np.abs(A - p).max(axis=(1, 2)).min()) / float(best.min()) for p in points]
    return Check("closest distance to M_0, M_1, M_2", max(near), 0.01, "a hundredth of a mode")


PATH = Claim(
    id="zhang2025.saddle-to-saddle",
    source=f"{NOTE}, saddle-to-saddle dynamics (D + 1 fixed points, M_0 to M_D)",
    says="From a small start A passes the D + 1 points M_0, M_1, ..., M_D, one mode at a time.",
    equations=(r"\mathcal M_0\to\mathcal M_1\to\dots\to\mathcal M_D",),
    property=Property(_two_heads, _path_holds, examples=20),
    assumes=("small start",),
    needs=(
        Assumption(
            "heads along e_1 and e_2 start with lambda_1^2 v_1 > 1.5 lambda_2^2 v_2: the waiting "
            "times are well apart and in the order of the eigenvalues",
            Property(lambda: _two_heads(1.5), _path_holds, examples=20),
            probes.proof(plateaus.scalar_equation, separate.plateau_losses),
        ),
    ),
    variants=(
        Variant(
            "M_1 with the second eigenvector",
            Property(lambda: _two_heads(1.5), lambda c: _path_holds(c, "second"), 5),
        ),
        Variant(
            "N off by one in the points",
            Property(lambda: _two_heads(1.5), lambda c: _path_holds(c, "N"), 5),
        ),
    ),
    explanation=(
        "A mode waits about 1/(lambda^2 v_0) and then rises quickly, so that A rests near M_1 in "
        "between if the two waits differ. With equal waits, lambda_1^2 v_1 = lambda_2^2 v_2, both "
        "rise at once and M_1 is never seen, at any scale; with e_2's head far ahead A passes the "
        "point of e_2 instead."
    ),
    run="""\
# Waits 1/(lambda^2 v0) for lambda = 1, 0.5 that coincide: M_1 is skipped at every scale.
import numpy as np, odekit as ok
flow, v = ok.models.attention_separate().flow, np.array([1e-3, 4e-3])
state = {"v": v, "K": np.diag(v)[:, None], "Q": np.diag(v)[:, None]}
rates = flow.evaluate(state, {"Lambda": np.diag([1.0, 0.5]), "N": 9})["v"]
print("1/v - t lambda^2 reaches zero at", v / rates)  # both at 1000
""",
)


def _figure_holds(case: Case, count: int = 4, shift: int = 0) -> Check:
    spectrum, N = np.array([0.4, 0.3, 0.2, 0.1]), 31
    model = ok.models.attention_separate(heads=4, rank=1, dim=4)
    y0 = ok.simulate.initial(model, 0.003, int(case["seed"]))
    times = np.concatenate([[0.0], np.geomspace(1e2, 6e3 / 0.003, 900)])
    run = probes.solve("separate", y0, times, np.diag(spectrum), N, 1e-8)
    if "speed-separate" not in MODELS:
        MODELS["speed-separate"] = staircase.speed(MODELS["separate"].flow)
    fall = run.value(MODELS["speed-separate"])
    stairs = staircase.staircase_of(run.t, run.loss, fall, 1.0, 1e-2)
    if len(stairs.drops) != count:
        return Check("drops counted minus drops stated", float(len(stairs.drops) - count), -1.0)
    wanted = ok.theory.plateau_losses(spectrum, N + shift)
    return agreement(
        "levels read off the curve against the formula",
        stairs.levels,
        wanted[: len(stairs.levels)],
        1e-4,
        "a plateau is passed at finite speed; the gap falls like the cube of the start",
    )


def _seeds() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries({"seed": st.integers(0, 1000)})


FIGURE = Claim(
    id="zhang2025.fig3",
    source=f"{NOTE}, figure 3 (rank one, D = 4, N = 31, H = 4, spectrum .4 .3 .2 .1)",
    says="Four abrupt drops, between plateaus whose levels are those of the loss formula.",
    equations=(r"\#\{\text{drops}\} = 4,\qquad \mathcal L = \mathcal L(\mathcal M_m)",),
    property=Property(_seeds, _figure_holds, examples=10),
    assumes=("Gaussian start of scale 0.003; keys and queries divided by sqrt(D + 1)",),
    variants=(
        Variant("three drops", Property(_seeds, lambda c: _figure_holds(c, count=3), 3)),
        Variant("levels with N = 32", Property(_seeds, lambda c: _figure_holds(c, shift=1), 3)),
    ),
    explanation=(
        "Drops and levels are read off the curve alone (staircase.py: peaks of the speed, one "
        "decade deep), the levels come from the formula alone. A seed in which two heads start "
        "with nearly the same wait would merge two drops, see saddle-to-saddle."
    ),
)

# -- rank -----------------------------------------------------------------------------------------


@st.composite
def _ranked(draw: st.DrawFn, scales: Any = (0.1, 0.003), thresholds: Any = (0.5, 10.0)) -> Case:
    return {
        "R": draw(st.sampled_from([2, 1])),
        "scale": draw(st.sampled_from(scales)),
        "long": draw(st.sampled_from(thresholds)),
        "seed": draw(st.integers(0, 1000)),
    }


def _ranks_hold(case: Case, multiple: int = 1, shift: int = 0) -> Check:
    """Plateaus at least as long as the threshold, in tau/lambda^2 of the next mode."""
    spectrum, N, R = np.array([0.4, 0.3, 0.2, 0.1]), 31, int(case["R"])
    scale = float(case["scale"])
    model = ok.models.attention_separate(heads=4 if R == 1 else 3, rank=R, dim=4)
    y0 = ok.simulate.initial(model, scale, int(case["seed"]))
    # Outputs 0.15 percent apart: a brief plateau at a late time must not fall between them.
    times = np.concatenate([[0.0], np.geomspace(1 / scale, 1e4 / scale, 6000)])
    run = probes.solve("separate", y0, times, np.diag(spectrum), N, 1e-7)
    best = 1 / (spectrum * separate.shortfall(spectrum, 1.0, N))
    passed = np.einsum("tdd->td", run.value("A")) / best > 0.5
    at = np.where(passed.any(axis=0), run.t[np.argmax(passed, axis=0)], run.t[-1])
    order = np.argsort(at, kind="stable")
    lengths = np.diff(np.concatenate([[0.0], at[order]])) * spectrum[order] ** 2
    stated = [(m + shift) % (multiple * R) == 0 for m in range(4)]
    wrong = int(np.sum((lengths >= float(case["long"])) != np.array(stated)))
    return Check("plateaus m that are long though R does not divide m, or not", float(wrong), 0.5)


def _growth_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries(
        {
            "spectrum": spectra(dim=2, condition=10.0),
            "N": st.integers(1, 50),
            "x": st.integers(1, 9).map(lambda k: k / 10),
            "new head": st.booleans(),
        }
    )


def _growth_holds(case: Case, power: int = 2, value: bool = True) -> Check:
    """Rate of a key along e_2 beside a learned e_1: in the same head, or in a new one."""
    lam, N, x = np.asarray(case["spectrum"]), int(case["N"]), float(case["x"])
    mu = (1 + 1 / N) * lam + float(lam.sum()) / N
    s = 1 / mu[0] ** (1 / 3)
    v, K, Q = np.array([s, 0.0]), np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    K[0, 0, 0] = Q[0, 0, 0] = s
    head, pair = (1, 0) if case["new head"] else (0, 1)
    if head:
        v[1] = x
    K[head, pair, 1] = Q[head, pair, 1] = x
    state = {"v": v, "K": K, "Q": Q}
    L = np.diag(lam)
    got = MODELS["separate"].flow.evaluate(state, {"Lambda": L, "N": N})["K"][head, pair, 1]
    weight = float(v[head]) if value else 1.0
    stated = weight * lam[1] ** power * x * (1 - mu[1] * v[head] * x * x)
    return agreement(
        "dk/dt along e_2", got, stated, 1e-13 * probes.size_of(state, L) / 100, ROUNDING
    )


GROWTH = Claim(
    id="zhang2025.rank-plateaus-growth",
    source=f"{NOTE}, effect of the rank, as a law of growth",
    says=(
        "A pair in a grown head follows its own share at rate v lambda^2 (exponential), a new head "
        "at v lambda^2 with v as small as itself: plateaus at multiples of R last like 1/v_0, the "
        "others like ln(1/v_0)."
    ),
    equations=(
        r"\tau\dot k = v\lambda^2q\,(1 - \mu v k q):\quad k\sim e^{v\lambda^2t/\tau}"
        r"\ (v = O(1)),\qquad v = \frac{v_0}{1-\lambda^2v_0t/\tau}\ (v = k = q)",
    ),
    property=Property(_growth_cases, _growth_holds),
    derivation=probes.proof(plateaus.within_a_head),
    variants=(
        Variant(
            "lambda instead of lambda^2", Property(_growth_cases, lambda c: _growth_holds(c, 1))
        ),
        Variant(
            "without the value weight",
            Property(_growth_cases, lambda c: _growth_holds(c, value=False)),
        ),
    ),
    explanation="Keys and queries of one head share v: once it has grown, the growth is linear.",
)

_SMALL_AND_LONG = (
    "a plateau counts if it lasts at least 10 tau/lambda^2 of the next mode, and the start is "
    "small (0.003)"
)

RANKS = Claim(
    id="zhang2025.rank-plateaus",
    source=f"{NOTE}, effect of the rank, and figure 4 (number of plateaus D/R)",
    says="The plateaus that are seen are those at m divisible by R, D/R of them.",
    equations=(r"m \equiv 0 \pmod R",),
    property=Property(_ranked, _ranks_hold, examples=20),
    assumes=("random start; tested at D = 4, N = 31, R = 1 and 2 (figure 4 has D = 8)",),
    needs=(
        Assumption(
            "a plateau counts if it lasts at least 10 tau/lambda^2 of the next mode",
            Property(lambda: _ranked(thresholds=(10.0,)), _ranks_hold, examples=30),
        ),
        Assumption(
            "the start is small (0.003)",
            Property(lambda: _ranked(scales=(0.003,)), _ranks_hold, examples=30),
        ),
        Assumption(
            _SMALL_AND_LONG,
            Property(lambda: _ranked((0.003,), (10.0,)), _ranks_hold, examples=20),
            probes.proof(plateaus.within_a_head),
        ),
    ),
    correction=GROWTH,
    variants=(
        Variant(
            "at odd m (off by one)",
            Property(lambda: _ranked((0.003,), (10.0,)), lambda c: _ranks_hold(c, 1, 1), 5),
        ),
        Variant(
            "at multiples of 2 R",
            Property(lambda: _ranked((0.003,), (10.0,)), lambda c: _ranks_hold(c, 2), 5),
        ),
    ),
    explanation=(
        "'Seen' needs a definition: at a threshold of half a unit the brief plateaus count too, "
        "and from a larger start the long ones are brief. What separates the kinds at any "
        "threshold is how their length grows as the start shrinks (rank-plateaus-growth). Even so "
        "a rare seed with two heads of equal waits merges two long plateaus at any scale."
    ),
    run="""\
# One unit of time is tau/lambda^2. Wait of a new head 1/v0; of a pair in a grown head ln(1/v0)/v.
import math
for v0 in (0.1, 0.003):
    print(v0, "new head:", 1 / v0, " same head (v = 1.3):", math.log(1 / v0) / 1.3)
# Both exceed a threshold of 0.5, and at v0 = 0.1 a faster new head stays below 10.
""",
)

# -- principal component regression ------------------------------------------------------------


@st.composite
def _components(draw: st.DrawFn, contexts: Any = (1, 10, 100)) -> Case:
    spectrum = draw(spectra(dim=(1, 3), condition=20.0))
    return {
        "spectrum": spectrum,
        "N": draw(st.sampled_from(contexts)),
        "m": draw(st.integers(1, len(spectrum))),
    }


def _pcr_holds(case: Case, wrong: str = "") -> Check:
    """The matrix of m principal components, lambda_d times it, against the one at rest."""
    lam, N, m = np.asarray(case["spectrum"]), float(case["N"]), int(case["m"])
    D = len(lam)
    c = separate.shortfall(lam, float(lam.sum()), N)
    if wrong in ("shrunk", "N", "grown"):
        c = separate.shortfall(lam, float(lam.sum()), N + (wrong == "N"))
        strength = c[:m] / lam[:m] if wrong == "grown" else 1 / (lam[:m] * c[:m])
    else:
        strength = 2 / lam[:m] if wrong == "twice" else 1 / lam[:m]
        strength = 1 / lam[:m] ** 2 if wrong == "squared" else strength
    # A rests where G e_d = 0: lambda_d (1 - mu_d a_d) is what is left, for every learned mode.
    state = packed(np.diag(np.concatenate([strength, np.zeros(D - m)])), D, 1)
    L = np.diag(lam)
    rates = probes.rates(state, L, N)
    left = float(np.abs(probes.flat(rates)).max()) / float(lam[0]) ** 2
    size = 1 + float(np.abs(probes.flat(state)).max()) ** 3 * 20
    return Check("rates with this matrix, relative", left, 1e-9 * size, "1/N of 10^12, rounding")


def _proof_of_limit() -> Iterable[Check]:
    lam, T, n = sp.symbols("lambda T n", positive=True)
    c = 1 + (1 + T / lam) / n
    yield identity("1/(lambda c) -> 1/lambda", sp.limit(1 / (lam * c), n, sp.oo), 1 / lam)
    yield identity(
        "the gap is (1 + T/lambda)/(N lambda c)",
        1 / lam - 1 / (lam * c),
        (1 + T / lam) / (n * lam * c),
    )


def _proof_of_shrinkage() -> Iterable[Check]:
    lam, T, n = sp.symbols("lambda T n", positive=True)
    c = 1 + (1 + T / lam) / n
    mu = (1 + 1 / n) * lam + T / n
    yield identity("G e = lambda^2 (1 - mu a) e vanishes at a = 1/(lambda c)", 1 - mu / (lam * c))
    yield from _proof_of_limit()


SHRUNK = Claim(
    id="zhang2025.pcr-shrunk",
    source=f"{NOTE}, principal component regression, corrected for a finite context",
    says="At plateau m each of the m leading components is shrunk by c_d, which tends to 1 as 1/N.",
    equations=(r"A_m = \sum_{d\le m}\frac{e_de_d^\top}{\lambda_dc_d}",),
    property=Property(_components, lambda c: _pcr_holds(c, "shrunk")),
    derivation=_proof_of_shrinkage,
    variants=(
        Variant("N off by one", Property(_components, lambda c: _pcr_holds(c, "N"))),
        Variant("c_d grows it instead", Property(_components, lambda c: _pcr_holds(c, "grown"))),
    ),
    explanation="It is the fixed point A_S for the leading subset.",
)

PCR = Claim(
    id="zhang2025.pcr",
    source=f"{NOTE}, 'ATTN_S gradually implements principal component regression'",
    says="At plateau m the layer regresses on the m leading eigenvectors: A = sum e e^T/lambda_d.",
    equations=(r"\hat y_q = x_q^\top\sum_{d\le m}\frac{e_de_d^\top}{\lambda_d}\,\beta",),
    property=Property(_components, _pcr_holds),
    needs=(
        Assumption(
            "an endless context, N -> infinity (tested at N = 10^12)",
            Property(lambda: _components((10**12,)), _pcr_holds),
            _proof_of_limit,
        ),
    ),
    correction=SHRUNK,
    variants=(
        Variant(
            "twice the strength",
            Property(lambda: _components((10**12,)), lambda c: _pcr_holds(c, "twice")),
        ),
        Variant(
            "1/lambda^2",
            Property(lambda: _components((10**12,)), lambda c: _pcr_holds(c, "squared")),
        ),
    ),
    explanation=(
        "The layer rests where each learned mode has a_d = 1/(lambda_d c_d). At a finite context "
        "that is less than the regression's 1/lambda_d, by (1 + tr L/lambda_d)/N to first order: "
        "the context's second moment fluctuates, and shrinking pays."
    ),
    run="""\
import numpy as np, odekit as ok
flow = ok.models.attention_separate().flow
for N, a in ((1, 1.0), (1, 1 / 3), (10**6, 1.0)):  # D = 1, lambda = 1, c = 1 + 2/N
    s = np.cbrt(a)
    state = {"v": np.array([s]), "K": np.full((1, 1, 1), s), "Q": np.full((1, 1, 1), s)}
    print(N, a, flow.evaluate(state, {"Lambda": np.eye(1), "N": N})["v"])
""",
)


def _context_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries({"m": st.integers(1, 3), "seed": st.integers(0, 1000)})


def _context_holds(case: Case, power: float = 0.5) -> Check:
    """Power of N at which predictions approach regression on the context's own components."""
    from .pcr import regression  # the figure's module, which draws

    lam, m, contexts = np.array([1.0, 0.5, 0.2]), int(case["m"]), (100, 1600)
    gaps = []
    for N in contexts:
        drawn = ok.simulate.sequences(
            300, covariance=np.diag(lam), context=N, seed=int(case["seed"])
        )
        x, y = drawn
        beta = np.einsum("pn,pni->pi", y[:, :-1], x[:, :-1]) / N
        A = separate.saddle(np.eye(3), lam, N, range(m))
        layer = np.einsum("pi,ij,pj->p", beta, A, x[:, -1])
        fitted = regression(x[:, :-1], y[:, :-1], x[:, -1], m)
        gaps.append(float(np.sqrt(np.mean((layer - fitted) ** 2) / np.mean(fitted**2))))
    got = np.log(gaps[0] / gaps[1]) / np.log(contexts[1] / contexts[0])
    return agreement(
        "power of 1/N",
        got,
        power,
        0.15,
        "300 sequences give each gap to some 10 percent, corrections of 1/N at N = 100 as much",
    )


CONTEXT = Claim(
    id="zhang2025.pcr-on-context",
    source=f"{NOTE}, principal component regression, read on the context's own components",
    says="At plateau m predictions approach regression on m components of the context as N^(-1/2).",
    equations=(r"\operatorname{rms}(\hat y_q - \hat y_q^{\mathrm{PCR}}) \propto N^{-1/2}",),
    property=Property(_context_cases, _context_holds, examples=10),
    assumes=("spectrum 1, .5, .2",),
    variants=(
        Variant("as 1/N", Property(_context_cases, lambda c: _context_holds(c, 1.0), 3)),
        Variant("not at all", Property(_context_cases, lambda c: _context_holds(c, 0.0), 3)),
    ),
    explanation=(
        "The layer knows the population's eigenvectors, not the context's: at finite N the two "
        "predictors differ, by the fluctuation of the context's second moment."
    ),
)

CLAIMS = (SCALAR, ALIKE, ORDER, PATH, FIGURE, RANKS, GROWTH, PCR, SHRUNK, CONTEXT)
