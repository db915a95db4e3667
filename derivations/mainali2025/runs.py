"""Runs that several figures draw: the layer's expected flow and its training, mode by mode."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import odekit as ok

from .layer import Law

Array = NDArray[np.float64]

SPECTRUM = np.array([1.0, 0.5, 0.25, 0.125])
"""Token variances of the figures, one for each mode."""


def start(p: ArrayLike, q: ArrayLike) -> dict[str, Array]:
    """Diagonal ``p2`` and ``q1`` with these modes."""
    return {"p2": np.diag(np.asarray(p, dtype=float)), "q1": np.diag(np.asarray(q, dtype=float))}


def products(run: ok.Solution) -> Array:
    """``a(t) = p q`` of each mode, from the diagonals; shape (len(t), d)."""
    p = np.diagonal(run["p2"], axis1=1, axis2=2)
    return np.asarray(p * np.diagonal(run["q1"], axis1=1, axis2=2))


def layer_run(
    law: Law, y0: dict[str, Array], times: ArrayLike, context: int, s: ArrayLike = SPECTRUM
) -> ok.Solution:
    """Integrate the expected flow of the layer under a law of the tasks."""
    flow = ok.models.linear_transformer(tasks=law).flow
    return ok.solve(flow, y0, times, {"Lambda": np.diag(s), "N": context})


def trained(
    law: Law,
    y0: dict[str, Array],
    end: float,
    context: int,
    *,
    lr: float,
    batch: int,
    seed: int,
    save: int = 60,
) -> ok.Solution:
    """Train the layer by SGD on fresh sequences; a step is a time of ``2 lr``."""
    model: Any = ok.models.linear_transformer(tasks=law)
    steps = round(end / (2 * lr))
    return ok.simulate.sgd(
        model,
        y0=y0,
        params={"Lambda": np.diag(SPECTRUM), "N": context},
        lr=lr,
        steps=steps,
        batch=batch,
        seed=seed,
        save_at=np.unique(np.linspace(0, steps, save).astype(int)),
    )


def crossing(times: ArrayLike, curve: ArrayLike, level: float) -> float:
    """First time at which a rising curve reaches a level, linear between outputs."""
    t, y = np.asarray(times, dtype=float), np.asarray(curve, dtype=float)
    above = np.flatnonzero(y >= level)
    if not len(above) or above[0] == 0:
        return float("nan")
    k = above[0]
    return float(t[k - 1] + (level - y[k - 1]) / (y[k] - y[k - 1]) * (t[k] - t[k - 1]))


def losses(run: ok.Solution) -> Array:
    """The mean squared error along a run; shape (len(t),)."""
    return np.asarray(run.loss, dtype=np.float64)
