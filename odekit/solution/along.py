"""Expressions along a run: the states and parameters are put in at every output time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError, unknown_name

if TYPE_CHECKING:
    from odekit.solution.solution import Solution

__all__ = ["value_along"]


def value_along(
    solution: Solution, expr: Any, params: Mapping[str, Any] | None
) -> NDArray[np.float64]:
    """Evaluate ``expr`` at every output time of ``solution``; see `Solution.value`."""
    parameters = dict(solution.params)
    for name, value in (params or {}).items():
        parameters[str(name)] = np.asarray(value, dtype=np.float64)
    if isinstance(expr, str):
        if expr in solution.states:
            return solution.states[expr]
        if expr == "loss" and params is None and solution.loss is not None:
            return solution.loss
        expr = _intermediate(solution, expr)
    values = np.asarray(
        evaluate(expr, solution.states, parameters, solution.field), dtype=np.float64
    )
    if not _moves(expr, solution):  # an expression without states is the same at every time
        values = np.broadcast_to(values, (len(solution.t), *values.shape)).copy()
    return values


def _moves(expr: Any, solution: Solution) -> bool:
    """Whether any state occurs in an expression."""
    if hasattr(expr, "as_expression"):
        names = {tensor.name for tensor in expr.as_expression().tensors(deep=True)}
    else:
        names = {str(symbol) for symbol in expr.free_symbols}
        for name, (_, symbols) in (getattr(solution.field, "groups", None) or {}).items():
            if names & {str(symbol) for symbol in symbols}:
                names.add(name)
    return bool(names & set(solution.states))


def _intermediate(solution: Solution, name: str) -> Any:
    known = [*solution.states, *(["loss"] if solution.loss is not None else [])]
    field = solution.field
    if field is not None:
        if name == "loss" and getattr(field, "loss", None) is not None:
            return field.loss
        for tensor, expression in getattr(field, "definitions", ()):
            if str(tensor.name) == name:
                return expression
            known.append(str(tensor.name))
    raise unknown_name("state or intermediate", name, known)


def evaluate(
    expr: Any, states: Mapping[str, Any], params: Mapping[str, Any], field: Any = None
) -> Any:
    """Evaluate an expression at a stack of states.

    Parameters
    ----------
    expr : object
        With ``evaluate(values, batched=names)``, such as a tensor expression, or a tensor or
        loss that has one; or a SymPy expression in the symbols of ``field``.
    states : mapping
        Name -> stack ``(K, *shape)``.
    params : mapping
        Name -> value.
    field : VectorField, optional
        Names the entries of array states in SymPy expressions.

    Returns
    -------
    ndarray (K, *shape), or (*shape) where no state occurs
    """
    if hasattr(expr, "as_expression"):
        expr = expr.as_expression()
    if hasattr(expr, "evaluate"):
        return expr.evaluate({**params, **states}, batched=tuple(states))
    if hasattr(expr, "free_symbols"):
        return _evaluate_scalar(expr, states, params, field)
    raise InputError(
        f"Cannot evaluate a {type(expr).__name__} along a run; give a tensor expression, a loss, "
        "a SymPy expression, or the name of a state or intermediate."
    )


def _evaluate_scalar(
    expr: Any, states: Mapping[str, Any], params: Mapping[str, Any], field: Any
) -> Any:
    import sympy

    groups = getattr(field, "groups", None) or {}
    known: dict[str, Any] = {}
    for name, value in params.items():
        known.update(_entries(name, np.asarray(value), 0, groups))
    for name, value in states.items():
        known.update(_entries(name, np.asarray(value), 1, groups))
    symbols = sorted(expr.free_symbols, key=str)
    for symbol in symbols:
        if str(symbol) not in known:
            raise unknown_name("symbol", symbol, known)
    function = sympy.lambdify(symbols, expr, "numpy", cse=True)
    return function(*(known[str(symbol)] for symbol in symbols))


def _entries(
    name: str, value: NDArray[np.float64], leading: int, groups: Mapping[str, Any]
) -> dict[str, Any]:
    if name not in groups:
        return {name: value}
    _, symbols = groups[name]
    flat = value.reshape(value.shape[:leading] + (-1,))
    return {str(symbol): flat[..., k] for k, symbol in enumerate(symbols)}
