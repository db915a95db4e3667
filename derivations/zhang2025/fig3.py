r"""Figure 3: separate keys and queries of rank one, from saddle to saddle.

D = 4, spectrum .4 .3 .2 .1, N = 31, H = 4 and H = 5, seeds 0 to 5 (fixed before the first run).
Levels are read off the curves (staircase.py) and predicted by `ok.theory.plateau_losses`; neither
sees the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import odekit as ok
import odekit.plot as pictures
from odekit.reproduce import Picture

from . import plateaus, separate, staircase

Array = NDArray[np.float64]

SPECTRUM = np.array([0.4, 0.3, 0.2, 0.1])
CONTEXT, DIM = 31, 4
PARAMS = {"Lambda": np.diag(SPECTRUM), "N": CONTEXT}
SEEDS, HEADS = range(6), (4, 5)
SCALES = (0.1, 0.03, 0.01, 0.003, 0.001)
SCALE = 0.01
ALIGNED = 0.99
BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK = pictures.PALETTE


@dataclass(frozen=True)
class Run:
    """One run and what was read off its curve."""

    heads: int
    seed: int
    scale: float
    solution: Any
    stairs: staircase.Staircase


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the figure."""
    predicted = ok.theory.plateau_losses(SPECTRUM, CONTEXT)
    runs = []
    for scale in (SCALE,) if quick else SCALES:
        progress(f"start {scale:g}, {len(SEEDS)} seeds, H = 4 and 5")
        runs += [integrate(heads, seed, scale) for heads in HEADS for seed in SEEDS]
    shown = [run for run in runs if run.scale == SCALE]
    progress("the scalar equation over the heads")
    figure, axes = pictures.panels(2, 2, height=4.8)
    with pictures.style():
        for ax, heads in zip(axes[:2], HEADS, strict=True):
            _curves(ax, [run for run in shown if run.heads == heads], predicted)
        chosen, overlay = _turned_early([run for run in shown if run.heads == 5])
        _heads(axes[2], chosen, overlay)
        gaps = _closer(axes[3], runs, predicted)
    numbers = {
        "plateaus": [
            {"heads": run.heads, "seed": run.seed, "level": m, "measured": level, "predicted": want}
            for run in shown
            for m, (level, want) in enumerate(zip(run.stairs.levels, predicted, strict=False))
        ],
        "drops": [
            {"heads": run.heads, "seed": run.seed, "count": len(run.stairs.drops)} for run in shown
        ],
        "predicted": predicted,
        "end loss minus predicted": [
            {
                "heads": run.heads,
                "seed": run.seed,
                "gap": float(run.solution.loss[-1] - predicted[-1]),
            }
            for run in shown
        ],
        "largest gap by scale of the start": gaps,
        "heads against the scalar equation": {
            "heads": chosen.heads,
            "seed": chosen.seed,
            "plateaus": _rows(overlay),
        },
    }
    return Picture(
        pictures.finish(figure),
        numbers,
        f"Separate keys and queries of rank one (D = 4, N = 31, spectrum .4 .3 .2 .1; values "
        f"N(0, {SCALE:g}^2), keys and queries {SCALE:g}/sqrt(D+1)). (a, b) Loss of six seeds with "
        "4 and 5 heads, one of them in bold; dashed: levels from theory. (c) Value weights of the "
        "bold run in (b); dashed: the scalar equation of each plateau, started where a head's key "
        "and query have turned to their eigenvector (cosine .99, dots). (d) Largest gap over the "
        "five levels between measured (flattest between drops) and predicted, against the scale "
        "of the start, for every seed.",
        separate.plateau_losses().equations + plateaus.scalar_equation().equations,
    )


def integrate(heads: int, seed: int, scale: float) -> Run:
    """Run one seed until it rests, and read its plateaus."""
    model: Any = ok.models.attention_separate(heads=heads, rank=1, dim=DIM)
    y0 = ok.simulate.initial(model, scale, seed)
    # A plateau lasts about 1/(lambda^2 v0), so the run ends at so many times 1/scale: the slowest
    # of the twelve leaves its last plateau at 1/4 of it.
    times = np.concatenate([[0.0], np.geomspace(0.3 / scale, 6e3 / scale, 900)])
    run: Any = ok.solve(model.flow, y0, times, PARAMS, tolerance=ok.Tolerance(relative=1e-8))
    stairs = staircase.read_staircase(run, staircase.speed(model.flow))
    return Run(heads, seed, scale, run, stairs)


def _curves(ax: Any, runs: list[Run], predicted: Array) -> None:
    ax.set_xlim(100, 2e5)
    ax.set_ylim(0.05, 1.08)
    colours = pictures.sequence(len(runs))
    for run, colour in zip(runs, colours, strict=True):
        bold = run is runs[0]
        pictures.loss_curve(
            run.solution,
            predicted if bold else None,
            ax,
            time="log",
            color=BLACK if bold else colour,
            lw=1.6 if bold else 0.8,
            zorder=3 if bold else 2,
        )
    ax.set_title(f"$H = {runs[0].heads}$", loc="right")


