"""Full-batch gradient descent on the exact expected loss of any model, by its own flow."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from odekit.errors import InputError
from odekit.simulate.flow_loop import descend_field
from odekit.simulate.full_batch import Work
from odekit.simulate.layer import Floats
from odekit.simulate.population import Population

__all__ = ["FlowDescent", "sizes_of", "step_factors"]

_LONG = 100_000  # steps from which the slower compilation to the faster code pays


class FlowDescent:
    """The model's exact expected loss, through its own compiled flow.

    The gradient is ``- time_scale * rate``, so that a step of gradient descent is a step
    ``lr * time_scale`` of Euler's method on the flow.
    """

    replays = False
    offset = 0
    scale = float("nan")  # of the first loss

    def __init__(
        self, model: Any, data: Population, y0: Mapping[str, ArrayLike], steps: int
    ) -> None:
        from odekit.codegen import compile as compile_field

        flow = getattr(model, "flow", model)
        if not hasattr(flow, "state_names"):
            raise InputError(
                f"{type(model).__name__} has no flow; Population needs a model or a vector field."
            )
        blocks = getattr(model, "blocks", None)
        self.join: Any = dict
        self.split: Any = dict
        if blocks is not None and not set(y0) <= set(flow.state_names):
            # States of a whole layer: the flow holds them in blocks.
            self.split, self.join = blocks.unpack, blocks.pack
            y0 = self.split(y0)
        constants = dict(getattr(flow, "constants", {}))
        params = {str(k): v for k, v in data.params.items() if str(k) not in constants}
        flow.loss_value(y0, dict(data.params))  # checks names, shapes and values, in one line
        self.compiled = compile_field(
            flow,
            sizes=sizes_of(flow, y0, data.params),
            effort="full" if steps >= _LONG else "quick",
        )
        if self.compiled.loss is None:
            raise InputError("The field has no loss, so there is nothing to descend.")
        layout = self.compiled.layout
        self.theta, self.params = layout.pack(y0), layout.pack_parameters(params)
        self.factors = step_factors(flow, layout)
        self.given = {
            str(k): np.asarray(v).tolist() for k, v in sorted(data.params.items(), key=str)
        }

    def pack(self, states: Mapping[str, ArrayLike]) -> Floats:
        """Flatten named states to one vector (n,)."""
        flat: Floats = self.compiled.layout.pack(self.split(states))
        return flat

    def unpack(self, flat: Floats) -> dict[str, Floats]:
        """Name the parts of flat states (..., n)."""
        named: dict[str, Floats] = self.join(self.compiled.layout.unpack(flat))
        return named

    def describe(self) -> dict[str, Any]:
        """Return what the configuration records."""
        return {
            "data": "Population: compiled flow",
            "params": self.given,
            "key": self.compiled.key,
        }

    def loss(self, theta: Floats) -> float:
        """Return the loss."""
        assert self.compiled.loss is not None
        return float(self.compiled.loss(theta, self.params))

    def gradient(self, theta: Floats) -> Floats:
        """Return the gradient (n,)."""
        rate = np.empty(theta.size)
        self.compiled.rhs(0.0, np.ascontiguousarray(theta), self.params, rate)
        return -rate * self.factors

    def advance(self, work: Work) -> int:
        """Do the steps from work.span[0] to work.span[1]; return a code."""
        return int(
            descend_field(
                self.compiled.rhs, self.compiled.loss, work.theta, work.velocity, self.params,
                work.lr * self.factors * work.scales, work.momentum, *work.tail,
            )
        )  # fmt: skip


def sizes_of(
    flow: Any, y0: Mapping[str, ArrayLike], params: Mapping[str, Any]
) -> dict[str, int] | None:
    """Sizes of a tensor field at these arrays; None for a scalar field, which has none."""
    if not hasattr(flow, "infer_sizes"):
        return None
    sizes: dict[str, int] = flow.infer_sizes(y0, params)
    return sizes


def step_factors(flow: Any, layout: Any) -> Floats:
    """Return ``time_scale`` for each entry of the flat state (1 where the field states none)."""
    scales = {
        str(getattr(state, "name", state)): scale
        for state, scale in (getattr(flow, "time_scale", None) or {}).items()
    }
    parts = []
    for name, shape in layout.states:
        scale = scales.get(name, 1)
        if getattr(scale, "free_symbols", None):
            raise InputError(f"The time scale {scale} of {name} is symbolic; give it a number.")
        parts.append(np.full(prod(shape), float(scale)))
    return np.concatenate(parts)
