"""Figure: associative recall that emerges in a two-layer attention-only network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import odekit as ok
from odekit.reproduce import Picture
from odekit.simulate import (
    NetworkRun,
    RecallNetwork,
    first_step,
    label_count_plateau,
    train_recall,
)

RANK, STEPS, SETTLED = 8, 5000, 0.2
PRODUCTS = {
    "key-query 1": ("query1", "key1"),
    "key-query 2": ("query2", "key2"),
    "value-output 1": ("value1", "output1"),
    "value-output 2": ("value2", "output2"),
}
COLOURS = dict(zip(PRODUCTS, (ok.plot.PALETTE[k] for k in (0, 2, 3, 4)), strict=True))
CONTROL = ok.plot.PALETTE[1]


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw plateau, cliff and control, and the measures along training."""
    runs: list[NetworkRun] = []
    controls: list[NetworkRun] = []
    for seed in range(1 if quick else 3):
        progress(f"trains two layers, then one, seed {seed}")
        runs.append(train_recall(RecallNetwork(), seed=seed, steps=4200 if quick else STEPS))
        controls.append(
            train_recall(RecallNetwork(layers=1), seed=seed, steps=500 if quick else STEPS)
        )
    level, accuracy = label_count_plateau(RecallNetwork().task)
    figure, axes = ok.plot.panels(2, 3, height=4.4)
    with ok.plot.style():
        for ax, name, line in ((axes[0], "loss", level), (axes[1], "accuracy", accuracy)):
            for k, (run, control) in enumerate(zip(runs, controls, strict=True)):
                label = ("one layer", "two layers") if k == 0 else (None, None)
                ax.plot(control.t, control[name], color=CONTROL, lw=0.7, label=label[0])
                ax.plot(run.t, run[name], color="0.15", lw=0.9, label=label[1])
            ax.axhline(line, color="0.45", lw=0.7, ls=(0, (4, 3)), label="knows label counts")
        axes[0].set_ylabel("cross-entropy at the query (nats)")
        axes[0].set_ylim(0, 1.8)
        axes[1].set_ylabel("accuracy")
        axes[1].set_ylim(0, 1.02)
        axes[0].legend(fontsize=5.5, loc="lower left")
        _ranks(axes[2], runs, controls)
        _marginal(axes[3], runs[0])
        _settling(axes[4], runs)
        _references(axes[5], runs[0])
        for ax in axes[2:]:
            _shade(ax, runs if ax in (axes[2], axes[4]) else runs[:1])
        for ax in axes:
            ax.set_xlabel("step")
            ax.set_xlim(0, runs[0].t[-1])
    return Picture(
        ok.plot.finish(figure),
        _numbers(runs, controls, level, accuracy),
        "Associative recall of 8 pairs by an attention-only network (17 tokens, width 32, one head "
        "of width 16 a layer, Adam .001, fresh batches of 64), one thin line a seed. (a, b) A "
        "plateau, then a cliff; the one-layer control stays. Dashed: the exact level of a "
        "predictor that knows the labels in the context but not whose they are. (c) Effective "
        "rank: that of the first layer's key-query product falls at the cliff and stays low; "
        "orange: the control's. (d) Marginal effective rank of that product, k leading singular "
        f"values removed, one seed. (e) Solid: distance of the leading {RANK} row directions from "
        "the end; dotted: norm still missing, relative to the end. The first layer's subspace is "
        "in place when much of the norm is still to come; the second layer's moves through the "
        "whole plateau, on which the loss shows nothing. Dashed: a random subspace. (f) The "
        "second layer's distance to other reference checkpoints (dots), one seed: zero at each by "
        "construction. Grey: the cliff, accuracy .55 to .99, of the seeds drawn.",
        (
            r"\mathcal{L}_\mathrm{plateau} = -\sum_{n} \binom{8}{n_1\,n_2\,n_3\,n_4} 4^{-8}"
            r"\sum_c \tfrac{n_c}{8}\log\tfrac{n_c}{8}",
            r"\mathrm{dist} = \min_A \frac{\|A\,M_8(t) - M_8(T)\|_F}{\|M_8(T)\|_F}",
        ),
    )


def _product(run: NetworkRun, name: str) -> NDArray[np.float64]:
    """Products (K, d, d) of a layer's factors along a run."""
    left, right = (run[part] for part in PRODUCTS[name])
    return left @ (right.swapaxes(1, 2) if name.startswith("key") else right)


