"""Figure: a softmax attention layer with an MLP, trained, beside the theory of linear attention."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

import odekit as ok
from odekit.reproduce import Picture
from odekit.simulate import RegressionNetwork

from .trained import (
    BATCH,
    CONTEXT,
    DIM,
    LEARNING_RATE,
    NOISE,
    linear_over_contexts,
    over_contexts,
    over_tasks,
    ridge_in_context,
)

ALPHA = CONTEXT / DIM
SMALL = RegressionNetwork(DIM, heads=2, hidden=16, scale=DIM**0.5)
LARGE = RegressionNetwork(DIM, heads=4, hidden=32, scale=DIM**0.5)
LINEAR_WEIGHTS = DIM * (DIM + 1)
SIZES = {
    SMALL: (64, 128, 256, 512, 768, 1024, 2048, 4096, 16384),
    LARGE: (64, 128, 256, 512, 1024, 1536, 2048, 4096, 16384),
}
POOL = 4 * DIM  # tasks of the runs over the number of sequences
BLUE, RED, GREEN, PURPLE = ok.plot.PALETTE[:4]
Rows = Sequence[dict[str, Any]]


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw errors and their gap over the number of tasks, errors over that of sequences."""
    seeds = range(2 if quick else 3)
    pools = (1, 8, 64) if quick else (1, 2, 4, 8, 16, 32, 128, 512)
    fresh_steps, set_steps = (1000, 1500) if quick else (8000, 12000)
    tasks = []
    for count in pools:
        progress(f"trains on {count} tasks, {len(seeds)} seeds")
        tasks.append(over_tasks(LARGE, count, seeds, fresh_steps))
    contexts: dict[str, Any] = {}
    for net, sizes in SIZES.items():
        rows = []
        for samples in (64, 512, 4096) if quick else sizes:
            progress(f"trains {net.size} weights on {samples} sequences, {len(seeds)} seeds")
            rows.append(over_contexts(net, POOL, samples, seeds, set_steps))
        contexts[str(net.size)] = rows
    fine = np.geomspace(0.1, 100, 120)
    grid = np.unique(np.geomspace(32, 16384, 60 if quick else 160).round().astype(int))
    sharp = ok.theory.learning_curve(ALPHA, fine, np.inf, NOISE)
    equivalent = linear_over_contexts(POOL, grid.tolist(), seeds)
    numbers: dict[str, Any] = {
        "dim": DIM,
        "context": CONTEXT,
        "noise": NOISE,
        "pool": POOL,
        "seeds": len(seeds),
        "lr": LEARNING_RATE,
        "batch": BATCH,
        "steps": {"tasks": fresh_steps, "contexts": set_steps},
        "networks": [asdict(net) | {"weights": net.size} for net in (SMALL, LARGE)],
        "over_tasks": tasks,
        "over_contexts": contexts,
        "kappa": fine.tolist(),
        "sharp": {"icl": sharp.icl.tolist(), "idg": sharp.idg.tolist()},
        "samples": grid.tolist(),
        "equivalent": {"icl": equivalent[:, 0].tolist(), "idg": equivalent[:, 1].tolist()},
        "ridge_in_context": ridge_in_context(),
        "linear_weights": LINEAR_WEIGHTS,
    }
    return Picture(
        _figure(numbers),
        numbers,
        f"{_setting(numbers)} {gap_in_words(tasks)} {peaks_in_words(contexts)}",
        (
            r"\hat y = r\cdot f + w\cdot\mathrm{silu}(W^{\top} f),\quad"
            r" f = (e, \mu_1, \dots, \mu_H),\quad"
            r" \mu_h = \textstyle\sum_m \mathrm{softmax}_m(e^{\top} A_h c_m)\, c_m",
            r"c_m = (\sqrt d\, x_m, y_m),\quad e = (\sqrt d\, x_q, 1)",
        ),
    )


def _setting(numbers: dict[str, Any]) -> str:
    steps, nets = numbers["steps"], numbers["networks"]
    sizes = " and ".join(
        f"{net['heads']} heads with {net['hidden']} hidden units ({net['weights']} weights)"
        for net in nets
    )
    return (
        "A softmax attention layer with an MLP beside linear attention at the same "
        f"d = {DIM}, context length {CONTEXT}, label noise {NOISE:g}; {sizes}; Adam without decay, "
        f"learning rate {LEARNING_RATE:g} falling linearly to 0; mean and standard error over "
        f"{numbers['seeds']} seeds, each with weights, sequences and pool of its own. "
        f"(a, b) {nets[-1]['weights']} weights, fresh sequences at each of {steps['tasks']} steps "
        f"of {BATCH}: errors on a fresh task (ICL) and on the pool's (IDG), and their "
        "difference, over the size of the pool. Lines and bars: linear attention after population "
        "training, in the limit and over the same pools. Squares: the posterior mean over the pool "
        "(dMMSE). Dash-dotted: ridge regression in the context, the best for Gaussian tasks. "
        f"(c, d) A fixed set of n sequences of {numbers['pool']} tasks, {steps['contexts']} steps "
        f"of {BATCH}: filled ICL, open IDG, dotted ICL after a tenth of the steps; (d) "
        "the same ICL over sequences per weight, with the training error. Green: ridgeless linear "
        f"attention on the same pools, {LINEAR_WEIGHTS} weights. Grey: predicting zero."
    )


