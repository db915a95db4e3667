r"""Figure: mini-batch training laid over the flows of figures 1, 3, 4 and 6.

Every step of SGD draws fresh sequences; runs of one panel share the start and differ in the data.
Curves are the exact expected loss at the weights that SGD had, not the loss of its batches, at
matched time ``t = 2 lr step`` (the loss has no 1/2, and tau dtheta/dt is half its gradient).

How far apart may seeds be? While the weights of the merged layer are small they grow by the factor
``1 + h s`` a step, with ``h = 2 lr`` and ``s`` the batch's mean of ``y_q beta^T W x_q``, W the
growing direction ``Lambda^2 / |Lambda^2|``. So the logarithm of the growth is a random walk, and
the time of the drop has the spread that `Escape` predicts from the law of the data alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import odekit as ok
import odekit.plot as pictures
from odekit.reproduce import Picture

from . import merged

Array = NDArray[np.float64]

CONTEXT = 31
SPECTRUM = np.array([0.4, 0.3, 0.2, 0.1])
LONG_SPECTRUM = np.arange(8.0, 0.0, -1.0) / 36.0
TIME_PER_RATE = 2.0  # t/tau = 2 lr step
CONFIDENCE = 0.999
BLUE, RED, GREEN, PURPLE, ORANGE, SKY, BLACK = pictures.PALETTE
SHADES = (BLUE, GREEN, RED)
# Fresh data of seeds 0, 1, ...; the start of each panel is one of the seeds of its figure.
ABRUPT: dict[str, Any] = {
    "scale": 1e-3,
    "start": 3,
    "lr": 0.02,
    "batch": 8,
    "end": 80.0,
    "seeds": 16,
}
SADDLES: dict[str, Any] = {
    "scale": 0.1,
    "start": 3,
    "lr": 0.1,
    "batch": 32,
    "end": 3200.0,
    "seeds": 5,
}
RANKS: dict[str, Any] = {
    "scale": 0.2,
    "start": 2,
    "lr": 0.1,
    "batch": 32,
    "end": 3200.0,
    "seeds": 4,
}
# Scale of the start: learning rate. The larger the weights, the stiffer the loss.
SCALES = {1e-3: 0.02, 0.1: 0.02, 1.0: 0.005}
SCALE_START, SCALE_SEEDS, SCALE_BATCH, HALF_LIVES = 0, 8, 8, 4.0


@dataclass(frozen=True, eq=False)
class Trained:
    """SGD runs beside the flow from the same start."""

    flow: ok.Solution
    runs: tuple[ok.Solution, ...]  # as SGD returned them: t counts steps
    matched: tuple[ok.Solution, ...]  # t in units of tau, loss of the population
    settings: dict[str, Any]

    @property
    def losses(self) -> Array:
        """Loss of the population (S, K), seeds first."""
        return np.stack([np.asarray(run.loss) for run in self.matched])

    @property
    def t(self) -> Array:
        """Matched times (K,), at which the flow is saved too."""
        return self.flow.t

    def deviation(self) -> float:
        """Largest distance of the median over seeds from the flow."""
        assert self.flow.loss is not None
        return float(np.abs(np.median(self.losses, axis=0) - self.flow.loss).max())

    def summary(self) -> dict[str, Any]:
        """Return what is drawn, as plain values."""
        low, high = self.losses.min(axis=0), self.losses.max(axis=0)
        assert self.flow.loss is not None
        return {
            **self.settings,
            "largest gap, median to flow": self.deviation(),
            "share of times with the flow inside the band": float(
                np.mean((low <= self.flow.loss) & (self.flow.loss <= high))
            ),
            "end loss": {
                "flow": float(self.flow.loss[-1]),
                "median of SGD": float(np.median(self.losses[:, -1])),
            },
            "time": self.t.tolist(),
            "flow": self.flow.loss.tolist(),
            "median": np.median(self.losses, axis=0).tolist(),
            "low": low.tolist(),
            "high": high.tolist(),
        }


def train(
    model: Any,
    spectrum: Array,
    y0: dict[str, Array],
    *,
    lr: float,
    batch: int,
    end: float,
    seeds: int,
    every_step: bool = False,
    log: bool = False,
) -> Trained:
    """Run the flow and SGD with fresh data from one start, saved at the same times."""
    params = {"Lambda": np.diag(spectrum), "N": CONTEXT}
    per_step = TIME_PER_RATE * lr
    steps = round(end / per_step)
    at = np.arange(steps + 1) if every_step else np.linspace(0, steps, min(steps, 400) + 1)
    if log:
        at = np.concatenate([[0], np.geomspace(1, steps, 500)])
    at = np.unique(np.rint(at).astype(np.int64))
    times = np.asarray(per_step * at, dtype=np.float64)
    flow = ok.solve(model.flow, y0, times, params, tolerance=ok.Tolerance(relative=1e-8))
    runs = tuple(
        ok.simulate.sgd(
            model, y0=y0, params=params, lr=lr, steps=steps, batch=batch, seed=seed, save_at=at
        )
        for seed in range(seeds)
    )
    stopped = [seed for seed, run in enumerate(runs) if len(run.t) != len(times)]
    if stopped:
        raise RuntimeError(f"SGD at lr {lr:g} stopped early for the data of seeds {stopped}.")
    matched = tuple(replace(run, t=times, loss=run.value(model.loss)) for run in runs)
    settings = {"lr": lr, "batch": batch, "steps": steps, "seeds of the data": list(range(seeds))}
    return Trained(flow, runs, matched, settings)


@dataclass(frozen=True)
class Escape:
    """Spread of the time at which SGD of the merged layer leaves zero, from the law of the data.

    Parameters
    ----------
    rate : float
        ``|Lambda^2|``, of the flow; in units of 1/tau.
    variance : float
        Of ``y_q beta^T W x_q`` over sequences.
    step : float
        ``2 lr``, in units of tau.
    batch : int
    """

    rate: float
    variance: float
    step: float
    batch: int

    @classmethod
    def of(cls, spectrum: Array, lr: float, batch: int, count: int = 40_000) -> Escape:
        """Estimate the variance from sequences (to a few per cent)."""
        square = np.diag(spectrum**2)
        rate = merged.escape_rate(np.diag(spectrum))
        drawn = ok.simulate.sequences(count, np.diag(spectrum), CONTEXT, seed=0)
        factor = drawn.y[:, -1] * (drawn.features("reduced") @ (square / rate).ravel())
        return cls(rate, float(factor.var()), TIME_PER_RATE * lr, batch)

    def spread(self, t: Any) -> Any:
        """Return the standard deviation of the delay at time t, over seeds."""
        return np.sqrt(self.step * np.asarray(t) * self.variance / self.batch) / self.rate

    def delay(self, t: Any) -> Any:
        """Return the mean delay at time t: ``ln(1 + h s) = h s - h^2 s^2 / 2`` falls behind."""
        second = self.rate**2 + self.variance / self.batch
        return self.step * np.asarray(t) * second / (2 * self.rate)


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the figure."""
    figure, axes = pictures.panels(2, 2, height=4.9)
    with pictures.style():
        progress("merged, SGD over the flow")
        abrupt = _abrupt(axes[0], quick)
        progress("separate, rank one: from saddle to saddle")
        saddles = _saddles(axes[1], quick)
        progress("ranks 1 and 4")
        ranks = _ranks(axes[2], quick)
        progress("scales of the start")
        scales = _scales(axes[3], quick)
    count = {
        name: len(part["seeds of the data"])
        for name, part in (("a", abrupt), ("b", saddles), ("c", ranks["R = 1"]))
    }
    split = abrupt["escape time"]
    return Picture(
        pictures.finish(figure),
        {"context": CONTEXT, "abrupt": abrupt, "saddles": saddles, "rank": ranks, "scale": scales},
        f"SGD on fresh sequences (N = {CONTEXT}) over the gradient flow from the same start, at "
        "matched time t = 2 lr step. Lines and shades: median and range over seeds of the data; "
        "black dashes: flow. Every curve is the exact population loss at the weights of that step, "
        "neither the loss of a batch nor smoothed. (a) Merged, as figure 1 (D = 4, H = 8, scale "
        f"{ABRUPT['scale']:g}; lr {ABRUPT['lr']:g}, batch {ABRUPT['batch']}, {count['a']} seeds). "
        "While weights are small the logarithm of their growth is a random walk: half of the drop "
        f"is reached with a standard deviation of {split['spread over seeds']:.2g} tau over seeds, "
        f"predicted {split['predicted spread']:.2g}. Training and flow {abrupt['verdict']} at "
        f"{100 * CONFIDENCE:g} % (mean steps, and lr to 0). (b) Separate of rank one, as figure 3 "
        f"(H = 4, scale {SADDLES['scale']:g}; lr {SADDLES['lr']:g}, batch {SADDLES['batch']}, "
        f"{count['b']} seeds); grey: levels from theory. Noise moves the times of the drops; the "
        f"levels it raises a little, at the end by {_excess(saddles):.1g}. (c) Ranks 1 and 4, as "
        f"figure 4 (D = 8, H = 9, scale {RANKS['scale']:g}; lr {RANKS['lr']:g}, batch "
        f"{RANKS['batch']}, {count['c']} seeds); rank 1 has levels yet to reach at the end shown. "
        "(d) Scale of the start, merged, as figure 6, against time in half-lives of the flow's "
        f"excess loss (batch {SCALE_BATCH}; lr "
        + ", ".join(f"{row['lr']:g}" for row in scales)
        + f" in the legend's order; {len(scales[0]['seeds of the data'])} seeds).",
        (
            r"\theta_{k+1} = \theta_k - \eta\,\nabla\hat{\mathcal L}_k(\theta_k),\qquad"
            r" \tau\dot\theta = -\tfrac12\nabla\mathcal L,\qquad t/\tau = 2\eta k",
            r"\operatorname{std}\,\delta t = \frac{1}{\lVert\Lambda^2\rVert}"
            r"\sqrt{\frac{2\eta\,t\,\operatorname{Var}(y_q\beta^\top W x_q)}{B}},\qquad"
            r" W = \frac{\Lambda^2}{\lVert\Lambda^2\rVert}",
        ),
    )


