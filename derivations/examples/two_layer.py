r"""A two-layer linear network: correlated input rows, weight decay, layers with their own rates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp

import odekit as ok
from odekit.claims import Check, identity
from odekit.reproduce import Picture

from .training import named, trained

n, D, H, E = ok.dims("n D H E")
eta = sp.Symbol("eta", positive=True)


def two_layer() -> tuple[Any, Any]:
    """Rows ``x`` (n, D) of covariance (C, Lambda); penalty gamma; the top layer eta times as fast.

    The squared error is the mean over rows. Weights: W1 (H, D), W2 (E, H).
    """
    C, Lam = (ok.parameter(k, (s, s), symmetric=True) for k, s in (("C", n), ("Lambda", D)))
    x = ok.gaussian("x", (n, D), covariance=(C, Lam))
    W1, W2, T = ok.weight("W1", (H, D)), ok.weight("W2", (E, H)), ok.parameter("T", (E, D))
    rows = ok.expected_loss(
        ok.einsum("eh,hd,nd->ne", W2, W1, x), ok.einsum("ed,nd->ne", T, x), scale=1 / n
    )
    gamma = ok.parameter("gamma")
    penalty = gamma * ok.einsum("hd,hd->", W1, W1) + gamma * ok.einsum("eh,eh->", W2, W2)
    loss = rows + penalty
    return loss, ok.gradient_flow(loss, weights=(W1, W2), time_scale={W1: 2, W2: 2 / eta})


def at_one_rate() -> tuple[Any, Any]:
    """The same network with ``W2 = sqrt(eta) V``: plain training moves W2 eta times as fast."""
    loss, flow = two_layer()
    W1, W2 = flow.states
    V = ok.weight("V", (E, H))
    scaled = V * sp.sqrt(eta)
    (rows,) = loss.samples
    whole = ok.expected_loss(rows.prediction.substitute({W2: scaled}), rows.target, rows.scale)
    whole = whole + loss.penalty.substitute({W2: scaled})
    return whole, ok.gradient_flow(whole, weights=(W1, V), time_scale=2)


# -- statements ------------------------------------------------------------------------------------


def rates() -> tuple[Check, ...]:
    """The rows' covariance enters as the factor ``tr C / n``, their mean variance, and no more."""
    _, flow = two_layer()
    W1, W2, C, L, T, gamma = (named(flow, k) for k in ("W1", "W2", "C", "Lambda", "T", "gamma"))
    error = ok.einsum("aa->", C) / n * ((T - W2 @ W1) @ L)
    decay = (ok.einsum(",hd->hd", gamma, W1), ok.einsum(",eh->eh", gamma, W2))
    return (
        identity("dW1/dt", flow.rates[W1], ok.einsum("eh,ed->hd", W2, error) - decay[0]),
        identity("dW2/dt", flow.rates[W2], eta * (ok.einsum("ed,hd->eh", error, W1) - decay[1])),
    )


def rates_of_their_own() -> tuple[Check, ...]:
    """A layer eta times as fast is a layer of size ``sqrt(eta)`` at the common rate."""
    _, flow = two_layer()
    _, plain = at_one_rate()
    W1, W2 = flow.states
    one, V = plain.states
    same = {t: named(flow, t.name) for t in (one, *plain.parameters)}
    inside = {W2: V * sp.sqrt(eta)}
    fast = {k: flow.rates[k].expand().substitute(inside) for k in (W1, W2)}
    return (
        identity("dW1/dt", plain.rates[one].expand().substitute(same), fast[W1]),
        identity(
            "dW2/dt = sqrt(eta) dV/dt",
            plain.rates[V].expand().substitute(same) * sp.sqrt(eta),
            fast[W2],
        ),
    )


