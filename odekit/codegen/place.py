"""Where arrays sit in flat buffers."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Place", "c_strides"]


@dataclass(frozen=True)
class Place:
    """Where an array sits: a flat buffer, an offset, and a stride for each axis."""

    name: str
    buffer: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def contiguous(cls, name: str, buffer: str, offset: int, shape: tuple[int, ...]) -> Place:
        """An array in C order."""
        return cls(name, buffer, offset, shape, c_strides(shape))

    @classmethod
    def permuted(
        cls, name: str, buffer: str, offset: int, shape: tuple[int, ...], order: tuple[int, ...]
    ) -> Place:
        """An array whose axes lie in memory in the given order, outermost first."""
        inner = c_strides(tuple(shape[k] for k in order))
        strides = [0] * len(shape)
        for axis, stride in zip(order, inner, strict=True):
            strides[axis] = stride
        return cls(name, buffer, offset, shape, tuple(strides))


def c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a C-ordered array, in entries."""
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
