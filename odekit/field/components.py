"""Component form: every entry of every tensor a SymPy symbol, at concrete sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy as sp

from odekit.errors import InputError, unknown_name
from odekit.field.scalar_field import Group, ScalarField
from odekit.field.tensor_field import TensorField
from odekit.tensor import Tensor, TensorExpr
from odekit.tensor.coefficient import from_number, to_sympy
from odekit.tensor.evaluation import (
    check_semidefinite,
    check_symmetry,
    match_sizes,
    read_array,
    read_scalar_symbol,
)

Components = Any  # ndarray of SymPy objects


def entry_symbols(tensor: Tensor, shape: tuple[int, ...], name: str) -> Components:
    """An array of symbols ``name_0_1``, shared between entries equal by symmetry."""
    array = np.empty(shape, dtype=object)
    for position in np.ndindex(*shape):
        canonical = list(position)
        for group in tensor.symmetric_groups:
            for slot, value in zip(group, sorted(position[s] for s in group), strict=True):
                canonical[slot] = value
        array[position] = sp.Symbol("_".join([name, *map(str, canonical)]), real=True)
    return array


def component_array(
    expression: TensorExpr, arrays: Mapping[Tensor, Components], sizes: Mapping[sp.Symbol, int]
) -> Components:
    """An expression's entries from its tensors' entries, by plain summation over indices."""
    shape = tuple(int(s.subs(sizes)) for s in expression.shape)
    total = np.full(shape, sp.Integer(0), dtype=object)
    for (factors, monomial), number in expression.terms.items():
        coefficient = to_sympy(monomial, number).subs(sizes)
        names: dict[int, int] = {}
        operands: list[Any] = []
        for tensor, indices in factors:
            operands += [arrays[tensor], [names.setdefault(i, len(names)) for i in indices]]
        present = [i for i in range(len(shape)) if i in names]
        value = (
            np.asarray(_contract(operands, [names[i] for i in present]), dtype=object)
            if operands
            else np.asarray(sp.Integer(1), dtype=object)
        )
        value = value.reshape(tuple(shape[i] if i in names else 1 for i in range(len(shape))))
        total = total + coefficient * value
    return np.asarray(total, dtype=object).reshape(shape)


def component_field(
    field: TensorField, values: Mapping[str, Any], sizes: Mapping[str, int]
) -> ScalarField:
    """The component form of a tensor field; see `TensorField.components`."""
    known = _read_sizes(field, values, sizes)
    arrays: dict[Tensor, Components] = {}
    state_groups: dict[str, Group] = {}
    parameter_groups: dict[str, Group] = {}
    for tensor in (*field.states, *field.parameters):
        shape = tuple(int(s.subs(known)) for s in tensor.shape)
        if tensor.name in values and tensor not in field.states:
            arrays[tensor] = _exact(values[tensor.name], shape, tensor.name)
            continue
        arrays[tensor] = entry_symbols(tensor, shape, tensor.name)
        groups = state_groups if tensor in field.states else parameter_groups
        groups[tensor.name] = (shape, tuple(arrays[tensor].reshape(-1)))
    check_values(field, values)
    numbers = {**known, **_scalars(field, values)}
    open_symbols = tuple(s for s in field.symbols if s not in numbers)
    for symbol in open_symbols:
        parameter_groups[str(symbol)] = ((), (symbol,))
    for size in {
        s.shape[0] for e in field.expressions for s in e.tensors() if s.kind == "identity"
    }:
        from odekit.tensor import identity

        eye = np.full((int(size.subs(known)),) * 2, sp.Integer(0), dtype=object)
        np.fill_diagonal(eye, sp.Integer(1))
        arrays[identity(size)] = eye
    states = tuple(s for _, symbols in state_groups.values() for s in symbols)
    derived = field.loss is not None and bool(field.time_scale)
    # Cotangents are not needed where the rates are differentiated from the loss.
    inside = set(field.loss.tensors(deep=True)) if field.loss is not None and derived else None
    bodies = _definition_bodies(field, arrays, numbers, inside)
    loss = None
    if field.loss is not None:
        loss = component_array(field.loss, arrays, numbers).item()
    if loss is not None and derived:
        rates = _differentiate(field, loss, bodies, arrays)
    else:
        rates = [
            entry
            for state in field.states
            for entry in component_array(field.rates[state], arrays, numbers).reshape(-1)
        ]
    parameters = dict.fromkeys(s for _, symbols in parameter_groups.values() for s in symbols)
    return ScalarField(
        states,
        tuple(_inline(r, bodies) for r in rates),
        tuple(parameters),
        None if loss is None else _inline(loss, bodies),
        state_groups,
        parameter_groups,
        field.uniform and loss is not None,
    )


def check_values(field: TensorField, values: Mapping[str, Any]) -> None:
    """Refuse numbers that a parameter or a size cannot have; symbolic values pass.

    Raises
    ------
    InputError
        For a wrong shape, an array that breaks a declared symmetry, a covariance that is not
        positive semidefinite, and a size that is not a positive whole number.
    """
    tensors = {t.name: t for t in field.parameters}
    scalars = {str(s): s for s in (*field.size_symbols, *field.symbols)}
    sizes: dict[sp.Symbol, int] = {}
    for name, value in values.items():
        entries = np.asarray(value, dtype=object).ravel()
        if any(isinstance(e, sp.Basic) and e.free_symbols for e in entries):
            continue
        if name in tensors:
            tensor = tensors[name]
            array = read_array(value, name)
            match_sizes(tensor.shape, array.shape, name, sizes)
            check_symmetry(array, tensor.symmetric_groups, name)
            if tensor in field.covariances:
                check_semidefinite(array, name)
        elif name in scalars:
            read_scalar_symbol(scalars[name], value)


Bodies = list[tuple[Components, Components]]
"""For each definition, its entries' symbols and what they stand for, in order of evaluation."""


