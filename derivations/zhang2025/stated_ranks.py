"""Claims on the rank of keys and queries: which plateaus are long."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

import odekit as ok
from odekit.claims import Assumption, Check, Claim, Property, Variant, agreement
from odekit.testing import spectra

from . import plateaus, probes, separate
from .probes import MODELS, NOTE, ROUNDING, Case

Array = NDArray[np.float64]

# Dimension, rank and heads: enough of them for one head to every R eigenvectors, or one more.
_SHAPES = ((4, 2, 3), (3, 3, 2), (2, 1, 2), (2, 2, 2), (3, 1, 3), (3, 2, 2), (4, 1, 4), (4, 3, 2))


@st.composite
def _ranked(draw: st.DrawFn, scales: Any = (0.1, 0.003), thresholds: Any = (0.5, 10.0)) -> Case:
    D, R, H = draw(st.sampled_from(_SHAPES))
    return {
        "D": D,
        "R": R,
        "H": H,
        "scale": draw(st.sampled_from(scales)),
        "long": draw(st.sampled_from(thresholds)),
        "seed": draw(st.integers(0, 1000)),
    }


@lru_cache(maxsize=256)  # a search tries its failing cases again and again
def _lengths(D: int, R: int, H: int, scale: float, seed: int) -> tuple[float, ...]:
    """Lengths of the D plateaus of a run, in tau/lambda^2 of the eigenvector learned next."""
    spectrum, N = np.arange(D, 0.0, -1.0), 31
    spectrum /= spectrum.sum()
    model = ok.models.attention_separate(heads=H, rank=R, dim=D)
    y0 = ok.simulate.initial(model, scale, seed)
    # Outputs 0.15 percent apart: a brief plateau at a late time must not fall between them.
    end = 100 / (scale * spectrum[-1] ** 2)
    times = np.concatenate([[0.0], np.geomspace(1 / scale, end, 6000)])
    run = probes.solve("separate", y0, times, np.diag(spectrum), N, 1e-7)
    best = 1 / (spectrum * separate.shortfall(spectrum, 1.0, N))
    passed = np.einsum("tdd->td", run.value("A")) / best > 0.5
    at = np.where(passed.any(axis=0), run.t[np.argmax(passed, axis=0)], run.t[-1])
    order = np.argsort(at, kind="stable")
    return tuple(np.diff(np.concatenate([[0.0], at[order]])) * spectrum[order] ** 2)


def _ranks_hold(case: Case, multiple: int = 1, shift: int = 0) -> Check:
    """Plateaus at least as long as the threshold, against those at m divisible by R."""
    D, R = int(case["D"]), int(case["R"])
    lengths = _lengths(D, R, int(case["H"]), float(case["scale"]), int(case["seed"]))
    stated = [(m + shift) % (multiple * R) == 0 for m in range(D)]
    wrong = int(np.sum((np.array(lengths) >= float(case["long"])) != np.array(stated)))
    return Check("plateaus that are long though R does not divide m, or not", float(wrong), 0.5)


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
    says="The plateaus that are seen are those at m divisible by R, D/R of them (rounded up).",
    equations=(r"m \equiv 0 \pmod R",),
    property=Property(_ranked, _ranks_hold, examples=20),
    assumes=(
        "Gaussian start; tested at D = 2, 3, 4, R from 1 to D, N = 31, and eigenvalues "
        "proportional to D, ..., 1 (figure 4 has D = 8)",
    ),
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
            "where the threshold lies between the long plateaus and the brief ones; how both kinds "
            "grow is proved",
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

CLAIMS = (RANKS, GROWTH)
