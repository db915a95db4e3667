"""Claims on the modes: their equations, where they rest, how fast they grow."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.claims import Assumption, Check, Claim, Property, Variant, identity

from . import layer
from .cases import (
    ANY,
    NOTE,
    ONE_MODE,
    ROUNDING,
    Case,
    flow_rates,
    modes_of,
    size_of,
)
from .mode_equations import (
    layer_optimum,
    layer_rates,
    stretched,
)

Array = NDArray[np.float64]

_s, _S, _N, _a0, _t, _p, _q = sp.symbols("s S N a0 t p q", positive=True)


def _published(case: Case, shift: float = 0.0, factor: float = 1.0) -> tuple[Array, Array]:
    s, p, q, N = modes_of(case)
    pull = s**2 * (1 - factor * p * q * stretched(s, N + shift))
    return q * pull, p * pull


def _modes_hold(case: Case, law: layer.Law = "scalar", **wrong: float) -> Check:
    left, right = flow_rates(case, law), _published(case, **wrong)
    s, p, q, _ = modes_of(case)
    gap = max(float(np.abs(a - b).max()) for a, b in zip(left, right, strict=True))
    return Check(
        "flow of the layer against the published rates", gap, 1e-13 * size_of(s, p, q), ROUNDING
    )


def _own_rates_hold(case: Case, n_shift: int = 0, coupling: float = 1.0) -> Check:
    left = flow_rates(case)
    s, p, q, N = modes_of(case)
    full, uncoupled = layer_rates(p, q, s, N + n_shift), layer_rates(p, q, s, 1e300)
    right = [u + coupling * (f - u) for f, u in zip(full, uncoupled, strict=True)]
    gap = max(float(np.abs(a - b).max()) for a, b in zip(left, right, strict=True))
    return Check("flow of the layer against its own modes", gap, 1e-13 * size_of(s, p, q), ROUNDING)


def proof_of_modes() -> Iterable[Check]:
    """The layer's diagonal modes, tasks w I and diag(w), for symbolic N and d."""
    for law in ("scalar", "diagonal"):
        for what, difference in layer.diagonal_modes(law).items():
            yield identity(
                f"{what} on the diagonal is the coupled rate (corrected 9, 10), law {law}",
                difference,
            )


def _proof_for_one_mode() -> Iterable[Check]:
    """The coupling of `layer.diagonal_modes` is the published trace term if there is one mode."""
    coupling = _s * _p * (_s**2 * _q**2) / _N
    published = _s**2 * _p * _q**2 * _s / _N
    yield from proof_of_modes()
    yield identity("coupling with one mode against the trace term", coupling, published)


def _at_published_fixed_point(case: Case, law: layer.Law, shift: float = 0.0) -> Check:
    s, _, _, N = modes_of(case)
    scale = 1.0 + abs(float(case["p"][0]))
    end = 1 / stretched(s, N + shift)
    if law == "iid":
        p, q = np.full(len(s), scale), end / scale
    else:
        p = scale * np.sqrt(end)
        q = end / p
    dp, dq = flow_rates({**case, "p": p, "q": q}, law)
    if law == "iid":
        dp = dp / len(s)
    gap = max(float(np.abs(dp).max()), float(np.abs(dq).max()))
    return Check("rates where p q = 1/s_inf", gap, 1e-12 * size_of(s, p, q), ROUNDING)


def _at_own_fixed_point(case: Case, shift: int = 0, factor: float = 1.0) -> Check:
    """The closed form of the layer's own fixed point, tasks w I: both rates vanish there."""
    s, _, _, N = modes_of(case)
    a = factor * layer_optimum(s, N + shift)
    # p_a^2 = a_a sqrt(s_a) t and q_a = a_a / p_a for any t > 0: the ratio that both rates demand.
    p = np.sqrt(a * np.sqrt(s))
    q = np.divide(a, p, out=np.zeros_like(a), where=p > 0)
    dp, dq = flow_rates({**case, "p": p, "q": q})
    gap = max(float(np.abs(dp).max()), float(np.abs(dq).max()))
    return Check("rates at the layer's own fixed point", gap, 1e-12 * size_of(s, p, q), ROUNDING)


