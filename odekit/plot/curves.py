"""Loss curves, with the plateau levels that theory predicts, and bands over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError
from odekit.plot.look import panels
from odekit.solution import Solution

__all__ = ["band", "loss_curve", "on_common_times", "plateau_lines", "runs_of"]

Array = NDArray[np.float64]


def runs_of(runs: Any) -> list[Solution]:
    """Read one run or several as a list."""
    if isinstance(runs, Solution):
        return [runs]
    if not isinstance(runs, Iterable):
        raise InputError(f"Expected a Solution or several, got {type(runs).__name__}.")
    chosen = list(runs)
    if not chosen or not all(isinstance(run, Solution) for run in chosen):
        raise InputError("Expected a Solution or a non-empty list of them.")
    return chosen


def losses_of(run: Solution) -> Array:
    """Return the loss along a run, or say that there is none."""
    if run.loss is None:
        raise InputError("This run has no loss; solve a field with one (loss= in vector_field).")
    return run.loss


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the axes given, or those of a new one-column figure."""
    return panels(width="single")[1][0] if ax is None else ax


def loss_curve(
    runs: Solution | Iterable[Solution],
    plateaus: ArrayLike | None = None,
    ax: Axes | None = None,
    *,
    labels: Sequence[str] | None = None,
    time: str = "linear",
    time_unit: str = r"\tau",
    per_step: float | None = None,
    plateau_label: str = r"$\mathcal{{L}}(\mathcal{{M}}_{{{m}}})$",
    **line: Any,
) -> Axes:
    """Draw loss against time, with predicted plateau levels as dashed lines.

    Parameters
    ----------
    runs : Solution or list of Solution
    plateaus : array_like (M,), optional
        Levels from theory, such as `odekit.theory.plateau_losses`; labelled 0 to M - 1.
    ax : Axes, optional
        Default: a new figure, one column wide.
    labels : sequence of str, optional
        One for each run; a legend is then drawn. A single ``label=`` among the line's options
        draws none.
    time : {"linear", "log"}
        Scale of the time axis; "log" leaves out times of zero.
    time_unit : str
        LaTeX of the unit of time, for the axis; empty for none.
    per_step : float, optional
        Time units of a step: a run of discrete training is laid over a flow with it.
    plateau_label : str
        Format of the levels' labels, with ``{m}`` for the number of the plateau.
    **line
        Passed to Matplotlib's ``plot``.

    Returns
    -------
    Axes
    """
    if time not in ("linear", "log"):
        raise InputError(f'time must be "linear" or "log", got {time!r}.')
    chosen = runs_of(runs)
    if labels is not None and len(labels) != len(chosen):
        raise InputError(f"{len(labels)} labels for {len(chosen)} runs; give one for each.")
    axes = axes_or_new(ax)
    for place, run in enumerate(chosen):
        t, loss = run.t * (per_step or 1.0), losses_of(run)
        keep = t > 0 if time == "log" else np.ones(len(t), dtype=bool)
        named = {"label": labels[place]} if labels else {}
        axes.plot(t[keep], loss[keep], **{**line, **named})
    axes.set_xscale(time)
    axes.set_xlabel(f"time $t/{time_unit}$" if time_unit else "time $t$")
    axes.set_ylabel("loss (mean squared error)")
    if plateaus is not None:
        plateau_lines(axes, plateaus, label=plateau_label)
    if labels:
        axes.legend()
    return axes


