"""The p, q linear transformer (Mainali & Teixeira 2025, equations 1 to 10), from its raw layer.

The embedding stacks ``x_n`` over ``y_n = W x_n`` (both of size d), the query's label is zero, and
the layer is ``f(Z) = Z + W^P (Z Z^T / N) W^Q Z``. Of the last column's label rows, which are the
prediction, only the bottom blocks ``(p1, p2)`` of W^P and the left ones ``(q1; q2)`` of W^Q reach.
"""

from __future__ import annotations

from typing import Any, Literal

from odekit.errors import unknown_name
from odekit.field import expected_loss, gradient_flow
from odekit.gaussian import gaussian
from odekit.models.in_context_regression import size_or_symbol
from odekit.models.model import Model, with_constants
from odekit.tensor import TensorExpr, einsum, identity, parameter, weight

_TASKS = ("iid", "diagonal", "scalar", "general")


def linear_transformer(
    dim: Any = None,
    context: Any = None,
    tasks: Literal["iid", "diagonal", "scalar", "general"] = "iid",
    blocks: Literal["restricted", "all"] = "restricted",
    normalise: Literal["N", "N+1"] = "N",
) -> Model:
    """One layer: ``yhat = (p1 G_xx q1 + p1 G_xy q2 + p2 G_yx q1 + p2 G_yy q2) x_q``.

    Parameters
    ----------
    dim, context : int or sympy.Symbol, optional
        d and N; symbols by default.
    tasks : {"iid", "diagonal", "scalar", "general"}, optional
        Law of the task matrix W: independent standard normal entries; independent ones on the
        diagonal only (the eigenbasis where Lambda is diagonal); one normal number times identity;
        independent rows, each with the second moment ``Omega`` (d, d), a further parameter.
    blocks : {"restricted", "all"}, optional
        "restricted" has p1 = q2 = 0.
    normalise : {"N", "N+1"}, optional
        What ``Z Z^T`` is divided by.

    Returns
    -------
    Model
        States ``p2``, ``q1`` (d, d), with all blocks also ``p1``, ``q2``; parameters ``Lambda``
        (d, d) and ``N``.

    Notes
    -----
    Units: mean squared error without 1/2, summed over components, ``2 d(theta)/dt = - d(MSE)``;
    the paper's time is this one times ``eta P``. Source: Mainali & Teixeira 2025
    (arXiv:2504.12916), equations (1) to (10).
    """
    for value, known, what in (
        (tasks, _TASKS, "law of the tasks"),
        (blocks, ("restricted", "all"), "choice of blocks"),
        (normalise, ("N", "N+1"), "normalisation"),
    ):
        if value not in known:
            raise unknown_name(what, value, known)
    d, N = size_or_symbol(dim, "D"), size_or_symbol(context, "N")
    covariance = parameter("Lambda", (d, d), symmetric=True)
    x = gaussian("x", (N, d), covariance=covariance)
    query = gaussian("x_q", (d,), covariance=covariance)
    W = _task(tasks, d)
    y = einsum("ij,nj->ni", W, x)
    count = N if normalise == "N" else N + 1
    G_yx = einsum("ni,nj->ij", y, x) / count
    p2, q1 = weight("p2", (d, d)), weight("q1", (d, d))
    prediction = einsum("ij,jk,kl,l->i", p2, G_yx, q1, query)
    weights = [p2, q1]
    if blocks == "all":
        p1, q2 = weight("p1", (d, d)), weight("q2", (d, d))
        weights += [p1, q2]
        G_xx = (einsum("ni,nj->ij", x, x) + einsum("i,j->ij", query, query)) / count
        G_yy = einsum("ni,nj->ij", y, y) / count
        prediction = (
            prediction
            + einsum("ij,jk,kl,l->i", p1, G_xx, q1, query)
            + einsum("ij,kj,kl,l->i", p1, G_yx, q2, query)
            + einsum("ij,jk,kl,l->i", p2, G_yy, q2, query)
        )
    target = W @ query
    loss = expected_loss(prediction, target)
    return Model(
        name="linear_transformer",
        weights=tuple(weights),
        prediction=prediction,
        target=target,
        loss=loss,
        flow=with_constants(
            gradient_flow(loss, weights=weights, time_scale=2), {"N": N, "D": d, "d": d}
        ),
        source="Mainali & Teixeira 2025, equations (1) to (10)",
        options={
            "dim": d,
            "context": N,
            "tasks": tasks,
            "blocks": blocks,
            "normalise": normalise,
        },
    )


def _task(law: str, d: Any) -> TensorExpr:
    if law == "iid":
        return gaussian("W", (d, d)).as_expression()
    if law == "general":
        moment = parameter("Omega", (d, d), symmetric=True)
        return gaussian("W", (d, d), covariance=moment).as_expression()
    if law == "diagonal":
        return einsum("i,ij->ij", gaussian("w", (d,)), identity(d))
    return einsum(",ij->ij", gaussian("w"), identity(d))
