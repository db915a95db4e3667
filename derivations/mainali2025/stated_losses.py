"""Claims on the loss: its form, its value at convergence, its stages."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.signal import find_peaks

import odekit as ok
from odekit.claims import Assumption, Check, Claim, Property, Variant, agreement, identity
from odekit.testing import spectra

from . import layer
from .cases import FLOWS, NOTE, ROUNDING, Case, modes_of, modes_with, size_of
from .mode_equations import published_loss, stretched
from .stated_course import logistic, proof_of_logistic

Array = NDArray[np.float64]

_s, _S, _a0, _p, _q = sp.symbols("s S a0 p q", positive=True)


def _loss_cases() -> st.SearchStrategy[Case]:
    return modes_with(st.integers(1, 100), dim=(1, 3))()


def _loss_holds(case: Case, kind: str) -> Check:
    """Half the loss of the published mode model on the diagonal against a form of (14)."""
    s, p, q, N = modes_of(case)
    a, s_inf = p * q, stretched(s, N)
    forms = {
        "noted": 0.5 * np.sum(s * (s / s_inf * a**2 - 2 * s * a + 1)),
        "corrected": float(published_loss(a, s, N)),
        "no half": 2 * float(published_loss(a, s, N)),
        "sign": 0.5 * np.sum(s * (s * s_inf * a**2 + 2 * s * a + 1)),
    }
    flow = ok.models.modes().flow
    half = 0.5 * flow.loss_value({"p": p, "q": q}, {"s": s, "N": N})
    size = size_of(s, p, q) * (1 + float(np.max(np.abs(a))))
    return agreement(
        "half the loss whose flow is (9), (10)", forms[kind], half, 1e-12 * size, ROUNDING
    )


def _proof_of_loss() -> Iterable[Check]:
    """The flow of the corrected (14), half of it, is (9) and (10)."""
    loss = _s * (_s * _S * (_p * _q) ** 2 - 2 * _s * _p * _q + 1) / 2
    pull = _s**2 * (1 - _S * _p * _q)
    yield identity("minus the slope of the loss in p is the rate (9)", -loss.diff(_p), _q * pull)
    yield identity("minus the slope in q is the rate (10)", -loss.diff(_q), _p * pull)


def _proof_against_loss() -> Iterable[Check]:
    """The form as noted misses the loss by a term in a^2, and has its minimum elsewhere."""
    a = sp.Symbol("a")
    right = _s * (_s * _S * a**2 - 2 * _s * a + 1) / 2
    noted = _s * (_s / _S * a**2 - 2 * _s * a + 1) / 2
    yield identity(
        "right - noted = s^2 (s_inf - a_inf) a^2/2", right - noted, _s**2 * (_S - 1 / _S) * a**2 / 2
    )
    yield identity("the noted form is least at a = s_inf", noted.diff(a).subs(a, _S))
    yield identity(
        "the right one at a = 1/s_inf, where (11) has the flow rest", right.diff(a).subs(a, 1 / _S)
    )
    yield from _proof_of_loss()


EQ14_CORRECTED = Claim(
    id="mainali2025.eq14-corrected",
    source=f"{NOTE}, corrected (14)",
    says="Half the loss is 1/2 sum s (s s_inf a^2 - 2 s a + 1).",
    equations=(
        r"\mathcal L = \tfrac12\sum_\alpha s_\alpha(s_\alpha s^\infty_\alpha a_\alpha^2"
        r" - 2s_\alpha a_\alpha + 1)",
    ),
    property=Property(_loss_cases, lambda c: _loss_holds(c, "corrected")),
    derivation=_proof_of_loss,
    variants=(
        Variant("without the half", Property(_loss_cases, lambda c: _loss_holds(c, "no half"))),
        Variant("sign of the linear term", Property(_loss_cases, lambda c: _loss_holds(c, "sign"))),
    ),
    explanation=(
        "Its slopes in p and q are the rates (9) and (10) with the sign turned, and it is "
        "least where a = 1/s_inf, the fixed point (11). loss-at-convergence derives it from "
        "the raw layer."
    ),
)

_RUN_EQ14 = """\
import numpy as np, odekit as ok
s, N, p, q = 1.0, 1, 0.5, 0.5
half = 0.5 * ok.models.modes().flow.loss_value({"p": [p], "q": [q]}, {"s": [s], "N": N})
a, s_inf = p * q, s * (1 + 2 / N)
for coefficient in (1 / s_inf, s_inf):  # as noted, and as it must be
    print(half, 0.5 * s * (s * coefficient * a**2 - 2 * s * a + 1))