def _proof_of_own_rest() -> Iterable[Check]:
    """With p^2 = a sqrt(s), q^2 = a/sqrt(s) both sums are K = sum s^(3/2) a, and both rates vanish.

    The sums over modes enter through K alone; summed over the m learned modes, the product that
    makes the rates vanish gives a linear equation for K.
    """
    s, N, K, m, R = sp.symbols("s N K m R", positive=True)
    a = (1 - K / (N * sp.sqrt(s))) / ((1 + 1 / N) * s)
    p2, q2 = a * sp.sqrt(s), a / sp.sqrt(s)
    yield identity("s p^2 = s^(3/2) a: the sum P is K", s * p2, s ** sp.Rational(3, 2) * a)
    yield identity("s^2 q^2 = s^(3/2) a: the sum Q is K", s**2 * q2, s ** sp.Rational(3, 2) * a)
    common = s**2 * a - (1 + 1 / N) * s**3 * a**2
    yield identity("p dp/dt with Q = K", common - s * p2 * K / N)
    yield identity("q dq/dt with P = K", common - s**2 * q2 * K / N)
    # R = sum sqrt(s): sum of sqrt(s)(1 - K/(N sqrt(s)))/(1 + 1/N) over m modes.
    total = (R - m * K / N) / (1 + 1 / N)
    solved = R / (1 + (1 + m) / N)
    yield identity("K = sum s^(3/2) a at K = R/(1 + (1 + m)/N)", (total - K).subs(K, solved))
    yield from proof_of_modes()


OWN_MODES = Claim(
    id="mainali2025.eq9-corrected",
    source=f"{NOTE}, corrected (9), (10)",
    says="The layer's diagonal modes, tasks w I or diag(w): a finite context couples them.",
    equations=(
        r"\dot p_\alpha = s_\alpha^2 q_\alpha - (1+\tfrac1N)s_\alpha^3 p_\alpha q_\alpha^2"
        r" - \tfrac{s_\alpha p_\alpha}{N}\sum_\beta s_\beta^2 q_\beta^2",
        r"\dot q_\alpha = s_\alpha^2 p_\alpha - (1+\tfrac1N)s_\alpha^3 q_\alpha p_\alpha^2"
        r" - \tfrac{s_\alpha^2 q_\alpha}{N}\sum_\beta s_\beta p_\beta^2",
    ),
    property=Property(ANY, _own_rates_hold),
    derivation=proof_of_modes,
    variants=(
        Variant("N off by one", Property(ANY, lambda c: _own_rates_hold(c, n_shift=1))),
        Variant(
            "coupling twice as strong", Property(ANY, lambda c: _own_rates_hold(c, coupling=2))
        ),
    ),
    explanation=(
        "Gaussian moments of the raw layer for symbolic d and N, restricted to diagonal "
        "blocks: the diagonal is kept, and the trace terms carry the sums over all modes."
    ),
)

_RUN_EQ9 = """\
import numpy as np, odekit as ok
s, N = np.array([1.0, 0.5]), 2
flow = ok.models.linear_transformer(tasks="scalar").flow
rates = flow.evaluate({"p2": np.eye(2), "q1": np.eye(2)}, {"Lambda": np.diag(s), "N": N})
s_inf = (1 + 1 / N) * s + s.sum() / N
print(np.diag(rates["p2"]), s**2 * (1 - s_inf))
"""

EQ9 = Claim(
    id="mainali2025.eq9",
    source=f"{NOTE}, equations (9), (10) and (12)",
    says=(
        "After diagonalisation the modes are decoupled: "
        "dp_a/dt = s_a^2 q_a (1 - p_a q_a s_inf_a), and the same with p and q exchanged."
    ),
    equations=(
        r"\dot{\bar p}_2 = -\eta P S^2(\bar p_2 \bar q_1^2 s^\infty(S) - \bar q_1)",
        r"s^\infty(S) = \tfrac{N+1}{N}S + \tfrac{\operatorname{tr}S}{N}I",
    ),
    property=Property(ANY, _modes_hold),
    assumes=("p2 and q1 are diagonal in the eigenbasis", "tasks are a multiple of the identity"),
    needs=(
        Assumption(
            "a single mode, d = 1 (for d > 1 the equations are the limit of long contexts, "
            "approached as 1/N)",
            Property(ONE_MODE, _modes_hold),
            _proof_for_one_mode,
        ),
    ),
    correction=OWN_MODES,
    variants=(
        Variant("N off by one", Property(ONE_MODE, lambda c: _modes_hold(c, shift=1.0))),
        Variant(
            "a factor 2 in front of p q s_inf",
            Property(ONE_MODE, lambda c: _modes_hold(c, factor=2.0)),
        ),
    ),
    explanation=(
        "The trace in s_inf belongs to an average over independent task entries, while the "
        "decoupled left side belongs to tasks that commute with the covariance. No law of the "
        "tasks gives both for d > 1 and finite N: for tasks w I or diag(w) the trace term couples "
        "all modes, and for independent entries s_inf is right but one p is shared by all modes."
    ),
    run=_RUN_EQ9,
)

