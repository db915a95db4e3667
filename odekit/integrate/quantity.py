"""Watched quantities as functions of stacked flat states."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.codegen.compiled_field import CompiledField
from odekit.errors import InputError, unknown_name
from odekit.solution.along import evaluate

__all__ = ["Quantity", "loss_quantity", "make_quantity", "slope_quantity"]

Array = NDArray[np.float64]
Quantity = Callable[[Array, Array], Array]
"""``quantity(t (M,), y (M, n)) -> (M,)``."""


ROUNDING = 1e-13
"""Share of the largest loss below which a sum of some hundred terms is rounding."""

STEEP = 1e6
"""A slope above any threshold for plateaus."""


def make_quantity(of: Any, compiled: CompiledField, p: Array) -> Quantity:
    """Turn what a user watches into a function of times and stacked states.

    Parameters
    ----------
    of : str, expression or callable
        See `Crossing`.
    compiled : CompiledField
    p : ndarray
        Parameters with scratch.

    Returns
    -------
    callable
        ``quantity(t (M,), y (M, n)) -> (M,)``.
    """
    if isinstance(of, str):
        if of == "loss" and "loss" not in compiled.layout.slices:
            return loss_quantity(compiled, p)
        return _entry(of, compiled)
    if hasattr(of, "evaluate") or hasattr(of, "free_symbols") or hasattr(of, "as_expression"):
        params = compiled.layout.unpack_parameters(p)
        return _expression(of, compiled, params)
    if callable(of):
        return _callable(of, compiled)
    raise InputError(
        f"Cannot watch a {type(of).__name__}; give 'loss', a state's entry such as 'v[0]', a "
        "scalar expression, or a callable of (t, state)."
    )


def loss_quantity(compiled: CompiledField, p: Array) -> Quantity:
    """Return the loss as a quantity."""
    loss = compiled.loss
    if loss is None:
        raise InputError(
            "The field has no loss to watch; give it one, or watch a state or an expression."
        )
    return lambda t, y: np.array([loss(row, p) for row in y])


def slope_quantity(compiled: CompiledField, p: Array, start: float) -> Quantity:
    """Return ``|d ln(loss) / d ln(t - start)|`` along the flow.

    The derivative along the flow is a central difference of the loss along the right-hand side,
    over 1e-5 of the state's size: its error is about 1e-10 of the largest slope possible. A loss
    that has fallen to `ROUNDING` of its largest value counts as falling still: what is left is
    rounding, whose logarithm goes up and down.
    """
    loss = compiled.loss
    if loss is None:
        raise InputError("A plateau needs a field with a loss; watch a Crossing instead.")
    rate = np.empty(compiled.layout.size)
    largest = 0.0

    def slopes(t: Array, y: Array) -> Array:
        nonlocal largest
        out = np.empty(len(t))
        for k, (time, row) in enumerate(zip(t, y, strict=True)):
            compiled.rhs(time, row, p, rate)
            speed = float(np.max(np.abs(rate), initial=0.0))
            value = loss(row, p)
            largest = max(largest, abs(value))
            if abs(value) < ROUNDING * largest:
                out[k] = STEEP
                continue
            if speed == 0.0 or value == 0.0:
                out[k] = 0.0
                continue
            size = float(np.max(np.abs(row)))
            reach = 1e-5 * (size if size > 0 else 1.0) / speed
            change = (loss(row + reach * rate, p) - loss(row - reach * rate, p)) / (2 * reach)
            out[k] = abs((time - start) * change / value)
        return out

    return slopes


def _entry(text: str, compiled: CompiledField) -> Quantity:
    match = re.fullmatch(r"\s*(?P<name>[^\[\]]+?)\s*(\[(?P<index>[\d\s,]+)\])?\s*", text)
    name = match["name"] if match else text
    layout = compiled.layout
    if match is None or name not in layout.slices:
        known = [*layout.slices, *(["loss"] if compiled.loss is not None else [])]
        raise unknown_name("state", name, known)
    shape = dict(layout.states)[name]
    index = tuple(int(part) for part in (match["index"] or "").split(",") if part.strip())
    if not index and int(np.prod(shape, dtype=int)) == 1:
        index = (0,) * len(shape)
    if len(index) != len(shape) or any(i >= n for i, n in zip(index, shape, strict=True)):
        raise InputError(
            f"{text!r} is not one entry of state {name!r} of shape {shape}; write "
            f"'{name}[{', '.join('0' for _ in shape)}]'."
        )
    column = layout.slices[name].start + (int(np.ravel_multi_index(index, shape)) if shape else 0)
    return lambda t, y: y[:, column]


def _expression(of: Any, compiled: CompiledField, params: Mapping[str, Any]) -> Quantity:
    layout, field = compiled.layout, compiled.origin

    def values(t: Array, y: Array) -> Array:
        out = np.asarray(evaluate(of, layout.unpack(y), params, field), dtype=np.float64)
        if out.shape == ():
            out = np.full(len(t), float(out))
        if out.shape != (len(t),):
            raise InputError(
                f"A watched expression must be a scalar, got shape {out.shape[1:]}; "
                "watch one of its entries."
            )
        return out

    return values


def _callable(of: Callable[..., Any], compiled: CompiledField) -> Quantity:
    layout = compiled.layout

    def values(t: Array, y: Array) -> Array:
        rows = (of(float(time), layout.unpack(row)) for time, row in zip(t, y, strict=True))
        return np.array([float(value) for value in rows])

    return values
