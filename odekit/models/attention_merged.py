"""Linear attention with merged key and query (ATTN_M, Zhang et al. 2025, section 3)."""

from __future__ import annotations

from typing import Any

from odekit.field import expected_loss, gradient_flow
from odekit.models.in_context_regression import regression, size_or_symbol
from odekit.models.model import Model, with_constants
from odekit.tensor import einsum, weight


def attention_merged(heads: Any = None, dim: Any = None, context: Any = None) -> Model:
    """Multi-head linear attention ``yhat = sum_h v_h beta^T U_h x_q``.

    Parameters
    ----------
    heads, dim, context : int or sympy.Symbol, optional
        H, D and N; symbols by default.

    Returns
    -------
    Model
        States ``v`` (H,) and ``U`` (H, D, D), parameters ``Lambda`` (D, D) and ``N``.

    Notes
    -----
    Units: the loss is the mean squared error without 1/2, and ``2 d(theta)/dt = - d(MSE)/d(theta)``
    (time in units of tau). Source: Zhang et al. 2025 (arXiv:2501.16265), ATTN_M.
    """
    H = size_or_symbol(heads, "H")
    data = regression(dim, context)
    v, U = weight("v", (H,)), weight("U", (H, data.dim, data.dim))
    prediction = einsum("h,a,hab,b->", v, data.beta, U, data.query)
    loss = expected_loss(prediction, data.target)
    return Model(
        name="attention_merged",
        weights=(v, U),
        prediction=prediction,
        target=data.target,
        loss=loss,
        flow=with_constants(
            gradient_flow(loss, weights=(v, U), time_scale=2),
            {"N": data.context, "D": data.dim, "H": H},
        ),
        source="Zhang et al. 2025, ATTN_M",
        options={"heads": H, "dim": data.dim, "context": data.context, "blocks": "zero"},
    )