def _cut(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    return (u[:, :RANK] * s[:RANK]) @ v[:RANK]


def _distance(run: NetworkRun, name: str, at: int = -1) -> NDArray[np.float64]:
    """Relative residual of the leading row directions; the checkpoint ``at`` is the reference."""
    matrices = _product(run, name)
    distance = ok.theory.subspace_distance(matrices, _cut(matrices[at]), side="row", rank=RANK)
    return np.asarray(distance)


def _missing(run: NetworkRun, name: str, at: int = -1) -> NDArray[np.float64]:
    """Relative distance of the norm from that of the reference checkpoint."""
    norms = np.linalg.norm(_product(run, name), axis=(1, 2))
    return np.abs(1 - norms / norms[at])


def _shade(ax: Any, runs: list[NetworkRun]) -> None:
    begins = [first_step(run, "accuracy", 0.55) for run in runs]
    ends = [first_step(run, "accuracy", 0.99) for run in runs]
    seen = [step for step in (*begins, *ends) if step is not None]
    if seen:
        ax.axvspan(min(seen), max(seen), color="0.9", zorder=0, lw=0)


def _ranks(ax: Any, runs: list[NetworkRun], controls: list[NetworkRun]) -> None:
    for k, run in enumerate(runs):
        for name, colour in COLOURS.items():
            label = name if k == 0 else None
            rank = ok.theory.effective_rank(_product(run, name))
            ax.plot(run.t, rank, color=colour, lw=0.8, label=label)
    for run in controls:
        rank = ok.theory.effective_rank(_product(run, "key-query 1"))
        ax.plot(run.t, rank, color=CONTROL, lw=0.7)
    ax.set_ylabel("effective rank (of 16)")
    ax.set_ylim(0, 16)
    ax.legend(fontsize=5.5, loc="lower left")


def _marginal(ax: Any, run: NetworkRun) -> None:
    product = _product(run, "key-query 1")
    for skip, colour in enumerate(ok.plot.sequence(6)):
        rank = ok.theory.effective_rank(product, skip=skip)
        ax.plot(run.t, rank, color=colour, lw=0.9, label=f"$k={skip}$")
    ax.set_ylabel("marginal effective rank, k.-q. 1")
    ax.set_ylim(0, 16)
    ax.legend(fontsize=5.5, loc="lower left", ncol=2)


def _settling(ax: Any, runs: list[NetworkRun]) -> None:
    for run in runs:
        for name in ("key-query 1", "key-query 2"):
            ax.plot(run.t, _distance(run, name), color=COLOURS[name], lw=0.9)
            ax.plot(run.t, _missing(run, name), color=COLOURS[name], lw=0.8, ls=":")
    dim = runs[0]["query1"].shape[1]
    baseline = ok.theory.random_subspace_distance(RANK, dim)
    ax.axhline(baseline, color="0.45", lw=0.7, ls=(0, (4, 3)))
    for name in ("key-query 1", "key-query 2"):
        ax.plot([], [], color=COLOURS[name], label=name)
    ax.plot([], [], color="0.3", label="subspace distance")
    ax.plot([], [], color="0.3", ls=":", label="norm missing")
    ax.legend(fontsize=5.5, loc="upper center", ncol=2, bbox_to_anchor=(0.5, 1.02))
    ax.set_ylim(0, 1.2)
    ax.set_ylabel("relative to the end")


def _references(ax: Any, run: NetworkRun) -> None:
    chosen = [int(np.searchsorted(run.t, t)) for t in (500, 1500, 2500, 3200, 4000, 5000)]
    chosen = sorted({min(at, len(run.t) - 1) for at in chosen})
    for at, colour in zip(chosen, ok.plot.sequence(len(chosen)), strict=True):
        curve = _distance(run, "key-query 2", at)
        ax.plot(run.t, curve, color=colour, lw=0.9, label=f"step {run.t[at]}")
        ax.plot(run.t[at], curve[at], "o", color=colour, ms=3)
    ax.set_ylabel("key-query 2: distance to step ...")
    ax.set_ylim(0, 1.2)
    ax.legend(fontsize=5.5, loc="upper center", ncol=3, handlelength=1, columnspacing=1)


def _settled(t: NDArray[np.int64], curve: NDArray[np.float64], at: int) -> int:
    """First step after which the curve stays below SETTLED up to the reference checkpoint."""
    above = np.flatnonzero(curve[: at + 1] >= SETTLED)
    return int(t[above[-1] + 1]) if above.size else int(t[0])


def _numbers(
    runs: list[NetworkRun], controls: list[NetworkRun], level: float, accuracy: float
) -> dict[str, Any]:
    rows = []
    for run in runs:
        cliff = first_step(run, "accuracy", 0.55), first_step(run, "accuracy", 0.99)
        plateau = (run.t >= 1000) & (run.t <= 2000)
        settled = {}
        # The end, and an earlier end 500 steps after the cliff: does the order depend on it?
        early = len(run.t) - 1
        if cliff[1] is not None:
            early = min(early, int(np.searchsorted(run.t, cliff[1] + 500)))
        for name in PRODUCTS:
            for end, at in (("end", len(run.t) - 1), ("500 steps after the cliff", early)):
                settled[f"{name}, reference {end}"] = {
                    "subspace": _settled(run.t, _distance(run, name, at), at),
                    "norm": _settled(run.t, _missing(run, name, at), at),
                }
        rows.append(
            {
                "configuration": dict(run.configuration),
                "cpu seconds": run.seconds,
                "t": run.t.tolist(),
                "loss": run["loss"].tolist(),
                "accuracy": run["accuracy"].tolist(),
                "cliff: step of accuracy .55, .99": cliff,
                "plateau, median loss of steps 1000-2000": float(np.median(run["loss"][plateau])),
                "effective rank": {
                    name: np.asarray(ok.theory.effective_rank(_product(run, name))).tolist()
                    for name in PRODUCTS
                },
                f"stays below {SETTLED} from step": settled,
            }
        )
    return {
        "plateau of a predictor that knows label counts": {
            "cross-entropy": level,
            "accuracy": accuracy,
        },
        "subspace rank": RANK,
        "two layers": rows,
        "one layer": [
            {
                "configuration": dict(run.configuration),
                "cpu seconds": run.seconds,
                "t": run.t.tolist(),
                "loss": run["loss"].tolist(),
                "accuracy": run["accuracy"].tolist(),
                "largest accuracy": float(run["accuracy"].max()),
            }
            for run in controls
        ],
    }
