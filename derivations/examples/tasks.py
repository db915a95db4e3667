r"""In-context regression with label noise, tasks of any covariance, and two families mixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

import odekit as ok
from odekit.claims import Check, agreement, identity
from odekit.reproduce import Picture

from .training import named, trained

Array = NDArray[np.float64]
N, D = ok.dims("N D")


def family_loss(name: str, weights: Any, Lam: Any, s2: Any) -> Any:
    """Attention of rank one on labels ``w . x_n + eps_n`` with tasks ``w ~ N(0, name)``."""
    x = ok.gaussian(f"x_{name}", (N, D), covariance=Lam)
    query = ok.gaussian(f"q_{name}", (D,), covariance=Lam)
    w = ok.gaussian(f"w_{name}", (D,), covariance=ok.parameter(name, (D, D), symmetric=True))
    noise = ok.gaussian(f"eps_{name}", (N,), covariance=s2)
    beta = ok.einsum("n,nd->d", ok.einsum("d,nd->n", w, x) + noise, x) / N
    v, K, Q = weights
    prediction = ok.einsum("h,ha,a,hb,b->", v, K, beta, Q, query)
    return ok.expected_loss(prediction, ok.einsum("d,d->", w, query))


def attention(families: int = 1, heads: Any = None) -> tuple[Any, Any]:
    """The loss and flow; with two families a share p of the sequences has tasks of the first."""
    H = ok.dims("H") if heads is None else heads
    weights = (ok.weight("v", (H,)), ok.weight("K", (H, D)), ok.weight("Q", (H, D)))
    Lam, s2 = ok.parameter("Lambda", (D, D), symmetric=True), ok.parameter("s2")
    losses = [family_loss(f"M{k + 1}", weights, Lam, s2) for k in range(families)]
    p = ok.parameter("p")
    loss = losses[0] if families == 1 else p * losses[0] + (1 - p) * losses[1]
    return loss, ok.gradient_flow(loss, weights=weights, time_scale=2)


# -- statements ------------------------------------------------------------------------------------


def second_moment_of_beta(M: Any, Lam: Any, s2: Any) -> Any:
    """``B' = E[beta beta^T] = (1 + 1/N) L M L + ((tr(L M) + s2)/N) L``."""
    total = ok.einsum("ab,ab->", Lam, M) + s2
    return (1 + 1 / N) * ok.einsum("ab,bc,cd->ad", Lam, M, Lam) + ok.einsum(
        ",ab->ab", total, Lam
    ) / N


def loss_formula() -> tuple[Check, ...]:
    """``MSE = tr(L M) - 2 tr(A L M L) + tr(B' A L A^T)``; two families are one of mixed M.

    The loss sees the law of the tasks through ``M = E[w w^T]`` alone, whatever it is a mixture of.
    """
    loss, flow = attention()
    Lam, M, s2 = (named(flow, n) for n in ("Lambda", "M1", "s2"))
    A = next(t for t, _ in flow.definitions if t.name == "A")
    B = second_moment_of_beta(M, Lam, s2)
    formula = (
        ok.einsum("ab,ab->", Lam, M)
        - 2 * ok.einsum("ab,bc,cd,da->", A, Lam, M, Lam)
        + ok.einsum("ab,bc,cd,ad->", B, A, Lam, A)
    )
    mixed, both = attention(2)
    # The tensors of the single family, in place of the mixture's own of the same name.
    same = {
        t: named(flow, t.name)
        for t in (*both.states, *both.parameters)
        if t.name in ("v", "K", "Q", "Lambda", "s2")
    }
    p, M1, M2 = (named(both, n) for n in ("p", "M1", "M2"))
    mean = ok.einsum(",ab->ab", p, M1) + ok.einsum(",ab->ab", 1 - p.as_expression(), M2)
    as_one = loss.expression.expand().substitute({M: mean})
    return (
        identity("expected loss", loss.expression, formula),
        identity(
            "two families against their mean", mixed.expression.expand().substitute(same), as_one
        ),
    )


