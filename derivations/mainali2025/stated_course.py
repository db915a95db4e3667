"""Claims on the time course of a mode, its times, and the loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import sympy as sp
from hypothesis import strategies as st
from numpy.typing import NDArray

import odekit as ok
from odekit.claims import Assumption, Check, Claim, Property, Variant, agreement, identity
from odekit.testing import spectra

from .cases import (
    NOTE,
    ROUNDING,
    Case,
    modes_of,
    modes_with,
    size_of,
)
from .conservation import unbalanced_product
from .mode_equations import (
    half_height,
    published_loss,
    published_product,
    stretched,
)

Array = NDArray[np.float64]

_s, _S, _N, _a0, _t, _p, _q = sp.symbols("s S N a0 t p q", positive=True)


_MODES = ok.models.modes(dim=1).flow


def _mode_run(case: Case, ratio: float) -> tuple[Array, Array, float, float]:
    """One mode of the layer (d = 1, where both equations agree), integrated from p0/q0 = ratio."""
    s, N, a0 = float(case["s"][0]), int(case["N"]), float(case["a0"])
    p0, q0 = np.sqrt(a0 * ratio), np.sqrt(a0 / ratio)
    end = 2.5 * float(half_height([s], N, min(a0, 1e-3))[0])
    times = np.linspace(0, end, 21)
    run = ok.solve(_MODES, {"p": [p0], "q": [q0]}, times, {"s": [s], "N": N})
    return times, run["p"][:, 0] * run["q"][:, 0], p0, q0


def _mode_cases(ratios: st.SearchStrategy[float]) -> Callable[[], st.SearchStrategy[Case]]:
    return lambda: st.fixed_dictionaries(
        {
            "s": spectra(dim=1),
            "N": st.integers(1, 100),
            "a0": st.sampled_from([1e-2, 1e-3, 1e-4, 1e-6]),
            "ratio": ratios,
        }
    )


_BALANCED = _mode_cases(st.just(1.0))

_UNBALANCED = _mode_cases(st.sampled_from([1.0, 4.0, 0.1, 100.0]))


def _logistic_holds(case: Case, rate: float = 1.0, shift: float = 0.0) -> Check:
    times, a, _, _ = _mode_run(case, case["ratio"])
    wanted = published_product(rate * times, case["s"], case["N"] + shift, case["a0"])[:, 0]
    end = float(np.max(np.abs(wanted)))
    return agreement("a(t) integrated against (13)", a, wanted, 2e-6 * end, "the solver's 1e-6")


def _unbalanced_holds(case: Case, power: float = 1.0) -> Check:
    times, a, p0, q0 = _mode_run(case, case["ratio"])
    s, N = float(case["s"][0]), int(case["N"])
    s_inf = float(stretched([s], N)[0])
    wanted = unbalanced_product(times, s * np.sqrt(power), s_inf, p0, q0)
    end = float(np.max(np.abs(wanted)))
    return agreement("a(t) against the closed form", a, wanted, 2e-6 * end, "the solver's 1e-6")


def _time_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries(
        {
            "s": spectra(dim=1, condition=20.0),
            "N": st.integers(1, 100),
            "a0": st.sampled_from([1e-3, 1e-4, 1e-6]),
        }
    )


def _time_holds(case: Case, exponent: float, factor: float = 0.5) -> Check:
    """Time to half height against ``factor s^exponent ln(1/(s_inf a0))``."""
    s, N, a0 = float(case["s"][0]), int(case["N"]), float(case["a0"])
    s_inf = float(stretched([s], N)[0])
    estimate = factor * s**exponent * np.log(1 / (s_inf * a0))
    exact = float(half_height([s], N, a0)[0])
    # ln(x - 1) against ln x, x = 1/(s_inf a0): what the estimate leaves out.
    slack = 2 * s_inf * a0 / s**2
    return agreement(
        "estimate against the time to half height",
        estimate,
        exact,
        slack + 1e-12 * exact,
        "ln(x - 1) against ln(x)",
    )


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


def _logistic(t: Any) -> Any:
    decay = sp.exp(-2 * _s**2 * t)
    return _a0 / (_S * _a0 * (1 - decay) + decay)


def _proof_of_logistic() -> Iterable[Check]:
    """With p = q the product obeys a logistic equation, and (13) solves it."""
    pull = _s**2 * (1 - _S * _p * _q)
    yield identity(
        "da/dt = s^2 (p^2 + q^2)(1 - s_inf a)",
        _q * _q * pull + _p * _p * pull,
        (_p**2 + _q**2) * pull,
    )
    a = _logistic(_t)
    yield identity(
        "(13) solves da/dt = 2 s^2 a (1 - s_inf a)", a.diff(_t), 2 * _s**2 * a * (1 - _S * a)
    )
    yield identity("(13) starts at a0", a.subs(_t, 0), _a0)


def _proof_of_half_height() -> Iterable[Check]:
    """a(t) is half its end at ln(1/(s_inf a0) - 1)/(2 s^2), the estimate but for the 1."""
    x = sp.Symbol("x", positive=True)  # x = 1/(s_inf a0) - 1
    half = sp.log(x) / (2 * _s**2)
    a = _logistic(half).subs(_a0, 1 / (_S * (1 + x)))
    yield identity("a at the half height", sp.simplify(a), 1 / (2 * _S))


def _proof_of_loss() -> Iterable[Check]:
    """The flow of the corrected (14), half of it, is (9) and (10)."""
    loss = _s * (_s * _S * (_p * _q) ** 2 - 2 * _s * _p * _q + 1) / 2
    pull = _s**2 * (1 - _S * _p * _q)
    yield identity("- d(loss)/dp", -loss.diff(_p), _q * pull)
    yield identity("- d(loss)/dq", -loss.diff(_q), _p * pull)


EQ13_UNBALANCED = Claim(
    id="mainali2025.eq13-unbalanced",
    source=f"{NOTE}, (13) without the balance",
    says="From any start the mode's product follows the closed form with K = (p0^2 - q0^2)^2.",
    equations=(r"\dot a = s^2\sqrt{K + 4a^2}\,(1 - s^\infty a)",),
    property=Property(_UNBALANCED, _unbalanced_holds, examples=20),
    variants=(
        Variant("twice as fast", Property(_UNBALANCED, lambda c: _unbalanced_holds(c, 2.0), 10)),
        Variant("half as fast", Property(_UNBALANCED, lambda c: _unbalanced_holds(c, 0.5), 10)),
    ),
)

_RUN_EQ13 = """\
import numpy as np
from scipy.integrate import solve_ivp
s, N, p0, q0 = 1.0, 1, 0.2, 0.05
s_inf = s * (1 + 2 / N)
flow = lambda t, y: s**2 * y[::-1] * (1 - s_inf * y[0] * y[1])
p, q = solve_ivp(flow, (0, 1), [p0, q0], rtol=1e-10, atol=1e-12).y[:, -1]
a0, end = p0 * q0, 1 / s_inf
print(p * q, end * a0 / (a0 + (end - a0) * np.exp(-2 * s**2)))
"""

EQ13 = Claim(
    id="mainali2025.eq13",
    source=f"{NOTE}, equation (13)",
    says="The product a = p q of a mode is logistic with time constant tau/2.",
    equations=(
        r"a(t) = a_\infty \frac{a_0}{a_0 + (a_\infty - a_0)e^{-2t/\tau}}",
        r"\tau_\alpha = (\eta P s_\alpha^2)^{-1}",
    ),
    property=Property(_UNBALANCED, _logistic_holds, examples=20),
    assumes=("the mode equations (12)",),
    needs=(
        Assumption(
            "balanced start, p0 = q0",
            Property(_BALANCED, _logistic_holds, 20),
            _proof_of_logistic,
        ),
    ),
    correction=EQ13_UNBALANCED,
    variants=(
        Variant("rate 1/tau", Property(_BALANCED, lambda c: _logistic_holds(c, rate=0.5), 10)),
        Variant("N off by one", Property(_BALANCED, lambda c: _logistic_holds(c, shift=1.0), 10)),
    ),
    explanation="tau da/dt = (p^2 + q^2)(1 - s_inf a), and p^2 + q^2 = 2 a only if p = q.",
    run=_RUN_EQ13,
)

TIME_CORRECTED = Claim(
    id="mainali2025.convergence-time-corrected",
    source=f"{NOTE}, corrected estimate",
    says="A balanced mode is at half its end after about ln(1/(s_inf a0)) / (2 eta P s^2).",
    equations=(
        r"t^*_\alpha \approx \frac{1}{2\eta P s_\alpha^2}\log\frac{1}{s^\infty_\alpha a_0}",
    ),
    property=Property(_time_cases, lambda c: _time_holds(c, -2.0)),
    derivation=_proof_of_half_height,
    variants=(
        Variant("without the 1/2", Property(_time_cases, lambda c: _time_holds(c, -2.0, 1.0))),
        Variant("1/s instead of 1/s^2", Property(_time_cases, lambda c: _time_holds(c, -1.0))),
    ),
)

_RUN_TIME = """\
import numpy as np
for s in (1.0, 2.0):  # the stronger mode is the faster one: a time must fall with s
    print(s, 0.5 * s**2 * np.log(1e3 / s), np.log(1e3 / s) / (2 * s**2))
"""

TIME = Claim(
    id="mainali2025.convergence-time",
    source=f"{NOTE}, section 4.4",
    says="The convergence time is about 1/2 eta P s^2 log(1/(s_inf eps)).",
    equations=(
        r"t^*_\alpha \approx \tfrac12 \eta P s_\alpha^2 \log\frac{1}{s^\infty_\alpha\epsilon}",
    ),
    property=Property(_time_cases, lambda c: _time_holds(c, 2.0)),
    correction=TIME_CORRECTED,
    variants=(
        Variant("without the 1/2", Property(_time_cases, lambda c: _time_holds(c, 2.0, 1.0))),
        Variant("s instead of s^2", Property(_time_cases, lambda c: _time_holds(c, 1.0))),
    ),
    explanation="As noted the strong modes would be the slow ones: eta P s^2 is a rate.",
    run=_RUN_TIME,
)

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

CLAIMS = (EQ13, EQ13_UNBALANCED, TIME, EQ14)
