"""Hypothesis strategies for the objects of the theory: they shrink to plain cases, never filter.

A covariance is eigenvalues turned by rotations, so that every draw is positive definite with a
bounded condition number; numbers are multiples of a fixed step, so that no draw is subnormal or
huge and a failing case is shown with few digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from odekit.errors import InputError, unknown_name
from odekit.field import ScalarField, VectorField

__all__ = ["covariances", "initial_states", "rotations", "sizes", "spectra"]

Array = NDArray[np.float64]
Size = int | tuple[int, int]
"""A size, or the least and the greatest one."""

_STEPS = 1000


def _size(value: Any, name: str) -> st.SearchStrategy[int]:
    low, high = value if isinstance(value, tuple) and len(value) == 2 else (value, value)
    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, int) or bound < 1:
            raise InputError(f"{name} is {value!r}; give a positive integer or (min, max)")
    if low > high:
        raise InputError(f"{name}: min_value {low} exceeds max_value {high}")
    return st.integers(low, high)


def _condition(value: float) -> float:
    if not np.isfinite(value) or value < 1:
        raise InputError(f"condition is {value!r}; a condition number is at least 1")
    return float(value)


def sizes(**ranges: Size) -> st.SearchStrategy[dict[str, int]]:
    """Sizes by name, as in ``sizes(D=(1, 4), H=(1, 3), N=31)``; shrinks to the smallest."""
    if not ranges:
        raise InputError("sizes takes names with ranges, as in sizes(D=(1, 4))")
    return st.fixed_dictionaries({name: _size(value, name) for name, value in ranges.items()})


@st.composite
def spectra(
    draw: st.DrawFn, dim: Size = (1, 4), condition: float = 100.0, least_gap: float = 1.0
) -> Array:
    """Descending positive eigenvalues; the greatest is 1, or shrinks there.

    Parameters
    ----------
    dim : int or (min, max), optional
        Number of eigenvalues d.
    condition : float, optional
        Upper bound of greatest over least.
    least_gap : float, optional
        Lower bound of each ratio of neighbours; 1 allows degenerate spectra.

    Returns
    -------
    ndarray (d,)
    """
    count = draw(_size(dim, "dim"))
    bound = _condition(condition)
    if least_gap < 1 or least_gap ** (count - 1) > bound:
        raise InputError(
            f"least_gap {least_gap:g} does not fit {count} eigenvalues in a condition of {bound:g}"
        )
    # Ratios of neighbours share out what the condition number allows beyond the least gaps.
    room = np.log(bound) - (count - 1) * np.log(least_gap)
    shares = np.array(draw(st.lists(st.integers(0, _STEPS), min_size=count, max_size=count)))
    steps = shares[1:] / _STEPS * room / max(count - 1, 1) + np.log(least_gap)
    scale = 10.0 ** (draw(st.integers(-10, 10)) / 10)
    result: Array = scale * np.exp(-np.concatenate([[0.0], np.cumsum(steps)]))
    return result


@st.composite
def rotations(draw: st.DrawFn, dim: Size) -> Array:
    """Orthogonal matrices (d, d), a product of plane rotations; shrinks to the identity."""
    size = draw(_size(dim, "dim"))
    matrix = np.eye(size)
    for i in range(size):
        for j in range(i + 1, size):
            angle = np.pi * draw(st.integers(-_STEPS, _STEPS)) / _STEPS
            plane = np.eye(size)
            plane[[i, j], [i, j]] = np.cos(angle)
            plane[i, j], plane[j, i] = -np.sin(angle), np.sin(angle)
            matrix = matrix @ plane
    return matrix


@st.composite
def covariances(draw: st.DrawFn, dim: Size = (1, 4), condition: float = 100.0) -> Array:
    """Symmetric positive definite matrices of bounded condition number; shrinks to the identity.

    Parameters
    ----------
    dim : int or (min, max), optional
        Size d.
    condition : float, optional
        Upper bound of the condition number.

    Returns
    -------
    ndarray (d, d)
    """
    spectrum = draw(spectra(dim, condition))
    turn = draw(rotations(len(spectrum)))
    matrix = (turn * spectrum) @ turn.T
    symmetric: Array = (matrix + matrix.T) / 2
    return symmetric


def _array(shape: Sequence[int], scale: float) -> st.SearchStrategy[Array]:
    count = int(np.prod(shape, dtype=int))
    entries = st.lists(st.integers(-3 * _STEPS, 3 * _STEPS), min_size=count, max_size=count)
    return entries.map(lambda e: scale * np.array(e, dtype=np.float64).reshape(shape) / _STEPS)


def initial_states(
    field: VectorField, sizes: Mapping[str, int] | None = None, scale: float = 1.0
) -> st.SearchStrategy[dict[str, Array]]:
    """States of a field, entries up to ``3 scale`` in size; shrinks to zero.

    Parameters
    ----------
    field : VectorField
        Whose states are drawn, by name.
    sizes : Mapping[str, int], optional
        A number for every size in the states' shapes.
    scale : float, optional
        Size of the entries.
    """
    if not np.isfinite(scale) or scale <= 0:
        raise InputError(f"scale is {scale!r}; give a positive number")
    return st.fixed_dictionaries(
        {name: _array(shape, scale) for name, shape in _shapes(field, sizes or {}).items()}
    )


def _shapes(field: VectorField, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    if isinstance(field, ScalarField):
        return {name: shape for name, (shape, _) in field.state_groups.items()}
    states: Any = field
    known = {s: sizes[str(s)] for s in states.size_symbols if str(s) in sizes}
    for name in sizes:
        if name not in {str(s) for s in states.size_symbols}:
            raise unknown_name("size", name, [str(s) for s in states.size_symbols])
    shapes = {}
    for tensor in states.states:
        open_sizes = {s for n in tensor.shape for s in n.free_symbols} - set(known)
        if open_sizes:
            raise InputError(f"size {min(map(str, open_sizes))} of {tensor.name} is not in sizes=")
        shapes[tensor.name] = tuple(int(n.subs(known)) for n in tensor.shape)
    return shapes
