"""A published model: weights, prediction, target, loss and flow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import sympy as sp

from odekit.errors import InputError
from odekit.field import ExpectedLoss, TensorField
from odekit.models.blocks import Blocks
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
        In the convention that the maker's docstring states.
    flow : TensorField or ScalarField
        Gradient flow.
    source : str
        Paper and equation.
    options : Mapping
        The options it was made with, such as ``{"heads": H, "blocks": "zero"}``.
    blocks : Blocks or None
        How states of the whole layer fall into block tensors and the reduced model's states.
    """

    name: str
    weights: tuple[Tensor, ...]
    prediction: TensorExpr | None
    target: TensorExpr | None
    loss: ExpectedLoss | None
    flow: Any
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    blocks: Blocks | None = None

    def unpack(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Split states of the whole layer into the block tensors that the flow holds."""
        return self._blocks().unpack(state)

    def pack(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Join block tensors (leading axes allowed) into states of the whole layer."""
        return self._blocks().pack(state)

    def lift(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """States of the whole layer that act as a state of the reduced model, zero elsewhere."""
        return self._blocks().lift(state)

    def restrict(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """States of the reduced model inside states of the whole layer; the rest is dropped."""
        return self._blocks().restrict(state)

    def _blocks(self) -> Blocks:
        if self.blocks is None:
            raise InputError(f"{self.name} has no further blocks; make it with blocks='all'")
        return self.blocks

    def _repr_latex_(self) -> str:
        return self.flow._repr_latex_()

    def __repr__(self) -> str:
        return f"Model {self.name} ({self.source})\n{self.flow!r}"


def with_constants(flow: TensorField, sizes: Mapping[str, sp.Expr]) -> TensorField:
    """Remember the sizes that were given as integers under their names in the paper."""
    fixed = {name: int(size) for name, size in sizes.items() if size.is_number}
    return replace(flow, constants=fixed)
