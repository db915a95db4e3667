"""Deep linear networks and the p, q transformer at concrete sizes, as the loops see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError, unknown_name
from odekit.simulate import linear_loops
from odekit.simulate.layer import Floats, checked_state

__all__ = ["LinearModel", "is_linear", "linear_model_of"]


@dataclass(frozen=True, eq=False)
class LinearModel:
    """A predictor ``W(theta) z`` at concrete sizes.

    Parameters
    ----------
    features : {"inputs", "restricted", "all"}
        See `LinearStatistics`.
    shapes : mapping
        State name to shape, in the order of the flat vector.
    """

    features: str
    shapes: Mapping[str, tuple[int, ...]]
    kind: int = field(init=False)
    sizes: NDArray[np.int64] = field(init=False)
    slots: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        slots = np.zeros((1, 1), dtype=np.int64)
        kind, shapes = linear_loops.PAIR, list(self.shapes.values())
        if self.features == "inputs":
            kind = linear_loops.CHAIN
            sizes = [shapes[0][1], *(shape[0] for shape in shapes)]
        else:
            d = shapes[0][0]
            side = d if self.features == "restricted" else 2 * d
            sizes = [d, side, side, d]
            slots = np.arange(side * side, dtype=np.int64).reshape(side, side)
            if self.features == "all":
                first, second = np.triu_indices(side)
                slots[first, second] = slots[second, first] = np.arange(first.size)
        for name, value in (
            ("kind", kind), ("sizes", np.array(sizes, dtype=np.int64)), ("slots", slots),
        ):  # fmt: skip
            object.__setattr__(self, name, value)

    @property
    def size(self) -> int:
        """Length of the flat state."""
        return sum(prod(shape) for shape in self.shapes.values())

    @property
    def map_shape(self) -> tuple[int, int]:
        """(O, F) of W."""
        if self.kind == linear_loops.CHAIN:
            return int(self.sizes[-1]), int(self.sizes[0])
        return int(self.sizes[0]), int((self.slots.max() + 1) * self.sizes[3])

    def pack(self, states: Mapping[str, ArrayLike]) -> Floats:
        """Flatten named states to one vector (n,), with every name and shape checked."""
        arrays = checked_state(states, self.shapes)
        if self.features != "all":
            return np.concatenate([arrays[name].ravel() for name in self.shapes])
        # p = [p1 p2] side by side, q = [q1; q2] one over the other.
        p = np.concatenate([arrays["p1"], arrays["p2"]], axis=1)
        return np.concatenate([p.ravel(), arrays["q1"].ravel(), arrays["q2"].ravel()])

    def unpack(self, flat: Floats) -> dict[str, Floats]:
        """Name the parts of flat states (..., n): name to ``(..., *shape)``."""
        lead = flat.shape[:-1]
        if self.features == "all":
            d = int(self.sizes[0])
            p = flat[..., : 2 * d * d].reshape(*lead, d, 2 * d)
            q = flat[..., 2 * d * d :].reshape(*lead, 2 * d, d)
            whole = {"p1": p[..., :d], "p2": p[..., d:], "q1": q[..., :d, :], "q2": q[..., d:, :]}
            return {name: np.ascontiguousarray(whole[name]) for name in self.shapes}
        out, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + prod(shape)
            out[name] = flat[..., start:stop].reshape(*lead, *shape)
            start = stop
        return out

    def maps(self, theta: Floats) -> Floats:
        """Return W (O, F) at a flat state (n,)."""
        W = np.empty(self.map_shape)
        linear_loops.contract(self.kind, self.sizes, self.slots, theta, W, self.scratch())
        return W

    def scratch(self) -> Floats:
        """Room for the compiled loops."""
        return np.empty(linear_loops.scratch_size(self.kind, self.sizes))


def is_linear(model: Any) -> bool:
    """Tell whether the model is a deep linear network or a p, q transformer."""
    return getattr(model, "name", None) in ("deep_linear", "linear_transformer")


def linear_model_of(model: Any, y0: Any) -> LinearModel:
    """Read the sizes off the arrays of a state, and check that they fit each other and the model.

    Parameters
    ----------
    model : Model
        ``deep_linear`` or ``linear_transformer``.
    y0 : mapping
        State name to array.
    """
    names = [weight.name for weight in model.weights]
    if not isinstance(y0, Mapping):
        checked_state(y0, dict.fromkeys(names, ()))
    for name in y0:
        if name not in names:
            raise unknown_name("state", name, names)
    for name in names:
        if name not in y0:
            raise InputError(f"y0 lacks the state {name!r}; expected {', '.join(names)}.")
    shapes = {name: tuple(int(n) for n in np.shape(y0[name])) for name in names}
    for name, shape in shapes.items():
        if len(shape) != 2 or min(shape) < 1:
            raise InputError(f"y0[{name!r}] has shape {shape}; expected a matrix.")
    if model.name == "deep_linear":
        for before, after in zip(names, names[1:], strict=False):
            if shapes[after][1] != shapes[before][0]:
                raise InputError(
                    f"y0[{after!r}] has shape {shapes[after]}, but {before} has "
                    f"{shapes[before][0]} outputs; they must be the same."
                )
        widths = [shapes[names[0]][1], *(shapes[name][0] for name in names)]
        known = list(model.options["widths"])
        labels = [f"D{k}" for k in range(len(widths))]
    else:
        d = shapes[names[0]][0]
        checked_state(y0, dict.fromkeys(names, (d, d)))
        widths, known, labels = [d], [model.options["dim"]], ["dim"]
    for label, found, size in zip(labels, widths, known, strict=True):
        if getattr(size, "is_number", True) and int(size) != found:
            raise InputError(f"The model has {label}={size}, the arrays of y0 have {found}.")
    checked_state(y0, shapes)
    features = "inputs" if model.name == "deep_linear" else str(model.options["blocks"])
    return LinearModel(features, shapes)
