"""Figure: mixtures of in-context and in-weight sequences, from none to all in context.

An in-weight sequence has always the same task vector, which the weights can hold; an in-context
one has its own. Exact full-batch gradient descent from full statistics: the reduced model, whose
zero blocks stay zero, cannot hold a task in its weights.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import odekit as ok
import odekit.plot as pictures
from odekit.reproduce import Picture
from odekit.simulate import SequenceLaw, Statistics

Array = NDArray[np.float64]

SPECTRUM = np.array([0.4, 0.3, 0.2, 0.1])
CONTEXT, HEADS, START, RATE, STEPS = 31, 8, 1e-2, 0.05, 40_000
SEQUENCES, TESTS = 20_000, 20_000
FRACTIONS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
NAMES = ("in-context", "in-weight")
FIXED = np.ones(4)  # as long as an in-context task is in the mean: E |w|^2 = D


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the figure."""
    fractions = (0.0, 0.5, 1.0) if quick else FRACTIONS
    steps = 5000 if quick else STEPS
    count = 2000 if quick else SEQUENCES
    seeds = range(1 if quick else 3)
    numbers: dict[str, Any] = {
        "spectrum": SPECTRUM.tolist(), "context": CONTEXT, "heads": HEADS, "start": START,
        "lr": RATE, "steps": steps, "training sequences": count, "fixed task": FIXED.tolist(),
        "runs": [],
    }  # fmt: skip
    tests = {name: part.statistics() for name, part in _law(0.5).tests(count, seed=1).items()}
    figure, axes = pictures.panels(2, 2, height=4.8)
    colours = pictures.sequence(len(fractions))
    at = np.unique(np.concatenate([[0], np.geomspace(1, steps, 400).round()]))
    with pictures.style():
        for fraction, colour in zip(fractions, colours, strict=True):
            progress(f"trains at an in-context fraction of {fraction:g}")
            training = _law(fraction).draw(count, np.random.default_rng(0)).statistics()
            best = _least_squares(training)
            for seed in seeds:
                row = _train(fraction, seed, training, tests, at)
                row["best in the features"] = {
                    name: float(part.loss(best)) / part.y2 for name, part in tests.items()
                }
                numbers["runs"].append(row)
                for ax, name in zip(axes[:2], NAMES, strict=True):
                    label = f"{fraction:g}" if seed == 0 else None
                    ax.plot(row["t"][1:], row[name][1:], color=colour, lw=0.9, label=label)
        for ax, name in zip(axes[:2], NAMES, strict=True):
            ax.axhline(1, color="0.6", lw=0.5, zorder=0)
            ax.set_title(f"test: {name} sequences", loc="center")
            ax.set_xlabel("step")
            ax.set_ylabel(r"loss / $E\,y^2$")
            ax.set_xscale("log")
            ax.set_yscale("log")
        axes[0].legend(title="in context", title_fontsize=6, fontsize=6, loc="lower left")
        _ends(axes[2], numbers)
        _times(axes[3], numbers)
    return Picture(
        pictures.finish(figure),
        numbers,
        f"Linear attention, merged, all blocks (D = 4, N = {CONTEXT}, H = {HEADS}, spectrum "
        f".4 .3 .2 .1, weights N(0, {START:g}^2), zero blocks at zero, rate {RATE:g}), exact "
        f"gradient descent from the full statistics of {count} sequences, of which a fraction has "
        "a task of its own and the others the one task (1, 1, 1, 1). (a, b) Loss on fresh "
        "sequences of either kind, relative to that of predicting zero; thin lines: seeds of the "
        "weights. In-weight sequences are learned the earlier the more there are, the in-context "
        "ones the later the rarer they are; of mixed data the in-context loss passes a minimum and "
        "rises again as the fit to the one task is refined. Without in-context sequences its loss "
        "rises above that of predicting zero: the weights answer with the one task. (c) Ends "
        "(marks, mean over seeds) against the best predictor linear in the features (lines). "
        "(d) Step at which a curve has half of its own fall; crosses: no fall by half of the loss.",
        (
            r"\hat y = \sum_h x_q^\top A_h G u_h,\qquad"
            r" G = \tfrac1N\sum_m \tilde x_m\tilde x_m^\top",
            r"P_* = C^{+}c,\qquad C = f\,C_\mathrm{icl} + (1-f)\,C_\mathrm{iwl}",
        ),
    )


def _law(fraction: float) -> SequenceLaw:
    return SequenceLaw(
        covariance=np.diag(SPECTRUM), context=CONTEXT, in_context=fraction, fixed=FIXED
    )


def _least_squares(moments: Statistics) -> Array:
    return np.asarray(np.linalg.lstsq(moments.C, moments.c, rcond=None)[0])


def _train(
    fraction: float, seed: int, training: Statistics, tests: dict[str, Statistics], at: Array
) -> dict[str, Any]:
    model = ok.models.attention_merged(heads=HEADS, dim=4, blocks="all")
    run = ok.simulate.gradient_descent(
        model,
        training,
        y0=ok.simulate.initial(model, START, seed),
        lr=RATE,
        steps=int(at[-1]),
        save_at=at,
    )
    assert run.loss is not None
    curves = {
        name: ok.simulate.loss_curve(model, run, part) / part.y2 for name, part in tests.items()
    }
    return {
        "fraction": fraction,
        "seed": seed,
        "status": run.status.name,
        "t": run.t.tolist(),
        "training loss": run.loss.tolist(),
        **{name: curve.tolist() for name, curve in curves.items()},
        "half fall": {name: _half_fall(run.t, curve) for name, curve in curves.items()},
    }


def _half_fall(t: Array, curve: Array) -> float | None:
    """First step at half of the fall from the start to the least value; None for a small fall."""
    least = float(curve.min())
    if least > 0.5 * curve[0]:
        return None
    return float(t[np.argmax(curve <= 0.5 * (curve[0] + least))])


def _ends(ax: Any, numbers: dict[str, Any]) -> None:
    for k, name in enumerate(NAMES):
        fractions = sorted({row["fraction"] for row in numbers["runs"]})
        groups = [[r for r in numbers["runs"] if r["fraction"] == f] for f in fractions]
        colour = pictures.PALETTE[k]
        best = [group[0]["best in the features"][name] for group in groups]
        ax.plot(fractions, best, color=colour, lw=0.8, label=name)
        ends = [np.mean([row[name][-1] for row in group]) for group in groups]
        ax.plot(fractions, ends, "o", color=colour, ms=3)
    ax.set_yscale("log")
    ax.set_xlabel("fraction of in-context sequences")
    ax.set_ylabel(r"loss / $E\,y^2$ at the end")
    ax.legend(fontsize=6)


def _times(ax: Any, numbers: dict[str, Any]) -> None:
    for k, name in enumerate(NAMES):
        for row in numbers["runs"]:
            half = row["half fall"][name]
            where = (row["fraction"], numbers["steps"] if half is None else half)
            ax.plot(*where, "x" if half is None else "o", color=pictures.PALETTE[k], ms=3)
        ax.plot([], [], "o", color=pictures.PALETTE[k], ms=3, label=name)
    ax.set_yscale("log")
    ax.set_xlabel("fraction of in-context sequences")
    ax.set_ylabel("step of half fall")
    ax.legend(fontsize=6, loc="upper center")
