"""Figure: modes of the layer, of the published equations and of training, and their time scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import odekit as ok
from odekit.reproduce import Picture

from .mode_equations import half_height, layer_optimum, published_product
from .runs import SPECTRUM, crossing, layer_run, products, start, trained

START = 1e-2
LONG, SHORT = 100, 3


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw mode strengths at a long and a short context, and half-rise times against 1/s^2."""
    root = np.sqrt(START) * np.ones(4)
    y0 = start(root, root)
    end = 1.35 * float(half_height(SPECTRUM, LONG, START)[-1])
    times = np.linspace(0, end, 400)
    figure, axes = ok.plot.panels(2, 2)
    numbers: dict[str, Any] = {
        "spectrum": SPECTRUM.tolist(),
        "start": START,
        "t": times.tolist(),
        "panels": {},
        "half_rise": [],
    }
    colours = ok.plot.PALETTE
    seeds = range(1 if quick else 3)
    with ok.plot.style():
        for ax, context in zip(axes, (LONG, SHORT), strict=False):
            progress(f"integrates N = {context}")
            flow = layer_run("scalar", y0, times, context)
            a, published = products(flow), published_product(times, SPECTRUM, context, START)
            progress(f"trains N = {context}")
            # A step is a time of 2 lr; the error of a finite step is of first order in lr.
            runs = [
                trained("scalar", y0, end, context, lr=0.02, batch=64, seed=seed) for seed in seeds
            ]
            for k, s in enumerate(SPECTRUM):
                ax.plot(times, a[:, k], color=colours[k], label=f"$s={s:g}$")
                ax.plot(times, published[:, k], color=colours[k], linestyle=(0, (3, 2)), lw=0.9)
                for run in runs:
                    ax.plot(
                        0.04 * run.t, products(run)[:, k], ".", color=colours[k], ms=1.6, alpha=0.6
                    )
                ax.axhline(
                    layer_optimum(SPECTRUM, context)[k], color=colours[k], lw=0.5, ls=":", zorder=0
                )
            ax.set_title(f"tasks $w I$, $N={context}$", loc="center")
            ax.set_xlabel(r"time $t \cdot \eta P$")
            ax.set_ylabel(r"mode strength $a_\alpha = p_\alpha q_\alpha$")
            numbers["panels"][f"N={context}"] = {
                "flow": a.tolist(),
                "published": published.tolist(),
                "sgd": [products(run).tolist() for run in runs],
                "sgd_t": (0.04 * runs[0].t).tolist(),
            }
        axes[0].plot([], [], color="0.3", label="expected flow of the layer")
        axes[0].plot([], [], color="0.3", ls=(0, (3, 2)), lw=0.9, label="published, eq. (13)")
        axes[0].plot([], [], ".", color="0.3", ms=3, label="SGD")
        axes[0].set_ylim(top=11)
        axes[0].legend(loc="upper left", fontsize=6, ncol=2)
        _time_scales(axes[2], numbers)
        progress("integrates independent task entries")
        _shared(axes[3], y0, numbers)
    return Picture(
        ok.plot.finish(figure),
        numbers,
        "Mode strengths of the p, q transformer from a balanced start of strength "
        f"{START:g}. (a, b) Solid: the expected flow of the layer, tasks a multiple of the "
        "identity; dashed: the published solution (13); dots: SGD; dotted: where the layer's flow "
        "rests, in closed form. They agree as the context grows; at finite N the layer's modes are "
        "coupled at order 1/N. (c) Time to half height against 1/s^2. (d) Independent task "
        "entries: p is shared by all modes, so that the strong mode speeds up the weak ones.",
        (
            r"\dot p_\alpha = s_\alpha^2 q_\alpha - \left(1+\tfrac1N\right)s_\alpha^3 p_\alpha"
            r" q_\alpha^2 - \tfrac{s_\alpha p_\alpha}{N}\sum_\beta s_\beta^2 q_\beta^2",
            r"a_\alpha(t) = \frac{a^\infty_\alpha a_0}{a_0 + (a^\infty_\alpha - a_0)"
            r"e^{-2 t/\tau_\alpha}},\qquad \tau_\alpha = \frac{1}{\eta P s_\alpha^2}",
        ),
    )


def _time_scales(ax: Any, numbers: dict[str, Any]) -> None:
    """Half-rise times of the layer's modes and of the published ones, over a range of spectra."""
    s = np.geomspace(1.0, 0.1, 6)
    for k, context in enumerate((LONG, SHORT)):
        root = np.sqrt(START) * np.ones(len(s))
        end = 2.5 * float(half_height(s, context, START)[-1])
        times = np.concatenate([[0.0], np.geomspace(0.1, end, 1500)])
        a = products(layer_run("scalar", start(root, root), times, context, s))
        measured = [
            crossing(times, a[:, j], 0.5 * level)
            for j, level in enumerate(layer_optimum(s, context))
        ]
        published = half_height(s, context, START)
        colour = ok.plot.PALETTE[k]
        ax.plot(1 / s**2, measured, "o", color=colour, label=f"layer, $N={context}$")
        ax.plot(
            1 / s**2, published, ls=(0, (3, 2)), color=colour, label=f"published, $N={context}$"
        )
        numbers["half_rise"] += [
            {"N": context, "s": float(v), "published": float(t), "measured": m}
            for v, m, t in zip(s, measured, published, strict=True)
            if np.isfinite(m)  # a mode that the context is too short for has no half height
        ]
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel(r"$1/s_\alpha^2$")
    ax.set_ylabel(r"time to half height $t \cdot \eta P$")
    ax.legend(fontsize=6)


def _shared(ax: Any, y0: dict[str, Any], numbers: dict[str, Any]) -> None:
    """Independent task entries at the long context."""
    end = 0.2 * float(half_height(SPECTRUM, LONG, START)[-1])
    times = np.linspace(0, end, 300)
    a = products(layer_run("iid", y0, times, LONG))
    published = published_product(times, SPECTRUM, LONG, START)
    for k in range(len(SPECTRUM)):
        ax.plot(times, a[:, k], color=ok.plot.PALETTE[k])
        ax.plot(times, published[:, k], color=ok.plot.PALETTE[k], ls=(0, (3, 2)), lw=0.9)
    ax.set_title(f"iid task entries, $N={LONG}$", loc="center")
    ax.set_xlabel(r"time $t \cdot \eta P$")
    ax.set_ylabel(r"mode strength $a_\alpha = p_\alpha q_\alpha$")
    numbers["panels"]["iid"] = {
        "t": times.tolist(),
        "flow": a.tolist(),
        "published": published.tolist(),
    }