"""

EQ14 = Claim(
    id="mainali2025.eq14",
    source=f"{NOTE}, equation (14)",
    says="Half the loss is 1/2 sum s (s a_inf a^2 - 2 s a + 1).",
    equations=(
        r"\mathcal L = \tfrac12\sum_\alpha s_\alpha(s_\alpha a^\infty_\alpha a_\alpha^2"
        r" - 2s_\alpha a_\alpha + 1)",
    ),
    property=Property(_loss_cases, lambda c: _loss_holds(c, "noted")),
    derivation=_proof_against_loss,
    correction=EQ14_CORRECTED,
    variants=(
        Variant("without the half", Property(_loss_cases, lambda c: _loss_holds(c, "no half"))),
        Variant("sign of the linear term", Property(_loss_cases, lambda c: _loss_holds(c, "sign"))),
    ),
    explanation=(
        "The coefficient of a^2 is s_inf = 1/a_inf; with a_inf the fixed point (11) would "
        "not be the minimum."
    ),
    run=_RUN_EQ14,
)

# -- loss at the end ------------------------------------------------------------------------------


def _end_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries(
        {
            "s": spectra(dim=(1, 3), condition=20.0),
            "N": st.integers(1, 200),
            "p": st.integers(1, 20).map(lambda k: k / 10),
        }
    )


def _end_holds(case: Case, shift: int = 0, factor: float = 1.0) -> Check:
    """Loss of the raw layer, independent task entries, at the fixed point (11)."""
    s, N, p = np.asarray(case["s"], dtype=np.float64), int(case["N"]), float(case["p"])
    d, total = len(s), float(np.sum(s))
    state = {"p2": p * np.eye(d), "q1": np.diag(1 / stretched(s, N) / p)}
    got = FLOWS["iid"].loss_value(state, {"Lambda": np.diag(s), "N": N})
    stated = factor * d / N * np.sum(s * (s + total) / stretched(s, N + shift))
    return agreement(
        "expected squared error at the fixed point", got, stated, 1e-12 * d * total * 100, ROUNDING
    )


def _proof_of_end() -> Iterable[Check]:
    T, N = sp.symbols("T N", positive=True)
    s_inf = (1 + 1 / N) * _s + T / N
    a = 1 / s_inf
    left = _s * (_s * s_inf * a**2 - 2 * _s * a + 1)
    yield identity(
        "a mode at a = 1/s_inf keeps s (s + T)/(N s_inf)", left, _s * (_s + T) / (N * s_inf)
    )
    yield identity(
        "times N it tends to s + T: the loss falls like 1/N", sp.limit(N * left, N, sp.oo), _s + T
    )
    yield identity("the bracket S/s_inf tends to 1", sp.limit(_s / s_inf, N, sp.oo), 1)
    for what, difference in layer.shared_loss().items():
        yield identity(what, difference)


END = Claim(
    id="mainali2025.loss-at-convergence",
    source=f"{NOTE}, sections 3.2 and 5.1 (prediction and loss at convergence)",
    says=(
        "At the fixed point (11) the squared error is (d/N) sum_a s_a (s_a + tr S)/s_inf_a: not "
        "zero at a finite context, and zero as N -> infinity, where the target map is met."
    ),
    equations=(
        r"\mathbb E\lVert\hat y - y\rVert^2 = \frac dN\sum_\alpha\frac{s_\alpha(s_\alpha +"
        r" \operatorname{tr}S)}{s^\infty_\alpha},\qquad"
        r" \hat\Sigma_x[s^\infty(S)]^{-1}\to I\ (N\to\infty)",
    ),
    property=Property(_end_cases, _end_holds),
    assumes=(
        "task entries are independent, where (11) is right",
        "p2 is a multiple of the identity",
    ),
    derivation=_proof_of_end,
    variants=(
        Variant("N off by one", Property(_end_cases, lambda c: _end_holds(c, 1))),
        Variant("half of it", Property(_end_cases, lambda c: _end_holds(c, 0, 0.5))),
        Variant("zero at every N", Property(_end_cases, lambda c: _end_holds(c, 0, 0.0))),
    ),
    explanation=(
        "The context's covariance fluctuates about S, so that no fixed matrix inverts it; what is "
        "left of each mode is s (1 - s/s_inf). It is the whole expected squared error, summed over "
        "the d labels, not its half."
    ),
)

# -- stages ---------------------------------------------------------------------------------------


def _stage_cases(
    laws: tuple[str, ...] = ("iid", "diagonal"),
    ratios: tuple[float, ...] = (1.2, 2.0, 3.0),
    starts: tuple[float, ...] = (1e-2, 1e-4, 1e-6),
) -> Callable[[], st.SearchStrategy[Case]]:
    return lambda: st.fixed_dictionaries(
        {
            "law": st.sampled_from(laws),
            "d": st.sampled_from([2, 3]),
            "ratio": st.sampled_from(ratios),
            "a0": st.sampled_from(starts),
            "N": st.sampled_from([10, 100, 1000]),
        }
    )


@lru_cache(maxsize=4)
def _speed(law: str) -> Any:
    """Squared rates of the layer's flow, to which the fall of the loss is proportional."""
    total: Any = 0
    for rate in FLOWS[law].rates.values():
        total = ok.einsum("ij,ij->", rate, rate) + total
    return total