def plateau_lines(
    ax: Axes, levels: ArrayLike, *, label: str = r"$\mathcal{{L}}(\mathcal{{M}}_{{{m}}})$"
) -> None:
    """Draw predicted levels as dashed lines, labelled at the right edge without overlap.

    Parameters
    ----------
    ax : Axes
        With its limits as they are to stay.
    levels : array_like (M,)
    label : str
        Format with ``{m}``; empty for no labels.
    """
    values = np.asarray(levels)
    if values.dtype.kind not in "iuf" and values.size:
        raise InputError(f"levels must be numbers, got {levels!r:.60}")
    values = values.astype(np.float64)
    for level in values:
        ax.axhline(level, color="0.45", linewidth=0.7, linestyle=(0, (4, 3)), zorder=0.5)
    if not label:
        return
    low, high = ax.get_ylim()
    if ax.get_yscale() == "log":
        places = (np.log(values) - np.log(low)) / (np.log(high) - np.log(low))
    else:
        places = (values - low) / (high - low)
    figure = ax.get_figure(root=True)
    inches = ax.get_position().height * (figure.get_figheight() if figure else 1.0)
    for m, place in enumerate(spread(places, 0.115 / max(inches, 0.5))):
        ax.text(
            1.015,
            place,
            label.format(m=m),
            transform=ax.transAxes,
            fontsize=6.5,
            va="center",
            ha="left",
            color="0.25",
        )


def spread(places: ArrayLike, least: float) -> Array:
    """Move places apart until neighbours are at least ``least`` apart, changing them little.

    Parameters
    ----------
    places : array_like (M,)
        In any order.
    least : float

    Returns
    -------
    ndarray (M,)
        Of all spread-out places, those nearest to the given ones in the least-squares sense
        (isotonic regression by pooling neighbours).
    """
    values = np.asarray(places, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    # With the required gaps taken out, spreading out is projecting onto increasing sequences.
    shifted = values[order] - least * np.arange(len(values))
    pools: list[list[float]] = []
    for value in shifted:
        pools.append([value, 1.0])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            mean, count = pools.pop()
            total = pools[-1][0] * pools[-1][1] + mean * count
            pools[-1] = [total / (pools[-1][1] + count), pools[-1][1] + count]
    flat = np.concatenate([np.full(int(n), mean) for mean, n in pools]) if pools else shifted
    out = np.empty_like(values)
    out[order] = flat + least * np.arange(len(values))
    return out


def on_common_times(
    runs: Iterable[Solution], times: ArrayLike | None = None, *, points: int = 400
) -> tuple[Array, Array]:
    """Interpolate the loss of several runs at common times.

    Parameters
    ----------
    runs : list of Solution
    times : array_like (K,), optional
        Default: ``points`` times up to the earliest end, even in the logarithm after the latest
        first output.

    Returns
    -------
    t : ndarray (K,)
    losses : ndarray (len(runs), K)
        Linear between outputs: draw with it, do not measure with it.
    """
    chosen = runs_of(runs)
    if times is None:
        first = max(run.t[run.t > 0][0] for run in chosen)
        last = min(run.t[-1] for run in chosen)
        grid: Array = np.geomspace(first, last, points)
    else:
        grid = np.asarray(times, dtype=np.float64)
    return grid, np.stack([np.interp(grid, run.t, losses_of(run)) for run in chosen])


def band(
    runs: Iterable[Solution],
    ax: Axes | None = None,
    *,
    times: ArrayLike | None = None,
    label: str | None = None,
    color: str | None = None,
    quantile: float = 0.0,
) -> Axes:
    """Draw the median loss over seeds, with the range between quantiles shaded.

    Parameters
    ----------
    runs : list of Solution
    ax : Axes, optional
    times : array_like (K,), optional
        See `on_common_times`.
    label, color : str, optional
    quantile : float
        The shade spans ``quantile`` to ``1 - quantile``; zero for all seeds.

    Returns
    -------
    Axes
    """
    if not 0 <= quantile < 0.5:
        raise InputError(f"quantile must be at least 0 and below 0.5, got {quantile!r}.")
    axes = axes_or_new(ax)
    t, losses = on_common_times(runs, times)
    (line,) = axes.plot(t, np.median(losses, axis=0), color=color, label=label)
    low, high = np.quantile(losses, [quantile, 1 - quantile], axis=0)
    axes.fill_between(t, low, high, color=line.get_color(), alpha=0.18, linewidth=0)
    axes.set_xlabel(r"time $t/\tau$")
    axes.set_ylabel("loss (mean squared error)")
    return axes
