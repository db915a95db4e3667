"""Claims on the path of separate attention: scalar equation, order of learning, saddles passed."""

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
    state = probes.packed(separate.saddle(np.eye(D), lam, N, range(m)), max(H, D), 1)
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


def aligned_run(case: Case, factor: float = 1.0) -> tuple[Any, Array, Array]:
    """Run from two aligned heads: the run, each mode's optimum (2,), times of half height (2,)."""
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
    half = aligned_run(case)[2]
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
            "that the margin of 1.1 outweighs what 1/(lambda^2 v_0) leaves out of the waits; their "
            "exact form is proved",
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
    run, best, _ = aligned_run(case)
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
            "how near A comes to M_1 between the two rises; the equation of each mode is proved",
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
    fall = run.value(probes.speed_of("separate"))
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

CLAIMS = (SCALAR, ALIKE, ORDER, PATH, FIGURE)
