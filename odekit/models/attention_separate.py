"""Linear attention with separate key and query (ATTN_S, Zhang et al. 2025, section 4)."""

from __future__ import annotations

from typing import Any, Literal

from odekit.errors import unknown_name
from odekit.field import expected_loss, gradient_flow
from odekit.models.blocks import SeparateBlocks
from odekit.models.in_context_regression import regression, size_or_symbol
from odekit.models.model import Model, with_constants
from odekit.tensor import Tensor, einsum, weight


def attention_separate(
    heads: Any = None,
    rank: Any = None,
    dim: Any = None,
    context: Any = None,
    blocks: Literal["zero", "all"] = "zero",
) -> Model:
    """Multi-head linear attention ``yhat = sum_h sum_r v_h (beta . K_hr)(Q_hr . x_q)``.

    Parameters
    ----------
    heads, rank, dim, context : int or sympy.Symbol, optional
        H, R, D and N; symbols by default.
    blocks : {"zero", "all"}, optional
        "all" keeps every weight that has a gradient: ``yhat = sum_hr (Q_hr . x_q) K_hr^T G u_h``
        with G the mean of token outer products, query included; see `Model.lift`.

    Returns
    -------
    Model
        States ``v`` (H,), ``K`` and ``Q`` (H, R, D), parameters ``Lambda`` (D, D) and ``N``. With
        all blocks the whole-layer states are ``u`` (H, D+1), ``K`` (H, R, D+1), ``Q`` (H, R, D),
        and the flow holds the blocks ``u_x``, ``u_y``, ``K_x``, ``K_y``, ``Q``.

    Notes
    -----
    Units: the loss is the mean squared error without 1/2, and ``2 d(theta)/dt = - d(MSE)/d(theta)``
    (time in units of tau). Source: Zhang et al. 2025 (arXiv:2501.16265), ATTN_S.
    """
    if blocks not in ("zero", "all"):
        raise unknown_name("choice of blocks", blocks, ("zero", "all"))
    H, R = size_or_symbol(heads, "H"), size_or_symbol(rank, "R")
    data = regression(dim, context)
    D = data.dim
    Q = weight("Q", (H, R, D))
    if blocks == "zero":
        v, K = weight("v", (H,)), weight("K", (H, R, D))
        weights: tuple[Tensor, ...] = (v, K, Q)
        prediction = einsum("h,a,hra,hrb,b->", v, data.beta, K, Q, data.query)
    else:
        u_x, u_y = weight("u_x", (H, D)), weight("u_y", (H,))
        K_x, K_y = weight("K_x", (H, R, D)), weight("K_y", (H, R))
        weights = (u_x, u_y, K_x, K_y, Q)
        token_side = einsum("hb,ab->ha", u_x, data.token_moment) + einsum("h,a->ha", u_y, data.beta)
        label_side = einsum("hb,b->h", u_x, data.beta) + u_y * data.label_moment
        prediction = einsum("hrq,q,hra,ha->", Q, data.query, K_x, token_side) + einsum(
            "hrq,q,hr,h->", Q, data.query, K_y, label_side
        )
    loss = expected_loss(prediction, data.target)
    return Model(
        name="attention_separate",
        weights=weights,
        prediction=prediction,
        target=data.target,
        loss=loss,
        flow=with_constants(
            gradient_flow(loss, weights=weights, time_scale=2),
            {"N": data.context, "D": D, "H": H, "R": R},
        ),
        source="Zhang et al. 2025, ATTN_S",
        options={"heads": H, "rank": R, "dim": D, "context": data.context, "blocks": blocks},
        blocks=SeparateBlocks() if blocks == "all" else None,
    )
