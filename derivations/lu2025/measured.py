"""Simulations at finite dimension beside their finite-dimension equivalent."""

from __future__ import annotations

from typing import Any

import numpy as np

from odekit.simulate import draw_tasks, ridge_experiment
from odekit.theory import finite_equivalent


def pool_of(kappa: float, dim: int, seed: int = 1) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """Draw ``kappa d`` pretraining tasks; None, a fresh task for each context, at kappa = inf."""
    return None if np.isinf(kappa) else draw_tasks(max(1, round(kappa * dim)), dim, seed)


def measure(
    dim: int,
    alpha: float,
    kappa: float,
    tau: float,
    noise: float,
    ridge: float = 0.0,
    *,
    seeds: int,
    equivalent: bool = True,
) -> dict[str, Any]:
    """Simulate one point of a learning curve over one pool of tasks.

    Returns
    -------
    dict
        The setting; ``icl``, ``idg``, ``gap`` with ``<name>_error``, the standard error over
        pretraining sets; ``icl_equivalent``, ``idg_equivalent`` if asked for.
    """
    tasks = pool_of(kappa, dim)
    context, samples = max(1, round(alpha * dim)), round(tau * dim * dim)
    found = ridge_experiment(
        tasks, context=context, samples=samples, noise=noise, ridge=ridge, seeds=seeds, dim=dim
    )
    pairs = {"icl": found.icl, "idg": found.idg, "gap": found.icl - found.idg}
    point: dict[str, Any] = {
        "dim": dim,
        "alpha": alpha,
        "kappa": None if np.isinf(kappa) else kappa,
        "tau": samples / dim**2,
        "noise": noise,
        "ridge": ridge,
        "seeds": seeds,
    }
    for name, values in pairs.items():
        point[name] = float(values.mean())
        point[f"{name}_error"] = float(values.std(ddof=1) / np.sqrt(seeds))
    if equivalent:
        icl, idg = finite_equivalent(
            tasks, context=context, samples=samples, noise=noise, ridge=ridge, dim=dim
        )
        point |= {"icl_equivalent": icl, "idg_equivalent": idg, "gap_equivalent": icl - idg}
    return point
