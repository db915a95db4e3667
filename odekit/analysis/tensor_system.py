"""Tensor fields at numbers: sizes, random values, flat states and the component form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.analysis.scalar_system import ScalarSystem, read_system
from odekit.errors import InputError, unknown_name

__all__ = [
    "component_system",
    "flatten",
    "random_values",
    "read_sizes",
    "split_values",
    "unflatten",
]


def split_values(field: Any, values: Mapping[Any, Any]) -> dict[str, Any]:
    """Values by name, from keys that are names, symbols or tensors."""
    named: dict[str, Any] = field.read_names(values, "values")
    return named


def read_sizes(
    field: Any,
    values: Mapping[str, Any],
    sizes: Mapping[Any, Any],
    point: Mapping[str, Any] | None = None,
) -> dict[str, int]:
    """Every size of a tensor field, from arrays, from ``sizes`` and from numbers among the values.

    Raises
    ------
    InputError
        For a size that nothing tells.
    """
    known = {str(getattr(k, "name", k)): int(v) for k, v in sizes.items()}
    names = {str(s) for s in field.size_symbols}
    for name in known:
        if name not in names and name not in {str(s) for s in field.symbols}:
            raise unknown_name("size", name, sorted(names))
    told = {
        n: v for n, v in values.items() if n in {p.name for p in field.parameters} or n in names
    }
    return field.infer_sizes(point, told, {n: v for n, v in known.items() if n in names})


def component_system(
    field: Any,
    values: Mapping[Any, Any],
    sizes: Mapping[Any, Any],
    point: Mapping[str, Any] | None = None,
) -> ScalarSystem:
    """The component form of a tensor field with values put in, read exactly."""
    named = split_values(field, values)
    inferred = read_sizes(field, named, sizes, point)
    given = {n: v for n, v in named.items() if n in field.parameter_names}
    stray = [n for n in named if n not in field.parameter_names and n not in inferred]
    if stray:
        raise unknown_name("parameter", stray[0], field.parameter_names)
    numbers = {n: v for n, v in given.items() if n not in inferred}
    scalars = field.components(numbers, **inferred)
    system = read_system(scalars)
    left = [s for s in system.parameters if str(s) in field.parameter_names]
    for name in field.parameter_names:
        if name not in named and name not in inferred and name not in map(str, left):
            tensor_entries = [s for s in system.parameters if str(s).startswith(f"{name}_")]
            if tensor_entries:
                raise InputError(f"No value for parameter {name}; pass it in values=.")
    return system


def flatten(field: Any, state: Mapping[str, Any]) -> NDArray[np.float64]:
    """One flat array of a named state, in the order of the field's states."""
    return np.concatenate([np.asarray(state[s.name], dtype=float).ravel() for s in field.states])


def unflatten(
    field: Any, flat: NDArray[np.float64], sizes: Mapping[str, int]
) -> dict[str, NDArray[np.float64]]:
    """Named arrays of a flat state."""
    numbers = {s: sizes[str(s)] for s in field.size_symbols}
    result: dict[str, NDArray[np.float64]] = {}
    start = 0
    for state in field.states:
        shape = tuple(int(sp.sympify(n).subs(numbers)) for n in state.shape)
        count = int(np.prod(shape, dtype=int))
        result[state.name] = np.asarray(flat[start : start + count], dtype=float).reshape(shape)
        start += count
    return result


def random_values(
    field: Any, sizes: Mapping[str, int], rng: np.random.Generator
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Random states and legitimate random parameters (covariances positive, symmetry kept)."""
    numbers = {s: sizes[str(s)] for s in field.size_symbols}

    def shape(tensor: Any) -> tuple[int, ...]:
        return tuple(int(sp.sympify(n).subs(numbers)) for n in tensor.shape)

    states = {s.name: rng.normal(size=shape(s)) for s in field.states}
    parameters: dict[str, Any] = {}
    for tensor in field.parameters:
        array = rng.normal(size=shape(tensor))
        if tensor.rank == 2 and tensor.symmetric_groups:
            array = array @ array.T / array.shape[0] + 0.3 * np.eye(array.shape[0])
        elif tensor.symmetric_groups:
            import itertools

            for group in tensor.symmetric_groups:
                total = np.zeros_like(array)
                for order in itertools.permutations(group):
                    axes = list(range(tensor.rank))
                    for place, axis in zip(group, order, strict=True):
                        axes[place] = axis
                    total += array.transpose(axes)
                array = total / sp.factorial(len(group)).__int__()
        parameters[tensor.name] = array
    told = {str(s) for s in field.size_symbols}
    for symbol in field.symbols:
        if str(symbol) not in told:
            value = float(rng.uniform(0.5, 2.0))
            parameters[str(symbol)] = int(rng.integers(2, 40)) if symbol.is_integer else value
    return states, parameters
