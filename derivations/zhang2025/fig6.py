r"""Figure 6: the scale of the start, from plateaus to exponential decay.

D = 4, spectrum .4 .3 .2 .1, N = 31. From tiny starts the loss waits and drops; from large ones it
decays at once. Whether the large end is lazy, that is follows the flow linearised at its start, is
another matter: A(0) grows with the start, and with it the distance that the weights must go. From
heads in pairs that cancel (A(0) = 0) the weights move little, and the run tends to the lazy flow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import odekit as ok
import odekit.plot as pictures
from odekit.reproduce import Picture

from . import lazy

Array = NDArray[np.float64]

SPECTRUM = np.array([0.4, 0.3, 0.2, 0.1])
COVARIANCE, CONTEXT, DIM, HEADS, SEED = np.diag(SPECTRUM), 31, 4, 8, 0
PARAMS = {"Lambda": COVARIANCE, "N": CONTEXT}
SWEEP = {"merged": (1e-5, 1e-3, 0.03, 0.3, 1.0, 4.0), "separate": (0.01, 0.03, 0.1, 0.3, 1.0, 4.0)}
LARGE = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
DEGREE = {"merged": 2, "separate": 3}
TOLERANCE = ok.Tolerance(relative=1e-7)
# Paired heads cancel to a few digits of A out of weights of size scale^degree.
FINE = ok.Tolerance(relative=1e-11)


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the figure."""
    numbers: dict[str, Any] = {"floor": float(ok.theory.plateau_losses(SPECTRUM, CONTEXT)[-1])}
    figure, axes = pictures.panels(2, 2, height=4.8)
    with pictures.style():
        for ax, name in zip(axes[:2], SWEEP, strict=True):
            progress(f"{name}: start from tiny to large")
            numbers[f"{name}, drop"] = _sweep(ax, name, SWEEP[name][2 if quick else 0 :])
        progress("large starts against the lazy flow")
        numbers["lazy"] = _lazy(axes[2], axes[3], LARGE[2:5] if quick else LARGE)
    return Picture(
        pictures.finish(figure),
        numbers,
        "Scale of the start (D = 4, N = 31, spectrum .4 .3 .2 .1, H = 8; merged: all weights "
        "N(0, scale^2); separate: values N(0, scale^2), keys and queries divided by sqrt(D+1)). "
        "(a, b) Loss above its minimum, relative to the start, against time in units of its own "
        "half-life: from plateaus and abrupt drops to decay without one. (c) Large starts with "
        "A(0) = 0 (heads in pairs v, -v), against time in units of the kernel; dashed: the "
        "linearised flow. (d) Largest distance to the linearised flow from such starts (filled) "
        "falls with the scale like its power -4 (merged) and -6 (separate); from independent heads "
        "(open) it does not fall: A(0) grows with the scale, and the weights move as far as they "
        "are large.",
        (
            r"\tau\,\frac{d}{dt}\operatorname{vec}A = K_0\left[\operatorname{vec}\Lambda^2"
            r" - (B\otimes\Lambda)\operatorname{vec}A\right],\qquad K_0 = J J^\top",
            r"\mathcal{L}_\mathrm{lazy}(t) = \mathcal{L}_* + \sum_i b_i^2 e^{-2\kappa_i t/\tau}",
        ),
    )


def _start(name: str, scale: float) -> tuple[Any, dict[str, Array]]:
    if name == "merged":
        model: Any = ok.models.attention_merged(heads=HEADS, dim=DIM)
    else:
        model = ok.models.attention_separate(heads=HEADS, rank=1, dim=DIM)
    return model, ok.simulate.initial(model, scale, SEED)


