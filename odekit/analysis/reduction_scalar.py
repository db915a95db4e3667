"""Reduction of a component field by an ansatz in new symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.analysis.reduction import Reduction
from odekit.analysis.scalar_system import ScalarSystem, read_system
from odekit.errors import InputError, unknown_name
from odekit.field import vector_field

__all__ = ["reduce_scalar"]


def reduce_scalar(
    field: Any, ansatz: Mapping[Any, Any], constants: tuple[sp.Symbol, ...]
) -> Reduction:
    """See `odekit.analysis.reduction.reduce`."""
    system = read_system(field)
    known_parameters = set(getattr(field, "parameters", ())) | set(system.parameters)
    images, specialised = _read_ansatz(system, field, ansatz)
    taken = known_parameters | set(constants)
    new = sorted({s for e in images.values() for s in e.free_symbols} - taken, key=lambda s: s.name)
    if not new:
        raise InputError("The ansatz holds no new symbol; every state would be constant.")
    substitution = {**specialised, **images}
    g = [images[s] for s in system.states]
    rates = [sp.sympify(r).subs(substitution, simultaneous=True) for r in system.rates]
    slopes = sp.Matrix([[sp.diff(e, u) for u in new] for e in g])
    rows = _independent_rows(slopes, new)
    square = slopes.extract(rows, list(range(len(new))))
    right = sp.Matrix([rates[i] for i in rows])
    solved = [_tidy(e) for e in square.LUsolve(right)]
    residual_flat = []
    for i in range(len(g)):
        rest = rates[i] - sum(
            (slopes[i, j] * solved[j] for j in range(len(new))), start=sp.Integer(0)
        )
        residual_flat.append(_zero_or(rest))
    exact = all(r == 0 for r in residual_flat)
    residual = _named(system, residual_flat)
    reduced = None
    if exact:
        free = {s for e in solved for s in e.free_symbols}
        loss = None
        if system.loss is not None:
            loss = sp.sympify(system.loss).subs(substitution, simultaneous=True)
            free |= loss.free_symbols
        kept = sorted(free - set(new), key=lambda s: s.name)
        reduced = vector_field(dict(zip(new, solved, strict=True)), parameters=kept, loss=loss)
    names = ", ".join(str(system.states[i]) for i in rows)
    lift, tangent = _maps(system, g, new)
    return Reduction(
        reduced,
        residual,
        exact,
        lift,
        field,
        tangent,
        f"rates of {', '.join(map(str, new))} read from the equations of {names}",
    )


def _read_ansatz(
    system: ScalarSystem, field: Any, ansatz: Mapping[Any, Any]
) -> tuple[dict[sp.Symbol, sp.Expr], dict[sp.Symbol, sp.Expr]]:
    """Expression of each state, and of parameters that the ansatz specialises."""
    states = system.state_groups()
    own = set(system.states)
    parameter_groups = {
        n: g for n, g in system.groups.items() if n not in states and not set(g[1]) <= own
    }
    images: dict[sp.Symbol, sp.Expr] = {}
    specialised: dict[sp.Symbol, sp.Expr] = {}
    for key, value in ansatz.items():
        name = getattr(key, "name", str(key))
        if key in own:
            images[key] = sp.sympify(value)
            continue
        groups, target = (states, images) if name in states else (parameter_groups, specialised)
        if name not in groups:
            raise unknown_name("state", name, states)
        shape, symbols = groups[name]
        entries = np.array(
            sp.Matrix(value).tolist() if isinstance(value, sp.MatrixBase) else value, dtype=object
        )
        if entries.shape != tuple(shape) and entries.size != len(symbols):
            raise InputError(f"{name} has shape {shape}, got an ansatz of shape {entries.shape}.")
        for symbol, entry in zip(symbols, entries.ravel(), strict=True):
            target[symbol] = sp.sympify(entry)
    for state in system.states:
        images.setdefault(state, state)
    return images, specialised


def _independent_rows(slopes: sp.Matrix, new: Sequence[sp.Symbol]) -> list[int]:
    """Rows that determine the new rates, constant ones first, at a generic point."""
    rng = np.random.default_rng(8)
    symbols = sorted(slopes.free_symbols, key=lambda s: s.name)
    point = {s: sp.Rational(int(rng.integers(3, 60)), int(rng.integers(3, 60))) for s in symbols}
    order = sorted(
        range(slopes.rows),
        key=lambda i: (
            sum(1 for e in slopes.row(i) if e != 0) or 99,
            sum(len(e.free_symbols) for e in slopes.row(i)),
            i,
        ),
    )
    chosen: list[int] = []
    kept = np.zeros((0, len(new)))
    for i in order:
        line = [complex(e.xreplace(point).evalf()).real for e in slopes.row(i)]
        trial = np.vstack([kept, line])
        if np.linalg.matrix_rank(trial) > len(chosen):
            chosen.append(i)
            kept = trial
        if len(chosen) == len(new):
            return chosen
    raise InputError(
        f"The ansatz holds {len(new)} new symbols but moves in {len(chosen)} directions only; "
        "drop the redundant ones."
    )


def _tidy(expression: sp.Expr) -> sp.Expr:
    try:
        return sp.expand(sp.cancel(sp.together(expression)))
    except sp.PolynomialError:
        return sp.simplify(expression)


def _zero_or(expression: sp.Expr) -> sp.Expr:
    """Zero if the expression is identically zero, else a tidy form of it."""
    if sp.expand(expression) == 0:
        return sp.Integer(0)
    top = sp.numer(sp.together(expression))
    if sp.expand(top) == 0 or sp.simplify(top) == 0:
        return sp.Integer(0)
    return _tidy(expression)


def _named(system: ScalarSystem, flat: Sequence[sp.Expr]) -> dict[str, Any]:
    place = {s: i for i, s in enumerate(system.states)}
    result: dict[str, Any] = {}
    for name, (shape, symbols) in system.state_groups().items():
        array = np.empty(len(symbols), dtype=object)
        array[:] = [flat[place[s]] for s in symbols]
        result[name] = array[0] if shape == () else array.reshape(shape)
    return result


def _maps(system: ScalarSystem, g: Sequence[sp.Expr], new: Sequence[sp.Symbol]) -> tuple[Any, Any]:
    """The lift of a reduced state, and the tangent vectors of the ansatz there."""
    others = sorted({s for e in g for s in e.free_symbols} - set(new), key=lambda s: s.name)
    order = [*new, *others]
    function = sp.lambdify([order], list(g), "numpy")
    slopes = sp.lambdify([order], [[sp.diff(e, u) for u in new] for e in g], "numpy")

    def numbers(state: Mapping[str, Any], values: Mapping[Any, Any] | None) -> list[float]:
        given = {getattr(k, "name", str(k)): v for k, v in {**(values or {}), **state}.items()}
        for s in order:
            if s.name not in given:
                raise unknown_name("state or parameter", s.name, given)
        return [float(np.asarray(given[s.name]).reshape(-1)[0]) for s in order]

    def lift(
        state: Mapping[str, Any], values: Mapping[Any, Any] | None = None
    ) -> dict[str, NDArray[np.float64]]:
        return system.unpack(function(numbers(state, values)))

    def tangent(
        state: Mapping[str, Any], values: Mapping[Any, Any] | None = None
    ) -> NDArray[np.float64]:
        return np.array(slopes(numbers(state, values)), dtype=float).reshape(len(g), len(new))

    return lift, tangent