def balance() -> tuple[Check, ...]:
    """``eta W1 W1^T - W2^T W2`` is conserved without decay; with it, its change is known.

    ``d/dt (eta W1 W1^T - W2^T W2) = -2 eta gamma (W1 W1^T - W2^T W2)``: at equal rates the
    balance decays as ``exp(-2 gamma t)``, so trained layers end balanced.
    """
    loss, flow = two_layer()
    W1, W2 = flow.states
    gamma = named(flow, "gamma")
    change = {w: flow.rates[w].expand() for w in (W1, W2)}
    low, high = ok.einsum("id,jd->ij", change[W1], W1), ok.einsum("ei,ej->ij", change[W2], W2)
    moved = eta * (low + low.T) - (high + high.T)
    squares = ok.einsum("id,jd->ij", W1, W1) - ok.einsum("ei,ej->ij", W2, W2)
    free = ok.gradient_flow(loss - loss.penalty, weights=(W1, W2), time_scale={W1: 2, W2: 2 / eta})
    (found,) = ok.conserved(free)
    constant = eta * ok.einsum("id,jd->ij", W1, W1) - ok.einsum("ei,ej->ij", W2, W2)
    # The search scales by the times 2 and 2/eta of the layers.
    left = len((found.expression * (eta / 2) - constant).expand().terms)
    return (
        Check("without decay the one family is eta W1 W1^T - W2^T W2", left),
        identity("its change under decay", moved, -2 * eta * ok.einsum(",ij->ij", gamma, squares)),
        Check("with decay nothing quadratic is conserved", float(len(ok.conserved(flow)))),
    )


def mode() -> Any:
    """One hidden unit on one direction, ``T = s u e^T``: the reduction to its two strengths."""
    _, flow = two_layer()
    e = ok.eigenvector("e", of=named(flow, "Lambda"), value="lambda")
    u, r = (
        ok.eigenvector(k, of=ok.parameter(f"P_{k}", (size, size), symmetric=True))
        for k, size in (("u", E), ("r", H))
    )
    p, q, s = ok.weight("p"), ok.weight("q"), ok.parameter("s")
    outer = "i,j->ij"
    return ok.reduce(
        flow,
        {
            "W1": p * ok.einsum(outer, r, e),
            "W2": q * ok.einsum(outer, u, r),
            "T": s * ok.einsum(outer, u, e),
        },
    )


def threshold() -> tuple[Check, ...]:
    """The strength rests at ``max(0, s - gamma/(kappa lambda))``, whatever eta is.

    ``p' = kappa lambda q (s - p q) - gamma p``, ``q' = eta (kappa lambda p (s - p q) - gamma q)``,
    with ``kappa = tr C / n``.
    """
    reduction = mode()
    p, q = reduction.field.states
    held = {k: named(reduction.field, k) for k in ("C", "s", "gamma")}
    rate = ok.einsum("aa->", held["C"]) / n * sp.Symbol("lambda", positive=True)

    def wanted(one: Any, other: Any) -> Any:
        pull = ok.einsum(",->", other, held["s"]) - ok.einsum(",,->", one, other, other)
        return ok.einsum(",->", rate, pull) - ok.einsum(",->", held["gamma"], one)

    k, s, g, fast, a = sp.symbols("k s g eta a", positive=True)
    x, y = sp.symbols("x y", real=True)
    pair = ok.vector_field(
        {x: k * y * (s - x * y) - g * x, y: fast * (k * x * (s - x * y) - g * y)},
        parameters=(k, s, g, fast),
    )
    kinds = []
    for strength, decay in ((1.0, 0.3), (0.2, 0.3)):
        rest = np.sqrt(max(0.0, strength - decay / 0.8))
        values = {"k": 0.8, "s": strength, "g": decay, "eta": 5.0}
        kinds.append(ok.stability(pair, {"x": rest, "y": rest}, values=values).kind)
    at_rest = {x: a, y: a, s: a**2 + g / k}
    return (
        Check("one unit on one direction is kept", 0.0 if reduction.exact else 1.0),
        identity("dp/dt", reduction.field.rates[p], wanted(p, q)),
        identity("dq/dt", reduction.field.rates[q], eta * wanted(q, p)),
        identity("at rest where a^2 = s - gamma/(kappa lambda)", sum(
            abs(sp.simplify(r.subs(at_rest))) for r in pair.rates
        )),
        Check("it is stable above the threshold", 0.0 if kinds[0] == "stable" else 1.0),
        Check("zero is stable below it", 0.0 if kinds[1] == "stable" else 1.0),
    )  # fmt: skip


