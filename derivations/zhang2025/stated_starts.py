"""Claims on the scale of the start: length of plateaus, and the lazy end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import sympy as sp
from hypothesis import strategies as st

import odekit as ok
from odekit.claims import Assumption, Check, Claim, Property, Variant, agreement, identity
from odekit.testing import spectra

from . import lazy, merged, plateaus, probes
from .probes import MODELS, NOTE, Case
from .stated_plateaus import aligned_run
from .statement import named


@st.composite
def _shorter_cases(draw: st.DrawFn) -> Case:
    return {
        "spectrum": [1.0, draw(st.sampled_from([0.7, 0.5, 0.3]))],
        "N": draw(st.integers(1, 50)),
        "sizes": (1, 1),
        "factor": draw(st.sampled_from([2.0, 5.0, 10.0])),
    }


def _shorter_holds(case: Case, power: float = 1.0) -> Check:
    """Lengths of both plateaus from a start that is larger by a factor, times that factor."""
    factor = float(case["factor"])
    before = np.diff(np.concatenate([[0.0], aligned_run(case)[2]]))
    after = np.diff(np.concatenate([[0.0], aligned_run(case, factor)[2]]))
    # What 1/v0 leaves out of the length is of order k v0 relative to it, k^3 = lambda c <= 4.
    return agreement(
        "length times factor over length before",
        factor**power * after / before,
        [1.0, 1.0],
        0.1,
        "the length is 1/(lambda^2 v0) up to a relative k v0 of a few percent",
    )


def _proof_of_length() -> Iterable[Check]:
    v0, lam, mu = sp.symbols("v0 lambda mu", positive=True)
    fall = 1 / (lam**2 * v0**2 * (1 - mu * v0**3))
    speed = lam**2 * v0**2 * (1 - mu * v0**3)
    yield identity("dt/dv0 = - 1/(dv/dt at v0)", fall * speed, 1)
    yield from probes.proof(plateaus.scalar_equation)()


SHORTER = Claim(
    id="zhang2025.init-shortens-plateaus",
    source=f"{NOTE}, figure 6 ('a larger start shortens all plateaus')",
    says="Each plateau of separate attention shortens as the start grows, in proportion to 1/v_0.",
    equations=(
        r"t_d = \int_{v_0}^{v}\frac{\tau\,dv'}{\lambda_d^2v'^2(1-\lambda_dc_dv'^3)},\qquad"
        r"\frac{\partial t_d}{\partial v_0} < 0,\qquad t_d\approx\frac{\tau}{\lambda_d^2v_0}",
    ),
    property=Property(_shorter_cases, _shorter_holds, examples=15),
    assumes=("small start", "aligned heads of equal size; rank one"),
    derivation=_proof_of_length,
    variants=(
        Variant("as 1/v_0^2", Property(_shorter_cases, lambda c: _shorter_holds(c, power=2.0), 5)),
        Variant("not at all", Property(_shorter_cases, lambda c: _shorter_holds(c, power=0.0), 5)),
    ),
    explanation=(
        "The time to reach a height is the integral of 1/(dv/dt) from v_0 on: starting further up "
        "leaves a positive piece out. The difference between two modes' times shrinks alike."
    ),
)


def _merged_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries(
        {
            "N": st.integers(1, 50),
            "scale": st.sampled_from([1e-3, 1e-4]),
            "factor": st.sampled_from([2.0, 5.0, 10.0]),
        }
    )


def _merged_shorter(case: Case, power: float = 1.0) -> Check:
    """Advance of the half-rise, D = 2, white tokens, from a start that is larger by a factor."""
    N, factor = int(case["N"]), float(case["factor"])
    half, at = 0.5 / (1 + 3 / N), []
    for scale in (float(case["scale"]), factor * float(case["scale"])):
        y0 = merged.balanced_start([scale, scale], 2)
        times = np.linspace(0, 25, 4001)
        run: Any = probes.solve("merged", y0, times, np.eye(2), N, 1e-8)
        at.append(float(np.interp(half, run.value("A")[:, 0, 0], times)))
    got = (at[0] - at[1]) * np.sqrt(2)
    return agreement(
        "sqrt(D) times the advance of the drop",
        got,
        power * np.log(factor),
        5e-4,
        "w_init^2 of up to 2e-4, and interpolation on a grid of 0.006",
    )


def _proof_of_advance() -> Iterable[Check]:
    D, c, w, f = sp.symbols("D c w f", positive=True)
    time = sp.log(sp.sqrt(D) / (c * w**2) - 1) / (2 * sp.sqrt(D))
    sigma_at = 1 / (c * (1 + (sp.sqrt(D) / (c * w**2) - 1) * sp.exp(-2 * sp.sqrt(D) * time)))
    yield identity("sigma at the half-rise is 1/(2c)", sp.simplify(sigma_at), 1 / (2 * c))
    advance = sp.limit(time - time.subs(w, f * w), w, 0)
    yield identity("advance -> ln(f)/sqrt(D)", sp.expand_log(advance), sp.log(f) / sp.sqrt(D))


MERGED_SHORTER = Claim(
    id="zhang2025.init-shortens-plateau-merged",
    source=f"{NOTE}, figure 6 ('a larger start shortens all plateaus'), merged keys and queries",
    says="A start larger by a factor f brings the merged drop forward by ln(f)/sqrt(D) tau.",
    equations=(r"t_{1/2}(w) - t_{1/2}(fw) \to \frac{\tau\ln f}{\sqrt D}\quad(w\to0)",),
    property=Property(_merged_cases, _merged_shorter, examples=15),
    assumes=("Lambda = I, balanced aligned small start",),
    derivation=_proof_of_advance,
    variants=(
        Variant("half of it", Property(_merged_cases, lambda c: _merged_shorter(c, 0.5), 3)),
        Variant("no advance", Property(_merged_cases, lambda c: _merged_shorter(c, 0.0), 3)),
    ),
    explanation="The half-rise of sigma is ln(sqrt(D)/(c w^2) - 1)/(2 sqrt(D)).",
)

# -- intermediate starts --------------------------------------------------------------------------


def _share_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries(
        {
            "kind": st.sampled_from(["merged", "separate"]),
            "N": st.integers(1, 50),
            # The share of the end that is there at the start: tiny, intermediate, large.
            "share": st.sampled_from([0.1, 0.001, 0.03, 0.3, 0.5, 0.8]),
        }
    )


def _share_holds(case: Case, wrong: str = "") -> Check:
    """Speed of the loss at the start over the greatest one later, from a run."""
    N, share, kind = int(case["N"]), float(case["share"]), str(case["kind"])
    if kind == "merged":
        c, L = 1 + 3 / N, np.eye(2)
        y0 = merged.balanced_start([np.sqrt(share * np.sqrt(2) / c), 0.0], 2)
        end = 10.0
    else:
        L = np.diag([1.0, 0.5])
        s = np.cbrt(share / (1 + 1 / N + 1.5 / N))
        y0 = {"v": np.array([s, 0.0]), "K": np.zeros((2, 1, 2)), "Q": np.zeros((2, 1, 2))}
        y0["K"][0, 0, 0] = y0["Q"][0, 0, 0] = s
        end = 2 / s + 5
    run = probes.solve(kind, y0, np.linspace(0.0, end, 4001), L, N, 1e-8)
    fall = run.value(probes.speed_of(kind))
    power = 1.0 if kind == "merged" else 4 / 3
    top = power / (power + 2)
    if wrong == "A":  # the speed of A instead of that of the loss
        stated = _height(share, power, 1) / _height(max(share, power / (power + 1)), power, 1)
    else:
        stated = _height(share, power, 2) / _height(max(share, top), power, 2)
    if wrong == "decay":
        stated = 1.0
    return agreement(
        "speed of the fall at the start over its greatest, against the formula",
        fall[0] / fall.max(),
        stated,
        1e-3,
        "the peak is read off a grid of 4001 times",
    )


def _height(u: float, power: float, order: int) -> float:
    return float(u**power * (1 - u) ** order)


def _proof_of_mixture() -> Iterable[Check]:
    u, a, lam, mu, D, s = sp.symbols("u a lambda mu D s", positive=True)
    yield identity(
        "excess of a mode over its least: (lambda^2/mu) (1 - mu a)^2",
        -2 * a * lam**2 + a**2 * lam**2 * mu + lam**2 / mu,
        lam**2 / mu * (1 - mu * a) ** 2,
    )
    yield identity(
        "separate: a = s^3, u = mu a, du/dt = 3 lambda^2 mu^(-1/3) u^(4/3) (1 - u)",
        3 * mu * s**2 * lam**2 * s**2 * (1 - mu * s**3),
        (3 * lam**2 * mu ** sp.Rational(-1, 3) * u ** sp.Rational(4, 3) * (1 - u)).subs(
            u, mu * s**3
        ),
    )
    for kind, power in (("merged", sp.Integer(1)), ("separate", sp.Rational(4, 3))):
        speed = u**power * (1 - u) ** 2
        top = power / (power + 2)
        yield identity(
            f"{kind}: the slope of u^p (1 - u)^2 has the sign of p/(p + 2) - u, p = {power}",
            sp.diff(speed, u),
            (power + 2) * u ** (power - 1) * (1 - u) * (top - u),
        )
    yield from probes.proof(merged.white_closed_form, plateaus.scalar_equation)()


MIXTURE = Claim(
    id="zhang2025.init-mixture",
    source=f"{NOTE}, figure 6 ('intermediate starts: a mixture of exponential decay and sigmoid')",
    says=(
        "With a share u_0 of the end present at the start, the loss waits and then falls for tiny "
        "u_0 (sigmoid), only ever slows down for u_0 >= p/(p+2) (decay), and in between falls at "
        "once but still speeds up (mixture)."
    ),
    equations=(
        r"-\dot{\mathcal L} \propto u^p(1-u)^2,\qquad p = 1\ \text{(merged)},\quad"
        r" p = \tfrac43\ \text{(separate)}",
        r"\frac{-\dot{\mathcal L}(0)}{\max_t -\dot{\mathcal L}(t)} ="
        r" \frac{u_0^p(1-u_0)^2}{u_*^p(1-u_*)^2},\quad u_* = \max\left(u_0, \tfrac p{p+2}\right)",
    ),
    symbols=(
        "u: share of the end that is reached, c sigma (merged) or lambda c v^3 (separate)",
        "p: 1 for merged, 4/3 for separate keys and queries",
    ),
    property=Property(_share_cases, _share_holds, examples=20),
    assumes=(
        "a curve of one mode: white tokens and a balanced aligned start (merged), one aligned "
        "balanced head (separate)",
    ),
    derivation=_proof_of_mixture,
    variants=(
        Variant(
            "pure decay: fastest at the start",
            Property(_share_cases, lambda c: _share_holds(c, "decay"), 10),
        ),
        Variant("fastest where A is", Property(_share_cases, lambda c: _share_holds(c, "A"), 10)),
    ),
    explanation=(
        "The notes' sentence has no number; this is a reading of it that has. The excess loss of a "
        "mode is proportional to (1 - u)^2, and u grows like u^p (1 - u), p = 1 (the logistic "
        "equation of white tokens) or 4/3 (the scalar equation). The speed of the fall is their "
        "product. At u_0 = 0.001 it starts below a hundredth of its peak, at u_0 = 0.1 at a "
        "third to a half of it, and from u_0 = 1/3 (2/5) on it is greatest at the start."
    ),
)

# -- large starts ---------------------------------------------------------------------------------

_LARGE = 100.0


def _lazy_cases(kinds: tuple[str, ...]) -> Any:
    return lambda: st.fixed_dictionaries(
        {
            "spectrum": spectra(dim=2, condition=5.0),
            "N": st.integers(1, 50),
            "start": st.sampled_from(kinds),
            "seed": st.integers(0, 1000),
        }
    )


def _lazy_holds(case: Case, rate: float = 1.0) -> Check:
    """Loss of a run from a large start against the flow linearised there."""
    lam, N = np.asarray(case["spectrum"]), int(case["N"])
    L = np.diag(lam)
    rng = np.random.default_rng(int(case["seed"]))
    y0 = {"v": _LARGE * rng.standard_normal(2), "U": _LARGE * rng.standard_normal((2, 2, 2))}
    if case["start"] == "paired":
        # A start whose kernel is at least of the size of the scale, so that "large" is meant.
        y0["v"][0] = _LARGE * (1 + abs(rng.standard_normal()))
        y0 = lazy.paired(y0)
    floor = float(ok.theory.plateau_losses(lam, N)[-1])
    clock = 1 / (_LARGE**2 * float(np.trace(L)) ** 3)
    times = np.linspace(0.0, 30.0, 60) * clock
    run = probes.solve("merged", y0, times, L, N, 1e-11)
    line = lazy.lazy_excess(y0, L, N, rate * times)
    return agreement(
        "loss above its minimum against the linearised flow, relative to the start",
        (run.loss - floor) / line[0],
        line / line[0],
        1e-3,
        "the kernel changes at second order, scale^-4 = 1e-8 times constants",
    )


def _proof_of_kernel() -> Iterable[Check]:
    model: Any = MODELS["merged"]
    flow = model.flow
    v, U = model.weights
    G, A = named(flow, "G_A"), dict(flow.definitions)[named(flow, "A")]
    change = ok.einsum("h,hij->ij", flow.rates[v], U) + ok.einsum("h,hij->ij", v, flow.rates[U])
    kernel = ok.einsum("hij,hkl,kl->ij", U, U, G) + ok.einsum("h,h,ij->ij", v, v, G)
    yield identity("dA/dt = (sum U_h U_h^T + |v|^2) G", change, kernel)
    values = 2 * ok.einsum("h,h->", v, flow.rates[v])
    yield identity("d|v|^2/dt = 2 <A, G>", values, 2 * ok.einsum("ij,ij->", A, G))
    first = ok.einsum("hij,hkl->ijkl", flow.rates[U], U)
    both = first + ok.einsum("hij,hkl->ijkl", U, flow.rates[U])
    wanted = ok.einsum("ij,kl->ijkl", G, A) + ok.einsum("ij,kl->ijkl", A, G)
    yield identity("d(sum U_h U_h^T)/dt = G A^T + A G^T", both, wanted)


LAZY = Claim(
    id="zhang2025.init-largest-lazy",
    source=f"{NOTE}, figure 6 ('the largest start: exponential decay, the lazy regime')",
    says="From a large start the loss follows the flow linearised at the start (exponentials).",
    equations=(
        r"\mathcal L(t) \approx \mathcal L_* + \sum_i b_i^2e^{-2\kappa_it/\tau},\qquad"
        r"\tau\tfrac{d}{dt}\operatorname{vec}A = K_0\operatorname{vec}G(A)",
    ),
    property=Property(_lazy_cases(("independent", "paired")), _lazy_holds, examples=15),
    assumes=(f"merged keys and queries, entries of size {_LARGE:g}",),
    needs=(
        Assumption(
            "A(0) = 0, as from heads in pairs v, -v",
            Property(_lazy_cases(("paired",)), _lazy_holds, examples=15),
            _proof_of_kernel,
            "the second order, of relative size scale^-4; that the first vanishes is proved",
        ),
    ),
    variants=(
        Variant(
            "twice as fast",
            Property(_lazy_cases(("paired",)), lambda c: _lazy_holds(c, 2.0), 5),
        ),
        Variant(
            "half as fast", Property(_lazy_cases(("paired",)), lambda c: _lazy_holds(c, 0.5), 5)
        ),
    ),
    explanation=(
        "The kernel's first change along the flow is made of A and G only, so that it vanishes "
        "with A(0), and the weights need move by 1/scale only. Independent heads make an A(0) as "
        "large as the scale squared: the weights move as far as they are large, the loss does "
        "decay without a plateau, but not along the linearised flow, at any scale."
    ),
    run="""\
import numpy as np, odekit as ok
flow = ok.models.attention_merged().flow
def kernel(y):  # of A = sum v_h U_h for D = 1
    return np.sum(y["v"] ** 2) + np.sum(y["U"] ** 2)
for v in ([100.0, -100.0], [100.0, 100.0]):  # A(0) = 0, then A(0) = 20000
    y = {"v": np.array(v), "U": np.full((2, 1, 1), 100.0)}
    rate = flow.evaluate(y, {"Lambda": np.eye(1), "N": 1})
    ahead = {n: y[n] + 1e-7 * rate[n] for n in y}
    change = (kernel(ahead) - kernel(y)) / 1e-7
    excess_rate = 2 * 3 * kernel(y)  # rate at which the loss decays
    print("relative change of the kernel while the loss decays:", change / kernel(y) / excess_rate)
""",
)

CLAIMS = (SHORTER, MERGED_SHORTER, MIXTURE, LAZY)