def _excess(part: dict[str, Any]) -> float:
    return float(part["end loss"]["median of SGD"] - part["end loss"]["flow"])


def half_drop(t: Array, loss: Array, floor: float) -> float:
    """Return the first time at which half of the excess loss is gone."""
    middle = (loss[0] + floor) / 2
    after = int(np.argmax(loss < middle))
    return float(np.interp(-middle, -loss[after - 1 : after + 1], t[after - 1 : after + 1]))


def _overlay(ax: Any, trained: Trained, color: str, label: str, unit: float = 1.0) -> None:
    """Draw the band of SGD, and the flow over it, with time in the given unit."""
    shown = [replace(run, t=run.t / unit) for run in trained.matched]
    pictures.band(shown, ax, times=trained.t / unit, color=color, label=label)
    ax.plot(trained.t / unit, trained.flow.loss, color=BLACK, lw=0.9, ls=(0, (3, 2)), zorder=4)


def _abrupt(ax: Any, quick: bool) -> dict[str, Any]:
    model: Any = ok.models.attention_merged(heads=8, dim=4)
    y0 = ok.simulate.initial(model, ABRUPT["scale"], ABRUPT["start"])
    lr, batch, end = ABRUPT["lr"], ABRUPT["batch"], ABRUPT["end"]
    seeds = 3 if quick else ABRUPT["seeds"]
    # Every step is saved: the test of the mean step is then exact.
    trained = train(model, SPECTRUM, y0, lr=lr, batch=batch, end=end, seeds=seeds, every_step=True)
    judged = ok.simulate.compare(trained.flow, trained.runs, confidence=CONFIDENCE)
    floor = float(ok.theory.plateau_losses(SPECTRUM, CONTEXT)[-1])
    assert trained.flow.loss is not None
    middle = half_drop(trained.t, trained.flow.loss, floor)
    reached = [half_drop(trained.t, loss, floor) for loss in trained.losses]
    escape = Escape.of(SPECTRUM, lr, batch)
    ax.set_xlim(0, end)
    ax.set_ylim(0, 1.1)
    _overlay(ax, trained, BLUE, f"SGD, {seeds} seeds")
    ax.plot([], [], color=BLACK, lw=0.9, ls=(0, (3, 2)), label="flow")
    ax.set_title("merged", loc="right")
    ax.legend(loc="lower left")
    thin = np.arange(0, len(trained.t), 10)
    summary = {
        key: [value[k] for k in thin] if key in ("time", "flow", "median", "low", "high") else value
        for key, value in trained.summary().items()
    }
    return {
        **summary,
        "verdict": judged.verdict,
        "confidence": CONFIDENCE,
        "checks": [
            {"name": c.name, "value": float(c.value), "bound": float(c.bound)}
            for c in judged.checks
        ],
        "escape time": {
            "flow": middle,
            "seeds": reached,
            "spread over seeds": float(np.std(reached, ddof=1)),
            "predicted spread": float(escape.spread(middle)),
            "mean delay": float(np.mean(reached) - middle),
            "predicted delay": float(escape.delay(middle)),
        },
    }


