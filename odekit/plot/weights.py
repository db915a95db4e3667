"""What is inside a run: value weights of the heads, and strengths of the modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from odekit.errors import InputError
from odekit.plot.curves import axes_or_new
from odekit.solution import Solution

__all__ = ["modes", "value_weights"]


def value_weights(
    run: Solution,
    ax: Axes | None = None,
    *,
    state: str = "v",
    absolute: bool = False,
    colors: Sequence[str] | None = None,
    **line: Any,
) -> Axes:
    """Draw the value weight of each head against time.

    Parameters
    ----------
    run : Solution
        With a state of shape (H,).
    ax : Axes, optional
    state : str
        Name of the state.
    absolute : bool
        Draw sizes, without signs.
    colors : sequence of str, optional
        One for each head.
    **line
        Passed to Matplotlib's ``plot``.

    Returns
    -------
    Axes
    """
    values = run[state]
    if values.ndim != 2:
        raise InputError(f"{state} has shape {values.shape[1:]} at each time; expected (H,).")
    axes = axes_or_new(ax)
    shown = np.abs(values) if absolute else values
    for head in range(values.shape[1]):
        chosen = {"color": colors[head % len(colors)]} if colors else {}
        axes.plot(run.t, shown[:, head], **{"label": f"head {head + 1}", **chosen, **line})
    axes.set_xlabel(r"time $t/\tau$")
    axes.set_ylabel(rf"value weight ${'|' + state + '_h|' if absolute else state + '_h'}$")
    return axes


def modes(
    run: Solution,
    basis: ArrayLike,
    of: Any = "A",
    ax: Axes | None = None,
    *,
    colors: Sequence[str] | None = None,
    **line: Any,
) -> Axes:
    """Draw the strength ``e_d^T M e_d`` of each mode of a matrix against time.

    Parameters
    ----------
    run : Solution
    basis : array_like (D, M)
        Orthonormal columns, such as the covariance's eigenvectors, leading one first.
    of : str or expression
        The matrix (D, D) along the run: a named intermediate, a state, or an expression.
    ax : Axes, optional
    colors : sequence of str, optional
        One for each mode.
    **line
        Passed to Matplotlib's ``plot``.

    Returns
    -------
    Axes
    """
    matrix = run.value(of)
    vectors = np.asarray(basis, dtype=np.float64)
    if matrix.ndim != 3 or matrix.shape[1:] != (len(vectors), len(vectors)):
        raise InputError(
            f"{of} has shape {matrix.shape[1:]} at each time, the basis {vectors.shape}; expected "
            "a square matrix and columns of its size."
        )
    strengths = np.einsum("dm,tde,em->tm", vectors, matrix, vectors)
    axes = axes_or_new(ax)
    for mode in range(strengths.shape[1]):
        chosen = {"color": colors[mode % len(colors)]} if colors else {}
        axes.plot(run.t, strengths[:, mode], **{"label": f"mode {mode + 1}", **chosen, **line})
    axes.set_xlabel(r"time $t/\tau$")
    axes.set_ylabel("mode strength")
    return axes
