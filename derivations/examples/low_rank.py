r"""Low-rank adaptation ``y = (W0 + B A) x``, and matrix factorisation (W0 = 0, unit covariance)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import odekit as ok
from odekit.claims import Check, identity
from odekit.reproduce import Picture

from .training import named, trained


def low_rank_adaptation() -> tuple[Any, Any]:
    """The loss and flow of ``(W0 + B A) x`` that regresses ``T x``; only A and B move."""
    D, E, R = ok.dims("D E R")
    Lam = ok.parameter("Lambda", (D, D), symmetric=True)
    x = ok.gaussian("x", (D,), covariance=Lam)
    W0, T = ok.parameter("W0", (E, D)), ok.parameter("T", (E, D))
    A, B = ok.weight("A", (R, D)), ok.weight("B", (E, R))
    loss = ok.expected_loss(W0 @ x + B @ (A @ x), T @ x)
    return loss, ok.gradient_flow(loss, weights=(A, B), time_scale=2)


# -- statements ------------------------------------------------------------------------------------


def rates() -> tuple[Check, ...]:
    """The flow sees the pretrained weights and the task through ``T - W0`` alone."""
    _, flow = low_rank_adaptation()
    A, B, W0, T, L = (named(flow, n) for n in ("A", "B", "W0", "T", "Lambda"))
    missing = (T - W0 - B @ A) @ L
    for_A, for_B = ok.einsum("er,ed->rd", B, missing), ok.einsum("ed,rd->er", missing, A)
    return (
        identity("dA/dt = B^T (T - W0 - B A) Lambda", flow.rates[A], for_A),
        identity("dB/dt = (T - W0 - B A) Lambda A^T", flow.rates[B], for_B),
    )


def factorisation() -> tuple[Check, ...]:
    """With unit covariance the loss is ``|T - W0 - B A|_F^2``: matrix factorisation."""
    loss, flow = low_rank_adaptation()
    A, B, W0, T, L = (named(flow, n) for n in ("A", "B", "W0", "T", "Lambda"))
    gap = T - W0 - B @ A
    white = loss.expression.expand().substitute({L: ok.identity(L.shape[0])})
    return (identity("loss at unit covariance", white, ok.einsum("ij,ij->", gap, gap)),)


def balance() -> tuple[Check, ...]:
    """``B^T B - A A^T`` is conserved, and the search over all quadratics finds no other family."""
    _, flow = low_rank_adaptation()
    A, B = named(flow, "A"), named(flow, "B")
    (found,) = ok.conserved(flow)
    constant = ok.einsum("ei,ej->ij", B, B) - ok.einsum("id,jd->ij", A, A)
    left = min(len((found.expression - s * constant).expand().terms) for s in (1, -1))
    return (Check("the one family is B^T B - A A^T", left),)


def mode() -> Any:
    """One rank on one direction of ``T - W0 = s u e^T``: the reduction to its two strengths."""
    _, flow = low_rank_adaptation()
    E, R = named(flow, "B").shape
    e = ok.eigenvector("e", of=named(flow, "Lambda"), value="lambda")
    u, r = (
        ok.eigenvector(n, of=ok.parameter(f"P_{n}", (size, size), symmetric=True))
        for n, size in (("u", E), ("r", R))
    )
    a, b, s = ok.weight("a"), ok.weight("b"), ok.parameter("s")
    outer = "i,j->ij"
    W0 = named(flow, "W0")
    return ok.reduce(
        flow,
        {
            "A": a * ok.einsum(outer, r, e),
            "B": b * ok.einsum(outer, u, r),
            "T": W0 + s * ok.einsum(outer, u, e),
        },
    )


def modes() -> tuple[Check, ...]:
    """``a' = lambda b (s - a b)``, ``b' = lambda a (s - a b)``: a product pair, solved exactly."""
    reduction = mode()
    form = ok.closed_form(reduction.field)
    values = {"s": 1.5, "lambda": 0.8}
    # The start of low-rank adaptation: B = 0.
    gap = form.check(np.linspace(0, 12, 25), {"a": 1e-2, "b": 0.0}, values)
    late = form.evaluate(1e6, {"a": 1e-2, "b": 0.0}, values)
    return (
        Check("one rank on one direction is kept", 0.0 if reduction.exact else 1.0),
        Check("closed form against integration", gap, 1e-9, "a reference integrated to 1e-12"),
        Check("the strength ends at s", abs(float(late["a"] * late["b"]) - 1.5), 1e-12, "rounding"),
    )


def derive() -> tuple[Check, ...]:
    """All checks."""
    return (*rates(), *factorisation(), *balance(), *modes())


# -- figure ----------------------------------------------------------------------------------------

GAP = np.array([1.5, 1.0, 0.6, 0.3])
"""Singular values of ``T - W0``."""


def problem(rank: int, scale: float, seed: int = 0) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pretrained weights off the task by GAP, and the usual start: A at random, B = 0."""
    rng = np.random.default_rng(seed)
    u, v = (np.linalg.qr(rng.standard_normal((6, 4)))[0] for _ in range(2))
    W0 = rng.standard_normal((6, 6))
    params = {"Lambda": np.eye(6), "W0": W0, "T": W0 + (u * GAP) @ v.T}
    return {"A": scale * rng.standard_normal((rank, 6)), "B": np.zeros((6, rank))}, params


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the loss for several ranks with training, and the strength of a mode from B = 0."""
    figure, (left, right) = ok.plot.panels(1, 2)
    loss, flow = low_rank_adaptation()
    numbers: dict[str, Any] = {"gap": GAP.tolist(), "runs": []}
    end = 30.0
    times = np.linspace(0, end, 301)
    with ok.plot.style():
        for rank, colour in zip((1, 2, 4), ok.plot.sequence(3), strict=True):
            progress(f"rank {rank}")
            y0, params = problem(rank, 1e-3)
            run: Any = ok.solve(flow, y0, times, params)
            t, sgd = trained(loss, y0, params, end, lr=0.004, batch=16 if quick else 64)
            # The exact loss along training: a batch's own would show its draw.
            exact = [flow.loss_value({n: sgd[n][k] for n in y0}, params) for k in range(len(sgd.t))]
            left.plot(times, run.loss, color=colour, label=f"rank {rank}")
            left.plot(t, exact, ".", color=colour, ms=3)
            rest = float(np.sum(GAP[rank:] ** 2))
            left.axhline(rest, color=colour, lw=0.6, ls=":")
            numbers["runs"].append(
                {"rank": rank, "t": times.tolist(), "flow": run.loss.tolist(),
                 "sgd_t": t.tolist(), "sgd": exact, "best of this rank": rest}
            )  # fmt: skip
        left.set_xlabel(r"time ($\tau$)")
        left.set_ylabel("mean squared error")
        left.legend(fontsize=6)
        progress("one mode")
        form = ok.closed_form(mode().field)
        now = np.linspace(0, 16, 161)
        numbers["mode"] = []
        for start, colour in zip((1e-1, 1e-2, 1e-3), ok.plot.sequence(3), strict=True):
            values = form.evaluate(now, {"a": start, "b": 0.0}, {"s": 1.0, "lambda": 1.0})
            right.plot(now, values["a"] * values["b"], color=colour, label=f"{start:g}")
            # Balanced layers of the same size grow from a^2/4: half of A is in the growing mode.
            u0 = start**2 / 4
            right.plot(
                now, u0 / (u0 + (1 - u0) * np.exp(-2 * now)), color="k", lw=0.7,
                ls=(0, (3, 2)),
            )  # fmt: skip
            numbers["mode"].append(
                {
                    "start": start,
                    "t": now.tolist(),
                    "strength": (values["a"] * values["b"]).tolist(),
                }
            )
        right.set_xlabel(r"time ($\lambda s\, t$)")
        right.set_ylabel(r"mode strength $a\,b / s$")
        right.legend(title=r"$a(0)$, with $b(0) = 0$", title_fontsize=7, fontsize=6)
    return Picture(
        ok.plot.finish(figure),
        numbers,
        "(a) Low-rank adaptation from the usual start (A small, B = 0): the flow (lines), SGD on "
        "fresh data (dots), and the best error of each rank (dotted). The r strongest directions "
        "of T - W0 are learned one after the other. (b) One mode in closed form; dashes: the "
        "sigmoid from a(0)^2/4, the growing half of the start.",
        (
            r"\dot A = B^\top (T - W_0 - BA)\Lambda,\qquad \dot B = (T - W_0 - BA)\Lambda A^\top",
            r"B^\top B - A A^\top = \mathrm{const}",
        ),
    )
