"""Figure: the ridge against double descent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import odekit as ok
from odekit.reproduce import Picture

from .measured import measure

ALPHA, NOISE = 10.0, 0.01
RIDGES = (1e-5, 0.1, 1.0)


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the error over tau for three ridges and the best one, and over the ridge."""
    dim, seeds = (12, 6) if quick else (24, 20)
    taus = (0.3, 0.7, 1.1, 2.0) if quick else (0.2, 0.4, 0.6, 0.8, 0.95, 1.05, 1.25, 1.5, 2.0)
    fine = np.linspace(0.1, 2.0, 300)
    strengths = np.geomspace(1e-4, 30, 200)
    best = ok.theory.optimal_ridge(ALPHA, np.inf, fine, NOISE)
    numbers: dict[str, Any] = {
        "alpha": ALPHA,
        "noise": NOISE,
        "tau": fine.tolist(),
        "best_ridge": best.tolist(),
        "best": ok.theory.learning_curve(ALPHA, np.inf, fine, NOISE, best).icl.tolist(),
        "bayes": ok.theory.bayes_error(ALPHA, NOISE),
        "curves": [],
        "over_ridge": [],
    }
    for ridge in RIDGES:
        progress(f"simulates ridge = {ridge:g} at d = {dim}")
        points = [measure(dim, ALPHA, np.inf, tau, NOISE, ridge, seeds=seeds) for tau in taus]
        theory = ok.theory.learning_curve(ALPHA, np.inf, fine, NOISE, ridge).icl
        numbers["curves"].append({"ridge": ridge, "icl": theory.tolist(), "points": points})
    for tau in (0.5, 1.0, 2.0):
        theory = ok.theory.learning_curve(ALPHA, np.inf, tau, NOISE, strengths).icl
        numbers["over_ridge"].append(
            {
                "tau": tau,
                "ridge": strengths.tolist(),
                "icl": theory.tolist(),
                "best": ok.theory.optimal_ridge(ALPHA, np.inf, tau, NOISE),
            }
        )
    figure, axes = ok.plot.panels(1, 2)
    with ok.plot.style():
        for curve, colour in zip(numbers["curves"], ok.plot.PALETTE, strict=False):
            points = curve["points"]
            x = [p["tau"] for p in points]
            exponent = rf"10^{{{round(np.log10(curve['ridge']))}}}"
            words = exponent if curve["ridge"] < 0.01 else f"{curve['ridge']:g}"
            axes[0].plot(fine, curve["icl"], color=colour, label=rf"$\lambda = {words}$")
            axes[0].plot(x, [p["icl_equivalent"] for p in points], "_", ms=9, mew=1.2, color=colour)
            axes[0].errorbar(
                x,
                [p["icl"] for p in points],
                [p["icl_error"] for p in points],
                fmt="o",
                ms=3,
                lw=0.8,
                color=colour,
            )
        axes[0].plot(fine, numbers["best"], color="k", ls="-.", label=r"best $\lambda^*(\tau)$")
        axes[0].set_xlabel(r"pretraining contexts, $\tau = n/d^2$")
        for curve, colour in zip(numbers["over_ridge"], ok.plot.sequence(3), strict=True):
            axes[1].plot(strengths, curve["icl"], color=colour, label=rf"$\tau = {curve['tau']:g}$")
            low = ok.theory.learning_curve(ALPHA, np.inf, curve["tau"], NOISE, curve["best"]).icl
            axes[1].plot(curve["best"], low, "*", color=colour, ms=7)
        axes[1].set_xscale("log")
        axes[1].set_xlabel(r"ridge strength $\lambda$")
        for ax in axes:
            ax.axhline(numbers["bayes"], color="0.6", lw=0.8, ls=":", zorder=0)
            ax.set_yscale("log")
            ax.set_ylim(0.008, 40)
            ax.set_ylabel("test error (fresh task)")
        axes[0].plot([], [], color="0.6", ls=":", lw=0.8, label="Bayes")
        axes[0].errorbar([], [], [], fmt="o", ms=3, color="0.3", label=f"simulation, $d = {dim}$")
        axes[0].plot([], [], "_", ms=9, mew=1.2, color="0.3", label="its equivalent")
        axes[0].legend(ncols=2, loc="lower left", bbox_to_anchor=(0, 0.08))
        axes[1].legend(loc="upper right")
    return Picture(
        ok.plot.finish(figure),
        numbers,
        f"A fresh task for each context, alpha = {ALPHA:g}, label noise {NOISE:g}. (a) Error over "
        f"the number of contexts: sharp asymptotics (lines), simulation at d = {dim} with the "
        f"standard error over {seeds} sets (points), finite-dimension equivalent (bars). (b) The "
        "error over the ridge; stars: the best one in closed form. The best ridge leaves no peak: "
        "the error falls with every further context. Dotted: the Bayes error of a single context, "
        "which linear attention does not reach at any number of contexts.",
        (r"\lambda^* = \frac{(1+q)\,(\rho(1+q)+q)}{\tau},\quad q = \frac{1+\rho}{\alpha}",),
    )