def _saddles(ax: Any, quick: bool) -> dict[str, Any]:
    model: Any = ok.models.attention_separate(heads=4, rank=1, dim=4)
    y0 = ok.simulate.initial(model, SADDLES["scale"], SADDLES["start"])
    seeds, end = (3, SADDLES["end"] / 4) if quick else (SADDLES["seeds"], SADDLES["end"])
    lr, batch = SADDLES["lr"], SADDLES["batch"]
    trained = train(model, SPECTRUM, y0, lr=lr, batch=batch, end=end, seeds=seeds, log=True)
    levels = ok.theory.plateau_losses(SPECTRUM, CONTEXT)
    ax.set_xscale("log")
    ax.set_xlim(10, end)
    ax.set_ylim(0.05, 1.08)
    _overlay(ax, trained, GREEN, f"SGD, {seeds} seeds")
    pictures.plateau_lines(ax, levels)
    ax.set_title("separate, $R = 1$", loc="right")
    ax.legend(loc="upper right", bbox_to_anchor=(1.0, 0.9))
    return {**trained.summary(), "levels": levels.tolist()}


def _ranks(ax: Any, quick: bool) -> dict[str, Any]:
    seeds, end = (3, RANKS["end"] / 8) if quick else (RANKS["seeds"], RANKS["end"])
    chosen = {"lr": RANKS["lr"], "batch": RANKS["batch"], "end": end, "seeds": seeds}
    ax.set_xscale("log")
    ax.set_xlim(10, end)
    ax.set_ylim(0.15, 1.06)
    found = {}
    for rank, color in ((1, BLUE), (4, RED)):
        model: Any = ok.models.attention_separate(heads=9, rank=rank, dim=8)
        y0 = ok.simulate.initial(model, RANKS["scale"], RANKS["start"])
        trained = train(model, LONG_SPECTRUM, y0, log=True, **chosen)
        _overlay(ax, trained, color, f"SGD, $R = {rank}$")
        found[f"R = {rank}"] = trained.summary()
    pictures.plateau_lines(ax, ok.theory.plateau_losses(LONG_SPECTRUM, CONTEXT))
    ax.set_title("separate, $D = 8$", loc="right")
    ax.legend(loc="upper right", bbox_to_anchor=(1.0, 0.94))
    return found


