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

CLAIMS = (SHORTER, MERGED_SHORTER, LAZY)
