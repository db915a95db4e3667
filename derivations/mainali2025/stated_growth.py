"""Claims on the time scales of the modes near zero."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import sympy as sp
from hypothesis import strategies as st
from numpy.typing import NDArray

from odekit.claims import Assumption, Check, Claim, Property, Variant, agreement, identity
from odekit.testing import spectra

from . import layer
from .cases import FLOWS, NOTE, Case
from .stated_modes import proof_of_modes

Array = NDArray[np.float64]


def _growth_cases(laws: tuple[layer.Law, ...] = ("iid", "diagonal", "scalar")) -> Any:
    return lambda: st.fixed_dictionaries(
        {
            "law": st.sampled_from(laws),
            "s": spectra(dim=(2, 3), condition=20.0, least_gap=1.2),
            "N": st.integers(1, 100),
        }
    )


def _growth_holds(case: Case, power: float = 2.0, factor: float = 1.0) -> Check:
    """Rates of p and q near zero, both of one small size, over that size: s^2 for every mode."""
    s, small = np.asarray(case["s"]), 1e-6
    state = {name: small * np.eye(len(s)) for name in ("p2", "q1")}
    rates = FLOWS[case["law"]].evaluate(state, {"Lambda": np.diag(s), "N": int(case["N"])})
    got = np.stack([np.diagonal(rates[name]) for name in ("p2", "q1")]) / small
    return agreement(
        "growth rate of the modes near zero",
        got,
        np.stack([factor * s**power] * 2),
        1e-9 * float(s.sum() + 1) ** 4,
        "the cubic terms, of relative size 1e-12",
    )


def _shared_growth(case: Case, power: int = 4, dim: bool = True) -> Check:
    """Independent entries: the growing mode p = 1, q_a = d s_a^2/r, at the rate r."""
    s, small = np.asarray(case["s"]), 1e-6
    d = len(s) if dim else 1
    rate = float(np.sqrt(d * np.sum(s**power)))
    state = {"p2": small * np.eye(len(s)), "q1": small * np.diag(len(s) * s**2 / rate)}
    rates = FLOWS["iid"].evaluate(state, {"Lambda": np.diag(s), "N": int(case["N"])})
    got = np.concatenate([np.diagonal(rates[n]) / np.diagonal(state[n]) for n in ("p2", "q1")])
    return agreement(
        "growth rate of p and of each q, over the stated one",
        got / rate,
        np.ones_like(got),
        1e-8,
        "the cubic terms, of relative size 1e-12",
    )


def _proof_of_timescale() -> Iterable[Check]:
    s, p, q = sp.symbols("s p q", positive=True)
    yield identity(
        "near zero dp/dt = s^2 q, dq/dt = s^2 p: p + q grows at s^2",
        s**2 * q + s**2 * p,
        s**2 * (p + q),
    )
    yield identity("and p - q decays at s^2", s**2 * q - s**2 * p, -(s**2) * (p - q))
    yield from proof_of_modes()


def _proof_of_shared_growth() -> Iterable[Check]:
    d, F, r = sp.symbols("d F r", positive=True)  # F = sum s^4, r the rate
    yield identity(
        "sum s^2 q at q = d s^2/r is r, if r^2 = d F", (d * F / r - r).subs(r, sp.sqrt(d * F))
    )
    for what, difference in layer.shared_scale().items():
        yield identity(f"{what} with p2 = p I, iid entries: linear part as stated", difference)


TIMESCALE_IID = Claim(
    id="mainali2025.timescale-iid",
    source=f"{NOTE}, section 4.2, read for independent task entries",
    says="With independent task entries all modes grow together, at one rate sqrt(d sum_a s_a^4).",
    equations=(
        r"r = \sqrt{d\,\textstyle\sum_\alpha s_\alpha^4},\qquad q_\alpha \propto s_\alpha^2",
    ),
    property=Property(_growth_cases(("iid",)), _shared_growth),
    assumes=("task entries are independent", "p2 is a multiple of the identity"),
    derivation=_proof_of_shared_growth,
    variants=(
        Variant(
            "without d", Property(_growth_cases(("iid",)), lambda c: _shared_growth(c, 4, False))
        ),
        Variant(
            "s^2 in the sum", Property(_growth_cases(("iid",)), lambda c: _shared_growth(c, 2))
        ),
    ),
    explanation="One p serves all modes: dp/dt = sum s_a^2 q_a and dq_a/dt = d s_a^2 p near zero.",
)

_RUN_TIMESCALE = """\
import numpy as np, odekit as ok
s = np.array([1.0, 0.5])
for law in ("scalar", "iid"):  # w I, then independent entries
    flow = ok.models.linear_transformer(tasks=law).flow
    state = {"p2": 1e-6 * np.eye(2), "q1": 1e-6 * np.eye(2)}
    rates = flow.evaluate(state, {"Lambda": np.diag(s), "N": 10})
    print(law, np.diag(rates["p2"]) / 1e-6, np.diag(rates["q1"]) / 1e-6, "stated", s**2)
"""

TIMESCALE = Claim(
    id="mainali2025.timescale",
    source=f"{NOTE}, section 4.2",
    says="A mode's time constant is 1/(eta P s_a^2): it grows at s_a^2, strong modes first.",
    equations=(r"\tau_\alpha = (\eta P s_\alpha^2)^{-1}",),
    property=Property(_growth_cases(), _growth_holds),
    needs=(
        Assumption(
            "tasks commute with the covariance (w I, or diagonal in its eigenbasis)",
            Property(_growth_cases(("diagonal", "scalar")), _growth_holds),
            _proof_of_timescale,
        ),
    ),
    correction=TIMESCALE_IID,
    variants=(
        Variant(
            "s instead of s^2",
            Property(_growth_cases(("scalar",)), lambda c: _growth_holds(c, 1.0)),
        ),
        Variant(
            "twice as fast",
            Property(_growth_cases(("scalar",)), lambda c: _growth_holds(c, 2.0, 2.0)),
        ),
    ),
    explanation=(
        "Near zero only the linear terms are left, and these see no context length. If tasks "
        "commute with the covariance each mode has its own p and q. Independent task entries tie "
        "all modes to one p, so that weak modes grow as fast as strong ones."
    ),
    run=_RUN_TIMESCALE,
)

CLAIMS = (TIMESCALE, TIMESCALE_IID)
