"""Figure: ridgeless test errors against the number of pretraining contexts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import odekit as ok
from odekit.reproduce import Picture

from .measured import measure

KAPPA, NOISE = 0.5, 0.01
ALPHAS = (1.0, 10.0, 100.0)


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw both errors over tau for three context lengths."""
    dim, seeds = (12, 6) if quick else (24, 20)
    # the peak of finite d lies at n = d (d + 1), hence no point between
    taus = (0.3, 0.6, 1.5, 2.0) if quick else (0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.2, 1.35, 1.6, 2.0)
    fine = np.concatenate([np.linspace(0.2, 0.985, 120), np.linspace(1.015, 2.0, 120)])
    numbers: dict[str, Any] = {"kappa": KAPPA, "noise": NOISE, "tau": fine.tolist(), "curves": []}
    for alpha in ALPHAS:
        progress(f"simulates alpha = {alpha:g} at d = {dim}")
        icl, idg = ok.theory.learning_curve(alpha, KAPPA, fine, NOISE)
        points = [measure(dim, alpha, KAPPA, tau, NOISE, seeds=seeds) for tau in taus]
        numbers["curves"].append(
            {"alpha": alpha, "icl": icl.tolist(), "idg": idg.tolist(), "points": points}
        )
    figure, axes = ok.plot.panels(1, 2)
    with ok.plot.style():
        for ax, name, words in ((axes[0], "icl", "fresh task, ICL"), (axes[1], "idg", "pool, IDG")):
            for curve, colour in zip(numbers["curves"], ok.plot.PALETTE, strict=False):
                _curve(ax, fine, curve, name, colour)
            ax.axhline(1 + NOISE, color="0.6", lw=0.6, ls=":", zorder=0)
            ax.set_yscale("log")
            ax.set_xlabel(r"pretraining contexts, $\tau = n/d^2$")
            ax.set_ylabel(f"test error ({words})")
        axes[0].plot([], [], color="0.3", label=r"limit $d \to \infty$")
        axes[0].plot([], [], color="0.3", ls="--", lw=0.9, label=f"equivalent, $d = {dim}$")
        axes[0].errorbar([], [], [], fmt="o", ms=3, color="0.3", label=f"simulation, $d = {dim}$")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6)
    return Picture(
        ok.plot.finish(figure),
        numbers,
        f"Test errors of ridgeless linear attention over the number of pretraining contexts, "
        f"kappa = {KAPPA:g} tasks per dimension, label noise {NOISE:g}: on a fresh task (a) and on "
        "a task of the pretraining pool (b). Lines: sharp asymptotics; points: simulation, mean "
        f"and standard error over {seeds} pretraining sets over one pool; dashes: the "
        "finite-dimension equivalent of that pool, whose peak lies at n = d (d + 1). Dotted: the "
        "error of predicting zero. Both errors diverge where the contexts can just be "
        "interpolated, and longer contexts sharpen the peak.",
        (
            r"e_{\mathrm{IDG}} = \frac{\tau}{\tau-1}(\rho + q - q^2 m),\quad "
            r"q = \frac{1+\rho}{\alpha},\quad \tau > 1",
        ),
    )


def _curve(ax: Any, fine: Any, curve: dict[str, Any], name: str, colour: str) -> None:
    values, points = np.array(curve[name]), curve["points"]
    for side in (fine < 1, fine > 1):
        label = rf"$\alpha = {curve['alpha']:g}$" if side[0] else None
        ax.plot(fine[side], values[side], color=colour, label=label)
    for below in (True, False):
        part = [p for p in points if (p["tau"] < 1) == below]
        ax.plot(
            [p["tau"] for p in part],
            [p[f"{name}_equivalent"] for p in part],
            color=colour,
            ls="--",
            lw=0.9,
        )
    ax.errorbar(
        [p["tau"] for p in points],
        [p[name] for p in points],
        [p[f"{name}_error"] for p in points],
        fmt="o",
        ms=3,
        lw=0.8,
        color=colour,
    )
