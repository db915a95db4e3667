"""Plateau levels of linear attention trained on in-context linear regression."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError


def plateau_losses(spectrum: ArrayLike, context: float) -> NDArray[np.float64]:
    """Loss at each saddle that the training of linear attention passes.

    At plateau ``m`` the layer has learned the ``m`` leading eigen-directions of the token
    covariance and none of the others.

    Parameters
    ----------
    spectrum : array_like, shape (D,)
        Eigenvalues of the token covariance Lambda, nonnegative, in any order.
    context : float
        Number N of labelled tokens before the query, at least 1; ``inf`` is the limit of an
        endless context.

    Returns
    -------
    ndarray, shape (D + 1,), float64
        ``L(M_0), ..., L(M_D)``: level ``m`` is
        ``tr Lambda - sum_{d <= m} lambda_d / (1 + (1 + tr Lambda / lambda_d) / N)``
        with the eigenvalues in descending order.

    Raises
    ------
    InputError
        If an eigenvalue is negative or not finite, or if ``context`` is below 1.

    Notes
    -----
    Units: mean squared error without a factor 1/2, white tasks, no label noise. The levels are
    summed from the errors that remain, all positive, so that no digit is lost when N is large.

    References
    ----------
    Zhang, Singh, Latham, Saxe, "Training dynamics of in-context learning in linear attention",
    ICML 2025: the loss at the fixed points M_m.

    Examples
    --------
    >>> plateau_losses([0.4, 0.3, 0.2, 0.1], 31).round(6)
    array([1.      , 0.64058 , 0.377372, 0.209805, 0.135995])
    """
    values = np.asarray(spectrum)
    if values.dtype.kind not in "biuf":
        raise InputError(f"spectrum must hold real eigenvalues, got {spectrum!r:.60}")
    values = values.astype(np.float64)
    if values.ndim != 1 or values.size == 0:
        raise InputError(
            f"spectrum must be a vector of eigenvalues, got an array of shape {values.shape}; "
            "pass numpy.linalg.eigvalsh(Lambda) for a covariance matrix"
        )
    if not np.all(np.isfinite(values)) or np.any(values < 0):
        raise InputError(
            f"spectrum must hold finite eigenvalues >= 0, got {values.tolist()}; "
            "a covariance has no negative eigenvalue"
        )
    tokens: Any = context
    if not isinstance(tokens, Real) or not float(tokens) >= 1:
        raise InputError(
            f"context must be a number of tokens >= 1, got {context!r}; use inf for its limit"
        )
    values = np.sort(values)[::-1]
    trace = values.sum()
    shortfall = np.zeros_like(values)
    if np.isfinite(context):
        present = values > 0
        seen = values[present]
        shortfall[present] = seen * (seen + trace) / ((context + 1) * seen + trace)
    learned = np.concatenate(([0.0], np.cumsum(shortfall)))
    unseen = np.concatenate((np.cumsum(values[::-1])[::-1], [0.0]))
    return learned + unseen
