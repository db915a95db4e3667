r"""Figure 4: the rank of keys and queries decides which plateaus are long.

D = 8, spectrum proportional to 1..8, N = 31, H = 9, R = 1, 2, 4, 8. Pairs of key and query in one
head share its value weight: once that has grown, the next eigenvector is learned by the same head
at an exponential rate, in a time of order ``ln(1/scale) / lambda^2``, while a new head needs
``1/(lambda^2 v0)``. So plateaus at multiples of R are long, the others brief.

Two definitions of "long", both of which the picture varies:

- by length: the time between learning the m-th and the next eigenvector (``e_d^T A e_d`` passes
  half its optimum), in units of ``tau/lambda^2`` of the one learned next, is at least a threshold;
- by depth, from the loss curve alone: the speed of the loss falls by at least so many decades below
  its speed at the drops on either side (staircase.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import odekit as ok
import odekit.plot as pictures
from odekit.reproduce import Picture

from . import separate, staircase

Array = NDArray[np.float64]

DIM, CONTEXT, HEADS = 8, 31, 9
SPECTRUM = np.arange(8.0, 0.0, -1.0) / 36.0
PARAMS = {"Lambda": np.diag(SPECTRUM), "N": CONTEXT}
RANKS = (1, 2, 4, 8)
SEEDS = (0, 1, 2)
LARGE, SMALL = 0.08, 0.02
# A run lasts so many times 1/scale: longer for small ranks, which wait at more saddles.
LASTING = {1: 5e3, 2: 2e3, 4: 1e3, 8: 6e2}
LONG = 4.0
LENGTHS = np.geomspace(0.5, 40.0, 60)
DEPTHS = np.arange(0.25, 6.01, 0.25)


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the figure."""
    seeds = SEEDS[:1] if quick else SEEDS
    runs: dict[tuple[int, int, float], Any] = {}
    for rank in RANKS:
        progress(f"rank {rank}, {len(seeds)} seeds from two scales")
        model: Any = ok.models.attention_separate(heads=HEADS, rank=rank, dim=DIM)
        for seed in seeds:
            for scale in (LARGE, SMALL):
                runs[rank, seed, scale] = _integrate(model, rank, seed, scale)
    figure, axes = pictures.panels(2, 2, height=4.8)
    with pictures.style():
        colours = dict(zip(RANKS, pictures.PALETTE, strict=False))
        _curves(axes[0], runs, colours, seeds[-1])
        lengths = {
            (rank, scale): np.array([plateau_lengths(runs[rank, s, scale]) for s in seeds])
            for rank in RANKS
            for scale in (LARGE, SMALL)
        }
        _lengths(axes[1], lengths, colours)
        by_length = _counts_by_length(axes[2], lengths, colours)
        by_depth = _counts_by_depth(axes[3], runs, colours, seeds)
    growth = {
        str(rank): _power(
            np.median(lengths[rank, LARGE], axis=0), np.median(lengths[rank, SMALL], axis=0)
        )
        for rank in RANKS
    }
    return Picture(
        pictures.finish(figure),
        {
            "seeds": list(seeds),
            "scales": [LARGE, SMALL],
            "predicted levels": ok.theory.plateau_losses(SPECTRUM, CONTEXT),
            "median length of plateau m, in tau/lambda^2": {
                f"rank {rank}, scale {scale:g}": np.median(value, axis=0)
                for (rank, scale), value in lengths.items()
            },
            "growth of the length as 1/scale to the power": growth,
            "long plateaus": [
                {
                    "rank": rank,
                    "expected": [m for m in range(DIM) if m % rank == 0],
                    "long": [
                        m for m in range(DIM) if np.median(lengths[rank, SMALL][:, m]) >= LONG
                    ],
                }
                for rank in RANKS
            ],
            "definition of long": f"length at least {LONG:g} tau/lambda^2 (median over seeds)",
            "count by length": {"thresholds": LENGTHS, **by_length},
            "count by depth": {"thresholds, decades": DEPTHS, **by_depth},
        },
        f"Rank of keys and queries (D = 8, spectrum proportional to 1..8, N = 31, H = 9; values "
        f"N(0, {SMALL:g}^2), keys and queries divided by sqrt(R(D+1))). (a) Loss; dashed: levels "
        f"from theory. (b) Length of plateau m in units of tau/lambda_(m+1)^2, median over "
        f"{len(seeds)} seeds; open symbols: from a start four times larger. Where a new head must "
        "grow (m a multiple of R) the length grows in proportion to 1/scale; within a head it "
        "grows like its logarithm. (c) Number of plateaus at least that long, against the "
        "threshold (dashed: the larger start); dots: D/R. (d) Number of plateaus at least that "
        "deep, from the loss curves alone.",
        (
            r"\mathcal{L}(\mathcal{M}_m) = \operatorname{tr}\Lambda - \sum_{d\le m}"
            r"\frac{\lambda_d}{c_d}",
            r"m \equiv 0 \pmod R:\; t_{m+1}-t_m \sim \frac{\tau}{\lambda_{m+1}^2 v_0};\qquad"
            r" \text{otherwise}\; \sim \frac{\tau}{\lambda_{m+1}^2}\ln\frac1{v_0}",
        ),
    )