def gap_in_words(rows: Rows) -> str:
    """What the runs say of the task-diversity transition, from their numbers alone.

    Parameters
    ----------
    rows : sequence of dict
        As `over_tasks` returns them, pools in increasing order.

    Returns
    -------
    str
    """
    first, last = rows[0], rows[-1]
    better = [row["kappa"] for row in rows if max(row["icl_seeds"]) < min(row["icl_linear_seeds"])]
    text = (
        f"Seen: the gap ICL - IDG goes from {first['gap']:.2f} at kappa = {first['kappa']:g} to "
        f"{last['gap']:.3f} ({last['gap_error']:.3f}) at kappa = {last['kappa']:g}; linear "
        f"attention: {first['gap_linear']:.2f} to {last['gap_linear']:.3f}; dMMSE: "
        f"{first['gap_dmmse']:.2f} to {last['gap_dmmse']:.2f}."
    )
    if better:
        listed = ", ".join(f"{kappa:g}" for kappa in better)
        text += f" On fresh tasks every seed beats linear attention at kappa = {listed}."
    else:
        text += " On fresh tasks it beats linear attention in every seed at no kappa."
    return text + " At this d the change is gradual: no sharp transition can be seen."


def peaks_in_words(contexts: dict[str, Rows]) -> str:
    """What the runs say of double descent, from their numbers alone.

    Parameters
    ----------
    contexts : dict
        Number of weights to rows as `over_contexts` returns them, n increasing.

    Returns
    -------
    str
        An error counts as larger than another if that holds of every pair of their seeds. A peak
        needs a smaller error both at fewer and at more sequences; a first descent needs a larger
        one at the fewest sequences than at some n before the peak.
    """
    parts = []
    for weights, rows in contexts.items():
        top = max(range(len(rows)), key=lambda i: rows[i]["icl"])
        low = min(range(top + 1), key=lambda i: rows[i]["icl"])
        peak, trough, end = rows[top], rows[low], rows[-1]
        if not (_above(peak, trough) and _above(peak, end)):
            parts.append(f"{weights} weights: no peak of the ICL error over n is resolved.")
            continue
        n = peak["samples"]
        before = "is" if _above(rows[0], trough) else "is not"
        parts.append(
            f"{weights} weights: the ICL error peaks at n = {n}, {n / int(weights):.2f} sequences "
            f"a weight ({_stated(peak)}; {_stated(trough)} at n = {trough['samples']}, "
            f"{_stated(end)} at n = {end['samples']}); a first descent before it {before} resolved."
        )
    return " ".join(parts)


