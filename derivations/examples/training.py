"""What the figures share: a flow and its training at matched times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

import odekit as ok


def named(flow: Any, name: str) -> Any:
    """A state or parameter of a flow by name."""
    return next(t for t in (*flow.states, *flow.parameters) if t.name == name)


def trained(
    loss: Any,
    y0: Mapping[str, Any],
    params: Mapping[str, Any],
    end: float,
    *,
    lr: float,
    batch: int,
    seed: int = 0,
    save: int = 40,
) -> tuple[Any, Any]:
    """SGD on draws of the loss's own data: times in units of the flow, and the run.

    All flows here have ``2 d(theta)/dt = - d(loss)/d(theta)``, so a step is a time ``2 lr``.
    """
    steps = round(end / (2 * lr))
    run = ok.simulate.sgd(
        loss, y0=y0, params=params, lr=lr, steps=steps, batch=batch, seed=seed,
        save_at=np.unique(np.linspace(0, steps, save).astype(int)),
    )  # fmt: skip
    return 2 * lr * run.t, run
