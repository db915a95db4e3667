"""Does training follow the flow? Seeds against the flow at matched time, with a confidence.

Two questions are put apart, because each has an exact answer.

1. Is the mean step of training the flow's rate? A step of SGD on fresh data is
   `theta + h F(theta) + noise` with `h = lr * time_scale` and noise of mean exactly zero given the
   past, at every learning rate. So along any direction chosen before the step the residuals
   `theta_{k+1} - theta_k - h F(theta_k)`, each divided by a scale known before it, add up to a
   martingale, whose self-normalised sum is standard normal. Steps on the population must agree to
   rounding; steps on finite training sets are compared over independent sets by Student's t.
2. Is the flow's curve the limit lr -> 0 of these steps? The same steps at lr, lr/2, lr/4, ... are
   extrapolated (Richardson) and must hit the curve at matched time.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError
from odekit.simulate.layer import Floats
from odekit.simulate.rates import Rates, descend, exact_path
from odekit.solution import Check, Report, Solution

__all__ = ["Agreement", "Curve", "compare"]

_DIRECTIONS = ("rate", "curvature", "state")
_WARM_UP = 5  # residuals that only set the scale of the next
_LEVELS = 7  # learning rates lr, lr/2, ..., at most
_FLOW_TOLERANCE = 1e-5  # what a solution at default tolerances may be off, relative to its range


@dataclass(frozen=True, eq=False)
class Curve:
    """Deviation of the loss from the flow's, at one learning rate, and where it comes from.

    Parameters
    ----------
    lr : float
    t : ndarray (K,)
        Matched times, ``step * lr * time_scale``, in the flow's unit.
    flow : ndarray (K,)
        Loss of the flow.
    runs : ndarray (S, K)
        The flow's loss at the states of the S runs.
    learning_rate : ndarray (K,)
        Finite learning rate: exact steps of size lr minus flow.
    first_order : ndarray (K,)
        What ``L + (lr/4) |grad L|^2`` in place of L predicts for `learning_rate`.
    training_set : ndarray (K,) or None
        Finite training sets: mean of the runs on them minus the exact steps.
    noise : ndarray (K,) or None
        Gradient noise: mean of the runs on fresh data minus the exact steps.
    band : ndarray (2, K) or None
        Mean of the runs, plus and minus its confidence interval.
    """

    lr: float
    t: Floats
    flow: Floats
    runs: Floats
    learning_rate: Floats
    first_order: Floats
    training_set: Floats | None
    noise: Floats | None
    band: Floats | None


@dataclass(frozen=True)
class Agreement(Report):
    """Verdict of `compare`, with the deviation split into its sources.

    Parameters
    ----------
    title, checks
        As for `Report`; ``.passed`` says whether training agrees with the flow.
    confidence : float
        Probability that a right flow is reported as agreeing.
    curves : tuple of Curve
        One for each learning rate, largest first.
    slope : float
        Largest deviation by finite learning rate, divided by lr, at the largest lr.
    order : float
        Measured power of lr in that deviation; 1 where lr is small enough.
    """

    confidence: float = 0.999
    curves: tuple[Curve, ...] = field(default=(), compare=False)
    slope: float = float("nan")
    order: float = float("nan")

    @property
    def verdict(self) -> str:
        """The word "agree" or "disagree"."""
        return "agree" if self.passed else "disagree"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, fit for JSON."""
        split = [
            {
                "lr": curve.lr,
                "learning_rate": _largest(curve.learning_rate),
                "first_order": _largest(curve.first_order),
                "training_set": _largest(curve.training_set),
                "noise": _largest(curve.noise),
            }
            for curve in self.curves
        ]
        return {
            **super().to_dict(),
            "verdict": self.verdict,
            "confidence": self.confidence,
            "slope": self.slope,
            "order": self.order,
            "largest_deviations": split,
        }

    def __str__(self) -> str:
        lines = [Report.__str__(self), f"  at {100 * self.confidence:g} % confidence"]
        for curve in self.curves:
            parts = [
                f"finite learning rate {_largest(curve.learning_rate):.3g} "
                f"(first order {_largest(curve.first_order):.3g})"
            ]
            for name, part in (
                ("finite training set", curve.training_set),
                ("gradient noise", curve.noise),
            ):
                if part is not None:
                    parts.append(f"{name} {_largest(part):.3g}")
            lines.append(f"  lr {curve.lr:g}, largest loss deviations: " + ", ".join(parts))
        lines.append(f"  deviation = {self.slope:.3g} lr, measured power of lr {self.order:.3g}")
        return "\n".join(lines)

    def plot(self) -> Any:
        """Draw loss curves at matched time, and the deviations; returns the figure."""
        plot = importlib.import_module("odekit.plot")
        with plot.style():
            figure, (left, right) = plot.panels(1, 2)
            left.plot(self.curves[-1].t, self.curves[-1].flow, "k", label="flow")
            for j, curve in enumerate(self.curves):
                colour = plot.PALETTE[(j + 1) % len(plot.PALETTE)]
                if curve.band is not None:
                    left.fill_between(curve.t, *curve.band, color=colour, alpha=0.3, lw=0)
                left.plot(
                    curve.t,
                    curve.runs.mean(0),
                    "--",
                    color=colour,
                    label=f"training, lr {curve.lr:g}",
                )
                right.plot(curve.t, curve.learning_rate, color=colour, label="finite lr")
                right.plot(curve.t, curve.first_order, ":", color=colour, label="first order")
                for name, part in (
                    ("training set", curve.training_set),
                    ("gradient noise", curve.noise),
                ):
                    if part is not None:
                        right.plot(curve.t, part, "-.", color=colour, label=name)
            left.set(xlabel=r"time ($\tau$)", ylabel="loss")
            right.set(xlabel=r"time ($\tau$)", ylabel="loss minus flow")
            left.legend()
            right.legend()
        return plot.finish(figure)


