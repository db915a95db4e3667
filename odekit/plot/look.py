"""The look of every picture: a colour-blind-safe palette, thin axes, sizes for a paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from odekit.errors import InputError

__all__ = ["PALETTE", "WIDTHS", "finish", "panels", "sequence", "style"]

PALETTE: tuple[str, ...] = (
    "#0072B2",  # blue
    "#D55E00",  # vermilion
    "#009E73",  # green
    "#CC79A7",  # purple
    "#E69F00",  # orange
    "#56B4E9",  # sky
    "#000000",  # black
)
"""Colours that remain apart for the common kinds of colour blindness (Okabe and Ito 2008)."""

WIDTHS = {"single": 3.35, "double": 6.9}
"""Widths of one and of two columns, in inches."""

_THIN = 0.6
_SETTINGS: dict[Any, Any] = {
    "axes.grid": False,
    "axes.labelsize": 8,
    "axes.linewidth": _THIN,
    "axes.prop_cycle": cycler(color=list(PALETTE)),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    # As files are saved: text is laid out anew for each resolution, which is most of the work.
    "figure.dpi": 160,
    "font.size": 8,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "legend.handlelength": 1.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "savefig.dpi": 160,
    "svg.fonttype": "path",
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": _THIN,
    "ytick.major.width": _THIN,
    "xtick.minor.width": 0.4,
    "ytick.minor.width": 0.4,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "xtick.minor.size": 1.5,
    "ytick.minor.size": 1.5,
}


@contextmanager
def style(**settings: Any) -> Iterator[None]:
    """Draw in the house's style inside a ``with`` block.

    Parameters
    ----------
    **settings
        Matplotlib's rc settings that replace the style's, with ``_`` for each dot:
        ``style(font_size=9)``.

    Raises
    ------
    InputError
        For a name that Matplotlib does not know.
    """
    known: dict[str, Any] = {name.replace(".", "_"): name for name in mpl.rcParams}
    chosen = dict(_SETTINGS)
    for name, value in settings.items():
        if name.replace(".", "_") not in known:
            raise InputError(
                f"{name!r} is no setting of Matplotlib; write font_size for font.size."
            )
        chosen[known[name.replace(".", "_")]] = value
    with mpl.rc_context(chosen):
        yield


def panels(
    rows: int = 1,
    columns: int = 1,
    *,
    width: str | float = "double",
    height: float | None = None,
    letters: bool = True,
    ratios: Sequence[float] | None = None,
) -> tuple[Figure, list[Axes]]:
    """Make a figure with a grid of panels, lettered a, b, c in reading order.

    Parameters
    ----------
    rows, columns : int
    width : {"single", "double"} or float
        A column's width by name, or inches.
    height : float, optional
        Inches; by default each panel is about 0.72 times as high as it is wide.
    letters : bool
        Whether to letter the panels, when there are several.
    ratios : sequence of float, optional
        Relative widths of the columns.

    Returns
    -------
    Figure, list of Axes
        The panels in reading order.
    """
    if isinstance(width, str) and width not in WIDTHS:
        raise InputError(f"width must be inches or one of {', '.join(WIDTHS)}; got {width!r}.")
    inches = WIDTHS[width] if isinstance(width, str) else float(width)
    tall = rows * 0.72 * inches / columns if height is None else height
    with style():
        figure = Figure(figsize=(inches, tall), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, width_ratios=ratios)
        axes = [ax for row in grid for ax in row]
        for place, ax in enumerate(axes):
            if letters and len(axes) > 1:
                ax.set_title(chr(ord("a") + place), loc="left", fontweight="bold")
            for level, tick_width in (("major", _THIN), ("minor", 0.4)):
                ax.tick_params(which=level, labelsize=7, width=tick_width)
            ax.tick_params(which="major", length=3)
            ax.tick_params(which="minor", length=1.5)
    return figure, axes


def finish(figure: Figure) -> Figure:
    """Lay a figure out once, in the house's style, so that it looks the same wherever it is saved.

    Parameters
    ----------
    figure : Figure
        With nothing more to be added.

    Returns
    -------
    Figure
        The same one; its panels stay where they are now.
    """
    with style():
        figure.draw_without_rendering()
    # Fitting panels and labels is most of the cost of saving, and the answer would be the same.
    figure.set_layout_engine(None)
    return figure


def sequence(count: int, name: str = "viridis") -> list[str]:
    """Colours for ordered things (scales, ranks, modes), dark to light, none too light to see."""
    colours = mpl.colormaps[name]
    return [to_hex(colours(0.88 * k / max(count - 1, 1))) for k in range(count)]
