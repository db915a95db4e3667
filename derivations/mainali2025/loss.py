"""Figure: plateaus and cliffs of the loss, and how the law of the tasks decides about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import odekit as ok
from odekit.reproduce import Picture

from .layer import LAWS
from .mode_equations import half_height, layer_optimum, published_loss, published_product, stretched
from .runs import SPECTRUM, layer_run, losses, start

CONTEXT = 100


def plateau_levels(s: Any, context: float) -> Any:
    """Half the loss with the first m modes at the published fixed point, m = 0 to d."""
    spectrum = np.asarray(s, dtype=float)
    learned = np.tri(len(spectrum) + 1, len(spectrum), -1)
    return published_loss(learned / stretched(spectrum, context), spectrum, context)


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the loss for three sizes of the start, and for the laws of the tasks."""
    figure, axes = ok.plot.panels(1, 2)
    numbers: dict[str, Any] = {"spectrum": SPECTRUM.tolist(), "N": CONTEXT, "curves": []}
    levels = plateau_levels(SPECTRUM, CONTEXT)
    numbers["levels"] = levels.tolist()
    with ok.plot.style():
        scales = (1e-2, 1e-4) if quick else (1e-2, 1e-4, 1e-8)
        for colour, scale in zip(ok.plot.sequence(len(scales)), scales, strict=True):
            progress(f"integrates a start of {scale:g}")
            end = 2 * float(half_height(SPECTRUM, CONTEXT, scale)[-1])
            times = np.concatenate([[0.0], np.geomspace(0.1, end, 500)])
            root = np.sqrt(scale) * np.ones(4)
            flow = layer_run("scalar", start(root, root), times, CONTEXT)
            published = published_loss(
                published_product(times, SPECTRUM, CONTEXT, scale), SPECTRUM, CONTEXT
            )
            exponent = round(np.log10(scale))
            axes[0].plot(
                times[1:], losses(flow)[1:] / 2, color=colour, label=f"$a_0 = 10^{{{exponent}}}$"
            )
            axes[0].plot(times[1:], published[1:], color=colour, ls=(0, (3, 2)), lw=0.9)
            numbers["curves"].append(
                {
                    "a0": scale,
                    "t": times.tolist(),
                    "flow": (losses(flow) / 2).tolist(),
                    "published": published.tolist(),
                }
            )
        axes[0].set_xscale("log")
        axes[0].set_ylim(0, 1.02 * levels[0])
        axes[0].set_xlabel(r"time $t \cdot \eta P$")
        axes[0].set_ylabel("half the mean squared error")
        ok.plot.plateau_lines(axes[0], levels, label="{m}")
        axes[0].legend()
        progress("integrates the laws of the tasks")
        _laws(axes[1], numbers)
    return Picture(
        ok.plot.finish(figure),
        numbers,
        "(a) Loss of the layer, tasks a multiple of the identity (solid), and equation (14) with "
        "(13), corrected (dashed), for three sizes of the start; dashed lines: the first m modes "
        "learned. (b) The same start under three laws of the tasks: with independent entries one "
        "value p serves all modes, and the cliffs merge.",
        (
            r"\mathcal{L}(t) = \frac12\sum_\alpha s_\alpha\left(s_\alpha s^\infty_\alpha"
            r" a_\alpha(t)^2 - 2 s_\alpha a_\alpha(t) + 1\right)",
        ),
    )


def _laws(ax: Any, numbers: dict[str, Any]) -> None:
    scale = 1e-4
    root = np.sqrt(scale) * np.ones(4)
    end = 2 * float(half_height(SPECTRUM, CONTEXT, scale)[-1])
    times = np.concatenate([[0.0], np.geomspace(0.1, end, 500)])
    names = {"scalar": "$W = wI$", "diagonal": r"$W = \mathrm{diag}(w)$", "iid": "$W$ iid"}
    styles: dict[str, Any] = {"scalar": "-", "diagonal": (0, (1, 1)), "iid": "-"}
    numbers["laws"] = {"t": times.tolist()}
    for k, law in enumerate(LAWS):
        run = layer_run(law, start(root, root), times, CONTEXT)
        # The loss sums over components; a row of iid entries sees as many tokens as there are rows.
        half = losses(run) / 2 / (len(SPECTRUM) if law == "iid" else 1)
        ax.plot(
            times[1:],
            half[1:],
            color=ok.plot.PALETTE[k],
            label=names[law],
            ls=styles[law],
            zorder=3 if law == "diagonal" else 2,
        )
        numbers["laws"][law] = half.tolist()
    ax.set_xscale("log")
    ax.set_ylim(0, None)
    ax.set_xlabel(r"time $t \cdot \eta P$")
    ax.set_ylabel("half the mean squared error")
    ax.legend(title="law of the tasks", title_fontsize=7)
    numbers["rest"] = {"layer_optimum": layer_optimum(SPECTRUM, CONTEXT).tolist()}