def compare(
    flow_solution: Solution,
    runs: Solution | Iterable[Solution],
    *,
    confidence: float = 0.999,
) -> Agreement:
    """Compare training with the flow at matched time ``step * lr * time_scale``.

    Parameters
    ----------
    flow_solution : Solution
        Of a gradient flow with a loss, solved to the end of the runs (with an end time, so that
        it can be read at the matched times).
    runs : Solution or iterable of Solution
        Plain GD or SGD from the flow's own start: on the population, on fresh data, or on
        finite sets (at least three, independent). Save every step for an exact test.
    confidence : float
        Probability that a right flow is reported as agreeing.

    Returns
    -------
    Agreement
        A `Report` with the deviation's split into finite learning rate, finite training set and
        gradient noise; print it or ``.plot()`` it.

    Raises
    ------
    InputError
        For runs that cannot be matched with the flow.
    """
    given = [runs] if isinstance(runs, Solution) else runs
    trained = list(given) if isinstance(given, Iterable) else []
    if not 0.5 <= confidence < 1:
        raise InputError(f"confidence must be at least 0.5 and below 1, got {confidence!r}.")
    if not trained or not all(isinstance(run, Solution) for run in trained):
        raise InputError("compare needs at least one training run, each a Solution.")
    _refuse_repeated(trained)
    if not isinstance(flow_solution, Solution):
        raise InputError(
            f"compare takes the flow's Solution first, got {type(flow_solution).__name__}."
        )
    rates = Rates.of(flow_solution)
    starts = rates.pack(flow_solution.states)[0]
    paths = [_Path.read(run, rates, starts) for run in trained]
    checks = _mean_step_checks(paths, rates, confidence)
    curves, slope, order, limit = [], float("nan"), float("nan"), None
    for h in sorted({path.h for path in paths}, reverse=True):
        group = [path for path in paths if path.h == h]
        curve, found = _curve(flow_solution, rates, group, h, confidence)
        curves.append(curve)
        if limit is None:
            limit, slope, order = found
    assert limit is not None
    return Agreement(
        title="Training against the flow",
        checks=(limit, *checks),
        confidence=confidence,
        curves=tuple(curves),
        slope=slope,
        order=order,
    )