def gradient_noise() -> tuple[Check, ...]:
    """Correlated rows are worth ``n_eff = (tr C)^2 / tr C^2`` independent ones.

    A batch's gradient is ``(W - T) S`` with ``S = X^T X / n``: its mean is ``tr C / n Lambda``, its
    covariance ``tr C^2 / n^2`` times what one row has.
    """
    C, Lam = (ok.parameter(k, (s, s), symmetric=True) for k, s in (("C", n), ("Lambda", D)))
    x = ok.gaussian("x", (n, D), covariance=(C, Lam))
    S = ok.einsum("na,nb->ab", x, x) / n
    mean = ok.expectation(S)
    second = ok.expectation(ok.einsum("ab,cd->abcd", S, S)) - ok.einsum("ab,cd->abcd", mean, mean)
    one = ok.einsum("ac,bd->abcd", Lam, Lam) + ok.einsum("ad,bc->abcd", Lam, Lam)
    square = ok.einsum("mn,mn->", C, C) / n**2
    return (
        identity("mean of S", mean, ok.einsum(",ab->ab", ok.einsum("aa->", C) / n, Lam)),
        identity("covariance of S", second, ok.einsum(",abcd->abcd", square, one)),
    )


def derive() -> tuple[Check, ...]:
    """All checks."""
    return (*rates(), *rates_of_their_own(), *balance(), *threshold(), *gradient_noise())


# -- figure ----------------------------------------------------------------------------------------

STRENGTHS = np.array([2.0, 1.2, 0.6, 0.2])
DECAY, ROWS, CORRELATION = 0.3, 4, 0.5


def rows_covariance(rho: float, count: int = ROWS) -> Any:
    """Unit variances, every pair of rows correlated alike."""
    return (1 - rho) * np.eye(count) + rho * np.ones((count, count))


def setting(rate: float) -> tuple[dict[str, Any], dict[str, Any]]:
    """A small generic start (W1, V) and the parameters."""
    rng = np.random.default_rng(0)
    u, v = (np.linalg.qr(rng.standard_normal((4, 4)))[0] for _ in range(2))
    params = {
        "C": rows_covariance(CORRELATION), "Lambda": np.eye(4), "T": (u * STRENGTHS) @ v.T,
        "gamma": DECAY, "eta": rate,
    }  # fmt: skip
    start = 0.02 * rng.standard_normal((2, 4, 4))
    return {"W1": start[0], "V": start[1] / np.sqrt(rate)}, params


