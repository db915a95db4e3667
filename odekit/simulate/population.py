"""Training on the population: the exact expected loss in place of a data set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from odekit.errors import InputError
from odekit.simulate.layer import Floats, real_array
from odekit.simulate.moments import Statistics

__all__ = ["Population", "checked_covariance", "population_statistics"]


@dataclass(frozen=True, eq=False)
class Population:
    """The exact expected loss of a model at these parameters, as data to train on.

    Parameters
    ----------
    params : mapping
        Parameter name to number or array; for attention ``Lambda`` (D, D) and ``N``.
    """

    params: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.params, Mapping):
            raise InputError(
                f"Population takes a mapping of parameters, got {type(self.params).__name__}."
            )


def checked_covariance(value: Any, name: str = "Lambda", dim: int | None = None) -> Floats:
    """Return a symmetric positive semidefinite matrix, or raise `InputError`."""
    matrix = real_array(value, name, ndim=2)
    if matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise InputError(f"{name} has shape {matrix.shape}, expected a square matrix.")
    if dim is not None and matrix.shape[0] != dim:
        raise InputError(f"{name} has shape {matrix.shape}, expected ({dim}, {dim}).")
    size = float(np.abs(matrix).max())
    if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-12 * size):
        raise InputError(f"{name} is not symmetric; a covariance is, pass (M + M.T)/2.")
    # Rounding of eigvalsh on a singular matrix is of the order of eps times its norm times D.
    if np.linalg.eigvalsh(matrix)[0] < -1e-13 * size * len(matrix):
        raise InputError(f"{name} has a negative eigenvalue; a covariance has none.")
    return matrix


def population_statistics(
    Lambda: Any, N: float, *, task: Any = None, noise: float = 0.0, normalise: bool = True
) -> Statistics:
    """Return the reduced statistics of infinitely many Gaussian sequences, in closed form.

    ``C = B' (x) Lambda``, ``c = vec(Lambda M2 Lambda)`` with ``beta`` as the slow index,
    ``B' = (1+1/N) Lambda M2 Lambda + ((tr(Lambda M2) + noise)/N) Lambda``.

    Parameters
    ----------
    Lambda : array (D, D)
        Covariance of the tokens.
    N : float
        Number of context tokens; for lengths drawn at random, 1/E[1/n].
    task : array (D, D), optional
        M2 = E[w w^T]; default the identity.
    noise : float
        Variance of the label noise, on context and query labels.
    normalise : bool
        Whether beta carries its 1/N.

    Returns
    -------
    Statistics
        Of the reduced kind.
    """
    L = checked_covariance(Lambda)
    M2 = np.eye(len(L)) if task is None else checked_covariance(task, "task", len(L))
    n = float(real_array(N, "N", ndim=0))
    s2 = float(real_array(noise, "noise", ndim=0))
    if not n > 0:
        raise InputError(f"N must be positive, got {N!r}.")
    if s2 < 0:
        raise InputError(f"noise is a variance and cannot be negative, got {noise!r}.")
    cross = L @ M2 @ L
    power = float(np.trace(L @ M2)) + s2
    second = (1 + 1 / n) * cross + power / n * L
    scale = 1.0 if normalise else n
    return Statistics(
        kind="reduced",
        C=np.asarray(np.kron(scale**2 * second, L), dtype=np.float64),
        c=scale * cross.ravel(),
        y2=power,
    )
