"""What the loops need to know of an attention layer: its case, its sizes, its flat state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError, unknown_name

__all__ = ["Layer", "checked_state", "is_attention", "layer_of"]

Floats = NDArray[np.float64]

_CASES = {
    ("merged", "zero"): 0,
    ("separate", "zero"): 1,
    ("merged", "all"): 2,
    ("separate", "all"): 3,
}


@dataclass(frozen=True)
class Layer:
    """One attention layer at concrete sizes.

    Parameters
    ----------
    family : {"merged", "separate"}
        One key-query matrix for each head, or key and query vectors.
    blocks : {"zero", "all"}
        The reduced model, or every weight that has a gradient.
    heads, dim : int
        H and D.
    rank : int
        R, the key-query pairs of a head; 1 for the merged family, where it means nothing.
    """

    family: str
    blocks: str
    heads: int
    dim: int
    rank: int = 1

    @property
    def case(self) -> int:
        """The number of this case in the compiled loops."""
        return _CASES[self.family, self.blocks]

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Case, H, R and D: the first arguments of every loop."""
        return self.case, self.heads, self.rank, self.dim

    @property
    def kind(self) -> str:
        """The kind of statistics that the layer trains on: "reduced" or "full"."""
        return "reduced" if self.blocks == "zero" else "full"

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each state, in the order of the flat vector."""
        H, R, D = self.heads, self.rank, self.dim
        if self.family == "merged":
            if self.blocks == "zero":
                return {"v": (H,), "U": (H, D, D)}
            return {"u": (H, D + 1), "A": (H, D, D + 1)}
        if self.blocks == "zero":
            return {"v": (H,), "K": (H, R, D), "Q": (H, R, D)}
        return {"u": (H, D + 1), "K": (H, R, D + 1), "Q": (H, R, D)}

    @property
    def size(self) -> int:
        """Length of the flat state."""
        return sum(prod(shape) for shape in self.shapes.values())

    @property
    def features(self) -> int:
        """Number of features in which the linear-attention prediction is linear."""
        D = self.dim
        return D * D if self.blocks == "zero" else D * (D + 1) * (D + 2) // 2

    def pack(self, states: Mapping[str, ArrayLike]) -> Floats:
        """Flatten named states to one vector (n,), with every name and shape checked."""
        arrays = checked_state(states, self.shapes)
        return np.concatenate([arrays[name].ravel() for name in self.shapes])

    def unpack(self, flat: Floats) -> dict[str, Floats]:
        """Name the parts of flat states (..., n): name to ``(..., *shape)``."""
        out, start = {}, 0
        for name, shape in self.shapes.items():
            stop = start + prod(shape)
            out[name] = flat[..., start:stop].reshape(*flat.shape[:-1], *shape)
            start = stop
        return out


def checked_state(
    states: Mapping[str, ArrayLike], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Floats]:
    """Return the states as float64 arrays, or raise `InputError` for the first that is wrong."""
    if not isinstance(states, Mapping):
        raise InputError(
            f"y0 must map state names to arrays, got {type(states).__name__}; "
            f"expected the names {', '.join(shapes)}."
        )
    for name in states:
        if name not in shapes:
            raise unknown_name("state", name, shapes)
    out = {}
    for name, shape in shapes.items():
        if name not in states:
            raise InputError(f"y0 lacks the state {name!r}; expected {', '.join(shapes)}.")
        out[name] = real_array(states[name], f"y0[{name!r}]")
        if out[name].shape != shape:
            raise InputError(
                f"y0[{name!r}] has shape {out[name].shape}, expected {shape}; "
                "check the heads, rank and dim of the model."
            )
    return out


def real_array(value: ArrayLike, name: str, *, ndim: int | None = None) -> Floats:
    """Return a finite float64 array, or raise `InputError` that names it."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{name} is not a rectangular array: {error}.") from error
    if array.dtype.kind == "c":
        raise InputError(f"{name} is complex; a real array is expected, take its .real.")
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} holds {array.dtype}, expected real numbers.")
    array = np.ascontiguousarray(array, dtype=np.float64).reshape(array.shape)
    if ndim is not None and array.ndim != ndim:
        raise InputError(f"{name} has {array.ndim} axes, expected {ndim}.")
    if not np.isfinite(array).all():
        raise InputError(f"{name} holds NaN or infinity; every entry must be finite.")
    return array


def kind_of(model: Any) -> tuple[str, str] | None:
    """Family and blocks of an attention model, or None for any other model."""
    if isinstance(model, Layer):
        return model.family, model.blocks
    name = str(getattr(model, "name", ""))
    options = getattr(model, "options", None) or {}
    key = (name.removeprefix("attention_"), str(options.get("blocks", "zero")))
    return key if name.startswith("attention_") and key in _CASES else None


def positive_number(value: Any, name: str) -> float:
    """Return a positive finite float, or raise `InputError` that names it."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InputError(f"{name} must be a positive number, got {value!r}.")
    if not (np.isfinite(value) and value > 0):
        raise InputError(f"{name} must be a positive number, got {value!r}.")
    return float(value)


def is_attention(model: Any) -> bool:
    """Tell whether the model is one of the attention layers that the loops know."""
    return kind_of(model) is not None


def fixed_sizes(model: Any) -> dict[str, int]:
    """Sizes that the model was made with as integers: heads, rank, dim, context."""
    sizes = {}
    for name, value in (getattr(model, "options", None) or {}).items():
        if name in ("heads", "rank", "dim", "context"):
            try:
                sizes[str(name)] = int(value)
            except (TypeError, ValueError):
                continue  # a symbol: the size is read off the arrays
    return sizes


def layer_of(model: Any, y0: Mapping[str, ArrayLike]) -> Layer:
    """Read the layer off a model and its initial state (sizes come from the arrays).

    Parameters
    ----------
    model : Model or Layer
        A published attention model (`odekit.models`), or a `Layer`.
    y0 : mapping
        State name to array.
    """
    if isinstance(model, Layer):
        return model
    kind = kind_of(model)
    if kind is None:
        raise InputError(
            f"{getattr(model, 'name', type(model).__name__)} is not an attention layer with merged "
            "or separate key-query weights; train it on its exact loss with Population(params)."
        )
    family, blocks = kind
    value = "v" if blocks == "zero" else "u"
    key = "K" if family == "separate" else ("U" if blocks == "zero" else "A")
    names = Layer(family, blocks, 1, 1).shapes
    if not isinstance(y0, Mapping) or any(name not in y0 for name in names):
        checked_state(y0, dict.fromkeys(names, ()))
    heads = np.shape(y0[value])[:1]
    shape = np.shape(y0[key])
    if not heads or len(shape) != 3:
        raise InputError(
            f"y0[{value!r}] has shape {np.shape(y0[value])} and y0[{key!r}] has shape {shape}; "
            f"for one head of dimension 1 they would be {names[value]} and {names[key]}."
        )
    rank = shape[1] if family == "separate" else 1
    dim = shape[1] if family == "merged" else shape[2] - (blocks == "all")
    layer = Layer(family, blocks, heads[0], dim, rank)
    if min(layer.heads, layer.dim, layer.rank) < 1:
        raise InputError(f"y0 has an empty axis: {layer}; every size must be at least 1.")
    for name, size in fixed_sizes(model).items():
        if getattr(layer, name, size) != size:
            raise InputError(
                f"The model has {name}={size}, the arrays of y0 have {name}={getattr(layer, name)}."
            )
    checked_state(y0, layer.shapes)
    return layer