def _refuse_repeated(runs: Sequence[Solution]) -> None:
    """Runs of one seed and one configuration are one run, which counts once."""
    seen: dict[str, int] = {}
    for k, run in enumerate(runs):
        own = run.stats.get("configuration", {})
        seeded = isinstance(own, Mapping) and own.get("seed") is not None
        first = seen.setdefault(repr(own) if seeded else f"object {id(run)}", k)
        if first != k:
            raise InputError(
                f"Runs {first} and {k} are the same run (one seed, one configuration), which "
                "counts once; give each run a seed of its own."
            )


@dataclass(frozen=True, eq=False)
class _Path:
    """One run, flat: steps (K,), states (K, n), recorded losses, and what it was trained on.

    `lr` is the learning rate, the largest where states have their own; h is the flow's time in a
    step.
    """

    steps: NDArray[np.int64]
    states: Floats
    loss: Floats
    lr: float
    h: float
    data: str

    @classmethod
    def read(cls, run: Solution, rates: Rates, start: Floats) -> _Path:
        configuration = run.stats.get("configuration", {})
        routine, data = configuration.get("routine"), str(configuration.get("data", ""))
        if routine not in ("gradient_descent", "sgd"):
            raise InputError("Each run must come from gradient_descent or sgd.")
        if run.stats.get("method") not in ("gradient descent", "gd", "sgd"):
            raise InputError(
                f"A run of {run.stats.get('method')} does not follow the gradient flow; "
                "compare plain steps (gd, sgd, momentum 0)."
            )
        held = rates.split(run.states)
        if set(held) != set(rates.names):
            raise InputError(
                f"The run has states {', '.join(run.states)}, the flow has "
                f"{', '.join(rates.names)}; use the same model, or model.restrict."
            )
        states = rates.pack(held)
        gap = np.abs(states[0] - start).max()
        if run.t[0] != 0 or gap > 1e-12 * (1e-300 + np.abs(start).max()):
            raise InputError(
                f"A run starts at step {run.t[0]:g}, {gap:.3g} away from the flow's start; "
                "save step 0 and give both the same y0."
            )
        if run.loss is None or len(run.t) < 3:
            raise InputError("A run needs at least three recorded steps with their loss.")
        kind = "population" if data.startswith("Population") else "set"
        if routine == "sgd" and data.startswith("fresh"):
            kind = "fresh"
        lr = run.stats["lr"]
        largest = max(lr.values()) if isinstance(lr, Mapping) else float(lr)
        h = rates.step_of(lr)
        return cls(run.t.astype(np.int64), states, run.loss, largest, h, kind)

    def residuals(self, rates: Rates) -> tuple[Floats, Floats]:
        """Return residuals (K-1, n) of the exact steps, and rates (K-1, n) at their starts."""
        h = self.h
        flow = np.array([rates.rate(theta) for theta in self.states[:-1]])
        ahead = self.states[:-1] + h * flow
        for k, gap in enumerate(np.diff(self.steps)):
            for _ in range(int(gap) - 1):
                ahead[k] = ahead[k] + h * rates.rate(ahead[k])
        return self.states[1:] - ahead, flow


def _directions(rates: Rates, states: Floats) -> Floats:
    """Unit directions (K, J, n) at states (K, n)."""
    out = np.empty((len(states), len(_DIRECTIONS), states.shape[1]))
    for k, theta in enumerate(states):
        rate = rates.rate(theta)
        out[k] = [rate, rates.along(theta, rate), theta]
    size = np.linalg.norm(out, axis=2, keepdims=True)
    unit: Floats = out / np.where(size > 0, size, 1.0)
    return unit