@lru_cache(maxsize=256)  # a search tries its failing cases again and again
def _cliffs(law: str, d: int, ratio: float, a0: float, N: int) -> int:
    """Peaks of the speed of the raw layer's loss, a decade above the valleys beside them."""
    s = ratio ** -np.arange(float(d))
    y0 = {name: np.sqrt(a0) * np.eye(d) for name in ("p2", "q1")}
    end = 20 * np.log(1 / a0) / s[-1] ** 2
    times = np.concatenate([[0.0], np.geomspace(0.05, end, 1500)])
    run = ok.solve(
        FLOWS[law],
        y0,
        times,
        {"Lambda": np.diag(s), "N": N},
        tolerance=ok.Tolerance(relative=1e-8),
    )
    speed = run.value(_speed(law))
    # At rest the speed is rounding: nine decades below the peak nothing falls any more.
    height = np.log10(np.maximum(speed, 1e-9 * speed.max()))
    rest = [height.min() - 1.0]
    return len(find_peaks(np.concatenate([rest, height, rest]), prominence=1.0)[0])


def _stages_hold(case: Case, shift: int = 0, one: bool = False) -> Check:
    d = int(case["d"])
    found = _cliffs(case["law"], d, float(case["ratio"]), float(case["a0"]), int(case["N"]))
    stated = 1 if one else d + shift
    return Check("cliffs counted minus cliffs stated", float(abs(found - stated)), 0.5)


