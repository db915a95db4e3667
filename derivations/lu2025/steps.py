r"""The derivation in its order: from a context's features to what their ridge regression costs.

Tokens ``x ~ N(0, I/d)``, a fresh task ``w ~ N(0, I)`` for each context, labels with noise of
variance rho, ``l`` tokens of context. The sharp asymptotics are the paper's own (random matrix
theory); here they are taken from `odekit.theory`, and what follows from them is checked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp
from scipy.optimize import minimize_scalar

import odekit as ok
from odekit import claims
from odekit.claims import Check, Statement, identity

from .dynamics import direct_flow, product_flow


def features() -> Statement:
    """1. The second moment of what linear attention sees of a context."""
    d, length = ok.dims("d l")
    rho = sp.Symbol("rho", positive=True)
    white = ok.identity(d) / d
    x = ok.gaussian("x", (length, d), covariance=white)
    xq = ok.gaussian("x_q", (d,), covariance=white)
    w = ok.gaussian("w", (d,), covariance=ok.identity(d))
    noise = ok.gaussian("e", (length,), covariance=rho)
    y = ok.einsum("a,na->n", w, x) + noise
    h = d * ok.einsum("n,na->a", y, x) / length
    second = ok.expectation(ok.einsum("a,b->ab", h, h)).expand()
    drive = ok.expectation(ok.einsum("a,b,b,c->ac", h, w, xq, xq)).expand()
    size = 1 + (1 + d * (1 + rho)) / length
    alpha, symbol = sp.symbols("alpha d", positive=True)
    share = 1 + (1 + symbol * (1 + rho)) / (alpha * symbol)
    return Statement(
        "1",
        "A context of l tokens enters through h = (d/l) sum_n y_n x_n. Its second moment is a "
        "multiple of the identity, which in the limit of large d at l = alpha d is 1 + q with "
        "q = (1 + rho)/alpha.",
        (r"q = \frac{1+\rho}{\alpha}",),
        assumes=("a fresh Gaussian task for each context (kappa = infinity)",),
        checks=(
            identity("E[h h^T]", second, size * ok.identity(d)),
            identity("E[h y_q x_q^T] = I/d", drive, ok.identity(d) / d),
            identity(
                "the limit at l = alpha d", sp.limit(share, symbol, sp.oo), 1 + (1 + rho) / alpha
            ),
        ),
        derived=(r"\mathbb{E}[h h^\top] = " + second.latex(),),
    )


def training() -> Statement:
    """2. Training Gamma directly ends at ridge regression."""
    flow: Any = direct_flow()
    (gamma,) = flow.states
    S, v = (next(t for t in flow.parameters if t.name == name) for name in ("S", "v"))
    rest = v.as_expression() - ok.einsum("ab,b->a", S, gamma)
    rng = np.random.default_rng(0)
    root = rng.standard_normal((12, 4))
    values = {"S": root.T @ root / 12, "v": rng.standard_normal(4)}
    run: Any = ok.solve(flow, {"Gamma": np.zeros(4)}, 400.0, values)
    gap = float(np.abs(run["Gamma"][-1] - np.linalg.solve(values["S"], values["v"])).max())
    return Statement(
        "2",
        "The gradient flow of the squared error in Gamma is linear and ends at the least squares "
        "solution; stopped early it acts like a ridge of strength 1/t.",
        (r"\dot\Gamma = v - S\,\Gamma \;\longrightarrow\; \Gamma = S^{-1} v",),
        checks=(
            identity("the flow", flow.rates[gamma], rest),
            # The slowest mode has decayed to 1e-20; the default tolerance leaves 1e-6 of the state.
            Check("its end is least squares", gap, 1e-6, "tolerance of the run"),
        ),
        derived=(flow.latex(),),
    )


def layer() -> Statement:
    """3. As a layer Gamma is a product, and what its flow conserves."""
    flow: Any = product_flow()
    found = ok.conserved(flow)
    u, N = (next(t for t in flow.states if t.name == name) for name in ("u", "N"))
    balance = ok.einsum(",->", u, u) - ok.einsum("a,a->", N, N)
    scale = next(k for k in (1, -1) if not (found[0].expression - k * balance).expand().terms)
    return Statement(
        "3",
        "With Gamma = u N, a value times a key-query matrix, the same loss is descended by a "
        "nonlinear flow, which keeps u^2 - |N|^2.",
        (r"u^2 - \lVert N\rVert^2 = \mathrm{const}",),
        checks=(
            identity("the quantity that was found", found[0].expression, scale * balance),
            Check("number of families less one", float(len(found) - 1)),
        ),
        derived=(flow.latex(), rf"{found[0].latex()} = \mathrm{{const}}"),
    )


def _proved(name: str) -> tuple[Any, tuple[Check, ...]]:
    """A claim, and the identities that prove it: as it stands, or under what it needs."""
    claim = claims.get(f"lu2025.{name}")
    proofs = [each for each in (claim.derivation, *(n.derivation for n in claim.needs)) if each]
    return claim, tuple(check for proof in proofs for check in proof())


def peak() -> Statement:
    """4. Double descent: both branches of the error diverge at tau = 1 with one coefficient."""
    claim, checks = _proved("double-descent-peak")
    t, rho, q = sp.symbols("tau rho q", positive=True)
    below = (1 + rho - t * (2 - t) / (1 + q)) / (1 - t)
    above = t / (t - 1) * (rho + q / (1 + q))
    tau = np.array([0.4, 0.8, 1.2, 3.0])
    known = [
        float((below if each < 1 else above).subs({t: each, rho: 0.1, q: 1.1 / 5})) for each in tau
    ]
    gap = np.abs(ok.theory.learning_curve(5.0, np.inf, tau, 0.1).icl / known - 1).max()
    return Statement(
        "4",
        "Without a ridge, and with a fresh task for each context, the error has a branch on either "
        "side of tau = 1, and both grow without bound there.",
        claim.equations,
        assumes=("no ridge", "a fresh task for each context"),
        checks=(*checks, Check("ok.theory.learning_curve", float(gap), 1e-12, "rounding")),
        derived=(rf"e_{{\tau<1}} = {sp.latex(below)},\qquad e_{{\tau>1}} = {sp.latex(above)}",),
    )


def best_ridge() -> Statement:
    """5. The best ridge, in closed form, removes the peak."""
    alpha, rho = 10.0, 0.01
    taus = np.array([0.5, 1.0, 2.0])
    gaps = []
    for tau in taus:
        best = float(ok.theory.optimal_ridge(alpha, np.inf, tau, rho))
        seen = minimize_scalar(
            lambda x, tau=tau: float(
                ok.theory.learning_curve(alpha, np.inf, tau, rho, float(np.exp(x))).icl
            ),
            bounds=(np.log(best) - 2, np.log(best) + 2),
            method="bounded",
            options={"xatol": 1e-9},
        )
        gaps.append(abs(float(seen.x) - np.log(best)))
    fine = np.linspace(0.1, 3.0, 200)
    ridges = ok.theory.optimal_ridge(alpha, np.inf, fine, rho)
    errors = np.asarray(ok.theory.learning_curve(alpha, np.inf, fine, rho, ridges).icl)
    return Statement(
        "5",
        "For a fresh task in each context the best ridge has a closed form; with it the error "
        "falls with every further context, and there is no peak.",
        (r"\lambda^* = \frac{(1+q)\,(\rho(1+q)+q)}{\tau},\quad q = \frac{1+\rho}{\alpha}",),
        assumes=("a fresh task for each context",),
        checks=(
            # Near its minimum the error is flat: rounding moves the point by its square root.
            Check("minimising over ln(ridge)", float(max(gaps)), 1e-6, "a minimum is flat"),
            Check("steps in tau at which the error rises", float(np.sum(np.diff(errors) > 0))),
        ),
    )


def diversity() -> Statement:
    """6. Many tasks: genuine in-context learning."""
    claim, checks = _proved("genuine-in-context-learning")
    return Statement("6", claim.says, claim.equations, claim.assumes, checks=checks)


STEPS: tuple[Callable[[], Statement], ...] = (
    features,
    training,
    layer,
    peak,
    best_ridge,
    diversity,
)
"""The derivation in its order; each step makes its statement and runs its checks."""
