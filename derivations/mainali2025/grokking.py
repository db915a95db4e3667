"""Figure: grokking of modular addition, its controls, and the measures along training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import odekit as ok
from odekit.reproduce import Picture
from odekit.simulate import (
    AdditionTask,
    NetworkRun,
    first_step,
    fourier_concentration,
    random_concentration,
    train_addition,
)

MODULUS, RANK = 31, 10
RUNS: dict[str, dict[str, Any]] = {
    "addition": {"task": AdditionTask(MODULUS, 0.5)},
    "random labels": {"task": AdditionTask(MODULUS, 0.5, random_labels=True)},
    "fraction .40": {"task": AdditionTask(MODULUS, 0.4)},
    "AdamW": {"task": AdditionTask(MODULUS, 0.5), "optimiser": "adamw"},
    "AdamW, random labels": {
        "task": AdditionTask(MODULUS, 0.5, random_labels=True),
        "optimiser": "adamw",
    },
}
COLOURS = dict(zip(RUNS, (ok.plot.PALETTE[k] for k in (0, 1, 2, 0, 1)), strict=True))
Runs = dict[str, list[NetworkRun]]


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw accuracies, Fourier concentration, effective rank and subspace distance."""
    steps = {"heavy ball": 1000 if quick else 6000, "adamw": 1300 if quick else 2000}
    runs: Runs = {}
    for name, settings in RUNS.items():
        progress(f"trains: {name}")
        runs[name] = [
            train_addition(
                seed=seed, steps=steps[settings.get("optimiser", "heavy ball")], **settings
            )
            for seed in range(1 if quick else 3)
        ]
    figure, axes = ok.plot.panels(2, 3, height=4.4)
    with ok.plot.style():
        _accuracies(axes[0], runs, ("addition", "random labels", "fraction .40"))
        axes[0].set_title("heavy ball, no decay", loc="center")
        _accuracies(axes[1], runs, ("AdamW", "AdamW, random labels"))
        axes[1].set_title("AdamW, decay .5", loc="center")
        _along(axes[2], runs, _concentration)
        axes[2].axhline(random_concentration(MODULUS), color="0.45", lw=0.7, ls=(0, (4, 3)))
        axes[2].text(
            20, random_concentration(MODULUS) - 0.05, "Gaussian weights", fontsize=6, color="0.25"
        )
        axes[2].set_ylabel("largest Fourier share of a unit")
        axes[2].set_ylim(0.1, 0.8)
        _along(axes[3], runs, lambda run: np.asarray(ok.theory.effective_rank(_embedding(run))))
        axes[3].set_ylabel(r"effective rank of $W_{1a}$ ($31\times96$)")
        axes[3].set_ylim(0, MODULUS)
        _distances(axes[4], runs)
        _references(axes[5], runs["addition"][0])
        for ax in axes:
            ax.set_xscale("log")
            ax.set_xlabel("step")
    return Picture(
        ok.plot.finish(figure),
        {"modulus": MODULUS, "subspace rank": RANK, "runs": _numbers(runs)},
        "Addition modulo 31, quadratic network of width 96, full batch, one thin line a seed. "
        "(a, b) Accuracy on training pairs (dotted) and on test pairs (solid): fitted within 75 "
        "steps, general hundreds of steps later; not for random labels, and not from 40 % of the "
        "table; dash-dotted grey: chance. (c) Largest share of a unit's embedding power in one "
        "frequency: it rises as the test accuracy does, and not for random labels. (d) Effective "
        "rank says nothing: it stays within one of its start in every run. (e) Distance of "
        f"the leading {RANK} column directions of the embedding from those at the end (dashed: a "
        "random subspace): it falls to zero at the end by construction, in the control too. "
        "(f) The same curve of one run for other reference checkpoints (dots): it follows the "
        "chosen end. Grey band in (c-f): test accuracy from .5 to .95, all seeds.",
        (
            r"f = W_2 \left(W_{1a}[a] + W_{1b}[b]\right)^2",
            r"\mathbb{E}\,\max_k \frac{P_k}{\sum_j P_j} = \frac{1}{m}\sum_{k=1}^m \frac1k,"
            r"\qquad m = \tfrac{p-1}{2}",
        ),
    )


def _embedding(run: NetworkRun) -> Any:
    return run["W1"][:, :MODULUS]


def _concentration(run: NetworkRun) -> Any:
    return fourier_concentration(_embedding(run))


