r"""A linear autoencoder ``W2 W1 x``: it learns the principal components in their order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp

import odekit as ok
from odekit.claims import Check, identity
from odekit.reproduce import Picture

from .training import named, trained


def linear_autoencoder(hidden: Any = None, dim: Any = None) -> tuple[Any, Any]:
    """The loss and flow of ``W2 W1 x`` that reconstructs x."""
    D, K = (ok.dims(n) if v is None else v for n, v in (("D", dim), ("K", hidden)))
    x = ok.gaussian("x", (D,), covariance=ok.parameter("Lambda", (D, D), symmetric=True))
    W1, W2 = ok.weight("W1", (K, D)), ok.weight("W2", (D, K))
    loss = ok.expected_loss(W2 @ (W1 @ x), x)
    return loss, ok.gradient_flow(loss, weights=(W1, W2), time_scale=2)


# -- statements ------------------------------------------------------------------------------------


def balance() -> tuple[Check, ...]:
    """``W1 W1^T - W2^T W2`` is conserved, and no other family of quadratics."""
    _, flow = linear_autoencoder()
    W1, W2 = named(flow, "W1"), named(flow, "W2")
    (found,) = ok.conserved(flow)
    constant = ok.einsum("id,jd->ij", W1, W1) - ok.einsum("di,dj->ij", W2, W2)
    left = min(len((found.expression - s * constant).expand().terms) for s in (1, -1))
    return (Check("the one family is W1 W1^T - W2^T W2", left),)


def aligned() -> tuple[Any, Any]:
    """The reduction to modes: unit k of the code carries eigenvector k, ``W1 = sum a r e^T``."""
    _, flow = linear_autoencoder()
    K, m = named(flow, "W1").shape[0], ok.dims("m")
    e = ok.eigenvector("e", of=named(flow, "Lambda"), count=m)
    r = ok.eigenvector("r", of=ok.parameter("P", (K, K), symmetric=True), count=m)
    a, b = ok.weight("a", (m,)), ok.weight("b", (m,))
    spread = "m,mi,mj->ij"
    ansatz = {"W1": ok.einsum(spread, a, r, e), "W2": ok.einsum(spread, b, e, r)}
    return ok.reduce(flow, ansatz), e


def modes() -> tuple[Check, ...]:
    """``a' = lambda b (1 - a b)``, ``b' = lambda a (1 - a b)``: modes do not see each other."""
    reduction, e = aligned()
    a, b = reduction.field.states
    value = e.value
    checks = [Check("aligned layers are kept", 0.0 if reduction.exact else 1.0)]
    for one, other in ((a, b), (b, a)):
        wanted = ok.einsum("m,m->m", value, other) - ok.einsum(
            "m,m,m,m->m", value, one, other, other
        )
        checks.append(identity(f"d{one.name}/dt", reduction.field.rates[one], wanted))
    return tuple(checks)


def reconstruction() -> tuple[Check, ...]:
    """Balanced: ``a b`` is the sigmoid of rate ``2 lambda``; the error is what is not learned."""
    u0, rate, t = sp.symbols("u0 lambda t", positive=True)
    decay = sp.exp(-2 * rate * t)
    u = u0 / (u0 + (1 - u0) * decay)
    _, flow = linear_autoencoder()
    L, m = named(flow, "Lambda"), ok.dims("m")
    e = ok.eigenvector("e", of=L, count=m)
    projector = ok.einsum("ki,kj->ij", e, e)
    W1, W2 = named(flow, "W1"), named(flow, "W2")
    K = W1.shape[0]
    r = ok.eigenvector("r", of=ok.parameter("P", (K, K), symmetric=True), count=m)
    learned = flow.loss.expand().substitute(
        {W1: ok.einsum("mi,mj->ij", r, e), W2: ok.einsum("mi,mj->ij", e, r)}
    )
    unlearned = ok.einsum("aa->", L) - ok.einsum("ij,ij->", L, projector)
    return (
        identity(
            "the sigmoid solves u' = 2 lambda u (1 - u)", sp.diff(u, t), 2 * rate * u * (1 - u)
        ),
        identity("loss with m components learned", learned, unlearned),
    )


def principal_components() -> tuple[Check, ...]:
    """D = 2, one unit: the rest points are zero and the eigenvectors; only the first is stable."""
    _, flow = linear_autoencoder(hidden=1, dim=2)
    values = {"Lambda": np.diag([1.0, 0.5])}
    kinds = {}
    for name, vector in (("first", [1.0, 0.0]), ("second", [0.0, 1.0]), ("zero", [0.0, 0.0])):
        point = {"W1": np.array([vector]), "W2": np.array(vector)[:, None]}
        found = ok.stability(flow, point, values=values)
        kinds[name] = (found.kind, found.index)
    return (
        Check("the first component is stable", 0.0 if kinds["first"] == ("stable", 0) else 1.0),
        Check(
            "the second is a saddle, one way out", 0.0 if kinds["second"] == ("saddle", 1) else 1.0
        ),
        Check("zero has two ways out", 0.0 if kinds["zero"] == ("saddle", 2) else 1.0),
    )


def derive() -> tuple[Check, ...]:
    """All checks."""
    return (*balance(), *modes(), *reconstruction(), *principal_components())


# -- figure ----------------------------------------------------------------------------------------

SPECTRUM = np.array([1.0, 0.6, 0.35, 0.2, 0.1])


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the error with its steps, and the components of the learned map."""
    figure, (left, right) = ok.plot.panels(1, 2)
    loss, flow = linear_autoencoder()
    rng = np.random.default_rng(0)
    hidden, dim, scale = 3, len(SPECTRUM), 1e-4
    y0 = {
        "W1": scale * rng.standard_normal((hidden, dim)),
        "W2": scale * rng.standard_normal((dim, hidden)),
    }
    params, end = {"Lambda": np.diag(SPECTRUM)}, 50.0
    times = np.linspace(0, end, 401)
    progress("integrates")
    run: Any = ok.solve(flow, y0, times, params)
    progress("trains")
    t, sgd = trained(loss, y0, params, end, lr=0.01, batch=16 if quick else 64, save=80)
    strength = np.einsum("tdk,tkd->td", run["W2"], run["W1"])
    dots = np.einsum("tdk,tkd->td", sgd["W2"], sgd["W1"])
    exact = [flow.loss_value({n: sgd[n][k] for n in y0}, params) for k in range(len(sgd.t))]
    levels = SPECTRUM.sum() - np.concatenate([[0.0], np.cumsum(SPECTRUM[:hidden])])
    # The growing half of the start, (W1 e + W2^T e)/2, is of this size in each component.
    u0 = np.sum(((y0["W1"] + y0["W2"].T) / 2) ** 2, axis=0)
    closed = u0 / (u0 + (1 - u0) * np.exp(-2 * SPECTRUM * times[:, None]))
    with ok.plot.style():
        left.plot(times, run.loss, color=ok.plot.PALETTE[0], label="flow")
        left.plot(t, exact, ".", color=ok.plot.PALETTE[1], ms=3, label="SGD")
        ok.plot.plateau_lines(left, levels, label="{m}")
        left.set_xlabel(r"time ($\tau$)")
        left.set_ylabel("reconstruction error")
        left.legend(fontsize=6, loc="center right")
        for k in range(dim):
            colour = ok.plot.PALETTE[k]
            right.plot(times, strength[:, k], color=colour, label=rf"$\lambda={SPECTRUM[k]:g}$")
            right.plot(t, dots[:, k], ".", color=colour, ms=2.5)
            if k < hidden:
                right.plot(times, closed[:, k], color="k", lw=0.7, ls=(0, (3, 2)))
        right.set_xlabel(r"time ($\tau$)")
        right.set_ylabel(r"component $e^\top W_2 W_1 e$")
        right.legend(fontsize=6)
    return Picture(
        ok.plot.finish(figure),
        {
            "spectrum": SPECTRUM.tolist(), "levels": levels.tolist(), "t": times.tolist(),
            "flow": run.loss.tolist(), "sgd_t": t.tolist(), "sgd": exact,
            "components": strength.tolist(), "closed": closed.tolist(),
        },
        "A linear autoencoder of five inputs with a code of three, from a small generic start. "
        "(a) The error falls in steps to the variance of the components that are not learned "
        "(dashed, by number learned); dots: SGD. (b) The components of the map; black dashes: the "
        "sigmoid of rate 2 lambda from the growing half of the start.",
        (
            r"\frac{d}{dt}(W_1 W_1^\top - W_2^\top W_2) = 0",
            r"u_k(t) = \frac{u_0}{u_0 + (1-u_0) e^{-2\lambda_k t}}",
        ),
    )  # fmt: skip