EQ11_OWN = Claim(
    id="mainali2025.eq11-corrected",
    source=f"{NOTE}, corrected (11)",
    says=(
        "For tasks w I the layer rests at a_a = (1 - kappa/(N sqrt(s_a)))/((1 + 1/N) s_a) for the "
        "m modes where that is positive, and at 0 for the others."
    ),
    equations=(
        r"a_\alpha = \frac{1 - \kappa/(N\sqrt{s_\alpha})}{(1+\frac1N)s_\alpha},\qquad"
        r"\kappa = \frac{\sum_\beta\sqrt{s_\beta}}{1+(1+m)/N}",
    ),
    property=Property(ANY, _at_own_fixed_point),
    derivation=_proof_of_own_rest,
    variants=(
        Variant("N off by one", Property(ANY, lambda c: _at_own_fixed_point(c, shift=1))),
        Variant("half the product", Property(ANY, lambda c: _at_own_fixed_point(c, factor=0.5))),
    ),
    explanation=(
        "Both rates vanish only if p_a^2 = a_a sqrt(s_a) up to a common factor; then both "
        "sums over modes are the same number kappa, and each mode is a linear equation in it. "
        "A mode with sqrt(s_a) <= kappa/N is not learned: the context is too short for it."
    ),
)

EQ11 = Claim(
    id="mainali2025.eq11",
    source=f"{NOTE}, equation (11)",
    says="The flow rests where p2 q1 = 1/s_inf.",
    equations=(r"\bar p_2(\infty)\bar q_1(\infty) = [s^\infty(S)]^{-1}",),
    property=Property(ANY, lambda c: _at_published_fixed_point(c, "scalar")),
    assumes=("tasks are a multiple of the identity",),
    needs=(
        Assumption(
            "a single mode, d = 1",
            Property(ONE_MODE, lambda c: _at_published_fixed_point(c, "scalar")),
            _proof_for_one_mode,
        ),
    ),
    correction=EQ11_OWN,
    variants=(
        Variant(
            "N off by one",
            Property(ONE_MODE, lambda c: _at_published_fixed_point(c, "scalar", 1.0)),
        ),
        Variant(
            "N off by minus one half",
            Property(ONE_MODE, lambda c: _at_published_fixed_point(c, "scalar", -0.5)),
        ),
    ),
    explanation=(
        "For tasks w I the fixed point differs at order 1/N, and below a critical context "
        "length the weak modes are not learned at all."
    ),
    run=_RUN_EQ9,
)

EQ11_IID = Claim(
    id="mainali2025.eq11-iid",
    source=f"{NOTE}, equation (11), read for independent task entries",
    says="With p2 a multiple of the identity the flow rests where p2 q1 = 1/s_inf.",
    equations=(r"\bar p_2(\infty)\bar q_1(\infty) = [s^\infty(S)]^{-1}",),
    property=Property(ANY, lambda c: _at_published_fixed_point(c, "iid")),
    assumes=("task entries are independent", "p2 is a multiple of the identity"),
    derivation=lambda: [
        identity(f"{what} has the factor 1 - p q_a s_inf_a in each mode, iid entries", difference)
        for what, difference in layer.shared_scale().items()
    ],
    variants=(
        Variant("N off by one", Property(ANY, lambda c: _at_published_fixed_point(c, "iid", 1.0))),
        Variant(
            "N off by minus one half",
            Property(ANY, lambda c: _at_published_fixed_point(c, "iid", -0.5)),
        ),
    ),
    explanation=(
        "Averaged over independent entries the coupling becomes the trace that s_inf has, so that "
        "(11) is right; but one p is shared by all modes, which (9) and (10) are not."
    ),
)

CLAIMS = (EQ9, EQ11, EQ11_IID)
