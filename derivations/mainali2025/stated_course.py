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
    Case,
)
from .conservation import unbalanced_product
from .mode_equations import (
    half_height,
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


def logistic(t: Any) -> Any:
    """Equation (13) at time t, in SymPy: symbols a0, S = s_inf and s."""
    decay = sp.exp(-2 * _s**2 * t)
    return _a0 / (_S * _a0 * (1 - decay) + decay)


def proof_of_logistic() -> Iterable[Check]:
    """With p = q the product obeys a logistic equation, and (13) solves it."""
    pull = _s**2 * (1 - _S * _p * _q)
    yield identity(
        "da/dt = s^2 (p^2 + q^2)(1 - s_inf a)",
        _q * _q * pull + _p * _p * pull,
        (_p**2 + _q**2) * pull,
    )
    a = logistic(_t)
    yield identity(
        "(13) solves da/dt = 2 s^2 a (1 - s_inf a)", a.diff(_t), 2 * _s**2 * a * (1 - _S * a)
    )
    yield identity("(13) starts at a0", a.subs(_t, 0), _a0)


def _proof_of_half_height() -> Iterable[Check]:
    """a(t) is half its end at ln(1/(s_inf a0) - 1)/(2 s^2), the estimate but for the 1."""
    x = sp.Symbol("x", positive=True)  # x = 1/(s_inf a0) - 1
    half = sp.log(x) / (2 * _s**2)
    a = logistic(half).subs(_a0, 1 / (_S * (1 + x)))
    yield identity("a at the half height", sp.simplify(a), 1 / (2 * _S))


def _proof_of_unbalanced() -> Iterable[Check]:
    """The product of a mode that starts anywhere, through E with a = (sqrt(K)/4)(E - 1/E)."""
    root, E, X0 = sp.symbols("k E X0", positive=True)  # k = sqrt(K) = |p0^2 - q0^2|
    pull = _s**2 * (1 - _S * _p * _q)
    yield identity("p dp/dt - q dq/dt = 0: K is kept", _p * (_q * pull) - _q * (_p * pull))
    yield identity(
        "(p^2 + q^2)^2 = K + 4 a^2", (_p**2 + _q**2) ** 2, (_p**2 - _q**2) ** 2 + 4 * (_p * _q) ** 2
    )
    a = root / 4 * (E - 1 / E)
    yield identity(
        "sqrt(K + 4 a^2) = (k/2)(E + 1/E)", root**2 + 4 * a**2, (root / 2 * (E + 1 / E)) ** 2
    )
    g = _S * root / 2
    rate = _s**2 * (2 * E - g * (E**2 - 1))
    yield identity(
        "da/dt = s^2 sqrt(K + 4 a^2)(1 - s_inf a) if dE/dt = s^2 (2 E - g (E^2 - 1))",
        sp.diff(a, E) * rate,
        _s**2 * root / 2 * (E + 1 / E) * (1 - _S * a),
    )
    w = sp.sqrt(1 + g**2)
    up, down = (1 + w) / g, -g / (1 + w)
    X = X0 * sp.exp(-2 * _s**2 * w * _t)
    solved = (up - down * X) / (1 - X)
    yield identity(
        "E = (E_+ - E_- X)/(1 - X) solves it, X = X0 exp(-2 s^2 w t)",
        solved.diff(_t),
        rate.subs(E, solved),
    )


def _proof_against_time() -> Iterable[Check]:
    """Dimension and size of the estimate as noted; h stands for eta P."""
    h, x = sp.symbols("h x", positive=True)
    stated, right = h * _s**2 * sp.log(x) / 2, sp.log(x) / (2 * h * _s**2)
    a = logistic(_t)
    yield identity(
        "(13) with eta P = h at time t is (13) with 1 at time h t",
        a.subs(_t, h * _t).diff(_t),
        2 * h * _s**2 * (a * (1 - _S * a)).subs(_t, h * _t),
    )
    yield identity(
        "so a time scales like 1/h; the one noted scales like h", stated.subs(h, 1) * h, stated
    )
    yield identity(
        "noted over right = (eta P s^2)^2: equal only if eta P s^2 = 1",
        stated / right,
        (h * _s**2) ** 2,
    )
    yield from _proof_of_half_height()


EQ13_UNBALANCED = Claim(
    id="mainali2025.eq13-unbalanced",
    source=f"{NOTE}, (13) without the balance",
    says="From any start the mode's product follows the closed form with K = (p0^2 - q0^2)^2.",
    equations=(r"\dot a = s^2\sqrt{K + 4a^2}\,(1 - s^\infty a)",),
    property=Property(_UNBALANCED, _unbalanced_holds, examples=20),
    assumes=("the mode equations (12)",),
    derivation=_proof_of_unbalanced,
    variants=(
        Variant("twice as fast", Property(_UNBALANCED, lambda c: _unbalanced_holds(c, 2.0), 10)),
        Variant("half as fast", Property(_UNBALANCED, lambda c: _unbalanced_holds(c, 0.5), 10)),
    ),
    explanation=(
        "p^2 - q^2 is kept, so that p^2 + q^2 = sqrt(K + 4 a^2); with a = (sqrt(K)/4)(E - "
        "1/E) what is left is a Riccati equation with constant coefficients. For K = 0 it is "
        "(13)."
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
            proof_of_logistic,
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
    explanation=(
        "(13) is at half its end where exp(2 t/tau) = 1/(s_inf a0) - 1; the 1 is what the estimate "
        "leaves out, and that is the tolerance of the test."
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
    symbols=("eps: not defined in the notes; read as the start a_0 of the mode",),
    property=Property(_time_cases, lambda c: _time_holds(c, 2.0)),
    derivation=_proof_against_time,
    correction=TIME_CORRECTED,
    variants=(
        Variant("without the 1/2", Property(_time_cases, lambda c: _time_holds(c, 2.0, 1.0))),
        Variant("s instead of s^2", Property(_time_cases, lambda c: _time_holds(c, 1.0))),
    ),
    explanation="As noted the strong modes would be the slow ones: eta P s^2 is a rate.",
    run=_RUN_TIME,
)

CLAIMS = (EQ13, EQ13_UNBALANCED, TIME)
