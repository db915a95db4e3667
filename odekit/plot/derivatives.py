"""The picture of a run's sensitivities, which `Sensitivities.plot` draws."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from odekit.errors import InputError
from odekit.plot.curves import loss_curve
from odekit.plot.look import PALETTE, finish, panels, style
from odekit.solution import Sensitivities

__all__ = ["sensitivities"]


def sensitivities(
    found: Sensitivities, *, directions: list[str] | None = None, time_unit: str = ""
) -> Figure:
    """Draw the loss, and its derivative along each direction as a share of its largest size.

    Directions have units of their own, so the curves show when each matters; the legend has how
    much, as the largest derivative. Events are thin vertical lines.

    Parameters
    ----------
    found : Sensitivities
    directions : list of str, optional
        Labels to draw; all by default.
    time_unit : str
        LaTeX of the unit of time.

    Returns
    -------
    Figure
    """
    if found.loss is None:
        raise InputError("This run has no loss to differentiate; draw sens['v'] yourself.")
    labels = list(found.labels) if directions is None else directions
    figure, axes = panels(1, 2, width="double", height=2.6, ratios=(1, 1.35))
    with style():
        loss_curve(found.trajectory, ax=axes[0], time_unit=time_unit, color=PALETTE[0])
        for place, label in enumerate(labels):
            values = found.loss[:, found.index(label)]
            peak = float(values[np.argmax(np.abs(values))]) if len(values) else 0.0
            axes[1].plot(
                found.t,
                values / abs(peak) if peak else values,
                color=PALETTE[place % len(PALETTE)],
                linestyle=("-", "--", ":")[place // len(PALETTE) % 3],
                linewidth=0.9,
                label=f"{label}: {peak:.3g}",
            )
        for ax in axes:
            for event in found.events:
                ax.axvline(event.event.t, color="0.8", linewidth=0.5, zorder=0)
        axes[1].axhline(0.0, color="0.6", linewidth=0.5, zorder=0)
        axes[1].set(
            xlabel=axes[0].get_xlabel(), ylabel="d(loss), share of the largest", ylim=(-1.1, 1.1)
        )
        axes[1].legend(
            title="direction: largest d(loss)",
            loc="center left",
            bbox_to_anchor=(1.02, 0.5),
            frameon=False,
        )
    return finish(figure)
