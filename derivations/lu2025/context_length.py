"""Figure: test errors against the context length, and the length that is best."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import odekit as ok
from odekit.reproduce import Picture

from .measured import measure

KAPPAS = (0.1, 0.3, 0.7, 1.0, 2.0)
# error, tau, noise
PANELS = (("idg", 0.5, 0.5), ("icl", 0.5, 0.1), ("icl", 20.0, 0.5))


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw three error curves over alpha for five sizes of the pool."""
    dim, seeds = (12, 6) if quick else (20, 12)
    alphas = (1.0, 10.0) if quick else (0.5, 2.0, 8.0, 30.0)
    shown = (0.3, 2.0)
    fine = np.geomspace(0.1, 1000, 400)
    numbers: dict[str, Any] = {"alpha": fine.tolist(), "dim": dim, "panels": []}
    for error, tau, noise in PANELS:
        progress(f"simulates {error} at tau = {tau:g}, d = {dim}")
        curves = []
        for kappa in KAPPAS:
            values = getattr(ok.theory.learning_curve(fine, kappa, tau, noise), error)
            lowest = int(np.argmin(values))
            inside = 0 < lowest < len(fine) - 1
            points = (
                [measure(dim, alpha, kappa, tau, noise, seeds=seeds) for alpha in alphas]
                if kappa in shown
                else []
            )
            curves.append(
                {
                    "kappa": kappa,
                    "values": values.tolist(),
                    "best_alpha": float(fine[lowest]) if inside else None,
                    "best": float(values[lowest]) if inside else None,
                    "points": points,
                }
            )
        numbers["panels"].append({"error": error, "tau": tau, "noise": noise, "curves": curves})
    figure, axes = ok.plot.panels(1, 3, height=2.6)
    with ok.plot.style():
        for ax, panel in zip(axes, numbers["panels"], strict=True):
            name = panel["error"]
            for curve, colour in zip(panel["curves"], ok.plot.sequence(len(KAPPAS)), strict=True):
                ax.plot(
                    fine, curve["values"], color=colour, label=rf"$\kappa = {curve['kappa']:g}$"
                )
                if curve["best_alpha"] is not None:
                    ax.plot(curve["best_alpha"], curve["best"], "*", color=colour, ms=7)
                points = curve["points"]
                x = [p["alpha"] for p in points]
                ax.errorbar(
                    x,
                    [p[name] for p in points],
                    [p[f"{name}_error"] for p in points],
                    fmt="o",
                    ms=2.5,
                    lw=0.8,
                    color=colour,
                )
                ax.plot(
                    x, [p[f"{name}_equivalent"] for p in points], "_", ms=9, mew=1.2, color=colour
                )
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_xlabel(r"context length, $\alpha = \ell/d$")
            ax.set_title(
                rf"$e_{{\mathrm{{{name.upper()}}}}}$, $\tau = {panel['tau']:g}$, "
                rf"$\rho = {panel['noise']:g}$",
                loc="center",
            )
            ax.axhline(1 + panel["noise"], color="0.6", lw=0.6, ls=":", zorder=0)
        axes[0].set_ylabel("test error")
        axes[1].plot([], [], "*", color="0.3", ms=7, label="least error")
        axes[1].errorbar([], [], [], fmt="o", color="0.3", ms=2.5, label=f"simulation, $d = {dim}$")
        axes[1].plot([], [], "_", color="0.3", ms=9, mew=1.2, label="its equivalent")
        handles, labels = axes[1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return Picture(
        ok.plot.finish(figure),
        numbers,
        "Ridgeless test errors over the context length, the same in pretraining and at test, for "
        "pools of kappa d tasks: (a) on the pool's tasks, (b, c) on a fresh task, below and far "
        "above the interpolation threshold tau = 1. Lines: sharp asymptotics; stars: their minimum "
        f"where there is one; points: simulation at d = {dim}, {seeds} sets, with the "
        "finite-dimension equivalent as bars. Dotted: the error of predicting zero. With a pool "
        "too small to determine a general rule the error on fresh tasks grows again with the "
        "context.",
        (r"e = e(\alpha;\kappa,\tau,\rho),\quad \lambda \to 0",),
    )