def stretched(lam: Any, mu: Any, s2: float, context: float) -> Array:
    """``c = 1 + (1 + (tr(L M) + s2)/(lambda mu))/N`` of each joint eigenvector."""
    product = np.asarray(lam, dtype=float) * np.asarray(mu, dtype=float)
    return 1 + (1 + (product.sum() + s2) / product) / context


def mode() -> Any:
    """One head on one joint eigenvector e of Lambda and M: ``v = u``, ``K = Q = u e``."""
    _, flow = attention(heads=1)
    e, mu = ok.eigenvector("e", of=named(flow, "Lambda"), value="lambda"), ok.parameter("mu")
    # M = mu e e^T + what it does off e: P M0 P, with P the projector that takes e out.
    along = ok.einsum("a,b->ab", e, e)
    off = ok.identity(D) - along
    rest = ok.einsum("ab,bc,cd->ad", off, ok.parameter("M0", (D, D), symmetric=True), off)
    u = ok.weight("u")
    M = ok.einsum(",ab->ab", mu, along) + rest
    return ok.reduce(flow, {"v": u, "K": u * e, "Q": u * e, "M1": M})


def modes() -> tuple[Check, ...]:
    """``u' = lambda^2 mu u^2 - lambda^3 mu c u^5``: the plateau equation at ``lambda^2 mu``."""
    reduction = mode()
    (u,) = reduction.field.states
    rate = reduction.field.rates[u]
    escape = (
        ok.einsum(",,->", named(reduction.field, "mu"), u, u)
        * sp.Symbol("lambda", positive=True) ** 2
    )
    left = [t for t, _ in (rate - escape).expand().terms.items()]
    # What is left is -lambda^3 mu c u^5: every term holds the fifth power.
    low = sum(sum(t is u for t, _ in term.factors) != 5 for term in left)
    lam, mu, s2, context = np.array([0.9, 0.5]), np.array([0.4, 1.6]), 0.3, 7
    c = stretched(lam, mu, s2, context)
    params = {"Lambda": np.diag(lam), "M1": np.diag(mu), "s2": s2, "N": context}
    _, flow = attention()
    now, e = 0.7, np.array([1.0, 0.0])
    rates = flow.evaluate({"v": [now], "K": [now * e], "Q": [now * e]}, params)
    wanted = lam[0] ** 2 * mu[0] * now**2 - lam[0] ** 3 * mu[0] * c[0] * now**5
    size = (1 / (lam * c)) ** (1 / 3)
    best = {"v": size, "K": np.diag(size), "Q": np.diag(size)}
    gap = max(float(np.abs(r).max()) for r in flow.evaluate(best, params).values())
    return (
        Check("a joint eigenvector is kept", 0.0 if reduction.exact else 1.0),
        Check("its rate but lambda^2 mu u^2 is of fifth order", float(low)),
        agreement("rate of a mode", rates["v"][0], wanted, 1e-14, "rounding of ten products"),
        Check("rates at A* = diag(1/(lambda c))", gap, 1e-14, "rounding of ten products"),
    )


def derive() -> tuple[Check, ...]:
    """All checks."""
    return (*loss_formula(), *modes())


# -- figure ----------------------------------------------------------------------------------------

SPECTRUM = np.array([1.0, 0.6, 0.3])
CONTEXT, NOISE, START = 20, 0.25, 0.1


