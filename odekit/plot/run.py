"""The picture of one run, which `Solution.plot` draws."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from odekit.plot.curves import loss_curve
from odekit.plot.look import PALETTE, finish, panels, style
from odekit.solution import Solution

__all__ = ["solution"]


def solution(
    run: Solution,
    *,
    plateaus: ArrayLike | None = None,
    states: list[str] | None = None,
    time: str = "linear",
    time_unit: str = "",
) -> Figure:
    """Draw the loss (if there is one) and the states of a run against time.

    Parameters
    ----------
    run : Solution
    plateaus : array_like, optional
        Predicted levels of the loss; see `loss_curve`.
    states : list of str, optional
        States to draw; all by default. Entries of one state share a colour.
    time : {"linear", "log"}
    time_unit : str
        LaTeX of the unit of time.

    Returns
    -------
    Figure
    """
    names = list(run.states) if states is None else states
    with_loss = run.loss is not None
    figure, axes = panels(1, 1 + with_loss, width="double" if with_loss else "single")
    with style():
        if with_loss:
            loss_curve(run, plateaus, axes[0], time=time, time_unit=time_unit, color=PALETTE[0])
        _states(run, names, axes[-1], time, time_unit)
    return finish(figure)


def _states(run: Solution, names: list[str], ax: Axes, time: str, time_unit: str) -> None:
    keep = run.t > 0 if time == "log" else np.ones(len(run), dtype=bool)
    for place, name in enumerate(names):
        values = run[name].reshape(len(run), -1)[keep]
        options: dict[str, Any] = {"color": PALETTE[place % len(PALETTE)], "linewidth": 0.8}
        for entry in range(values.shape[1]):
            label = f"${name}$" if entry == 0 else None
            ax.plot(run.t[keep], values[:, entry], label=label, **options)
    ax.set_xscale(time)
    ax.set_xlabel(f"time $t/{time_unit}$" if time_unit else "time $t$")
    ax.set_ylabel("states")
    ax.legend()
