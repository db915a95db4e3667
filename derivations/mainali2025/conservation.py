"""Figure: the conserved balance of p and q, and the time course of unbalanced modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import odekit as ok
from odekit.reproduce import Picture

from .layer import LAWS
from .mode_equations import published_product, stretched
from .runs import SPECTRUM, layer_run

CONTEXT = 10


def unbalanced_product(t: Any, s: float, s_inf: float, p0: float, q0: float) -> Any:
    """Closed form of one published mode from any start with ``p0 + q0 > 0``.

    ``da/dt = s^2 sqrt(K + 4 a^2) (1 - s_inf a)`` with ``K = (p0^2 - q0^2)^2`` conserved; the
    substitution ``a = (sqrt K / 4)(E - 1/E)`` makes it a Riccati equation with constant
    coefficients. For K = 0 it is equation (13).
    """
    time = np.asarray(t, dtype=np.float64)
    K = (p0**2 - q0**2) ** 2
    a0 = p0 * q0
    if K == 0:
        decay = np.exp(-2 * s**2 * time)
        return a0 / (s_inf * a0 * (1 - decay) + decay)
    root = np.sqrt(K)
    E0 = (2 * a0 + np.sqrt(4 * a0**2 + K)) / root
    g = s_inf * root / 2
    w = np.sqrt(1 + g**2)
    up, down = (1 + w) / g, -g / (1 + w)
    X = (E0 - up) / (E0 - down) * np.exp(-2 * s**2 * w * time)
    E = (up - down * X) / (1 - X)
    return root / 4 * (E - 1 / E)


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the drift of the conserved balance under three laws, and unbalanced time courses."""
    figure, axes = ok.plot.panels(1, 2)
    numbers: dict[str, Any] = {"N": CONTEXT, "balance": {}, "modes": []}
    rng = np.random.default_rng(0)
    d = len(SPECTRUM)
    y0 = {"p2": 0.1 * rng.standard_normal((d, d)), "q1": 0.3 * rng.standard_normal((d, d))}
    times = np.linspace(0, 60, 200)
    with ok.plot.style():
        for k, law in enumerate(LAWS):
            progress(f"integrates the law {law}")
            run = layer_run(law, y0, times, CONTEXT)
            balance = np.sum(run["p2"] ** 2, axis=(1, 2)) - np.sum(run["q1"] ** 2, axis=(1, 2))
            drift = np.abs(balance / balance[0] - 1)
            axes[0].plot(times, np.maximum(drift, 1e-17), color=ok.plot.PALETTE[k], label=law)
            numbers["balance"][law] = {"start": float(balance[0]), "drift": float(drift.max())}
        axes[0].set_yscale("log")
        axes[0].set_ylim(1e-17, 1e-5)
        axes[0].set_xlabel(r"time $t \cdot \eta P$")
        axes[0].set_ylabel(r"relative drift of $\|p_2\|_F^2 - \|q_1\|_F^2$")
        axes[0].legend(title="law of the tasks", title_fontsize=7)
        progress("integrates unbalanced modes")
        _unbalanced(axes[1], numbers)
    return Picture(
        ok.plot.finish(figure),
        numbers,
        "(a) The balance (A84) along the expected flow of the layer from generic matrices: it "
        "drifts by the integrator's error only, under every law of the tasks. (b) One published "
        "mode with different balances p0/q0 at equal p0 q0: integrated (solid) and in closed form "
        "(dots). The logistic (13), dashed, is the balanced case; the others are faster.",
        (
            r"\mathcal{C} = \lVert p_2\rVert_F^2 - \lVert q_1\rVert_F^2,\qquad"
            r" \dot a = s^2\sqrt{(p_0^2-q_0^2)^2 + 4a^2}\,(1 - s^\infty a)",
        ),
    )


def _unbalanced(ax: Any, numbers: dict[str, Any]) -> None:
    s, start_product = 0.5, 1e-4
    flow = ok.models.modes().flow
    s_inf = float(stretched([s], CONTEXT)[0])
    times = np.linspace(0, 30, 241)
    colours = ok.plot.sequence(4)
    for colour, ratio in zip(colours, (1.0, 10.0, 100.0, 1000.0), strict=True):
        p0, q0 = np.sqrt(start_product * ratio), np.sqrt(start_product / ratio)
        run = ok.solve(flow, {"p": [p0], "q": [q0]}, times, {"s": [s], "N": CONTEXT})
        a = run["p"][:, 0] * run["q"][:, 0]
        closed = unbalanced_product(times, s, s_inf, p0, q0)
        ax.plot(times, a, color=colour, label=f"{ratio:g}")
        ax.plot(times[::12], closed[::12], "o", color=colour, ms=2.2)
        numbers["modes"].append(
            {
                "ratio": ratio,
                "t": times.tolist(),
                "a": a.tolist(),
                "largest_difference": float(np.abs(a - closed).max()),
            }
        )
    logistic = published_product(times, [s], CONTEXT, start_product)[:, 0]
    ax.plot(times, logistic, color="#D55E00", ls=(0, (3, 2)), lw=1.1, label="eq. (13)")
    ax.set_xlabel(r"time $t \cdot \eta P$")
    ax.set_ylabel(r"mode strength $a = p\,q$")
    ax.legend(title=r"$p_0/q_0$", title_fontsize=7, loc="lower right")
