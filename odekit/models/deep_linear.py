"""Deep linear networks (Saxe, McClelland & Ganguli 2014) with Gaussian inputs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from odekit.errors import InputError
from odekit.field import expected_loss, gradient_flow
from odekit.gaussian import gaussian
from odekit.models.in_context_regression import size_or_symbol
from odekit.models.model import Model, with_constants
from odekit.tensor import parameter, weight


def deep_linear(depth: int = 2, widths: Sequence[Any] | None = None) -> Model:
    """A network ``W_depth ... W_1 x`` that regresses a linear teacher ``T x``.

    Parameters
    ----------
    depth : int, optional
        Number of weight matrices, at least 1.
    widths : sequence of int or sympy.Symbol, optional
        ``depth + 1`` sizes from input to output; symbols ``D0, D1, ...`` by default.

    Returns
    -------
    Model
        States ``W1`` (D1, D0), ..., parameters ``Lambda`` (D0, D0), the input covariance, and
        ``T`` (D_depth, D0), the teacher.

    Notes
    -----
    Units: mean squared error without 1/2, summed over outputs, ``2 dW/dt = - d(MSE)/dW``. Source:
    Saxe et al. 2014 (arXiv:1312.6120).
    """
    if isinstance(depth, bool) or not isinstance(depth, int) or depth < 1:
        raise InputError(f"depth is {depth!r}; give a positive integer")
    if widths is not None and not isinstance(widths, Iterable):
        raise InputError(f"widths is {widths!r}; give {depth + 1} sizes, inputs first")
    given = [None] * (depth + 1) if widths is None else list(widths)
    if len(given) != depth + 1:
        raise InputError(f"depth {depth} needs {depth + 1} widths, got {len(given)}")
    sizes = [size_or_symbol(w, f"D{k}") for k, w in enumerate(given)]
    x = gaussian("x", (sizes[0],), covariance=parameter("Lambda", (sizes[0],) * 2, symmetric=True))
    layers = tuple(weight(f"W{k + 1}", (sizes[k + 1], sizes[k])) for k in range(depth))
    prediction = x.as_expression()
    for layer in layers:
        prediction = layer @ prediction
    target = parameter("T", (sizes[-1], sizes[0])) @ x
    loss = expected_loss(prediction, target)
    return Model(
        name="deep_linear",
        weights=layers,
        prediction=prediction,
        target=target,
        loss=loss,
        flow=with_constants(
            gradient_flow(loss, weights=layers, time_scale=2),
            {f"D{k}": size for k, size in enumerate(sizes)},
        ),
        source="Saxe et al. 2014",
        options={"depth": depth, "widths": tuple(sizes)},
    )
