"""Linear attention with merged key and query (ATTN_M, Zhang et al. 2025, section 3)."""

from __future__ import annotations

from typing import Any, Literal

from odekit.errors import unknown_name
from odekit.field import expected_loss, gradient_flow
from odekit.models.blocks import MergedBlocks
from odekit.models.in_context_regression import regression, size_or_symbol
from odekit.models.model import Model, with_constants
from odekit.tensor import Tensor, einsum, weight


def attention_merged(
    heads: Any = None,
    dim: Any = None,
    context: Any = None,
    blocks: Literal["zero", "all"] = "zero",
) -> Model:
    """Multi-head linear attention ``yhat = sum_h v_h beta^T U_h x_q``.

    Parameters
    ----------
    heads, dim, context : int or sympy.Symbol, optional
        H, D and N; symbols by default.
    blocks : {"zero", "all"}, optional
        "all" keeps every weight that has a gradient: ``yhat = sum_h x_q^T A_h G u_h`` with G the
        mean of token outer products, query included; see `Model.lift`, `Model.unpack`.

    Returns
    -------
    Model
        States ``v`` (H,) and ``U`` (H, D, D), parameters ``Lambda`` (D, D) and ``N``. With all
        blocks the whole-layer states are ``u`` (H, D+1) and ``A`` (H, D, D+1), and the flow holds
        their blocks ``u_x``, ``u_y``, ``A_x``, ``A_y``.

    Notes
    -----
    Units: the loss is the mean squared error without 1/2, and ``2 d(theta)/dt = - d(MSE)/d(theta)``
    (time in units of tau). Source: Zhang et al. 2025 (arXiv:2501.16265), ATTN_M.
    """
    if blocks not in ("zero", "all"):
        raise unknown_name("choice of blocks", blocks, ("zero", "all"))
    H = size_or_symbol(heads, "H")
    data = regression(dim, context)
    D = data.dim
    if blocks == "zero":
        v, U = weight("v", (H,)), weight("U", (H, D, D))
        weights: tuple[Tensor, ...] = (v, U)
        prediction = einsum("h,a,hab,b->", v, data.beta, U, data.query)
    else:
        u_x, u_y = weight("u_x", (H, D)), weight("u_y", (H,))
        A_x, A_y = weight("A_x", (H, D, D)), weight("A_y", (H, D))
        weights = (u_x, u_y, A_x, A_y)
        token_side = einsum("hb,ab->ha", u_x, data.token_moment) + einsum("h,a->ha", u_y, data.beta)
        label_side = einsum("hb,b->h", u_x, data.beta) + u_y * data.label_moment
        prediction = einsum("q,hqa,ha->", data.query, A_x, token_side) + einsum(
            "q,hq,h->", data.query, A_y, label_side
        )
    loss = expected_loss(prediction, data.target)
    return Model(
        name="attention_merged",
        weights=weights,
        prediction=prediction,
        target=data.target,
        loss=loss,
        flow=with_constants(
            gradient_flow(loss, weights=weights, time_scale=2), {"N": data.context, "D": D, "H": H}
        ),
        source="Zhang et al. 2025, ATTN_M",
        options={"heads": H, "dim": D, "context": data.context, "blocks": blocks},
        blocks=MergedBlocks() if blocks == "all" else None,
    )
