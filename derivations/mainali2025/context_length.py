"""Figure: where the fixed point lies as the context grows from 1 to 1000 tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import odekit as ok
from odekit.reproduce import Picture

from .mode_equations import layer_optimum, stretched
from .runs import SPECTRUM, layer_run, losses, products, start

END = 3000.0


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the end state of the layer's flow against N, beside the published fixed point."""
    figure, axes = ok.plot.panels(1, 2)
    fine = np.geomspace(1, 1000, 120)
    contexts = (1, 3, 10, 100, 1000) if quick else (1, 2, 3, 5, 8, 15, 30, 60, 120, 300, 1000)
    numbers: dict[str, Any] = {"spectrum": SPECTRUM.tolist(), "ends": []}
    root = 0.03 * np.ones(4)
    for context in contexts:
        progress(f"integrates N = {context}")
        ends = {law: layer_run(law, start(root, root), [END], context) for law in ("scalar", "iid")}
        numbers["ends"].append(
            {
                "N": context,
                "scalar": products(ends["scalar"])[0].tolist(),
                "iid": products(ends["iid"])[0].tolist(),
                "loss_scalar": float(losses(ends["scalar"])[0]),
                "loss_iid": float(losses(ends["iid"])[0]) / len(SPECTRUM),
                "layer_optimum": layer_optimum(SPECTRUM, context).tolist(),
                "published": (1 / stretched(SPECTRUM, context)).tolist(),
            }
        )
    with ok.plot.style():
        for k, s in enumerate(SPECTRUM):
            colour = ok.plot.PALETTE[k]
            own = [s * layer_optimum(SPECTRUM, n)[k] for n in fine]
            axes[0].plot(fine, own, color=colour, label=f"$s = {s:g}$")
            axes[0].plot(
                fine,
                [s / stretched(SPECTRUM, n)[k] for n in fine],
                color=colour,
                ls=(0, (3, 2)),
                lw=0.9,
            )
            for row in numbers["ends"]:
                axes[0].plot(row["N"], s * row["scalar"][k], "o", color=colour, ms=3)
                axes[0].plot(row["N"], s * row["iid"][k], "x", color=colour, ms=3)
        axes[0].axhline(1, color="0.6", lw=0.5, zorder=0)
        axes[0].set_ylabel(r"end of the mode, $s_\alpha a_\alpha(\infty)$")
        for marker, words in (("o", "flow, $W = wI$"), ("x", "flow, $W$ iid")):
            axes[0].plot([], [], marker, color="0.3", ms=3, label=words)
        axes[0].legend(fontsize=6)
        for key, marker, words in (("loss_scalar", "o", "$W = wI$"), ("loss_iid", "x", "$W$ iid")):
            axes[1].plot(
                [row["N"] for row in numbers["ends"]],
                [row[key] / SPECTRUM.sum() for row in numbers["ends"]],
                f"{marker}-",
                lw=0.8,
                ms=3,
                label=words,
            )
        axes[1].set_ylabel(r"end loss / $\mathrm{tr}\,\Lambda$")
        axes[1].set_yscale("log")
        axes[1].legend()
        for ax in axes:
            ax.set_xscale("log")
            ax.set_xlabel("context length $N$")
    return Picture(
        ok.plot.finish(figure),
        numbers,
        f"(a) Mode strengths at time {END:g} (marks), the layer's own fixed point in closed form "
        "(solid) and the published one (11) (dashed), in units of 1/s. The published one is exact "
        "for independent task entries; for tasks w I the modes share the error of a short context, "
        "and below a critical N the weakest modes are not learned at all. (b) Loss at the end.",
        (
            r"a_\alpha(\infty) = \frac{1 - \kappa/(N\sqrt{s_\alpha})}{(1+\frac1N)\,s_\alpha},"
            r"\qquad \kappa = \frac{\sum_\beta \sqrt{s_\beta}}{1 + (1+m)/N}",
            r"a_\alpha(\infty) = 1/s^\infty_\alpha \quad\text{(published)}",
        ),
    )
