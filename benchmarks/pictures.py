"""Pictures of the benchmarks: work against precision, and growth with size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.work_precision import Scan

if TYPE_CHECKING:
    from benchmarks.bench_growth import Line


def work_precision(name: str, scans: Mapping[str, Scan], folder: Path) -> Path:
    """CPU time against achieved error, one line a tool; odekit's heavy and labelled first."""
    folder.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(8.4, 4.8), layout="constrained")
    peers = [tool for tool in scans if not tool.startswith("odekit")]
    ours = [tool for tool in scans if tool.startswith("odekit")]
    colours = plt.get_cmap("tab20")(np.linspace(0, 1, max(len(peers), 1)))
    for tool, colour in zip(peers, colours, strict=False):
        _line(axes, scans[tool], tool, color=colour, lw=1, marker=".", zorder=2)
    shades = plt.get_cmap("Greys")(np.linspace(0.55, 0.95, max(len(ours), 1)))
    for tool, shade, mark in zip(ours, reversed(shades), "osD^v<>", strict=False):
        first = tool == "odekit auto"
        _line(
            axes, scans[tool], tool, color="crimson" if first else shade, marker=mark,
            lw=2.4 if first else 1.4, ms=5 if first else 3.5, zorder=4 if first else 3,
        )  # fmt: skip
    axes.set(
        xscale="log", yscale="log", xlabel="achieved error (largest relative error of the loss)",
        ylabel="CPU time of a solve, ms", title=f"{name}: work against precision",
        xlim=(1, 1e-11),
    )  # fmt: skip
    for goal in (1e-6, 1e-9):
        axes.axvline(goal, color="0.8", lw=0.8, zorder=1)
    axes.grid(True, which="major", color="0.92")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=7, frameon=False)
    path = folder / f"solve-{name}.svg"
    figure.savefig(path)
    plt.close(figure)
    return path


def _line(axes: plt.Axes, found: Scan, label: str, **style: object) -> None:
    points = [p for p in found.points if 0 < p.error < 1]
    if points:
        axes.plot(
            [p.error for p in points], [1e3 * p.seconds for p in points], label=label, **style
        )


def growth(lines: Sequence[Line], folder: Path) -> Path:
    """Cost against size on logarithmic axes, the fitted power laws dashed."""
    folder.mkdir(parents=True, exist_ok=True)
    figure, panels = plt.subplots(1, 2, figsize=(9.6, 4.4), layout="constrained", sharey=True)
    for axes, axis in zip(panels, ("D", "H"), strict=True):
        for line, colour in zip(
            [line for line in lines if line.axis == axis],
            plt.get_cmap("tab10").colors,
            strict=False,
        ):
            slope, chosen = line.exponent()
            micro = 1e6 * np.array(line.seconds)
            axes.plot(
                line.sizes, micro, "o-", color=colour, ms=4, label=f"{line.name}: {slope:.2f}"
            )
            ends = np.array([chosen[0], chosen[-1]], dtype=float)
            middle = np.exp(np.mean(np.log([micro[line.sizes.index(n)] for n in chosen])))
            centre = np.exp(np.mean(np.log(chosen)))
            axes.plot(ends, 1.6 * middle * (ends / centre) ** slope, "--", color=colour, lw=1)
        axes.set(xscale="log", yscale="log", xlabel=axis)
        ticks = sorted({n for line in lines if line.axis == axis for n in line.sizes})
        axes.set_xticks(ticks, [str(n) for n in ticks])
        axes.minorticks_off()
        axes.grid(True, color="0.92")
        axes.legend(fontsize=7, frameon=False, title="exponent", title_fontsize=7)
    panels[0].set_ylabel("CPU time of a call, microseconds")
    path = folder / "growth.svg"
    figure.savefig(path)
    plt.close(figure)
    return path
