"""Figure: the task-diversity transition, linear attention beside the memorising ideal learner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import odekit as ok
from odekit.reproduce import Picture
from odekit.simulate import draw_tasks, posterior_mean_errors

from .measured import measure

NOISE = 0.01
ALPHAS = (6, 10, 20, 40)


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the gap between fresh and pretraining tasks against the diversity kappa."""
    # d = 100 for the posterior mean even in the quick version: its transition moves with d
    wide, trials = (100, 6) if quick else (100, 30)
    dim, seeds = (12, 6) if quick else (24, 12)
    fine = np.geomspace(0.08, 96, 240)
    pools = np.geomspace(0.08, 24 if quick else 96, 7 if quick else 13)
    simulated = (0.25, 1.0, 4.0) if quick else (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    numbers: dict[str, Any] = {"kappa": fine.tolist(), "noise": NOISE, "curves": []}
    for alpha in ALPHAS:
        tau = 0.2 * alpha
        progress(f"alpha = {alpha}: simulates linear attention at d = {dim}, dMMSE at d = {wide}")
        icl, idg = ok.theory.learning_curve(alpha, fine, tau, NOISE)
        ideal = []
        for kappa in pools:
            tasks = draw_tasks(max(1, round(kappa * wide)), wide, 1)
            found = posterior_mean_errors(
                tasks, context=alpha * wide, noise=NOISE, trials=trials, seed=2
            )
            difference = found.icl - found.idg
            ideal.append(
                {
                    "kappa": len(tasks) / wide,
                    "gap": float(difference.mean()),
                    "gap_error": float(difference.std(ddof=1) / np.sqrt(trials)),
                    **found.mean,
                }
            )
        points = (
            [measure(dim, alpha, kappa, tau, NOISE, seeds=seeds) for kappa in simulated]
            if alpha in (10, 40)
            else []
        )
        end_icl, end_idg = ok.theory.learning_curve(alpha, fine, np.inf, NOISE)
        numbers["curves"].append(
            {
                "alpha": alpha,
                "tau": tau,
                "gap": (icl - idg).tolist(),
                "icl": icl.tolist(),
                "idg": idg.tolist(),
                "population_gap": (end_icl - end_idg).tolist(),
                "points": points,
                "dmmse": ideal,
            }
        )
    return Picture(
        _figure(fine, numbers, dim, wide),
        numbers,
        "Gap between the errors on a fresh task and on a task of the pretraining pool, over the "
        f"number of tasks per dimension, tau = 0.2 alpha, label noise {NOISE:g}. (a) Ridgeless "
        f"linear attention: sharp asymptotics, simulation at d = {dim} over {seeds} sets (points) "
        "and its finite-dimension equivalent (bars). (b) The same after population training "
        "(tau = inf; dashes), which tends to the share 1 - kappa of directions that no task spans "
        f"(dotted). (c) The discrete posterior mean that memorises its pool (dMMSE) at d = {wide}, "
        f"{trials} contexts a point, nearly the same at every alpha. Linear attention turns from "
        "memorising to in-context learning at kappa = 1; the memorising learner keeps its gap, "
        "whatever the number of tasks, as long as the context tells the tasks apart.",
        (
            r"e_{\mathrm{ICL}} - e_{\mathrm{IDG}} \to q^2[(1+q)(-m') - m]\ (\tau \to \infty)"
            r" \to (1-\kappa)_+\ (\alpha \to \infty)",
        ),
    )


def _figure(fine: Any, numbers: dict[str, Any], dim: int, wide: int) -> Any:
    figure, axes = ok.plot.panels(1, 3, height=2.7)
    with ok.plot.style():
        for curve, colour in zip(
            numbers["curves"], ok.plot.sequence(len(ALPHAS), "viridis"), strict=True
        ):
            axes[0].plot(fine, curve["gap"], color=colour, label=rf"$\alpha = {curve['alpha']}$")
            points = curve["points"]
            x = [p["kappa"] for p in points]
            axes[0].errorbar(
                x,
                [p["gap"] for p in points],
                [p["gap_error"] for p in points],
                fmt="o",
                ms=2.5,
                lw=0.8,
                color=colour,
            )
            axes[0].plot(x, [p["gap_equivalent"] for p in points], "_", ms=9, mew=1.2, color=colour)
            axes[1].plot(fine, curve["population_gap"], color=colour)
            ideal = curve["dmmse"]
            axes[2].errorbar(
                [p["kappa"] for p in ideal],
                [p["gap"] for p in ideal],
                [p["gap_error"] for p in ideal],
                fmt="s-",
                ms=2.5,
                lw=0.8,
                color=colour,
            )
        axes[1].plot(fine, np.clip(1 - fine, 0, None), color="0.4", ls=":", label=r"$(1-\kappa)_+$")
        axes[1].legend()
        axes[2].set_ylim(0, 2)
        axes[0].errorbar([], [], [], fmt="o", ms=2.5, color="0.3", label=f"simulation, $d={dim}$")
        axes[0].plot([], [], "_", ms=9, mew=1.2, color="0.3", label="its equivalent")
        for ax, words in zip(
            axes,
            (
                r"linear attention, $\tau = 0.2\,\alpha$",
                r"linear attention, $\tau = \infty$",
                f"dMMSE, $d = {wide}$",
            ),
            strict=True,
        ):
            ax.set_xscale("log")
            ax.axvline(1, color="0.8", lw=0.6, zorder=0)
            ax.set_xlabel(r"task diversity, $\kappa = k/d$")
            ax.set_title(words, loc="center")
        axes[0].set_yscale("log")
        axes[0].set_ylim(1e-3, 4)
        axes[0].set_ylabel(r"$e_{\mathrm{ICL}} - e_{\mathrm{IDG}}$")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=6)
    return ok.plot.finish(figure)
