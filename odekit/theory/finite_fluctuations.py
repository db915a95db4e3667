"""Finite-dimension equivalent that keeps the fluctuation of each context's leverage.

The features of a context are ``x h^T``. Their size ``s q``, ``s = |x|^2`` and
``q = h^T Q h``, fluctuates by O(1/d) in relative variance, which raises the test error by O(1/d):
a few percent at d = 40. With G the resolvent of the feature matrix, equal to ``I_d (x) Q`` up to
smaller terms, leaving one context out multiplies its residual by ``omega = 1/(1 + s q)``, and

- ``Q^-1 = (n/d)(lambda + Bt)``, ``Bt = E[s omega h h^T]``;
- mean of Gamma: ``At (lambda + Bt)^-1``, ``At = E[s omega w h^T]``;
- covariance of its rows, ``D = Q n E[omega^2 s r^2 h h^T] Q``,
  ``r^2 = rho + (s/d)(|w - Gamma h|^2 + h^T D h)``.

With s q replaced by its mean these are the formulas of `finite_equivalent` without fluctuations.
Own derivation, by leaving one context out; tested against simulation. What is left is O(1/d^2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, gmres
from scipy.special import roots_genlaguerre

from odekit.errors import SolveError

Floats = NDArray[np.float64]

_TOO_CLOSE = (
    "The finite-dimension equivalent with fluctuations did not converge this close to the peak "
    "n = d (d + 1); raise ridge, move samples, or pass fluctuations=False."
)


@dataclass(frozen=True)
class Contexts:
    """Draws of a context's task and features from their exact law: ``w (J, d)``, ``h (J, d+1)``."""

    w: Floats
    h: Floats


def draw_contexts(
    tasks: Floats | None, *, dim: int, context: int, noise: float, draws: int, seed: int
) -> Contexts:
    """Draw contexts: given the task, two Gaussians and a chi-square give the features.

    Parameters
    ----------
    tasks : ndarray, shape (k, d), or None
        Pool, visited equally often; None: uniform on the sphere.
    dim, context : int
        Dimension d and context length l.
    noise : float
        Label-noise variance rho.
    draws, seed : int
        Number of draws, and their seed.
    """
    rng = np.random.default_rng(seed)
    if tasks is None:
        w = rng.standard_normal((draws, dim))
        w *= np.sqrt(dim) / np.linalg.norm(w, axis=1, keepdims=True)
    else:
        w = tasks[rng.permutation(draws) % len(tasks)]
    # (1/l) sum y^2, then sum y_i x_i along w and across it, given the labels.
    power = rng.chisquare(context, size=draws)[:, None] / context
    direction = w / np.sqrt(dim)
    free = rng.standard_normal((draws, dim))
    free -= np.sum(free * direction, axis=1, keepdims=True) * direction
    spread = np.sqrt(power * dim / context)
    along = np.sqrt(dim) * power + np.sqrt(noise) * spread * rng.standard_normal((draws, 1))
    h = np.column_stack(
        [along * direction + np.sqrt(1.0 + noise) * spread * free, (1.0 + noise) * power]
    )
    return Contexts(w=w, h=h)


def fluctuating_estimate(
    contexts: Contexts,
    target: Floats,
    second: Floats,
    *,
    samples: int,
    noise: float,
    ridge: float,
    start: Floats,
) -> tuple[Floats, Floats]:
    """Mean (d, d+1) of Gamma, and the covariance D (d+1, d+1) summed over its rows.

    Parameters
    ----------
    contexts : Contexts
    target, second : ndarray
        Exact ``A`` and ``B`` of `population_moments`: the draws serve for what fluctuates only.
    samples : int
        Number n of pretraining contexts.
    noise, ridge : float
        rho and lambda > 0.
    start : ndarray, shape (d + 1, d + 1)
        Q without fluctuations.
    """
    w, h = contexts.w, contexts.h
    d, count = w.shape[1], len(w)
    # The draws take the exact second moment, so that averages linear in it carry no sampling noise.
    drawn = np.linalg.cholesky(h.T @ h / count)
    h = h @ np.linalg.solve(drawn.T, np.linalg.cholesky(second).T)
    # s = |x|^2 is chi-square over d; eight nodes integrate its smooth functions to rounding.
    nodes, weights = roots_genlaguerre(8, d / 2 - 1)
    s, weights = nodes * 2.0 / d, weights / weights.sum()

    def outer(values: Floats, left: Floats, exact: Floats) -> Floats:
        """``E[values left h^T]`` with the mean of the values taken against the exact moment."""
        mean = values.mean()
        return mean * exact + left.T @ ((values - mean)[:, None] * h) / count

    def sizes(resolvent: Floats) -> Floats:
        return np.einsum("ja,ja->j", h @ resolvent, h)

    resolvent = start
    for _ in range(2000):
        resolvent = _rescaled(resolvent, sizes(resolvent), s, weights, samples / d, ridge)
        keep = (s / (1.0 + np.outer(sizes(resolvent), s))) @ weights
        new = d / samples * np.linalg.inv(ridge * np.eye(d + 1) + outer(keep, h, second))
        change = np.linalg.norm(new - resolvent) / np.linalg.norm(new)
        resolvent = new
        if change < 1e-10:
            break
    else:
        raise SolveError(_TOO_CLOSE)
    q = sizes(resolvent)
    omega = 1.0 / (1.0 + np.outer(q, s))
    keep = (s * omega) @ weights
    mean = outer(keep, w, target) @ resolvent * (samples / d)
    misfit = np.sum((w - h @ mean.T) ** 2, axis=1) / d
    exact = 1.0 + np.sum(mean * (mean @ second - 2.0 * target)) / d
    misfit *= exact / misfit.mean()
    first, square = (s * omega**2) @ weights, (s**2 * omega**2) @ weights

    def spread(values: Floats) -> Floats:
        return samples * resolvent @ outer(values, h, second) @ resolvent

    def remain(flat: Floats) -> Floats:
        covariance = flat.reshape(d + 1, d + 1)
        return flat - spread(square * sizes(covariance) / d).ravel()

    source = spread(noise * first + square * misfit)

    size = (d + 1) ** 2
    flat, failed = gmres(
        LinearOperator((size, size), matvec=remain, dtype=np.float64),
        source.ravel(),
        rtol=1e-8,
        restart=60,
        maxiter=20,
    )
    if failed:
        raise SolveError(_TOO_CLOSE)
    covariance = flat.reshape(d + 1, d + 1)
    return mean, covariance


def _rescaled(
    resolvent: Floats, q: Floats, s: Floats, weights: Floats, contexts: float, ridge: float
) -> Floats:
    """Multiple of Q that obeys the trace of its equation, ``tr(Q Q^-1) = d + 1``.

    The size of Q is what a plain iteration finds slowly next to the peak; its shape comes fast.
    With ``contexts = n/d``, ``f(c) = contexts (ridge c tr Q + E[s c q/(1 + s c q)])`` grows from 0.
    """
    target, trace, leverage = len(resolvent), ridge * float(np.trace(resolvent)), np.outer(q, s)
    log_scale = 0.0
    for _ in range(50):
        scale = np.exp(log_scale)
        share = scale * leverage / (1.0 + scale * leverage)
        value = contexts * (trace * scale + float(np.mean(share @ weights)))
        slope = contexts * (trace * scale + float(np.mean((share * (1.0 - share)) @ weights)))
        step = (value - target) / slope
        log_scale -= float(np.clip(step, -2.0, 2.0))
        if abs(step) < 1e-3:
            break
    return np.asarray(np.exp(log_scale) * resolvent)