def learn(task: Array, times: Array) -> Any:
    """The flow of three heads from a small balanced start, one on each joint eigenvector."""
    _, flow = attention()
    params = {"Lambda": np.diag(SPECTRUM), "M1": np.diag(task), "s2": NOISE, "N": CONTEXT}
    start = {"v": np.full(3, START), "K": START * np.eye(3), "Q": START * np.eye(3)}
    return ok.solve(flow, start, times, params)


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the order of learning under two task covariances, and a mixture with training."""
    figure, (left, right) = ok.plot.panels(1, 2)
    numbers: dict[str, Any] = {"spectrum": SPECTRUM.tolist(), "N": CONTEXT, "order": {}}
    times = np.linspace(0, 150, 601)
    tasks = {"M = I": np.ones(3), "M = diag(.2, 1, 3)": np.array([0.2, 1.0, 3.0])}
    with ok.plot.style():
        for (name, task), style in zip(tasks.items(), ("-", (0, (3, 2))), strict=True):
            progress(f"integrates {name}")
            run = learn(task, times)
            A = np.einsum("th,thi,thi->ti", run["v"], run["K"], run["Q"])
            level = 1 / (SPECTRUM * stretched(SPECTRUM, task, NOISE, CONTEXT))
            for k in range(3):
                left.plot(times, A[:, k] / level[k], color=ok.plot.PALETTE[k], ls=style)
            numbers["order"][name] = {
                "lambda^2 mu": (SPECTRUM**2 * task).tolist(),
                "half-rise": [float(np.interp(0.5, A[:, k] / level[k], times)) for k in range(3)],
                "end": (A[-1] / level).tolist(),
            }
        for k in range(3):
            left.plot([], [], color=ok.plot.PALETTE[k], label=rf"$\lambda={SPECTRUM[k]:g}$")
        left.plot([], [], color="0.3", label="$M=I$")
        left.plot([], [], color="0.3", ls=(0, (3, 2)), label=r"$M=\mathrm{diag}(.2, 1, 3)$")
        left.set_xlabel(r"time ($\tau$)")
        left.set_ylabel(r"$A_{kk}$ over its end $1/(\lambda_k c_k)$")
        left.legend(fontsize=6)
        _mixture(right, numbers, quick, progress)
    return Picture(
        ok.plot.finish(figure),
        numbers,
        "In-context regression with noisy labels (s2 = 0.25). (a) The tasks' covariance decides "
        "the order of learning, that of lambda^2 mu: solid 1, 0.6, 0.3; dashed 0.6 (the same "
        "curve), 0.3, 1. (b) Two families of tasks mixed, from a generic start: the flow of the "
        "mixture (lines), SGD that draws both families at every step (dots), for three shares p; a "
        "mixture is one family of mean M.",
        (
            r"\mathrm{MSE} = \mathrm{tr}\,\Lambda M - 2\,\mathrm{tr}\,A\Lambda M\Lambda"
            r" + \mathrm{tr}\,B' A\Lambda A^\top",
            r"B' = \left(1+\tfrac1N\right)\Lambda M\Lambda"
            r" + \tfrac{1}{N}\left(\mathrm{tr}\,\Lambda M + \sigma^2\right)\Lambda",
            r"\dot u = \lambda^2\mu\,u^2 - \lambda^3\mu\,c\,u^5",
        ),
    )


def _mixture(ax: Any, numbers: Any, quick: bool, progress: Callable[[str], None]) -> None:
    loss, flow = attention(2)
    rng = np.random.default_rng(0)
    y0 = {
        "v": 0.2 * rng.standard_normal(4),
        "K": 0.2 * rng.standard_normal((4, 3)),
        "Q": 0.2 * rng.standard_normal((4, 3)),
    }
    end = 40.0
    times = np.linspace(0, end, 201)
    numbers["mixture"] = []
    for p, colour in zip((0.1, 0.5, 0.9), ok.plot.sequence(3), strict=True):
        progress(f"share {p:g}")
        params = {
            "Lambda": np.diag(SPECTRUM), "M1": np.diag([3.0, 0.1, 0.1]),
            "M2": np.diag([0.1, 0.1, 3.0]), "s2": NOISE, "p": p, "N": CONTEXT,
        }  # fmt: skip
        run: Any = ok.solve(flow, y0, times, params)
        t, sgd = trained(loss, y0, params, end, lr=0.01, batch=16 if quick else 64)
        exact = [flow.loss_value({n: sgd[n][k] for n in y0}, params) for k in range(len(sgd.t))]
        ax.plot(times, run.loss, color=colour, label=f"$p={p:g}$")
        ax.plot(t, exact, ".", color=colour, ms=3)
        numbers["mixture"].append(
            {"p": p, "t": times.tolist(), "flow": run.loss.tolist(), "sgd_t": t.tolist(),
             "sgd": exact}
        )  # fmt: skip
    ax.set_xlabel(r"time ($\tau$)")
    ax.set_ylabel("mean squared error")
    ax.legend(title="share of the first family", title_fontsize=7, fontsize=6)