def _above(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(min(one["icl_seeds"]) > max(other["icl_seeds"]))


def _stated(row: dict[str, Any]) -> str:
    return f"{row['icl']:.2f} ({row['icl_error']:.2f})"


def _bars(ax: Any, x: Any, rows: Rows, name: str, **look: Any) -> None:
    look = {"ms": 3, "lw": 0.9, "elinewidth": 0.8} | look
    ax.errorbar(x, [r[name] for r in rows], [r[f"{name}_error"] for r in rows], **look)


def _figure(numbers: dict[str, Any]) -> Any:
    figure, axes = ok.plot.panels(2, 2, height=5.2)
    with ok.plot.style():
        _errors_over_tasks(axes[0], numbers)
        _gap_over_tasks(axes[1], numbers)
        _errors_over_contexts(axes[2], numbers)
        _peaks(axes[3], numbers)
        for ax in axes[:2]:
            ax.set_xlabel(r"task diversity, $\kappa = k/d$")
            ax.set_title(f"fresh sequences, {LARGE.size} weights", loc="center")
            ax.axvline(1, color="0.8", lw=0.6, zorder=0)
        for ax in (axes[0], axes[2]):
            ax.axhline(1 + NOISE, color="0.7", lw=0.6, zorder=0)
            ax.axhline(numbers["ridge_in_context"], color="0.4", lw=0.8, ls="-.", zorder=0)
        for ax in axes[2:]:
            ax.set_title(f"fixed set of sequences, {POOL} tasks", loc="center")
        for ax in axes:
            ax.set_xscale("log")
            ax.set_yscale("log")
    return ok.plot.finish(figure)


def _errors_over_tasks(ax: Any, numbers: dict[str, Any]) -> None:
    rows, fine = numbers["over_tasks"], numbers["kappa"]
    x = [row["kappa"] for row in rows]
    for name, colour, words in (("icl", BLUE, "fresh task, ICL"), ("idg", RED, "pool, IDG")):
        ax.plot(fine, numbers["sharp"][name], color=colour, lw=0.9)
        ax.plot(x, [r[f"{name}_linear"] for r in rows], "_", ms=9, mew=1.2, color=colour)
        _bars(ax, x, rows, f"{name}_dmmse", fmt="s:", ms=2, color=colour, alpha=0.6)
        _bars(ax, x, rows, name, fmt="o", color=colour)
        ax.plot([], [], color=colour, lw=3, label=words)
    ax.plot([], [], "o", ms=3, color="0.3", label="network")
    ax.plot([], [], color="0.3", lw=0.9, label=r"linear attention, $d\to\infty$")
    ax.plot([], [], "_", ms=9, mew=1.2, color="0.3", label=f"linear attention, $d = {DIM}$")
    ax.plot([], [], "s:", ms=2, lw=0.9, color="0.3", alpha=0.6, label="dMMSE")
    ax.plot([], [], color="0.4", lw=0.8, ls="-.", label="ridge in context")
    ax.set_ylim(0.08, 5)
    ax.set_ylabel("test error")
    ax.legend(fontsize=5.5, ncols=2, loc="upper right")


def _gap_over_tasks(ax: Any, numbers: dict[str, Any]) -> None:
    rows = numbers["over_tasks"]
    x = [row["kappa"] for row in rows]
    sharp = np.subtract(numbers["sharp"]["icl"], numbers["sharp"]["idg"])
    bars = [row["gap_linear"] for row in rows]
    ax.plot(numbers["kappa"], sharp, color=GREEN, lw=0.9, label=r"linear attention, $d\to\infty$")
    words = f"linear attention, $d = {DIM}$"
    ax.plot(x, bars, "_", ms=9, mew=1.2, color=GREEN, label=words)
    _bars(ax, x, rows, "gap_dmmse", fmt="s:", ms=2, color=PURPLE, label="dMMSE")
    _bars(ax, x, rows, "gap", fmt="o-", color="k", label="network")
    ax.set_ylim(1e-3, 4)
    ax.set_ylabel(r"$e_{\mathrm{ICL}} - e_{\mathrm{IDG}}$")
    ax.legend(fontsize=5.5, loc="lower left")


def _errors_over_contexts(ax: Any, numbers: dict[str, Any]) -> None:
    ax.plot(numbers["samples"], numbers["equivalent"]["icl"], color=GREEN, lw=0.9)
    for (weights, rows), colour in zip(numbers["over_contexts"].items(), (BLUE, RED), strict=True):
        n = [row["samples"] for row in rows]
        _bars(ax, n, rows, "icl", fmt="o-", color=colour)
        _bars(ax, n, rows, "idg", fmt="o--", mfc="w", color=colour)
        ax.plot(n, [r["icl_early"] for r in rows], color=colour, lw=0.8, ls=":")
        ax.plot([], [], color=colour, lw=3, label=f"{weights} weights")
    ax.plot([], [], color=GREEN, lw=0.9, label=f"linear attention, $d = {DIM}$, ICL")
    ax.plot([], [], "o-", ms=3, lw=0.9, color="0.3", label="ICL")
    ax.plot([], [], "o--", ms=3, lw=0.9, mfc="w", color="0.3", label="IDG")
    ax.plot([], [], color="0.3", lw=0.8, ls=":", label="ICL, a tenth of the steps")
    ax.set_ylim(0.15, 12)
    ax.set_xlabel("pretraining sequences, $n$")
    ax.set_ylabel("test error")
    ax.legend(fontsize=5.5, ncols=2, loc="lower left", bbox_to_anchor=(0, 0.07))


def _peaks(ax: Any, numbers: dict[str, Any]) -> None:
    x = np.divide(numbers["samples"], LINEAR_WEIGHTS)
    words = f"linear attention, {LINEAR_WEIGHTS} weights"
    ax.plot(x, numbers["equivalent"]["icl"], color=GREEN, lw=0.9, label=words)
    for (weights, rows), colour in zip(numbers["over_contexts"].items(), (BLUE, RED), strict=True):
        x = [row["samples"] / int(weights) for row in rows]
        _bars(ax, x, rows, "icl", fmt="o-", color=colour, label=f"network, {weights} weights")
        _bars(ax, x, rows, "training", fmt="^:", mfc="w", color=colour)
    ax.plot([], [], "^:", mfc="w", ms=3, lw=0.9, color="0.3", label="its training error")
    ax.axvline(1, color="0.8", lw=0.6, zorder=0)
    ax.set_xlim(0.025, 40)
    ax.set_ylim(0.01, 12)
    ax.set_xlabel("sequences per weight")
    ax.set_ylabel("ICL error, training error")
    ax.legend(fontsize=5.5, loc="lower left")