def _integrate(model: Any, rank: int, seed: int, scale: float) -> Any:
    y0 = ok.simulate.initial(model, scale, seed)
    times = np.concatenate([[0.0], np.geomspace(0.1 / scale, LASTING[rank] / scale, 900)])
    return ok.solve(model.flow, y0, times, PARAMS, tolerance=ok.Tolerance(relative=1e-6))


def learning_times(run: Any) -> Array:
    """When each eigenvector is learned: its strength in A passes half its optimum; inf if never."""
    optimum = 1 / (SPECTRUM * separate.shortfall(SPECTRUM, float(SPECTRUM.sum()), CONTEXT))
    strength = np.einsum("tdd->td", run.value("A")) / optimum
    passed = strength > 0.5
    return np.where(passed.any(axis=0), run.t[np.argmax(passed, axis=0)], np.inf)


def plateau_lengths(run: Any) -> Array:
    """Times between learning one eigenvector and the next, in ``tau/lambda^2`` of the next (D,)."""
    times = learning_times(run)
    order = np.argsort(times, kind="stable")
    ends = np.where(np.isfinite(times[order]), times[order], run.t[-1])
    return np.diff(np.concatenate([[0.0], ends])) * SPECTRUM[order] ** 2


def _power(large: Array, small: Array) -> list[float | None]:
    """How lengths grow as the start shrinks; None where two modes are learned at one output."""
    return [
        float(np.log(after / before) / np.log(LARGE / SMALL)) if before > 0 < after else None
        for before, after in zip(large, small, strict=True)
    ]


def _curves(ax: Any, runs: Any, colours: Any, seed: int) -> None:
    ax.set_xlim(300, 3e5)
    ax.set_ylim(0.15, 1.04)
    for rank in RANKS:
        pictures.loss_curve(
            runs[rank, seed, SMALL], ax=ax, time="log", color=colours[rank], label=f"$R={rank}$"
        )
    pictures.plateau_lines(ax, ok.theory.plateau_losses(SPECTRUM, CONTEXT))
    ax.legend(loc="upper right", frameon=True, framealpha=1.0, edgecolor="none")


def _lengths(ax: Any, lengths: Any, colours: Any) -> None:
    for place, rank in enumerate(RANKS):
        shift = 0.12 * (place - 1.5)
        for scale, face, width in ((LARGE, "none", 0.0), (SMALL, colours[rank], 0.8)):
            middle = np.median(lengths[rank, scale], axis=0)
            ax.plot(
                np.arange(DIM) + shift, np.maximum(middle, 0.1), "o-", color=colours[rank],
                mfc=face, lw=width, ms=3.5, label=f"$R={rank}$" if width else None,
            )  # fmt: skip
    ax.axhline(LONG, color="0.5", lw=0.7, ls=":")
    ax.set_yscale("log")
    ax.set_ylim(0.3, 900)
    ax.set_xlabel("plateau $m$ (eigenvectors learned)")
    ax.set_ylabel(r"length, in $\tau/\lambda_{m+1}^2$")
    ax.legend(loc="upper right", ncols=4, columnspacing=1.0)


def _counts_by_length(ax: Any, lengths: Any, colours: Any) -> dict[str, Any]:
    found = {}
    for rank in RANKS:
        for scale, dash in ((LARGE, "--"), (SMALL, "-")):
            counts = np.array([(lengths[rank, scale] >= x).sum(axis=1) for x in LENGTHS])
            middle = np.median(counts, axis=1)
            ax.plot(
                LENGTHS, middle, dash, color=colours[rank], lw=1.2 if dash == "-" else 0.7,
                drawstyle="steps-post", label=f"$R={rank}$" if dash == "-" else None,
            )  # fmt: skip
            found[f"rank {rank}, scale {scale:g}"] = middle
        ax.plot(LENGTHS[-1], DIM / rank, "o", color=colours[rank], clip_on=False)
    ax.axvline(LONG, color="0.5", lw=0.7, ls=":")
    ax.set_xscale("log")
    ax.set_xlim(LENGTHS[0], LENGTHS[-1])
    ax.set_ylim(0, 8.6)
    ax.set_xlabel(r"least length, in $\tau/\lambda_{m+1}^2$")
    ax.set_ylabel("number of plateaus")
    return found


def _counts_by_depth(ax: Any, runs: Any, colours: Any, seeds: Any) -> dict[str, Any]:
    found = {}
    for rank in RANKS:
        rate = staircase.speed(ok.models.attention_separate(heads=HEADS, rank=rank, dim=DIM).flow)
        depths = [
            staircase.read_staircase(runs[rank, seed, SMALL], rate, DEPTHS[0]).depths
            for seed in seeds
        ]
        counts = np.array([[np.sum(d >= x) for d in depths] for x in DEPTHS])
        middle = np.median(counts, axis=1)
        ax.plot(DEPTHS, middle, color=colours[rank], drawstyle="steps-post")
        ax.plot(DEPTHS[-1], DIM / rank, "o", color=colours[rank], clip_on=False)
        found[f"rank {rank}"] = middle
    ax.set_xlim(DEPTHS[0], DEPTHS[-1])
    ax.set_ylim(0, 8.6)
    ax.set_xlabel("least depth, in decades of $-d\\mathcal{L}/dt$")
    ax.set_ylabel("number of plateaus")
    return found
