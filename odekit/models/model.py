"""A published model: weights, prediction, target, loss and flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odekit.field import ExpectedLoss, VectorField
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