def strengths(run: Any, rate: float, params: Any) -> Any:
    """Strength of each mode of the teacher in ``W2 W1``, shape (len(t), 4)."""
    u, _, vh = np.linalg.svd(params["T"])
    return np.einsum("ea,teh,thd,ad->ta", u, np.sqrt(rate) * run["V"], run["W1"], vh)


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw modes under decay with training, the effect of eta, and the gradient's noise."""
    figure, (left, middle, right) = ok.plot.panels(1, 3, height=2.4)
    loss, flow = at_one_rate()
    numbers: dict[str, Any] = {"strengths": STRENGTHS.tolist(), "decay": DECAY, "rates": []}
    end = 25.0
    times = np.linspace(0, end, 251)
    with ok.plot.style():
        progress("trains")
        y0, params = setting(1.0)
        modes = strengths(ok.solve(flow, y0, times, params), 1.0, params)
        t, sgd = trained(loss, y0, params, end, lr=0.005, batch=8 if quick else 32)
        dots = strengths(sgd, 1.0, params)
        for k, colour in enumerate(ok.plot.PALETTE[:4]):
            left.plot(times, modes[:, k], color=colour, label=f"$s={STRENGTHS[k]:g}$")
            left.plot(t, dots[:, k], ".", color=colour, ms=2.5)
            left.axhline(max(0.0, STRENGTHS[k] - DECAY), color=colour, lw=0.6, ls=":")
        left.set_xlabel(r"time ($\tau$)")
        left.set_ylabel("mode strength")
        left.set_ylim(top=2.6)
        left.legend(fontsize=6, ncol=2, columnspacing=1.0, loc="upper center")
        numbers["modes"] = {
            "t": times.tolist(), "flow": modes.tolist(), "sgd_t": t.tolist(), "sgd": dots.tolist(),
            "rest": np.maximum(0.0, STRENGTHS - DECAY).tolist(),
        }  # fmt: skip
        for rate, colour in zip((0.1, 1.0, 10.0), ok.plot.sequence(3), strict=True):
            progress(f"eta = {rate:g}")
            y0, params = setting(rate)
            now = times / np.sqrt(rate)
            params["gamma"] = 0.0
            modes = strengths(ok.solve(flow, y0, now, params), rate, params)
            middle.plot(times, modes[:, 1], color=colour, label=f"{rate:g}")
            numbers["rates"].append({"eta": rate, "mode": modes[:, 1].tolist()})
        middle.set_xlabel(r"time $\sqrt{\eta}\, t$ ($\tau$)")
        middle.set_ylabel("mode strength, $s = 1.2$")
        middle.set_xlim(0, 12)
        middle.legend(title=r"$\eta$, $\gamma = 0$", title_fontsize=7, fontsize=6)
        progress("measures the noise")
        _noise(right, numbers, 4000 if quick else 40000)
    return Picture(
        ok.plot.finish(figure),
        numbers,
        "(a) Weight decay gamma = 0.3: the flow (lines) and SGD on correlated rows (dots); a mode "
        "rests at s - gamma, or is not learned where s < gamma (dotted). (b) Layers with rates 1 "
        "and eta: a mode escapes at the geometric mean of the rates, sqrt(eta), so the curves "
        "differ by the start's share in the growing direction alone. (c) Variance of a "
        "batch's gradient over that of one row, rows correlated by rho: tr C^2 / n^2 (lines) and "
        "as drawn (dots).",
        (
            r"\dot W_1 = \kappa W_2^\top (T - W_2W_1)\Lambda - \gamma W_1,\qquad"
            r" \kappa = \mathrm{tr}\,C/n",
            r"p q \to \max\left(0,\; s - \gamma/(\kappa\lambda)\right)",
            r"n_{\mathrm{eff}} = (\mathrm{tr}\,C)^2 / \mathrm{tr}\,C^2",
        ),
    )


def _noise(ax: Any, numbers: Any, size: int) -> None:
    numbers["noise"] = []
    rho = np.linspace(0, 1, 21)
    for count, colour in zip((4, 16), ok.plot.sequence(2), strict=True):
        theory = [float(np.sum(rows_covariance(r, count) ** 2)) / count**2 for r in rho]
        ax.plot(rho, theory, color=colour, label=f"n = {count}")
        for k in range(0, 21, 4):
            C = ok.parameter("C", (n, n), symmetric=True)
            x = ok.gaussian("x", (n, D), covariance=(C, ok.identity(D)))
            drawn = ok.sample(
                [x], {"C": rows_covariance(rho[k], count), "D": 2}, size=size, seed=k
            )["x"]
            # Off the diagonal one row has variance 1.
            seen = float(np.var(np.einsum("pn,pn->p", drawn[..., 0], drawn[..., 1]) / count))
            ax.plot(rho[k], seen, "o", color=colour, ms=3)
            numbers["noise"].append(
                {"n": count, "rho": float(rho[k]), "theory": theory[k], "measured": seen}
            )
    ax.set_xlabel(r"correlation of rows $\rho$")
    ax.set_ylabel("variance of the gradient")
    ax.legend(fontsize=6)