def _proof_of_stages() -> Iterable[Check]:
    """Where the fast mode is at 1 - delta, the slow one has grown by a power of a0 only."""
    delta, a, s2, S2 = sp.symbols("delta a0 sigma S2", positive=True)
    fast_time = sp.log((1 - delta) / delta * (1 / (_S * a) - 1)) / (2 * _s**2)
    fast = logistic(fast_time).subs(_a0, a)
    yield identity(
        "the fast mode is at 1 - delta of its end then", sp.simplify(fast * _S), 1 - delta
    )
    # x = 1/(s_inf a0) - 1 times (1 - delta)/delta, to the power rho = sigma^2/s^2 < 1.
    k, x = sp.symbols("k x", positive=True)
    grown = sp.exp(2 * s2**2 * sp.log(x) / (2 * _s**2))
    yield identity(
        "the slow one has grown by x^rho, rho = sigma^2/s^2", grown, x ** (s2**2 / _s**2)
    )
    yield identity(
        "a0 x^rho tends to 0 with a0 (x of order 1/a0, rho = 1/(1 + k) < 1)",
        sp.limit(a * (1 / a) ** (1 / (1 + k)), a, 0),
    )
    yield from proof_of_logistic()


_COMMUTING = "tasks commute with the covariance (w I, or diagonal in its eigenbasis)"
_APART = f"{_COMMUTING}, and eigenvalues are at least a factor 2 apart"

_RUN_STAGES = """\
# At 0.9 of the strong mode's end: the weak mode's share of its own (s = 1, 0.5 and 0.8; N large).
import numpy as np
def share(s, t, a0):
    return a0 * s / (a0 * s * (1 - np.exp(-2 * s**2 * t)) + np.exp(-2 * s**2 * t))
for weak, a0 in ((0.5, 1e-4), (0.5, 1e-2), (0.8, 1e-4)):
    t = np.log(9 * (1 / a0 - 1)) / 2
    print(weak, a0, share(1.0, t, a0), share(weak, t, a0))  # a plateau, if the last is small
"""

STAGES = Claim(
    id="mainali2025.stages",
    source=f"{NOTE}, section 5.1 (plateaus and cliffs)",
    says=(
        "The loss falls in stages, a cliff for each mode: on a plateau the fast modes have "
        "converged and the slow ones are still near their start."
    ),
    equations=(r"\#\{\text{cliffs}\} = d",),
    property=Property(_stage_cases(), _stages_hold, examples=30),
    assumes=("balanced start p = q = sqrt(a0); d = 2 and 3 eigenvalues in geometric progression",),
    needs=(
        Assumption(_COMMUTING, Property(_stage_cases(("diagonal",)), _stages_hold, examples=30)),
        Assumption(
            _APART,
            Property(_stage_cases(("diagonal",), (2.0, 3.0)), _stages_hold, examples=30),
        ),
        Assumption(
            f"{_APART}, and the start is small (a0 <= 1e-4)",
            Property(
                _stage_cases(("diagonal",), (2.0, 3.0), (1e-4, 1e-6)), _stages_hold, examples=30
            ),
            _proof_of_stages,
            "how small a0 must be at a ratio, and what a finite context couples",
        ),
    ),
    variants=(
        Variant(
            "one more cliff",
            Property(_stage_cases(("diagonal",), (3.0,), (1e-4,)), lambda c: _stages_hold(c, 1), 5),
        ),
        Variant(
            "a single cliff",
            Property(
                _stage_cases(("diagonal",), (3.0,), (1e-4,)),
                lambda c: _stages_hold(c, one=True),
                5,
            ),
        ),
    ),
    explanation=(
        "A cliff is a peak of the speed of the loss, ten times above the valleys beside it, in a "
        "run of the raw layer. When the fast mode is nearly done, the slow one has grown from a0 "
        "to about a0^(1 - rho), rho the squared ratio of their eigenvalues: near its start only "
        "if a0 is small for this ratio. With independent task entries all modes share one p and "
        "rise together (timescale-iid): one cliff, whatever the spectrum."
    ),
    run=_RUN_STAGES,
)

CLAIMS = (EQ14, END, STAGES)