@dataclass(frozen=True)
class Overlay:
    """The scalar equation of one plateau, started on the head that grows there."""

    head: int
    mode: int
    times: Array
    values: Array
    run: Array

    def half_rise(self, curve: Array) -> float:
        """Time at which a curve passes half of the scalar equation's end."""
        return float(np.interp(0.5 * self.values[-1], np.abs(curve), self.times))


def overlays(run: Run) -> list[Overlay]:
    """Start the scalar equation where a head's key and query have turned to their eigenvector."""
    solution = run.solution
    t, v = solution.t, solution["v"]
    keys, queries = solution["K"][:, :, 0], solution["Q"][:, :, 0]
    field: Any = ok.models.plateau().flow
    found = []
    for head in range(run.heads):
        # The eigenvectors of Lambda are its axes here: which one has the head turned to?
        strength = np.abs(v[-1, head] * keys[-1, head] * queries[-1, head])
        if strength.max() < 1e-2:
            continue  # a head that is left over
        mode = int(np.argmax(strength))
        product = v[:, head] * keys[:, head, mode] * queries[:, head, mode]
        cosine = np.minimum(
            np.abs(keys[:, head, mode]) / np.linalg.norm(keys[:, head], axis=1),
            np.abs(queries[:, head, mode]) / np.linalg.norm(queries[:, head], axis=1),
        )
        first = int(np.argmax((cosine > ALIGNED) & (product > 0)))
        scalar: Any = ok.solve(
            field,
            {"v": np.cbrt(product[first])},
            t[first:] - t[first],
            {"lambda": SPECTRUM[mode], "trace": SPECTRUM.sum(), "N": CONTEXT},
            tolerance=ok.Tolerance(relative=1e-8),
        )
        found.append(Overlay(head, mode, t[first:], scalar["v"], v[first:, head]))
    return sorted(found, key=lambda overlay: overlay.mode)


def _turned_early(runs: list[Run]) -> tuple[Run, list[Overlay]]:
    """The first seed whose heads have all turned before they are a third grown."""
    for run in runs:
        found = overlays(run)
        if all(overlay.values[0] < overlay.values[-1] / 3 for overlay in found):
            return run, found
    return run, found


def _heads(ax: Any, run: Run, found: list[Overlay]) -> None:
    pictures.value_weights(
        run.solution, ax, colors=[BLUE, RED, GREEN, PURPLE, ORANGE], absolute=True
    )
    for overlay in found:
        ax.plot(overlay.times, overlay.values, "--", color=BLACK, lw=0.8, zorder=4)
        ax.plot(overlay.times[0], overlay.values[0], ".", color=BLACK, ms=4, zorder=5)
    ax.plot([], [], ".--", color=BLACK, lw=0.8, ms=4, label="scalar equation")
    ax.set_xscale("log")
    ax.set_xlim(8, 2e5)
    ax.set_title(f"$H = {run.heads}$, seed {run.seed}", loc="right")
    ax.legend(loc="upper left", fontsize=6, handlelength=1.2)


def _rows(found: list[Overlay]) -> list[dict[str, Any]]:
    return [
        {
            "head": overlay.head + 1,
            "mode": overlay.mode + 1,
            "start time": float(overlay.times[0]),
            "v0": float(overlay.values[0]),
            "half-rise, scalar equation": overlay.half_rise(overlay.values),
            "half-rise, run": overlay.half_rise(overlay.run),
            "end, scalar equation": float(overlay.values[-1]),
            "end, run": float(abs(overlay.run[-1])),
        }
        for overlay in found
    ]


def _closer(ax: Any, runs: list[Run], predicted: Array) -> list[dict[str, Any]]:
    """Show the largest gap of each run against the scale of its start."""
    scales = sorted({run.scale for run in runs}, reverse=True)
    rows = []
    for heads, colour, marker in zip(HEADS, (BLUE, RED), "os", strict=True):
        for run in (run for run in runs if run.heads == heads):
            if len(run.stairs.levels) != len(predicted):
                gap = float("nan")  # plateaus have merged: the start is too large to tell them
            else:
                gap = float(np.abs(run.stairs.levels - predicted).max())
            ax.plot(run.scale, gap, marker, color=colour, mfc="white", ms=3, mew=0.7)
            rows.append({"scale": run.scale, "heads": heads, "seed": run.seed, "gap": gap})
        ax.plot([], [], marker, color=colour, mfc="white", ms=3, mew=0.7, label=f"$H={heads}$")
    for seed in SEEDS:
        for heads, colour in zip(HEADS, (BLUE, RED), strict=True):
            line = [r["gap"] for r in rows if r["heads"] == heads and r["seed"] == seed]
            ax.plot(scales, line, color=colour, lw=0.4, alpha=0.6)
    guide = np.array([scales[-1], scales[0]])
    ax.plot(
        guide, 0.5 * (guide / 0.1) ** 3, "--", color="0.5", lw=0.8, label=r"$\propto$ scale$^3$"
    )
    ax.axhline(3e-3, color="0.5", lw=0.7, ls=":")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("scale of the start")
    ax.set_ylabel("largest |measured $-$ predicted| loss")
    ax.legend(loc="lower right")
    return rows
