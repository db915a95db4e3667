"""The picture of the phase diagrams: three maps, and the durations against theory."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.colors import BoundaryNorm, LogNorm
from matplotlib.ticker import NullFormatter
from numpy.typing import NDArray

import odekit as ok
import odekit.plot as pictures
from odekit.reproduce import Picture

from .phase_diagram import LASTING, SPECTRUM, compiled, merged_duration, separate_duration

Array = NDArray[np.float64]

LEVELS = {"merged": [5.0, 10.0, 20.0], "separate": [10.0, 1e2, 1e3, 1e4, 1e5]}


def theory(kind: str, scales: Array, gaps: Array, seeds: int) -> Array:
    """The predicted duration, (scales, gaps): merged from the very starts, separate from alike."""
    pairs = [(0.5 + gap / 2, 0.5 - gap / 2) for gap in gaps]
    if kind == "separate":
        return np.array([[separate_duration(s, pair) for pair in pairs] for s in scales])
    model, _ = compiled("merged", 2, 1)
    out = []
    for scale in scales:
        starts = [ok.simulate.initial(model, scale, seed) for seed in range(seeds)]
        out.append(
            [np.median([merged_duration(start, pair) for start in starts]) for pair in pairs]
        )
    return np.array(out)


def picture(results: dict[str, Any]) -> Picture:
    """Draw what the sweeps found."""
    figure, axes = pictures.panels(2, 2, height=5.2)
    numbers: dict[str, Any] = {}
    with pictures.style():
        for ax, kind in zip(axes[:2], ("merged", "separate"), strict=True):
            numbers[kind] = _map(figure, ax, kind, results[kind])
        numbers["number"] = _counts(figure, axes[2], results["number"])
        _ratios(axes[3], numbers)
    seeds = {kind: results[kind]["duration"].shape[-1] for kind in ("merged", "separate")}
    count = sum(each[each.names[0]].size for each in results.values())
    return Picture(
        pictures.finish(figure),
        {**numbers, "solves": count},
        f"{count} solves (N = 31, H = 4). (a) Duration of the one plateau of merged attention with "
        f"eigenvalues 1/2 + gap/2 and 1/2 - gap/2, median of {seeds['merged']} random starts; "
        "dashed: the linear flow from the same starts, no parameter fitted. (b) Duration of the "
        f"plateau between the two drops of separate attention, rank 1, median of "
        f"{seeds['separate']} starts; white: none in half of them; dashed: heads that start alike. "
        "(c) Number of plateaus that are left (end at least "
        f"{LASTING:g} times start), spectrum {' '.join(f'{v:g}' for v in SPECTRUM)}, mean over "
        f"{results['number']['number'].shape[-1]} starts; right: ceil(D/R). (d) Measured over "
        "predicted duration, for three gaps.",
        (
            r"t_{\mathrm{merged}} = \frac{\tau}{2g}W\!\left(\frac{0.1\operatorname{tr}\Lambda}"
            r"{2 g\, w^2}\right),\quad g = \lVert\Lambda^2\rVert_F,\quad w^2 = \sum_h\left("
            r"\tfrac12 v_h + \tfrac{1}{2g}\operatorname{tr} U_h^\top\Lambda^2\right)^2",
            r"t_{\mathrm{separate}} = \frac{\tau}{v_0}\left(\frac1{\lambda_2^2} -"
            r" \frac1{\lambda_1^2}\right) = \frac{\tau}{v_0}\,\frac{\lambda_1 - \lambda_2}"
            r"{\lambda_1^2\lambda_2^2}\quad(\lambda_1 + \lambda_2 = 1)",
        ),
    )


def _map(figure: Any, ax: Any, kind: str, results: Any) -> dict[str, Any]:
    scales, gaps = (np.array(results.axes[name]) for name in ("scale", "gap"))
    measured = np.median(results["duration"], axis=-1)
    predicted = theory(kind, scales, gaps, results["duration"].shape[-1])
    shown = np.ma.masked_less_equal(measured.T, 0.0)
    top = np.nanmax(np.where(np.isfinite(measured), measured, np.nan))
    mesh = ax.pcolormesh(
        scales, gaps, shown, shading="nearest", cmap="viridis", rasterized=True,
        norm=LogNorm(shown.min(), top),
    )  # fmt: skip
    levels = [level for level in LEVELS[kind] if shown.min() < level < top]
    lines = ax.contour(scales, gaps, shown, levels, colors="white", linewidths=0.9)
    ax.contour(
        scales, gaps, predicted.T, levels, colors="white", linewidths=0.9, linestyles="dashed"
    )
    ax.clabel(lines, fmt=lambda value: f"{value:g}", fontsize=6)
    ax.set_xscale("log")
    ax.set_xlabel("scale of the start")
    ax.set_ylabel(r"eigenvalue gap $\lambda_1 - \lambda_2$")
    ax.set_title(f"{kind} keys and queries", loc="right")
    bar = figure.colorbar(mesh, ax=ax, label=r"duration of the plateau ($\tau$)")
    if top > 100:
        bar.ax.yaxis.set_minor_formatter(NullFormatter())
    else:
        bar.ax.yaxis.set_major_formatter(_plain)
        bar.ax.yaxis.set_minor_formatter(_plain)
    return {"scale": scales, "gap": gaps, "duration": measured, "predicted": predicted}


def _plain(value: float, _: Any) -> str:
    return f"{value:g}" if f"{value:.0e}"[0] in "125" else ""


def _counts(figure: Any, ax: Any, results: Any) -> dict[str, Any]:
    ranks, scales = (np.array(results.axes[name]) for name in ("rank", "scale"))
    mean = results["number"].mean(axis=-1)
    predicted = np.ceil(len(SPECTRUM) / ranks)
    edges = np.arange(0.75, 4.5, 0.5)
    mesh = ax.pcolormesh(
        scales, ranks, mean, shading="nearest", cmap="viridis", rasterized=True,
        norm=BoundaryNorm(edges, 256),
    )  # fmt: skip
    marks = [f"{value:g}" for value in predicted]
    for rank, mark in zip([*ranks, ranks[-1] + 0.7], [*marks, "theory"], strict=True):
        ax.annotate(mark, (1.01, rank), xycoords=("axes fraction", "data"), va="center", fontsize=7)
    ax.set_xscale("log")
    ax.set_yticks(ranks)
    ax.set_xlabel("scale of the start")
    ax.set_ylabel("rank $R$ of keys and queries")
    figure.colorbar(mesh, ax=ax, label="number of plateaus left", ticks=[1, 1.5, 2, 2.5, 3, 3.5, 4])
    return {"rank": ranks, "scale": scales, "mean": mean, "predicted": predicted}


def _ratios(ax: Any, numbers: dict[str, Any]) -> None:
    colours = pictures.sequence(3)
    for kind, line in (("merged", "-"), ("separate", "--")):
        found = numbers[kind]
        for gap, colour in zip((0.2, 0.5, 0.8), colours, strict=True):
            k = int(np.argmin(np.abs(found["gap"] - gap)))
            ratio = found["duration"][:, k] / found["predicted"][:, k]
            there = ratio > 0
            label = f"{kind}, {found['gap'][k]:.2g}"
            ax.plot(found["scale"][there], ratio[there], line, color=colour, label=label)
    ax.axhline(1.0, color="k", lw=0.6, ls=":")
    ax.set_xscale("log")
    ax.set_ylim(0, 1.6)
    ax.set_xlabel("scale of the start")
    ax.set_ylabel("duration, measured / predicted")
    ax.legend(title="gap", title_fontsize=6, fontsize=6, ncols=2, loc="lower left")
