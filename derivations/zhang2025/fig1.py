r"""Figure 1: merged keys and queries, one abrupt drop.

D = 4, N = 31, H = 8. One loss curve is reached in four ways: the gradient flow of the expected
loss; gradient descent of the attention layer on a finite training set that is closed under y -> -y,
so that the reduced model is the whole layer; the two-layer linear network on the cubic features of
that set, trained by a loop of its own; and the network's gradient flow on the set's moments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import odekit as ok
import odekit.plot as pictures
from odekit.reproduce import Picture

from . import linear_networks, merged

SPECTRUM = np.array([0.4, 0.3, 0.2, 0.1])
CONTEXT, HEADS, DIM = 31, 8, 4
SCALE, SEED, DATA_SEED = 1e-3, 3, 1
END = 200.0
BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK = pictures.PALETTE
TOLERANCE = ok.Tolerance(relative=1e-8)


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the figure."""
    numbers: dict[str, Any] = {}
    figure, axes = pictures.panels(2, 2, height=4.7)
    progress("trains on a finite set")
    with pictures.style():
        numbers["one curve"] = _one_curve(axes[0], axes[1], quick)
        progress("white tokens")
        numbers["white"] = _white(axes[2])
        progress("smaller and smaller learning rates")
        numbers["learning rates"] = _learning_rates(axes[3], quick)
    return Picture(
        pictures.finish(figure),
        numbers,
        "Merged keys and queries (D = 4, N = 31, H = 8, all weights N(0, 10^-6), spectrum .4 .3 .2 "
        ".1). (a) The loss drops once, from L(M_0) to L(M_*) (dashed, from theory). Gradient "
        "descent of the attention layer on a training set, and of the two-layer linear network on "
        "its cubic features, follow the set's gradient flow; the population's flow (blue) differs "
        "by the sampling of the set. (b) All modes of A leave zero together, and settle at their "
        "own rates. (c) White tokens: tr A/D along the run against the closed form sigma(t), from "
        "a balanced start and from a generic one, where w_init must be taken from the growing "
        "mode. (d) Gradient descent approaches the flow in proportion to the "
        "learning rate.",
        merged.fixed_points().equations
        + merged.white_closed_form_equations()
        + (r"\hat y_q = w_2^\top W_1 z,\qquad z = \operatorname{vec}(\beta x_q^\top)",),
    )


def _one_curve(ax: Any, beside: Any, quick: bool) -> dict[str, Any]:
    model: Any = ok.models.attention_merged(heads=HEADS, dim=DIM)
    y0 = ok.simulate.initial(model, SCALE, SEED)
    params: dict[str, Any] = {"Lambda": np.diag(SPECTRUM), "N": CONTEXT}
    lr = 0.05
    times = np.linspace(0.0, END, 401)
    flow: Any = ok.solve(model.flow, y0, times, params, tolerance=TOLERANCE)

    drawn = ok.simulate.sequences(
        1000 if quick else 5000, covariance=np.diag(SPECTRUM), context=CONTEXT, seed=DATA_SEED
    )
    x, y = ok.simulate.close_under_sign(*drawn)
    moments = ok.simulate.statistics(x, y, kind="reduced")
    steps = round(END / (2 * lr))
    descent: Any = ok.simulate.gradient_descent(
        model, moments, y0=y0, lr=lr, steps=steps, save_at=np.arange(steps + 1)
    )
    twin = linear_networks.as_network(y0)
    z = linear_networks.cubic_features(x, y)
    at, losses = linear_networks.train_network(z, y[:, -1], twin, lr, steps, every=25)
    network: Any = ok.solve(
        linear_networks.network_flow(),
        twin,
        times,
        linear_networks.moments(moments),
        tolerance=TOLERANCE,
    )
    levels = [
        float(np.trace(np.diag(SPECTRUM))),
        ok.theory.plateau_losses(SPECTRUM, CONTEXT)[-1],
    ]
    ax.set_xlim(0, END)
    ax.set_ylim(0, 1.1)
    pictures.loss_curve(flow, levels, ax, color=BLUE, label="flow, population", plateau_label="")
    pictures.loss_curve(network, ax=ax, color=BLACK, lw=0.8, label="network flow, training set")
    pictures.loss_curve(
        descent,
        ax=ax,
        per_step=2 * lr,
        color=ORANGE,
        lw=3.5,
        alpha=0.5,
        zorder=1,
        label="attention GD, training set",
    )
    ax.plot(
        2 * lr * at, losses, "o", color=RED, ms=3, mfc="none", label="network GD, cubic features"
    )
    for level, name in zip(levels, (r"\mathcal{M}_0", r"\mathcal{M}_*"), strict=True):
        ax.annotate(
            rf"$\mathcal{{L}}({name})$",
            (END, level),
            (-2, 2),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=6.5,
            color="0.25",
        )
    ax.legend(loc="upper right", bbox_to_anchor=(1.0, 0.9))
    strengths = pictures.modes(flow, np.eye(DIM), ax=beside, lw=0)
    best = np.diag(merged.optimum(params["Lambda"], CONTEXT))
    for mode, (line, colour) in enumerate(
        zip(strengths.lines, pictures.sequence(DIM), strict=True)
    ):
        beside.plot(
            flow.t,
            line.get_ydata() / best[mode],
            color=colour,
            label=rf"$\lambda_{mode + 1}={SPECTRUM[mode]:g}$",
        )
        line.remove()
    beside.set_xlim(0, END)
    beside.set_ylim(-0.04, 1.15)
    beside.set_ylabel(r"mode strength $e_d^\top A\,e_d\,\lambda_d c_d$")
    beside.legend(loc="lower right")
    shared = descent.loss[at.astype(int)]
    follows = np.abs(np.interp(times, 2 * lr * descent.t, descent.loss) - network.loss).max()
    return {
        "levels": levels,
        "end loss of the flow": float(flow.loss[-1]),
        "least loss on the training set": moments.minimum(),
        "end loss on the training set": float(network.loss[-1]),
        "largest gap, attention GD to network GD": float(np.abs(shared - losses).max()),
        "largest gap, attention GD to the set's flow": float(follows),
        "half-drop times": {
            "population": _half_drop(flow.t, flow.loss),
            "training set": _half_drop(network.t, network.loss),
        },
        "escape rates": {
            "population": merged.escape_rate(np.diag(SPECTRUM)),
            "training set": float(np.linalg.norm(moments.c)),
        },
        "time": times,
        "loss of the flow": flow.loss,
        "loss of the network's flow": network.loss,
    }


