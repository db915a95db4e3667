"""The gradient flow of a loss, in reverse mode over named intermediates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy as sp

from odekit.errors import InputError
from odekit.field.tensor_field import TensorField
from odekit.tensor import Tensor, TensorExpr, as_expression, define, is_scalar, partial_derivative
from odekit.tensor.derivative import contract_tail


def gradient_flow(
    loss: Any,
    weights: Iterable[Tensor] | Tensor | None = None,
    time_scale: Any = 1,
) -> TensorField:
    """The gradient flow ``time_scale * d(theta)/dt = - d(loss)/d(theta)``.

    Parameters
    ----------
    loss : ExpectedLoss or TensorExpr
        Rank zero.
    weights : iterable of Tensor, optional
        States of the flow; the rest is frozen and becomes a parameter. Default: all weights.
    time_scale : scalar or mapping, optional
        One for all weights, or ``{weight: scale}``; units of time for a unit of learning rate.

    Returns
    -------
    TensorField
        Each named contraction of weights is computed once, and so is its cotangent, the
        (scaled) negative derivative of the loss with respect to it.
    """
    expression = as_expression(loss)
    if expression.rank:
        raise InputError(f"a loss is a scalar; got shape {expression.shape}")
    found = [t for t in expression.tensors(deep=True) if t.kind == "weight"]
    if any(t.kind == "gaussian" for t in expression.tensors(deep=True)):
        raise InputError("the loss holds random tensors; average it with ok.expectation first")
    states = (
        found if weights is None else [weights] if isinstance(weights, Tensor) else list(weights)
    )
    for tensor in states:
        if tensor not in found:
            known = ", ".join(t.name for t in found)
            raise InputError(
                f"the loss does not depend on {getattr(tensor, 'name', tensor)}; it has: {known}"
            )
    if len(set(states)) < len(states):
        raise InputError("weights= names a weight twice; give each once")
    if not states:
        raise InputError("the loss depends on no weight; declare one with ok.weight")
    _check_names(expression, states)
    scales = _read_scales(time_scale, states)
    uniform = len(set(scales.values())) == 1
    # With one rate for all it is folded into the loss, so that cotangents are shown as flows.
    folded = next(iter(scales.values())) if uniform else sp.Integer(1)
    primal = _in_order(expression)
    active = [d for d in primal if any(w in d.body.tensors(deep=True) for w in states)]
    taken = {t.name for t in expression.tensors(deep=True)}
    scaled = expression * (-1 / folded)
    cotangents: dict[Tensor, Tensor] = {}
    reverse: list[tuple[Tensor, TensorExpr]] = []

    def pull_back(tensor: Tensor) -> TensorExpr:
        total = partial_derivative(scaled, tensor)
        for holder in active:
            if holder.tensor in cotangents and tensor in holder.body.tensors():
                inner = partial_derivative(holder.body, tensor)
                rank = holder.tensor.rank
                total = total + contract_tail(as_expression(cotangents[holder.tensor]), inner, rank)
        return total

    for holder in reversed(active):
        name = f"G_{holder.tensor.name}"
        while name in taken:
            name += "'"
        taken.add(name)
        body = pull_back(holder.tensor)
        cotangents[holder.tensor] = define(name, body)
        reverse.append((cotangents[holder.tensor], body))
    rates = {}
    for state in states:
        rate = pull_back(state)
        rates[state] = rate if uniform else rate * (1 / scales[state])
    return TensorField(
        states=tuple(states),
        definitions=tuple((d.tensor, d.body) for d in primal) + tuple(reverse),
        rates=rates,
        loss=expression,
        time_scale={state: scales[state] for state in states},
    )


class _Definition:
    """A definition and its body."""

    def __init__(self, tensor: Tensor, body: TensorExpr) -> None:
        self.tensor = tensor
        self.body = body


def _in_order(expression: TensorExpr) -> list[_Definition]:
    """Definitions that an expression needs, each after those it needs itself."""
    done: dict[Tensor, _Definition] = {}

    def visit(body: TensorExpr) -> None:
        for tensor in body.tensors():
            if tensor.definition is not None and tensor not in done:
                visit(tensor.definition)
                done[tensor] = _Definition(tensor, tensor.definition)

    visit(expression)
    return list(done.values())


def _check_names(expression: TensorExpr, states: list[Tensor]) -> None:
    seen: dict[str, Tensor] = {}
    for tensor in (*states, *expression.tensors(deep=True)):
        if tensor.kind == "identity":
            continue
        if seen.setdefault(tensor.name, tensor) is not tensor:
            raise InputError(f"two different tensors are called {tensor.name}; rename one")
    # A size and a tensor would share the one number passed by that name.
    sizes = {s.name for t in seen.values() for axis in t.shape for s in axis.free_symbols}
    sizes |= {str(s) for s in expression.symbols(deep=True) if s.is_integer}
    for name in sorted(sizes & set(seen)):
        raise InputError(f"a tensor and a size are both called {name}; rename one")


def _read_scales(time_scale: Any, states: list[Tensor]) -> dict[Tensor, sp.Expr]:
    if not isinstance(time_scale, Mapping):
        return dict.fromkeys(states, _read_scale(time_scale, "time_scale"))
    for tensor in time_scale:
        if tensor not in states:
            raise InputError(
                f"time_scale names {getattr(tensor, 'name', tensor)}, which is no state; "
                f"states: {', '.join(s.name for s in states)}"
            )
    missing = [s.name for s in states if s not in time_scale]
    if missing:
        raise InputError(f"time_scale has no entry for {', '.join(missing)}")
    return {s: _read_scale(time_scale[s], f"time_scale of {s.name}") for s in states}


def _read_scale(value: Any, what: str) -> sp.Expr:
    if isinstance(value, Tensor) and value.rank == 0 and value.kind == "parameter":
        return sp.Symbol(value.name, positive=True)
    if not is_scalar(value) or isinstance(value, complex):
        raise InputError(f"{what} is {value!r}; give a positive number or a SymPy symbol")
    scale = sp.nsimplify(value, rational=True)
    if scale.is_number and not scale.is_positive:
        raise InputError(f"{what} is {scale}; it must be positive")
    return scale
