"""Merged attention as a two-layer fully connected linear network on cubic features.

Zhang et al. 2025, section 3: with ``z = vec(beta x_q^T)`` merged attention is ``w2 . W1 z``.
"""

from __future__ import annotations

from typing import Any, Literal

from odekit.errors import InputError, unknown_name
from odekit.field import ExpectedLoss, expected_loss, gradient_flow
from odekit.gaussian import expectation
from odekit.models.in_context_regression import regression, size_or_symbol
from odekit.models.model import Model, with_constants
from odekit.tensor import TensorExpr, define, einsum, parameter, weight


def linear_network(
    heads: Any = None,
    features: Any = None,
    dim: Any = None,
    context: Any = None,
    data: Literal["moments", "attention"] = "moments",
) -> Model:
    """A two-layer fully connected linear network ``w2 . W1 z`` with a scalar output.

    Parameters
    ----------
    heads : int or sympy.Symbol, optional
        H, the number of hidden units.
    features : int, sympy.Symbol or pair of them, optional
        M, the number of features; a pair (L, S) keeps the features as an array (L, S), of which
        the flat ones are the rows in order.
    dim, context : int or sympy.Symbol, optional
        D and N, with ``data="attention"``.
    data : {"moments", "attention"}, optional
        "moments" knows the data by ``C = E[z z^T]``, ``c = E[y z]`` and ``y2 = E[y^2]`` alone: any
        data. "attention" has the cubic features (D, D) ``z = beta x_q^T`` of in-context regression.

    Returns
    -------
    Model
        States ``w2`` (H,) and ``W1`` (H, M); parameters ``C`` (M, M), ``c`` (M,), ``y2``. With a
        pair M is the two axes (L, S). With the attention's data ``W1`` is (H, D, D) and the
        parameters are ``Lambda`` (D, D) and ``N``.

    Notes
    -----
    Units: the loss is the mean squared error without 1/2, and ``2 d(theta)/dt = - d(MSE)/d(theta)``
    (time in units of tau). It is `attention_merged` with ``w2 = v`` and rows ``W1_h = vec(U_h)``.
    Source: Zhang et al. 2025 (arXiv:2501.16265), section 3.
    """
    if data not in ("moments", "attention"):
        raise unknown_name("choice of data", data, ("moments", "attention"))
    if data == "moments" and not (dim is None and context is None):
        raise InputError("dim and context belong to data='attention'; give features instead")
    if data == "attention" and features is not None:
        raise InputError("features belongs to data='moments'; the attention's are dim by dim")
    H = size_or_symbol(heads, "H")
    if data == "moments":
        shape = features if isinstance(features, tuple) else (features,)
        names = ("M",) if len(shape) == 1 else ("L", "S")
        if len(shape) > 2:
            raise InputError(f"features has {len(shape)} axes; give a size or a pair of sizes")
        axes = tuple(size_or_symbol(s, n) for s, n in zip(shape, names, strict=True))
        sizes = {"H": H, **dict(zip(names, axes, strict=True))}
    else:
        cubic = regression(dim, context)
        axes = (cubic.dim, cubic.dim)
        sizes = {"H": H, "D": cubic.dim, "N": cubic.context}
    w2, W1 = weight("w2", (H,)), weight("W1", (H, *axes))
    letters = "ab"[: len(axes)]
    prediction = target = None
    if data == "moments":
        a = define("a", einsum(f"h,h{letters}->{letters}", w2, W1))
        loss = loss_of_moments(a)
    else:
        prediction = einsum("h,hab,a,b->", w2, W1, cubic.beta, cubic.query)
        target = cubic.target
        loss = expected_loss(prediction, target)
    return Model(
        name="linear_network",
        weights=(w2, W1),
        prediction=prediction,
        target=target,
        loss=loss,
        flow=with_constants(gradient_flow(loss, weights=(w2, W1), time_scale=2), sizes),
        source="Zhang et al. 2025, section 3",
        options={"heads": H, "features": axes, "data": data},
    )


def loss_of_moments(a: Any) -> ExpectedLoss:
    """``y2 - 2 c . a + a . C a``, the error of ``a . z`` on data of given moments.

    The parameters ``C``, ``c``, ``y2`` take the shape of ``a``, which has one or two axes.
    """
    axes = a.shape
    first, second = "ab"[: len(axes)], "cd"[: len(axes)]
    C = parameter("C", (*axes, *axes), symmetric=len(axes) == 1)
    c, y2 = parameter("c", axes), parameter("y2")
    return ExpectedLoss(
        y2
        - 2 * einsum(f"{first},{first}->", c, a)
        + einsum(f"{first},{first}{second},{second}->", a, C, a)
    )


def cubic_moments(dim: Any = None, context: Any = None) -> dict[str, TensorExpr]:
    """``C`` (D, D, D, D), ``c`` (D, D) and ``y2`` of ``z = beta x_q^T``, exact in D and N.

    The first axis of each pair is beta's; flattened in C order they belong to ``vec(beta x_q^T)``.
    """
    cubic = regression(dim, context)
    z = einsum("a,b->ab", cubic.beta, cubic.query)
    return {
        "C": expectation(einsum("ab,cd->abcd", z, z)),
        "c": expectation(einsum(",ab->ab", cubic.target, z)),
        "y2": expectation(einsum(",->", cubic.target, cubic.target)),
    }
