"""A flow's rate and loss on flat states, and exact gradient steps along it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError
from odekit.simulate.layer import Floats
from odekit.solution import Solution

__all__ = ["Rates", "descend", "exact_path"]


@dataclass(frozen=True, eq=False)
class Rates:
    """A gradient flow at numbers.

    Parameters
    ----------
    shapes : mapping
        State name to shape, in flat order.
    rate : callable
        (n,) -> (n,).
    loss : callable
        (n,) -> float.
    time_scale : mapping
        State name to number: ``time_scale * rate = - gradient of the loss``.
    """

    shapes: Mapping[str, tuple[int, ...]]
    rate: Callable[[Floats], Floats]
    loss: Callable[[Floats], float]
    time_scale: Mapping[str, float]

    @classmethod
    def of(cls, solution: Solution) -> Rates:
        """Return the rates of the field that a solution was made with."""
        flow = solution.field
        if flow is None or not hasattr(flow, "loss_value"):
            raise InputError(
                "The flow's solution has lost its field (a loaded file has none); solve it anew."
            )
        shapes = {name: values.shape[1:] for name, values in solution.states.items()}
        state = {name: values[0] for name, values in solution.states.items()}
        rate, loss = _functions(flow, shapes, state, dict(solution.params))
        scales = dict.fromkeys(shapes, 1.0)
        for weight, scale in (getattr(flow, "time_scale", None) or {}).items():
            scales[str(getattr(weight, "name", weight))] = float(scale)
        return cls(shapes, rate, loss, scales)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the states."""
        return tuple(self.shapes)

    def step_of(self, lr: float | Mapping[str, float]) -> float:
        """Return the flow's time in one step of training at this learning rate, or rates."""
        each = lr if isinstance(lr, Mapping) else dict.fromkeys(self.shapes, lr)
        # A whole layer's state (u) is held in blocks (u_x, u_y).
        owners = {
            name: name if name in each else name.removesuffix("_x").removesuffix("_y")
            for name in self.shapes
        }
        steps = {name: each[owners[name]] * self.time_scale[name] for name in self.shapes}
        longest, shortest = max(steps.values()), min(steps.values())
        if longest - shortest > 1e-12 * longest:
            told = ", ".join(f"{step:g} for {name}" for name, step in steps.items())
            raise InputError(
                f"A step of training is lr * time_scale of the flow's time: {told}. They must be "
                "one number: give training rates, or gradient_flow time scales, in proportion."
            )
        return longest

    def gradient(self, rate: Floats) -> Floats:
        """Gradient of the loss (n,) where the rate is `rate`."""
        scales = [
            np.full(prod(shape), self.time_scale[name]) for name, shape in self.shapes.items()
        ]
        gradient: Floats = -np.concatenate(scales) * rate
        return gradient

    def pack(self, states: Mapping[str, ArrayLike]) -> Floats:
        """Flatten states ``(K, *shape)`` to (K, n)."""
        parts = [np.asarray(states[name], dtype=np.float64) for name in self.shapes]
        return np.concatenate([part.reshape(len(part), -1) for part in parts], axis=1)

    def split(self, states: Mapping[str, Floats]) -> dict[str, Floats]:
        """Split states of a whole layer (u) into the blocks that its flow holds (u_x, u_y)."""
        out = {}
        for name, value in states.items():
            tokens, label = f"{name}_x", f"{name}_y"
            if name not in self.shapes and {tokens, label} <= set(self.shapes):
                out[tokens], out[label] = value[..., :-1], value[..., -1]
            else:
                out[name] = value
        return out

    def along(self, theta: Floats, direction: Floats) -> Floats:
        """Jacobian of the rate times a direction, by central differences."""
        size = float(np.linalg.norm(direction))
        if size == 0:
            return np.zeros_like(direction)
        # Third root of eps balances rounding and the cubic term, relative to the state.
        step = 6e-6 * max(float(np.linalg.norm(theta)), 1e-12) / size
        slope: Floats = (
            self.rate(theta + step * direction) - self.rate(theta - step * direction)
        ) / (2 * step)
        return slope


def _functions(
    flow: Any,
    shapes: Mapping[str, tuple[int, ...]],
    state: Mapping[str, Floats],
    params: Mapping[str, Any],
) -> tuple[Callable[[Floats], Floats], Callable[[Floats], float]]:
    from odekit.codegen import compile as compile_field
    from odekit.simulate.flow_descent import sizes_of

    flow.loss_value(state, params)  # checks names, shapes and values
    compiled = compile_field(flow, sizes=sizes_of(flow, state, params), effort="quick")
    if compiled.loss is None:
        raise InputError("The flow has no loss; compare needs one.")
    constants = dict(getattr(flow, "constants", {}))
    p = compiled.layout.pack_parameters({k: v for k, v in params.items() if k not in constants})
    n = sum(prod(shape) for shape in shapes.values())
    order = _positions(compiled.layout.states, shapes)
    compiled_rate, compiled_loss = compiled.rhs, compiled.loss

    def rate(theta: Floats) -> Floats:
        y, out = theta[order], np.empty(n)
        compiled_rate(0.0, y, p, out)
        back = np.empty(n)
        back[order] = out
        return back

    def loss(theta: Floats) -> float:
        return float(compiled_loss(theta[order], p))

    return rate, loss


def _positions(compiled: Any, shapes: Mapping[str, tuple[int, ...]]) -> NDArray[np.intp]:
    """Where each entry of the compiled flat state lies in the solution's."""
    start, places = 0, {}
    for name, shape in shapes.items():
        places[name] = np.arange(start, start + prod(shape))
        start += prod(shape)
    return np.concatenate([places[name] for name, _ in compiled])


def descend(
    rates: Rates,
    start: Floats,
    h: float,
    steps: NDArray[np.int64],
    *,
    correction: bool = False,
) -> tuple[Floats, Floats]:
    """Take exact gradient steps and return the loss at the given steps.

    Parameters
    ----------
    rates : Rates
    start : array (n,)
    h : float
        The flow's time in a step, `Rates.step_of` the learning rate.
    steps : array (K,) of int
        Increasing.
    correction : bool
        Also carry the first-order effect of finite lr: gradient steps of size lr follow, to
        second order, the flow of ``L + (lr/4) |grad L|^2`` (backward error analysis of Euler's
        method; Barrett and Dherin, Implicit gradient regularization, ICLR 2021). In flow time the
        state moves by ``h delta``, ``delta' = J (delta - F/2)``.

    Returns
    -------
    loss, first_order : array (K,)
        `first_order` is the predicted loss minus the flow's; zeros without `correction`.
    """
    theta, delta = start.copy(), np.zeros_like(start)
    losses, shifts = np.empty(len(steps)), np.zeros(len(steps))
    at = 0
    for k in range(int(steps[-1]) + 1):
        rate = rates.rate(theta)
        if steps[at] == k:
            losses[at] = rates.loss(theta)
            shifts[at] = h * float(rates.gradient(rate) @ delta)
            at += 1
        if correction:
            delta = delta + h * rates.along(theta, delta - rate / 2)
        theta = theta + h * rate
    return losses, shifts


def exact_path(rates: Rates, start: Floats, h: float, steps: NDArray[np.int64]) -> Floats:
    """Take exact gradient steps of flow time h and return the states (K, n) at the given steps."""
    theta = start.copy()
    states, at = np.empty((len(steps), start.size)), 0
    for k in range(int(steps[-1]) + 1):
        if steps[at] == k:
            states[at] = theta
            at += 1
        theta = theta + h * rates.rate(theta)
    return states