def _half_drop(t: Any, loss: Any) -> float:
    middle = (loss[0] + loss[-1]) / 2
    after = int(np.argmax(loss < middle))
    return float(np.interp(-middle, -loss[after - 1 : after + 1], t[after - 1 : after + 1]))


def _white(ax: Any) -> dict[str, Any]:
    model: Any = ok.models.attention_merged(heads=HEADS, dim=DIM)
    params: dict[str, Any] = {"Lambda": np.eye(DIM), "N": CONTEXT}
    generic = ok.simulate.initial(model, SCALE, SEED)
    aligned = merged.balanced_start(0.3 * generic["v"], DIM)
    times = np.linspace(0.0, 6.5, 131)
    gaps: dict[str, float] = {}
    top = 1 / (1 + (1 + DIM) / CONTEXT)
    for place, (name, y0, size) in enumerate(
        (
            ("balanced, aligned", aligned, merged.value_norm(aligned)),
            ("generic", generic, merged.growing_mode(generic)),
        )
    ):
        run: Any = ok.solve(model.flow, y0, times, params, tolerance=TOLERANCE)
        strength = np.trace(run.value("A"), axis1=1, axis2=2) / DIM
        form = merged.sigmoid(times, DIM, CONTEXT, size)
        gaps[name] = float(np.abs(strength - form).max()) / top
        colour = (ORANGE, BLUE)[place]
        ax.plot(times, form, color=colour, label=rf"$\sigma(t)$, {name}")
        ax.plot(times[place::8], strength[place::8], "o", color=colour, mfc="white", ms=3)
    naive = merged.sigmoid(times, DIM, CONTEXT, merged.value_norm(generic))
    gaps["generic, with sum v^2"] = float(np.abs(strength - naive).max()) / top
    ax.plot(times, naive, ":", color=RED, lw=1, label=r"generic, $w_\mathrm{init}^2=\sum_h v_h^2$")
    ax.plot([], [], "o", color="0.3", mfc="white", ms=3, label="run")
    ax.set_xlabel(r"time $t/\tau$")
    ax.set_ylabel(r"prediction strength $\mathrm{tr}\,A/D$")
    ax.legend(loc="upper left")
    return {
        "largest gap to the closed form, of its end value": gaps,
        "w_init^2 of the generic start": {
            "growing mode": merged.growing_mode(generic),
            "sum of v^2": merged.value_norm(generic),
        },
    }


def _learning_rates(ax: Any, quick: bool) -> dict[str, Any]:
    model: Any = ok.models.attention_merged(heads=HEADS, dim=DIM)
    y0 = ok.simulate.initial(model, SCALE, SEED)
    params: dict[str, Any] = {"Lambda": np.diag(SPECTRUM), "N": CONTEXT}
    rates = 0.08 / 2.0 ** np.arange(3 if quick else 6)
    times = np.arange(0.0, 75.0, 0.8)
    flow: Any = ok.solve(model.flow, y0, times, params, tolerance=ok.Tolerance(relative=1e-9))
    population = ok.simulate.Population(params)
    gaps = []
    for lr in rates:
        at = np.rint(times / (2 * lr)).astype(int)
        run: Any = ok.simulate.gradient_descent(
            model,
            population,
            y0=y0,
            lr=float(lr),
            steps=int(at[-1]),
            save_at=at,
        )
        gaps.append(float(np.abs(run.loss - flow.loss).max()))
    # The slope at the small end, where the error's next order has died out.
    slope, _ = pictures.power_law(rates[-3:], gaps[-3:])
    ax.loglog(rates, gaps, "o-", color=BLUE, mfc="white", label="merged, population")
    ax.loglog(rates, gaps[-1] * rates / rates[-1], "--", color="0.5", lw=0.8, label=r"slope 1")
    ax.xaxis.set_minor_formatter("")
    ax.set_xlabel(r"learning rate $\eta$  ($t = 2\eta\,\times$ steps)")
    ax.set_ylabel(r"$\max_t\;|\mathcal{L}_\mathrm{GD} - \mathcal{L}_\mathrm{flow}|$")
    ax.legend(loc="upper left")
    ax.text(0.95, 0.08, f"fitted slope {slope:.3f}", transform=ax.transAxes, ha="right", fontsize=7)
    return {"learning rates": rates, "largest gaps": gaps, "slope": slope}
