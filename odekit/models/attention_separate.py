"""Linear attention with separate key and query (ATTN_S, Zhang et al. 2025, section 4)."""

from __future__ import annotations

from typing import Any

from odekit.field import expected_loss, gradient_flow
from odekit.models.in_context_regression import regression, size_or_symbol
from odekit.models.model import Model, with_constants
from odekit.tensor import einsum, weight


def attention_separate(
    heads: Any = None, rank: Any = None, dim: Any = None, context: Any = None
) -> Model:
    """Multi-head linear attention ``yhat = sum_h sum_r v_h (beta . K_hr)(Q_hr . x_q)``.

    Parameters
    ----------
    heads, rank, dim, context : int or sympy.Symbol, optional
        H, R, D and N; symbols by default.

    Returns
    -------
    Model
        States ``v`` (H,), ``K`` and ``Q`` (H, R, D), parameters ``Lambda`` (D, D) and ``N``.

    Notes
    -----
    Units: the loss is the mean squared error without 1/2, and ``2 d(theta)/dt = - d(MSE)/d(theta)``
    (time in units of tau). Source: Zhang et al. 2025 (arXiv:2501.16265), ATTN_S.
    """
    H, R = size_or_symbol(heads, "H"), size_or_symbol(rank, "R")
    data = regression(dim, context)
    D = data.dim
    v, K, Q = weight("v", (H,)), weight("K", (H, R, D)), weight("Q", (H, R, D))
    prediction = einsum("h,a,hra,hrb,b->", v, data.beta, K, Q, data.query)
    loss = expected_loss(prediction, data.target)
    return Model(
        name="attention_separate",
        weights=(v, K, Q),
        prediction=prediction,
        target=data.target,
        loss=loss,
        flow=with_constants(
            gradient_flow(loss, weights=(v, K, Q), time_scale=2),
            {"N": data.context, "D": D, "H": H, "R": R},
        ),
        source="Zhang et al. 2025, ATTN_S",
        options={"heads": H, "rank": R, "dim": D, "context": data.context, "blocks": "zero"},
    )
