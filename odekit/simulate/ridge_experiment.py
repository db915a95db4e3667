"""In-context linear regression at finite dimension: sampled pretraining, ridge fit, exact errors.

Setting (Lu et al., PNAS 122 (2025) e2502599122): tokens ``x ~ N(0, I_d/d)``, tasks ``|w|^2 = d``,
labels ``y = <w, x> + eps`` with ``eps ~ N(0, rho)``, contexts of l labelled tokens and a query.
Linear attention predicts ``x^T Gamma h`` with ``h = [(d/l) sum y_i x_i, (1/l) sum y_i^2]``.

A context enters only through h, and h is drawn in O(d) operations from its exact law; the test
errors are exact population averages, so the only noise is that of the pretraining set.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError, SolveError
from odekit.simulate.ridge_loops import normal_product

Floats = NDArray[np.float64]

# One kernel matrix at a time: BLAS has threads of its own, and two such solves slow each other.
_ONE_KERNEL = threading.Lock()
# A kernel matrix above this size (288 MB) costs more memory than conjugate gradients cost time.
_LARGEST_KERNEL = 6000


@dataclass(frozen=True, eq=False)
class PretrainingSet:
    """Contexts reduced to what the fit needs: ``x (n, d)``, ``h (n, d + 1)``, ``y (n,)``."""

    x: Floats
    h: Floats
    y: Floats


@dataclass(frozen=True, eq=False)
class RidgeExperiment:
    """Errors over independent pretraining sets, one entry a seed.

    Attributes
    ----------
    icl, idg, training : ndarray, shape (seeds,)
        Population error on a fresh task, on the pretraining tasks, and the mean squared error on
        the pretraining set.
    """

    icl: Floats
    idg: Floats
    training: Floats

    @property
    def mean(self) -> dict[str, float]:
        """Mean over the seeds of each error."""
        return {name: float(np.mean(getattr(self, name))) for name in ("icl", "idg", "training")}

    @property
    def standard_error(self) -> dict[str, float]:
        """Standard error of each mean."""
        return {
            name: float(np.std(getattr(self, name), ddof=1) / np.sqrt(len(self.icl)))
            for name in ("icl", "idg", "training")
        }


def draw_tasks(count: int, dim: int, seed: int | np.random.SeedSequence) -> Floats:
    """Draw pretraining tasks uniformly on the sphere ``|w|^2 = d``.

    Parameters
    ----------
    count, dim : int
        Number k of tasks and dimension d.
    seed : int or SeedSequence

    Returns
    -------
    ndarray, shape (k, d)
    """
    if not (count >= 1 and dim >= 1):
        raise InputError(f"count and dim must be >= 1, got {count} and {dim}")
    tasks = np.random.default_rng(seed).standard_normal((count, dim))
    return tasks * (np.sqrt(dim) / np.linalg.norm(tasks, axis=1, keepdims=True))


def sample_pretraining(
    tasks: Floats | None,
    *,
    context: int,
    samples: int,
    noise: float,
    seed: int | np.random.SeedSequence,
    dim: int | None = None,
) -> PretrainingSet:
    """Draw a pretraining set from the exact law of its reduced contexts.

    Parameters
    ----------
    tasks : ndarray, shape (k, d), or None
        Pool that each context draws its task from; None: a fresh task for each context.
    context, samples : int
        Context length l and number n of contexts.
    noise : float
        Variance rho of the label noise.
    seed : int or SeedSequence
    dim : int, optional
        Dimension d, needed only with ``tasks=None``.

    Returns
    -------
    PretrainingSet

    Notes
    -----
    Given a task of direction u, ``sum y_i^2 = (1 + rho) S`` with ``S ~ chi2_l``; along u the label
    moment is ``S + sqrt(rho S) z`` and across it Gaussian of variance ``(1 + rho) S``.
    """
    d = _dimension(tasks, dim)
    _check_setting(context, noise)
    if not samples >= 1:
        raise InputError(f"samples must be a number of contexts >= 1, got {samples}")
    rng = np.random.default_rng(seed)
    if tasks is None:
        w = rng.standard_normal((samples, d))
        w *= np.sqrt(d) / np.linalg.norm(w, axis=1, keepdims=True)
    else:
        w = tasks[rng.integers(len(tasks), size=samples)]
    x = rng.standard_normal((samples, d))
    x /= np.sqrt(d)
    y = np.einsum("nd,nd->n", x, w) + np.sqrt(noise) * rng.standard_normal(samples)

    power = rng.chisquare(context, size=samples)
    along = power + np.sqrt(noise * power) * rng.standard_normal(samples)
    across = np.sqrt((1.0 + noise) * power)
    h = np.empty((samples, d + 1))
    rng.standard_normal(out=h)
    label_moment = h[:, :d]
    overlap = np.einsum("nd,nd->n", label_moment, w) / d
    label_moment *= across[:, None]
    label_moment += ((along - across * overlap * np.sqrt(d)) / np.sqrt(d))[:, None] * w
    label_moment *= np.sqrt(d) / context
    h[:, d] = (1.0 + noise) * power / context
    return PretrainingSet(x=x, h=h, y=y)


def ridge_solution(
    data: PretrainingSet,
    ridge: float = 0.0,
    *,
    method: Literal["auto", "dual", "cg"] = "auto",
    tolerance: float = 1e-10,
) -> Floats:
    """Minimise ``sum (y - x^T Gamma h)^2 + (n/d) ridge |Gamma|^2``.

    Parameters
    ----------
    data : PretrainingSet
    ridge : float
        Strength lambda >= 0; 0 gives the interpolant of least norm below ``n = d (d + 1)`` and
        least squares above.
    method : {"auto", "dual", "cg"}
        "dual" solves with the n x n kernel, "cg" runs conjugate gradients whose products are two
        matrix products over the data (memory n (2d + 2) numbers), preconditioned by the second
        moment of h unless the least norm forbids it. "auto" takes the cheaper.
    tolerance : float
        Conjugate gradients stop when the gradient has fallen by this factor.

    Returns
    -------
    ndarray, shape (d, d + 1)

    Raises
    ------
    SolveError
        If conjugate gradients do not converge (an ill-conditioned set, close to the peak).
    """
    n, d = data.x.shape
    if not (ridge >= 0 and np.isfinite(ridge)):
        raise InputError(f"ridge must be finite and >= 0, got {ridge}")
    if method not in ("auto", "dual", "cg"):
        raise InputError(f'method must be "auto", "dual" or "cg", got {method!r}')
    size = d * (d + 1)
    if method == "dual" and ridge == 0 and n > size:
        raise InputError(
            f'method="dual" without ridge needs n <= d (d + 1) = {size}, got n = {n}; use "cg"'
        )
    if method == "auto":
        # 2/3 n^3 operations against 8 n d (d+1) an iteration, of which hard problems need more.
        iterations = 100 if ridge > 0 else 1000
        cheap = n * n <= 12 * iterations * size and n <= _LARGEST_KERNEL
        method = "dual" if cheap and n <= size else "cg"
    if method == "dual":
        with _ONE_KERNEL:
            kernel = data.x @ data.x.T
            kernel *= data.h @ data.h.T
            kernel[np.diag_indices(n)] += n / d * ridge
            weights = np.linalg.solve(kernel, data.y)
            return np.asarray(data.x.T @ (weights[:, None] * data.h))
    return _conjugate_gradients(data, ridge, tolerance)


def population_error(
    gamma: Floats, *, context: int, noise: float, tasks: Floats | None = None
) -> float:
    """Exact expected squared error of a given Gamma, instead of a test set.

    Parameters
    ----------
    gamma : ndarray, shape (d, d + 1)
    context : int
        Context length l of the test contexts.
    noise : float
        Variance rho of the label noise, in contexts and query.
    tasks : ndarray, shape (k, d), or None
        The tasks to average over (IDG); None: fresh tasks (ICL).

    Returns
    -------
    float
        In the units of ``1 + rho``, the error of predicting 0.
    """
    d = len(gamma)
    if gamma.shape != (d, d + 1):
        raise InputError(f"gamma must have shape (d, d + 1), got {gamma.shape}")
    _check_setting(context, noise)
    if tasks is not None:
        _dimension(tasks, d)
    matrix, column = gamma[:, :d], gamma[:, d]
    power, far = 1.0 + noise, 1.0 + 2.0 / context
    # For one task w: E h = (w, 1 + rho), and the second moments of h at finite l.
    spread = float(power * d / context * np.sum(matrix**2) + far * power**2 * np.sum(column**2))
    if tasks is None:
        linear, cross, square = float(np.trace(matrix)), 0.0, float(np.sum(matrix**2))
    else:
        images = tasks @ matrix.T
        linear = float(np.sum(tasks * images) / len(tasks) + power * np.mean(tasks @ column))
        cross = float(np.mean(images @ column))
        square = float(np.sum(images**2) / len(tasks))
    mean_square = spread + (1.0 + 1.0 / context) * square + 2.0 * far * power * cross
    return power - 2.0 / d * linear + mean_square / d


def ridge_experiment(
    tasks: Floats | None,
    *,
    context: int,
    samples: int,
    noise: float,
    ridge: float = 0.0,
    seeds: int = 40,
    seed: int = 0,
    dim: int | None = None,
    workers: int | None = None,
) -> RidgeExperiment:
    """Pretrain on independent sampled sets over the same pool of tasks.

    Parameters
    ----------
    tasks : ndarray, shape (k, d), or None
        Pool of tasks, see `draw_tasks`; None: a fresh task for each context (then pass ``dim``).
    context, samples : int
        Context length l and number n of pretraining contexts.
    noise, ridge : float
        Label-noise variance rho and ridge strength lambda.
    seeds : int
        Number of pretraining sets.
    seed : int
        Set i is drawn from the i-th child of this seed, whatever the number of workers.
    dim : int, optional
        Dimension d with ``tasks=None``.
    workers : int, optional
        Threads, by default one a processor core.

    Returns
    -------
    RidgeExperiment
    """
    d = _dimension(tasks, dim)
    if not seeds >= 1:
        raise InputError(f"seeds must be >= 1, got {seeds}")

    def one(child: np.random.SeedSequence) -> tuple[float, float, float]:
        data = sample_pretraining(
            tasks, context=context, samples=samples, noise=noise, seed=child, dim=d
        )
        gamma = ridge_solution(data, ridge)
        residual = data.y - np.einsum("nj,nj->n", data.x @ gamma, data.h)
        return (
            population_error(gamma, context=context, noise=noise),
            population_error(gamma, context=context, noise=noise, tasks=tasks),
            float(np.mean(residual**2)),
        )

    children = np.random.SeedSequence(seed).spawn(seeds)
    with ThreadPoolExecutor(workers or os.cpu_count() or 1) as pool:
        errors = np.array(list(pool.map(one, children)))
    return RidgeExperiment(icl=errors[:, 0], idg=errors[:, 1], training=errors[:, 2])


def feature_statistics(data: PretrainingSet) -> tuple[Floats, Floats]:
    """Moments that fix the gradient flow of Gamma on a pretraining set.

    Parameters
    ----------
    data : PretrainingSet

    Returns
    -------
    S : ndarray, shape (d (d + 1), d (d + 1))
        ``(d/n) sum vec H vec H^T``, ``H = x h^T``, rows first.
    v : ndarray, shape (d (d + 1),)
        ``(d/n) sum y vec H``. The flow is ``dGamma/dt = v - (S + lambda) Gamma``.
    """
    n, d = data.x.shape
    size = d * (d + 1)
    second, first = np.zeros((size, size)), np.zeros(size)
    for rows in _blocks(n, 256):
        features = (data.x[rows, :, None] * data.h[rows, None, :]).reshape(-1, size)
        second += features.T @ features
        first += features.T @ data.y[rows]
    return second * (d / n), first * (d / n)


@dataclass(frozen=True, eq=False)
class PosteriorMean:
    """Errors of the posterior mean over a known pool, one entry a test context."""

    icl: Floats
    idg: Floats

    @property
    def mean(self) -> dict[str, float]:
        """Mean over the test contexts of each error."""
        return {"icl": float(np.mean(self.icl)), "idg": float(np.mean(self.idg))}

    @property
    def standard_error(self) -> dict[str, float]:
        """Standard error of each mean."""
        root = np.sqrt(len(self.icl))
        return {name: float(np.std(getattr(self, name), ddof=1) / root) for name in ("icl", "idg")}


def posterior_mean_errors(
    tasks: Floats, *, context: int, noise: float, trials: int, seed: int
) -> PosteriorMean:
    """Errors of the discrete posterior mean (dMMSE), the ideal learner that memorises its pool.

    Parameters
    ----------
    tasks : ndarray, shape (k, d)
        The pool that the predictor knows and holds equally likely.
    context : int
        Context length l.
    noise : float
        Variance rho > 0 of the label noise.
    trials : int
        Number of test contexts; each serves a fresh task (icl) and one of the pool (idg).
    seed : int

    Returns
    -------
    PosteriorMean
        Given a context the error ``rho + |w - w_hat|^2/d`` is exact: no query is drawn.

    Notes
    -----
    A context enters through ``G = X^T X``, drawn by Bartlett's triangular factor in O(d^2), and
    ``X^T y``.
    """
    d = _dimension(tasks, None)
    _check_setting(context, noise)
    if not noise > 0:
        raise InputError("noise must be > 0 for the posterior over a pool, got 0")
    rng = np.random.default_rng(seed)
    rank = min(context, d)
    errors = np.empty((trials, 2))
    for trial in range(trials):
        factor = np.tril(rng.standard_normal((d, rank)), -1)
        factor[np.arange(rank), np.arange(rank)] = np.sqrt(rng.chisquare(context - np.arange(rank)))
        factor /= np.sqrt(d)
        projected = tasks @ factor
        norms = 0.5 * np.einsum("kr,kr->k", projected, projected)
        fresh = draw_tasks(1, d, np.random.SeedSequence(rng.integers(2**63)))[0]
        for column, w in enumerate((fresh, tasks[rng.integers(len(tasks))])):
            seen = factor.T @ w + np.sqrt(noise) * rng.standard_normal(rank)
            logs = (projected @ seen - norms) / noise
            weights = np.exp(logs - logs.max())
            estimate = weights @ tasks / weights.sum()
            errors[trial, column] = noise + np.sum((w - estimate) ** 2) / d
    return PosteriorMean(icl=errors[:, 0], idg=errors[:, 1])


def _conjugate_gradients(data: PretrainingSet, ridge: float, tolerance: float) -> Floats:
    n, d = data.x.shape
    # A preconditioner changes which norm is least, so the under-determined case goes without.
    plain = ridge == 0 and n < d * (d + 1)
    if plain:
        inverse = np.eye(d + 1)
    else:
        second = data.h.T @ data.h / n
        inverse = np.linalg.inv(second + ridge * np.eye(d + 1))

    def normal(direction: Floats) -> Floats:
        total = np.zeros_like(direction)
        normal_product(data.x, data.h, np.ascontiguousarray(direction), total)
        return d / n * total + ridge * direction

    residual = d / n * (data.x.T @ (data.y[:, None] * data.h))
    gamma = np.zeros((d, d + 1))
    scaled = residual @ inverse
    direction = scaled
    power = first = float(np.sum(residual * scaled))
    if first == 0:
        return gamma
    for _ in range(20 * d * (d + 1)):
        image = normal(direction)
        step = power / float(np.sum(direction * image))
        gamma = gamma + step * direction
        residual = residual - step * image
        scaled = residual @ inverse
        new = float(np.sum(residual * scaled))
        if new <= tolerance**2 * first:
            return gamma
        direction = scaled + (new / power) * direction
        power = new
    raise SolveError(
        f"Conjugate gradients did not converge for n = {n}, d = {d}, ridge = {ridge}: the set is "
        'ill-conditioned (n close to d (d + 1)); raise ridge, or use method="dual" below the peak.'
    )


def _blocks(length: int, block: int) -> Iterator[slice]:
    for start in range(0, length, block):
        yield slice(start, start + block)


def _dimension(tasks: ArrayLike | None, dim: int | None) -> int:
    if tasks is None:
        if dim is None:
            raise InputError("tasks=None (fresh tasks) needs the dimension: pass dim=")
        return int(dim)
    shape = np.shape(tasks)
    if len(shape) != 2 or 0 in shape or (dim is not None and shape[1] != dim):
        raise InputError(f"tasks must have shape (k, {dim or 'd'}), got {shape}")
    return int(shape[1])


def _check_setting(context: int, noise: float) -> None:
    if not (isinstance(context, int | np.integer) and context >= 1):
        raise InputError(f"context must be a whole length >= 1, got {context!r}")
    if not (noise >= 0 and np.isfinite(noise)):
        raise InputError(f"noise must be a variance, finite and >= 0, got {noise}")