def _definition_bodies(
    field: TensorField,
    arrays: dict[Tensor, Components],
    sizes: Mapping[sp.Symbol, Any],
    inside: set[Tensor] | None,
) -> Bodies:
    bodies: Bodies = []
    for tensor, body in field.definitions:
        if inside is not None and tensor not in inside:
            continue
        value = np.vectorize(sp.sympify, otypes=[object])(component_array(body, arrays, sizes))
        # Symbols of their own: a definition may bear the name of a state of the user's.
        arrays[tensor] = entry_symbols(tensor, value.shape, f"_{tensor.name}{tensor.uid}")
        bodies.append((arrays[tensor], value))
    return bodies


def _differentiate(
    field: TensorField, loss: sp.Expr, bodies: Bodies, arrays: Mapping[Tensor, Components]
) -> list[sp.Expr]:
    """Minus the derivative of the loss by each state over its time scale, by the chain rule."""
    entries = [
        (symbol, body, body.free_symbols)
        for symbols, value in bodies
        for symbol, body in _once(symbols, value)
    ]
    sensitivity: dict[sp.Symbol, sp.Expr] = {}

    def total(symbol: sp.Symbol) -> sp.Expr:
        slope = sp.diff(loss, symbol)
        for outer, body, inside in entries:
            if symbol in inside and sensitivity.get(outer, 0) != 0:
                slope += sensitivity[outer] * sp.diff(body, symbol)
        return slope

    for symbol, _, _ in reversed(entries):
        sensitivity[symbol] = total(symbol)
    return [
        -total(symbol) / field.time_scale[state]
        for state in field.states
        for symbol in arrays[state].reshape(-1)
    ]


def _once(symbols: Components, values: Components) -> list[tuple[sp.Symbol, sp.Expr]]:
    return list(dict(zip(symbols.reshape(-1), values.reshape(-1), strict=True)).items())


def _inline(expression: sp.Expr, bodies: Bodies) -> sp.Expr:
    result = sp.sympify(expression)
    for symbols, value in reversed(bodies):
        result = result.xreplace(dict(_once(symbols, value)))
    return result


def _exact(value: Any, shape: tuple[int, ...], name: str) -> Components:
    array = np.asarray(value, dtype=object)
    if array.shape != shape:
        raise InputError(f"{name} has shape {array.shape}; expected {shape}")
    exact = np.empty(shape, dtype=object)
    for position in np.ndindex(*shape):
        entry = array[position]
        number = entry if isinstance(entry, sp.Expr) else from_number(entry, name)
        exact[position] = sp.sympify(number)
    return exact


def _scalars(field: TensorField, values: Mapping[str, Any]) -> dict[sp.Symbol, sp.Expr]:
    return {s: _exact(values[str(s)], (), str(s)).item() for s in field.symbols if str(s) in values}


def _read_sizes(
    field: TensorField, values: Mapping[str, Any], sizes: Mapping[str, Any]
) -> dict[sp.Symbol, Any]:
    names = {str(s): s for s in (*field.size_symbols, *field.symbols)}
    known: dict[sp.Symbol, Any] = {}
    for name, number in sizes.items():
        if name not in names:
            raise unknown_name("size", name, names)
        if isinstance(number, bool) or int(number) != number or number < 1:
            raise InputError(f"size {name} is {number}; give a positive integer")
        known[names[name]] = sp.Integer(int(number))
    needed = {
        s for t in (*field.states, *field.parameters) for n in t.shape for s in n.free_symbols
    }
    missing = sorted(str(s) for s in needed if s not in known)
    if missing:
        raise InputError(f"components needs the sizes {', '.join(missing)}, as in {missing[0]}=2")
    for name in values:
        if name not in field.parameter_names:
            raise unknown_name("parameter", name, field.parameter_names)
    return known


def _contract(operands: list[Any], output: list[int]) -> Components:
    """Contract pair by pair, so that sums stay nested and short instead of multiplied out."""
    pending = list(zip(operands[::2], operands[1::2], strict=True))
    array, indices = pending.pop(0)
    while True:
        # Next the operand that shares most indices with what is there already.
        after = [i for _, other in pending for i in other]
        kept = [i for i in dict.fromkeys(indices) if i in output or i in after]
        array, indices = _object_einsum(array, indices, kept), kept
        if not pending:
            return _object_einsum(array, indices, output)
        pending.sort(key=lambda item: -len(set(item[1]) & set(indices)))
        other, own = pending.pop(0)
        joined = list(dict.fromkeys([*indices, *own]))
        after = [i for _, rest in pending for i in rest]
        kept = [i for i in joined if i in output or i in after]
        array = np.asarray(np.einsum(array, indices, other, own, kept), dtype=object)
        indices = kept


def _object_einsum(array: Components, indices: list[int], output: list[int]) -> Components:
    return np.asarray(np.einsum(array, indices, output), dtype=object)
