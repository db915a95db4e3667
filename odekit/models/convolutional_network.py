"""Separate attention as a sum of three-layer convolutional linear networks.

Zhang et al. 2025, section 4: the keys are kernels that run over ``z`` at stride D, the queries
join their outputs, and the value weight is the last layer.
"""

from __future__ import annotations

from typing import Any, Literal

from odekit.errors import InputError, unknown_name
from odekit.field import ExpectedLoss, expected_loss, gradient_flow
from odekit.models.in_context_regression import regression, size_or_symbol
from odekit.models.linear_network import loss_of_moments
from odekit.models.model import Model, with_constants
from odekit.tensor import TensorExpr, define, einsum, weight


def convolutional_network(
    heads: Any = None,
    rank: Any = None,
    windows: Any = None,
    stride: Any = None,
    dim: Any = None,
    context: Any = None,
    data: Literal["moments", "attention"] = "moments",
) -> Model:
    """H networks ``w3_h sum_rl W2_hrl (W1_hr *_S z)_l`` added up, with a scalar output.

    The convolution at stride S, ``(k *_S z)_l = sum_s k_s z_(lS+s)``, has kernels as long as its
    stride: its windows ``z_(lS), ..., z_(lS+S-1)`` do not overlap, so a signal of length L S is an
    array (L, S).

    Parameters
    ----------
    heads, rank : int or sympy.Symbol, optional
        H, the number of networks, and R, the channels of each.
    windows, stride : int or sympy.Symbol, optional
        L and S, with ``data="moments"``.
    dim, context : int or sympy.Symbol, optional
        D and N, with ``data="attention"``; then L = S = D.
    data : {"moments", "attention"}, optional
        "moments" knows the data by ``C = E[z z^T]``, ``c = E[y z]`` and ``y2 = E[y^2]`` alone.
        "attention" has the cubic features of in-context regression, window l for ``x_q``'s entry:
        ``z_(lD+s) = x_q[l] beta[s]``.

    Returns
    -------
    Model
        States ``w3`` (H,), ``W2`` (H, R, L), ``W1`` (H, R, S); parameters ``C`` (L, S, L, S), ``c``
        (L, S), ``y2``, or ``Lambda`` (D, D) and ``N``.

    Notes
    -----
    Units: the loss is the mean squared error without 1/2, and ``2 d(theta)/dt = - d(MSE)/d(theta)``
    (time in units of tau). It is `attention_separate` with ``w3 = v``, ``W2 = Q``, ``W1 = K``.
    Source: Zhang et al. 2025 (arXiv:2501.16265), section 4.
    """
    if data not in ("moments", "attention"):
        raise unknown_name("choice of data", data, ("moments", "attention"))
    if data == "moments" and not (dim is None and context is None):
        raise InputError("dim and context belong to data='attention'; give windows and stride")
    if data == "attention" and not (windows is None and stride is None):
        raise InputError("windows and stride belong to data='moments'; the attention's are dim")
    H, R = size_or_symbol(heads, "H"), size_or_symbol(rank, "R")
    if data == "moments":
        L, S = size_or_symbol(windows, "L"), size_or_symbol(stride, "S")
        sizes = {"H": H, "R": R, "L": L, "S": S}
    else:
        cubic = regression(dim, context)
        L = S = cubic.dim
        sizes = {"H": H, "R": R, "D": cubic.dim, "N": cubic.context}
    w3, W2, W1 = weight("w3", (H,)), weight("W2", (H, R, L)), weight("W1", (H, R, S))
    prediction: TensorExpr | None = None
    target: TensorExpr | None = None
    loss: ExpectedLoss
    if data == "moments":
        loss = loss_of_moments(define("a", einsum("h,hrl,hrs->ls", w3, W2, W1)))
    else:
        prediction = einsum("h,hrl,hrs,l,s->", w3, W2, W1, cubic.query, cubic.beta)
        target = cubic.target
        loss = expected_loss(prediction, target)
    return Model(
        name="convolutional_network",
        weights=(w3, W2, W1),
        prediction=prediction,
        target=target,
        loss=loss,
        flow=with_constants(gradient_flow(loss, weights=(w3, W2, W1), time_scale=2), sizes),
        source="Zhang et al. 2025, section 4",
        options={"heads": H, "rank": R, "windows": L, "stride": S, "data": data},
    )