def _scales(ax: Any, quick: bool) -> list[dict[str, Any]]:
    model: Any = ok.models.attention_merged(heads=8, dim=4)
    floor = float(ok.theory.plateau_losses(SPECTRUM, CONTEXT)[-1])
    params = {"Lambda": np.diag(SPECTRUM), "N": CONTEXT}
    rows = []
    seeds = 3 if quick else SCALE_SEEDS
    for (scale, lr), color in zip(SCALES.items(), SHADES, strict=True):
        y0 = ok.simulate.initial(model, scale, SCALE_START)
        ahead = np.concatenate([[0.0], np.geomspace(1e-2, 300.0, 600)])
        flow = ok.solve(model.flow, y0, ahead, params)
        assert flow.loss is not None
        half = half_drop(flow.t, flow.loss, floor)
        end = HALF_LIVES * half
        trained = train(model, SPECTRUM, y0, lr=lr, batch=SCALE_BATCH, end=end, seeds=seeds)
        _overlay(ax, trained, color, f"{scale:g}", unit=half)
        rows.append({"scale": scale, "half-life": half, **trained.summary()})
    ax.set_xlim(0, HALF_LIVES)
    ax.set_ylim(0, None)
    ax.set_xlabel("time, in half-lives of the excess loss")
    ax.set_title("merged", loc="right")
    ax.legend(title="scale of the start", title_fontsize=7, loc="upper right")
    return rows