def _mean_step_checks(paths: Sequence[_Path], rates: Rates, confidence: float) -> list[Check]:
    checks: list[Check] = []
    sums: list[Floats] = []
    totals: list[Floats] = []
    exact: list[float] = []
    for path in paths:
        with np.errstate(over="ignore", invalid="ignore"):
            residual, flow = path.residuals(rates)
        h = path.h
        rounding = (
            1e-9 * h * np.linalg.norm(flow, axis=1).max()
            + 64 * np.finfo(float).eps * np.linalg.norm(path.states, axis=1).max()
        ) * np.diff(path.steps).max()
        worst = float(np.linalg.norm(residual, axis=1).max() / rounding)
        if path.data == "population" or worst <= 1:
            exact.append(worst)
            continue
        # On fresh data the noise of a step knows nothing of the state before it, whose directions
        # are the sharpest; a fixed set pulls its own states, so there the exact steps give them.
        fresh = path.data == "fresh"
        places = (
            path.states[:-1] if fresh else exact_path(rates, path.states[0], path.h, path.steps)
        )
        ways = _directions(rates, places[: len(residual)])
        projected = np.einsum("kjn,kn->kj", ways, residual)
        if fresh:
            losses = path.loss[:-1] - np.array([rates.loss(s) for s in path.states[:-1]])
            sums.append(_standardised(np.column_stack([projected, losses])))
        else:
            totals.append(projected.sum(axis=0))
    if exact:
        reason = "steps on the population equal the flow's rate to rounding"
        checks.append(Check("exact steps, in units of rounding", max(exact), 1.0, reason))
    names = [f"mean step along the {name}" for name in _DIRECTIONS]
    if sums:
        z = np.concatenate(sums)
        labels = [*names, "mean loss"]
        bound = NormalDist().inv_cdf(1 - (1 - confidence) / (2 * len(labels)))
        scores = np.abs(z.sum(axis=0)) / np.sqrt((z**2).sum(axis=0))
        reason = f"standard normal, {len(z)} steps, {len(labels)} tests"
        checks += [
            Check(f"{label}, fresh data", float(score), bound, reason)
            for label, score in zip(labels, scores, strict=True)
        ]
    if totals:
        if len(totals) < 3:
            raise InputError(
                f"{len(totals)} run(s) on finite training sets: at least 3 independent sets are "
                "needed to judge; add seeds, or train on the population or fresh data."
            )
        t = np.array(totals)
        spread = t.std(axis=0, ddof=1) / np.sqrt(len(t))
        bound = student_quantile(1 - (1 - confidence) / (2 * len(names)), len(t) - 1)
        reason = f"Student's t, {len(t)} training sets, {len(names)} tests"
        checks += [
            Check(f"{name}, finite sets", float(score), bound, reason)
            for name, score in zip(names, np.abs(t.mean(axis=0)) / spread, strict=True)
        ]
    return checks


def _standardised(x: Floats) -> Floats:
    # Divided by the recent root mean square, which each step knows: still a martingale.
    recent = np.empty_like(x)
    level = (x[:_WARM_UP] ** 2).mean(axis=0)
    for k in range(len(x)):
        recent[k] = level
        level = 0.95 * level + 0.05 * x[k] ** 2
    scale = np.sqrt(recent[_WARM_UP:])
    out: Floats = x[_WARM_UP:] / np.where(scale > 0, scale, 1.0)
    return out