def _accuracies(ax: Any, runs: Runs, names: tuple[str, ...]) -> None:
    for name in names:
        for k, run in enumerate(runs[name]):
            t = np.maximum(run.t, 12)
            label = name if k == 0 else None
            ax.plot(t, run["test accuracy"], color=COLOURS[name], lw=0.9, label=label)
            ax.plot(t, run["accuracy"], color=COLOURS[name], lw=0.8, ls=":")
    ax.axhline(1 / MODULUS, color="0.6", lw=0.6, ls="-.", zorder=0)
    ax.set_ylabel("accuracy")
    ax.legend(fontsize=5.5, loc="center left", bbox_to_anchor=(-0.03, 0.3), handlelength=1)


def _delay(ax: Any, runs: Runs) -> None:
    """Shade from the first seed's half test accuracy to the last one's 95 %."""
    begins = [first_step(run, "test accuracy", 0.5) for run in runs["addition"]]
    ends = [first_step(run, "test accuracy", 0.95) for run in runs["addition"]]
    seen = [step for step in (*begins, *ends) if step is not None]
    if seen:
        ax.axvspan(min(seen), max(seen), color="0.9", zorder=0, lw=0)


def _along(ax: Any, runs: Runs, measure: Callable[[NetworkRun], Any]) -> None:
    for name in ("addition", "random labels", "fraction .40"):
        for run in runs[name]:
            ax.plot(np.maximum(run.t, 12), measure(run), color=COLOURS[name], lw=0.9)
    _delay(ax, runs)


def _distance(run: NetworkRun, at: int) -> Any:
    """Relative residual of the leading column directions, with the checkpoint ``at`` as the end."""
    tables = _embedding(run)
    # The reference is cut to the same rank: only then is "the subspace has settled" a distance 0.
    u, s, v = np.linalg.svd(tables[at], full_matrices=False)
    reference = (u[:, :RANK] * s[:RANK]) @ v[:RANK]
    return ok.theory.subspace_distance(tables, reference, side="column", rank=RANK)


def _distances(ax: Any, runs: Runs) -> None:
    _along(ax, runs, partial(_distance, at=-1))
    baseline = ok.theory.random_subspace_distance(RANK, MODULUS)
    ax.axhline(baseline, color="0.45", lw=0.7, ls=(0, (4, 3)))
    ax.set_ylabel("subspace distance to the end")
    ax.set_ylim(0, 1)


def _references(ax: Any, run: NetworkRun) -> None:
    chosen = [int(np.searchsorted(run.t, t)) for t in (150, 300, 600, 1000, 2000, 6000)]
    chosen = sorted({min(at, len(run.t) - 1) for at in chosen})
    for at, colour in zip(chosen, ok.plot.sequence(len(chosen)), strict=True):
        t = np.maximum(run.t, 12)
        curve = _distance(run, at)
        ax.plot(t, curve, color=colour, lw=0.9, label=f"step {run.t[at]}")
        ax.plot(t[at], curve[at], "o", color=colour, ms=3)
    _delay(ax, {"addition": [run]})
    ax.set_ylabel("subspace distance to step ...")
    ax.set_ylim(0, 1.3)
    ax.legend(fontsize=5.5, loc="upper center", ncol=3, handlelength=1, columnspacing=1)


def _numbers(runs: Runs) -> list[dict[str, Any]]:
    rows = []
    for name, seeds in runs.items():
        for run in seeds:
            distance = _distance(run, -1)
            rows.append(
                {
                    "run": name,
                    "configuration": dict(run.configuration),
                    "cpu seconds": run.seconds,
                    "t": run.t.tolist(),
                    "training accuracy": run["accuracy"].tolist(),
                    "test accuracy": run["test accuracy"].tolist(),
                    "step of training .99": first_step(run, "accuracy", 0.99),
                    "step of test .50": first_step(run, "test accuracy", 0.5),
                    "step of test .95": first_step(run, "test accuracy", 0.95),
                    "step of new pairs .95": first_step(run, "new", 0.95),
                    "end, commuted pairs": float(run["commuted"][-1]),
                    "end, new pairs": float(run["new"][-1]),
                    "concentration": _concentration(run).tolist(),
                    "effective rank": np.asarray(
                        ok.theory.effective_rank(_embedding(run))
                    ).tolist(),
                    "subspace distance": distance.tolist(),
                    "step of subspace distance .1": int(run.t[np.flatnonzero(distance < 0.1)[0]]),
                }
            )
    return rows
