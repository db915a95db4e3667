"""Claims on principal component regression in context."""

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

from . import probes, separate
from .probes import NOTE, Case

Array = NDArray[np.float64]

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
    state = probes.packed(np.diag(np.concatenate([strength, np.zeros(D - m)])), D, 1)
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

CLAIMS = (PCR, SHRUNK, CONTEXT)
