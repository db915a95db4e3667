"""Trained networks beside the ideal learners and linear attention, over the same pools of tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.simulate import (
    NetworkRun,
    Optimiser,
    RegressionNetwork,
    SequenceLaw,
    Sequences,
    draw_tasks,
    posterior_mean_errors,
    train_regression,
)
from odekit.theory import finite_equivalent

DIM, CONTEXT, NOISE = 8, 16, 0.1
LEARNING_RATE = 3e-3
BATCH = 64
TESTS, TRIALS = 8000, 400
ENDLESS = 10**9
ADAM = Optimiser("adamw", decay=0.0)

Floats = NDArray[np.float64]


def pool_of(count: int, seed: int) -> Floats:
    """Pool of a seed: the same for every network and every number of contexts."""
    return draw_tasks(count, DIM, np.random.SeedSequence([0, count, seed]))


def law(pool: Floats, noisy_query: bool = True) -> SequenceLaw:
    """Contexts as in the theory: covariance I/d, noisy labels, the task one of the pool."""
    return SequenceLaw(
        covariance=np.eye(DIM) / DIM,
        context=CONTEXT,
        noise=NOISE,
        noisy_query=noisy_query,
        pool=pool,
    )


def probe_sets(pool: Floats) -> dict[str, Sequences]:
    """Contexts of fresh tasks and of the pool's, to be predicted without the query's noise."""
    many = draw_tasks(TESTS, DIM, np.random.SeedSequence(1))
    return {
        name: law(tasks, noisy_query=False).draw(TESTS, np.random.default_rng([2, i]))
        for i, (name, tasks) in enumerate((("icl", many), ("idg", pool)))
    }


def summary(values: Mapping[str, Iterable[float]]) -> dict[str, Any]:
    """Mean and standard error over the seeds, and each seed's value."""
    out: dict[str, Any] = {}
    for name, given in values.items():
        row = np.array(list(given))
        out[name] = float(row.mean())
        out[f"{name}_error"] = float(row.std(ddof=1) / np.sqrt(len(row)))
        out[f"{name}_seeds"] = row.tolist()
    return out


def _errors(run: NetworkRun, at: int = -1) -> tuple[float, float]:
    # The sets lack the query's noise, which adds its variance whatever the prediction.
    return float(run["icl"][at]) + NOISE, float(run["idg"][at]) + NOISE


def over_tasks(
    net: RegressionNetwork, count: int, seeds: Iterable[int], steps: int
) -> dict[str, Any]:
    """Train on fresh contexts of a pool; a seed has weights, contexts and pool of its own.

    Returns
    -------
    dict
        ``icl``, ``idg``, ``gap`` of the network; with the suffix ``_dmmse`` of the posterior mean
        over the pool, with ``_linear`` of linear attention after population training on it.
    """
    columns: dict[str, list[float]] = {}
    for seed in seeds:
        pool = pool_of(count, seed)
        run = train_regression(
            net,
            law(pool),
            seed=seed,
            tests=probe_sets(pool),
            steps=steps,
            batch=BATCH,
            optimiser=ADAM,
            lr=LEARNING_RATE,
            save_at=[steps],
        )
        ideal = posterior_mean_errors(
            pool, context=CONTEXT, noise=NOISE, trials=TRIALS, seed=seed
        ).mean
        linear = finite_equivalent(pool, context=CONTEXT, samples=ENDLESS, noise=NOISE)
        for suffix, (icl, idg) in (
            ("", _errors(run)),
            ("_dmmse", (ideal["icl"], ideal["idg"])),
            ("_linear", linear),
        ):
            for name, value in (("icl", icl), ("idg", idg), ("gap", icl - idg)):
                columns.setdefault(name + suffix, []).append(float(value))
    return {"tasks": count, "kappa": count / DIM, **summary(columns)}


def over_contexts(
    net: RegressionNetwork, count: int, samples: int, seeds: Iterable[int], steps: int
) -> dict[str, Any]:
    """Train over and over on one set of contexts of a pool; a seed has weights, set and pool.

    Returns
    -------
    dict
        ``icl``, ``idg`` and the ``training`` error at the end; ``icl_early`` after a tenth.
    """
    columns: dict[str, list[float]] = {}
    for seed in seeds:
        pool = pool_of(count, seed)
        data = law(pool).draw(samples, np.random.default_rng([3, samples, seed]))
        run = train_regression(
            net,
            data,
            seed=seed,
            tests={**probe_sets(pool), "training": data},
            steps=steps,
            batch=min(BATCH, samples),
            optimiser=ADAM,
            lr=LEARNING_RATE,
            save_at=[steps // 10, steps],
        )
        (early, _), (icl, idg) = _errors(run, 0), _errors(run)
        row = {"icl": icl, "idg": idg, "training": float(run["training"][-1]), "icl_early": early}
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return {"samples": samples, "tau": samples / DIM**2, **summary(columns)}


def linear_over_contexts(count: int, samples: Iterable[int], seeds: Iterable[int]) -> Floats:
    """Ridgeless linear attention on the same pools: mean errors (n, 2), fresh task and pool."""
    return np.array(
        [
            np.mean(
                [
                    finite_equivalent(pool_of(count, seed), context=CONTEXT, samples=n, noise=NOISE)
                    for seed in seeds
                ],
                axis=0,
            )
            for n in samples
        ]
    )


def ridge_in_context(trials: int = 4000) -> float:
    """Error of ridge regression in the context, ideal for Gaussian tasks, at this dimension.

    ``rho + E tr (I + X^T X/rho)^-1 / d``, the mean over contexts by sampling (0.5 %).
    """
    x = np.random.default_rng(4).standard_normal((trials, CONTEXT, DIM)) / np.sqrt(DIM)
    values = np.linalg.eigvalsh(x.swapaxes(1, 2) @ x)
    return NOISE + float(np.mean(1 / (1 + values / NOISE)))