def _curve(
    flow: Solution, rates: Rates, group: Sequence[_Path], h: float, confidence: float
) -> tuple[Curve, tuple[Check, float, float]]:
    steps = group[0].steps
    if any(not np.array_equal(path.steps, steps) for path in group):
        shared = set(steps.tolist()).intersection(*(path.steps.tolist() for path in group))
        steps = np.array(sorted(shared), dtype=np.int64)
    t: Floats = steps.astype(np.float64) * h
    if t[-1] > flow.t[-1] * (1 + 1e-12):
        raise InputError(
            f"The runs end at matched time {t[-1]:g}, the flow at {flow.t[-1]:g}; "
            f"solve to t={t[-1]:g} or beyond."
        )
    path = rates.pack(flow.at(np.minimum(t, flow.t[-1])))
    reference = np.array([rates.loss(s) for s in path])
    exact, first = descend(rates, group[0].states[0], h, steps, correction=True)
    lr = group[0].lr
    check, gap, order = _limit(rates, group[0].states[0], h, steps, exact, reference)
    rows = np.array(
        [
            [rates.loss(s) for s in p.states[np.isin(p.steps, steps)]]
            for p in group
        ]
    )  # fmt: skip
    kinds = np.array([p.data for p in group])
    parts = {
        kind: rows[kinds == kind].mean(axis=0) - exact if (kinds == kind).any() else None
        for kind in ("set", "fresh")
    }
    band = None
    if len(rows) > 1:
        width = student_quantile(0.5 + confidence / 2, len(rows) - 1)
        width = width * rows.std(axis=0, ddof=1) / np.sqrt(len(rows))
        band = rows.mean(axis=0) + np.array([-1, 1])[:, None] * width
    curve = Curve(
        lr=lr,
        t=t,
        flow=reference,
        runs=rows,
        learning_rate=exact - reference,
        first_order=first,
        training_set=parts["set"],
        noise=parts["fresh"],
        band=band,
    )
    return curve, (check, gap / lr, order)


def _limit(
    rates: Rates, start: Floats, h: float, steps: NDArray[np.int64], exact: Floats, flow: Floats
) -> tuple[Check, float, float]:
    """Extrapolate exact steps to lr -> 0 until the extrapolation is sure, and check the curve."""
    span = float(np.ptp(flow)) or 1.0
    levels = [exact]
    extrapolated, doubt = exact, np.inf
    for level in range(1, _LEVELS):
        levels.append(descend(rates, start, h / 2**level, steps * 2**level)[0])
        table = list(levels)  # Richardson: each column removes one more power of lr
        previous = table
        for power in range(1, min(len(levels), 4)):
            factor = 2**power
            previous, table = (
                table,
                [(factor * b - a) / (factor - 1) for a, b in zip(table, table[1:], strict=False)],
            )
        extrapolated = table[-1]
        if level >= 2:
            doubt = float(np.abs(extrapolated - previous[-1]).max())
            if doubt < _FLOW_TOLERANCE * span:
                break
    gap = float(np.abs(extrapolated - flow).max())
    bound = 3 * doubt + 2 * _FLOW_TOLERANCE * span
    # A doubt of the size of the curve itself proves nothing: then the check must not pass.
    bound = bound if bound < 0.05 * span else 0.0
    here, half = (float(np.abs(curve - flow).max()) for curve in levels[:2])
    order = float(np.log2(here / half)) if half > 0 and here > 0 else float("nan")
    check = Check(
        "flow against exact steps, lr -> 0",
        gap,
        bound,
        f"Richardson extrapolation of {len(levels)} learning rates, and solver tolerance",
    )
    return check, here, order


def student_quantile(probability: float, freedom: int) -> float:
    """Quantile of Student's t, by bisection on its integral (trapezoidal in atan)."""
    # With x = sqrt(nu) tan(a) the density is proportional to cos(a)^(nu - 1): smooth and bounded.
    angle = np.linspace(-np.pi / 2, np.pi / 2, 200_001)
    density = np.cos(angle) ** (freedom - 1) if freedom > 1 else np.ones_like(angle)
    total = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return float(np.sqrt(freedom) * np.tan(np.interp(probability, total / total[-1], angle)))


def _largest(values: Floats | None) -> float:
    return float("nan") if values is None else float(values[np.abs(values).argmax()])
