"""A published model: weights, prediction, target, loss and flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sympy as sp

from odekit.field import ExpectedLoss, TensorField, VectorField
from odekit.tensor import Tensor, TensorExpr


@dataclass(frozen=True, eq=False)
class Model:
    """A model with its random data, derived.

    Attributes
    ----------
    name : str
        Key in `odekit.models.REGISTRY`.
    weights : tuple of Tensor
        Trained tensors.
    prediction, target : TensorExpr or None
        Polynomials in weights and Gaussian data; None for fields given by equations alone.
    loss : ExpectedLoss or None
        In the convention that `source` states.
    flow : VectorField
        Gradient flow.
    source : str
        Paper and equation.
    options : Mapping
        The options it was made with, such as ``{"heads": H, "blocks": "zero"}``.
    """

    name: str
    weights: tuple[Tensor, ...]
    prediction: TensorExpr | None
    target: TensorExpr | None
    loss: ExpectedLoss | None
    flow: VectorField
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def _repr_latex_(self) -> str:
        return self.flow._repr_latex_()

    def __repr__(self) -> str:
        return f"Model {self.name} ({self.source})\n{self.flow!r}"


def with_constants(flow: TensorField, sizes: Mapping[str, sp.Expr]) -> TensorField:
    """Remember the sizes that were given as integers under their names in the paper."""
    fixed = {name: int(size) for name, size in sizes.items() if size.is_number}
    return replace(flow, constants=fixed)