def _sweep(ax: Any, name: str, scales: tuple[float, ...]) -> list[dict[str, float]]:
    floor = float(ok.theory.plateau_losses(SPECTRUM, CONTEXT)[-1])
    rows = []
    for scale, colour in zip(scales, pictures.sequence(len(scales)), strict=True):
        model, y0 = _start(name, scale)
        end = 1e3 if name == "merged" else 4e3 / min(scale, 1.0)
        times = np.concatenate([[0.0], np.geomspace(1e-4, end, 800)])
        run: Any = ok.solve(
            model.flow,
            y0,
            times,
            PARAMS,
            tolerance=TOLERANCE,
        )
        excess = (run.loss - floor) / (run.loss[0] - floor)
        passed = [float(np.interp(-part, -excess, times)) for part in (0.9, 0.5, 0.1)]
        ax.plot(times / passed[1], excess, color=colour, label=f"{scale:g}")
        rows.append(
            {
                "scale": scale,
                "start": float(run.loss[0] - floor),
                "half-life": passed[1],
                "time from 90 to 50 percent, in half-lives": 1 - passed[0] / passed[1],
            }
        )
    if name == "merged":
        ax.set_xlim(0, 4)
    else:
        ax.set_xscale("log")
        ax.set_xlim(0.03, 300)
    ax.set_ylim(-0.02, 1.04)
    ax.set_xlabel("time, in half-lives of the excess loss")
    ax.set_ylabel(r"$(\mathcal{L}-\mathcal{L}_*)/(\mathcal{L}(0)-\mathcal{L}_*)$")
    ax.set_title(name, loc="right")
    ax.legend(title="scale", title_fontsize=7, loc="upper right")
    return rows


def _lazy(ax: Any, beside: Any, scales: tuple[float, ...]) -> dict[str, Any]:
    floor = float(ok.theory.plateau_losses(SPECTRUM, CONTEXT)[-1])
    found: dict[str, Any] = {"scales": scales}
    slow = np.concatenate([[0.0], np.geomspace(1e-3, 60.0, 300)])
    for name, colour, marker in (
        ("merged", pictures.PALETTE[0], "o"),
        ("separate", pictures.PALETTE[1], "s"),
    ):
        power = 2 * DEGREE[name] - 2
        # The separate kernel is smaller by the keys' and queries' 1/(D+1).
        stretch = 1.0 if name == "merged" else DIM + 1.0
        for kind in ("paired", "independent"):
            gaps = []
            for scale in scales:
                model, y0 = _start(name, scale)
                y0 = lazy.paired(y0) if kind == "paired" else y0
                times = stretch * slow / scale**power
                run: Any = ok.solve(model.flow, y0, times, PARAMS, tolerance=FINE)
                excess = run.loss - floor
                line = lazy.lazy_excess(y0, COVARIANCE, CONTEXT, times)
                gaps.append(float(np.abs(excess - line).max() / line[0]))
                if kind == "paired" and name == "merged" and scale <= 4:
                    shade = pictures.sequence(4)[(0.5, 1.0, 2.0, 4.0).index(scale)]
                    ax.plot(slow, excess, color=shade, label=f"scale {scale:g}")
            if kind == "paired" and name == "merged":
                ax.plot(slow, line, "--", color="black", lw=1, label="lazy flow")
            filled = kind == "paired"
            beside.plot(
                scales, gaps, f"{marker}-", color=colour, mfc=colour if filled else "white",
                lw=1.0 if filled else 0.6, label=f"{name}, {kind}",
            )  # fmt: skip
            found[f"{name}, {kind}"] = gaps
            if filled:
                found[f"{name}, slope"] = pictures.power_law(scales[-3:], gaps[-3:])[0]
    ax.set_xlim(0, 40)
    ax.set_yscale("log")
    ax.set_ylim(1e-3, 1.5)
    ax.set_xlabel(r"time $\times\,$scale$^2$, $t/\tau$")
    ax.set_ylabel(r"$\mathcal{L}-\mathcal{L}_*$")
    ax.set_title("merged, $A(0) = 0$", loc="right")
    ax.legend(loc="lower left")
    beside.set_xscale("log")
    beside.set_yscale("log")
    beside.set_xlabel("scale of the start")
    beside.set_ylabel("largest distance to the lazy flow")
    beside.legend(loc="lower left", fontsize=6)
    return found
