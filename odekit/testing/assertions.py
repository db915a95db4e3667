"""Assertions about fields and runs, each with a tolerance that is derived and shown on failure.

Rounding is bounded by evaluating a polynomial with every number replaced by its size: a sum of
terms computed in float64 is off by at most a small multiple of ``eps`` times that value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.errors import InputError
from odekit.field import ScalarField, TensorField, VectorField
from odekit.tensor import Tensor, TensorExpr, as_expression
from odekit.tensor.evaluation import Bindings

__all__ = [
    "assert_agrees",
    "assert_conserved",
    "assert_fixed_point",
    "assert_gradient_flow",
    "assert_invariant_manifold",
]

Array = NDArray[np.float64]
Values = Mapping[str, Any]

_ROUNDINGS = 256
"""Allowance for the number of roundings along one sum: terms times factors, generously."""

_EPS = float(np.finfo(np.float64).eps)


class _Sizes(Bindings):
    """Evaluates with every number replaced by its absolute value."""

    def coefficient(self, monomial: Any, number: Any) -> float:
        return abs(super().coefficient(monomial, number))


def _magnitude(field: TensorField, expression: TensorExpr, state: Values, params: Values) -> Array:
    values = {k: np.abs(np.asarray(v, dtype=float)) for k, v in {**params, **state}.items()}
    for name in field.constants:
        values.pop(name, None)
    sizes = _Sizes((*field.states, *field.parameters), field.symbols, values)
    return sizes.evaluate(expression)


def _rate_bound(field: VectorField, state: Values, params: Values) -> dict[str, Array]:
    """Rounding bound of each rate, entry by entry."""
    if isinstance(field, TensorField):
        return {
            s.name: _ROUNDINGS * _EPS * _magnitude(field, field.rates[s], state, params)
            for s in field.states
        }
    rates = field.evaluate(state, params)
    largest = max((float(np.max(np.abs(r), initial=0.0)) for r in rates.values()), default=0.0)
    inputs = max(
        (
            float(np.max(np.abs(np.asarray(v)), initial=0.0))
            for v in (*state.values(), *params.values())
        ),
        default=0.0,
    )
    scale = max(largest, inputs, 1.0)
    return {n: np.full(np.shape(r), _ROUNDINGS * _EPS * scale) for n, r in rates.items()}


def _fail(what: str, found: float, bound: float, why: str) -> None:
    raise AssertionError(f"{what}: {found:.3g} exceeds the tolerance {bound:.3g} ({why})")


def assert_fixed_point(field: VectorField, state: Values, params: Values | None = None) -> None:
    """Assert that every rate vanishes at a state, up to rounding.

    Raises
    ------
    AssertionError
        Naming the state that moves, its rate and the derived tolerance.
    """
    values = dict(params or {})
    rates = field.evaluate(state, values)
    bounds = _rate_bound(field, state, values)
    for name, rate in rates.items():
        # The state itself is rounded: its rate then is eps times the sensitivity, of the size of
        # the same sum of absolute terms.
        excess = np.abs(rate) - 4 * bounds[name]
        if np.any(excess > 0):
            k = np.unravel_index(int(np.argmax(excess)), rate.shape) if rate.ndim else ()
            _fail(
                f"d{name}/dt at {tuple(int(i) for i in k)}",
                float(np.abs(rate[k])),
                float(4 * bounds[name][k]),
                "rounding of its terms",
            )


def assert_gradient_flow(field: VectorField, state: Values, params: Values | None = None) -> None:
    """Assert that the rates are minus the loss's gradient over each state's time scale.

    The gradient is taken by central differences with step h; the tolerance is the sum of
    rounding, ``eps |L| / h``, and of the difference between steps h and 2h, which bounds the
    truncation.
    """
    values = dict(params or {})
    rates = field.evaluate(state, values)
    arrays = {n: np.asarray(state[n], dtype=float) for n in rates}
    scales = _time_scales(field, values)
    base = abs(field.loss_value(arrays, values))
    for name, array in arrays.items():
        for position in np.ndindex(*array.shape):
            size = max(abs(float(array[position])), float(np.max(np.abs(array), initial=0.0)), 1e-8)
            h = _EPS ** (1 / 3) * size
            near, far = (_slope(field, arrays, values, name, position, k * h) for k in (1, 2))
            bound = abs(near - far) + 64 * _EPS * (base + abs(near) * h) / h
            gap = abs(float(rates[name][position]) * scales[name] + near)
            if gap > bound:
                where = f"{name}{list(position)}"
                _fail(f"rate of {where} + dL/d({where})", gap, bound, "central differences")


def _slope(
    field: VectorField, arrays: Mapping[str, Array], values: Values, name: str, at: Any, h: float
) -> float:
    ends = []
    for sign in (1.0, -1.0):
        moved = {n: a.copy() for n, a in arrays.items()}
        moved[name][at] += sign * h
        ends.append(field.loss_value(moved, values))
    return (ends[0] - ends[1]) / (2 * h)


def _time_scales(field: VectorField, values: Values) -> dict[str, float]:
    if isinstance(field, TensorField) and field.time_scale:
        known = {str(k): v for k, v in values.items() if np.ndim(v) == 0}
        return {s.name: float(field.time_scale[s].subs(known)) for s in field.states}
    if isinstance(field, ScalarField) and field.gradient:
        # The loss may be scaled: one positive factor that holds no state.
        factor = next(
            sp.cancel(-sp.diff(field.loss, state) / rate)
            for state, rate in zip(field.states, field.rates, strict=True)
            if rate != 0
        )
        flat = field.flatten(values, field.parameter_groups)
        number = factor.subs(dict(zip(field.parameters, flat, strict=True)))
        return dict.fromkeys(field.state_names, float(number))
    raise InputError("the field is not a gradient flow: it has no loss with time scales")


def assert_conserved(
    field: VectorField,
    quantity: Any,
    state: Values,
    params: Values | None = None,
    *,
    time: float | None = None,
) -> None:
    """Assert that a quantity is constant along the flow.

    Parameters
    ----------
    field : TensorField
    quantity : TensorExpr, or an Invariant of `odekit.conserved` with such an ``.expression``
        In the field's states and parameters.
    state, params : mapping
        Where to test.
    time : float, optional
        Also integrate up to this time and compare; the tolerance then follows the solver's.

    Raises
    ------
    AssertionError
        If ``grad Q . f`` is not zero up to rounding at the state, or Q drifts along the run.
    """
    values = dict(params or {})
    expression = as_expression(getattr(quantity, "expression", quantity))
    if not isinstance(field, TensorField):
        raise InputError("assert_conserved takes a tensor field; use ok.conserved for scalar ones")
    moving = [s for s in field.states if s in expression.tensors(deep=True)]
    if not moving:
        raise InputError("the quantity holds no state of the field")
    bindings = field.bind(state, values)
    drift: Any = 0.0
    bound: Any = 0.0
    for tensor in moving:
        slope = bindings.evaluate(expression.diff(tensor))
        rate = bindings.evaluate(field.rates[tensor])
        axes = tuple(range(slope.ndim - rate.ndim, slope.ndim))
        drift = drift + np.sum(slope * rate, axis=axes)
        sizes = np.abs(slope) * _magnitude(field, field.rates[tensor], state, values)
        bound = bound + 2 * _ROUNDINGS * _EPS * np.sum(sizes, axis=axes)
    worst = np.argmax(np.abs(drift) - bound)
    if np.abs(drift).flat[worst] > np.asarray(bound).flat[worst]:
        _fail(
            "dQ/dt",
            float(np.abs(drift).flat[worst]),
            float(np.asarray(bound).flat[worst]),
            "rounding of grad Q . f",
        )
    if time is not None:
        _assert_no_drift(field, expression, moving, state, values, time)


def _assert_no_drift(
    field: TensorField,
    expression: TensorExpr,
    moving: list[Tensor],
    state: Values,
    values: Values,
    time: float,
) -> None:
    from odekit.integrate import solve

    run = solve(field, state, np.linspace(0.0, time, 9), values)
    first: Any = None
    for k in range(len(run.t)):
        now = {n: run[n][k] for n in field.state_names}
        bindings = field.bind(now, values)
        value = bindings.evaluate(expression)
        first = value if first is None else first
        size = sum(
            float(
                np.sum(np.abs(bindings.evaluate(expression.diff(s)))) * np.max(np.abs(now[s.name]))
            )
            for s in moving
        )
        # The run's own promise: 1e-6 of the state, carried to Q by its gradient.
        bound = 1e-6 * size + _ROUNDINGS * _EPS * float(np.max(np.abs(value)))
        gap = float(np.max(np.abs(value - first)))
        if gap > bound:
            _fail(f"drift of Q at t = {run.t[k]:.4g}", gap, bound, "1e-6 of the state times grad Q")


def assert_invariant_manifold(
    field: TensorField,
    ansatz: Mapping[str, Any],
    reduced_rates: Mapping[Tensor, Any],
    state: Values,
    params: Values | None = None,
) -> None:
    """Assert that a manifold is kept and moves by given reduced rates.

    Parameters
    ----------
    field : TensorField
    ansatz : mapping of state name to TensorExpr
        The field's states as expressions in the reduced ones.
    reduced_rates : mapping of Tensor to TensorExpr
        ``d(reduced state)/dt`` for each reduced state.
    state : mapping
        Numbers for the reduced states.
    params : mapping, optional
    """
    values = dict(params or {})
    places = {s.name: s for s in field.states}
    for name in ansatz:
        if name not in places:
            raise InputError(f"the ansatz names {name}, which is no state of the field")
    full = {n: as_expression(e).evaluate({**values, **state}) for n, e in ansatz.items()}
    rates = field.evaluate(full, values)
    bounds = _rate_bound(field, full, values)
    for name, expression in ansatz.items():
        pushed: Any = np.zeros_like(rates[name])
        for tensor, rate in reduced_rates.items():
            slope = as_expression(expression).diff(tensor).evaluate({**values, **state})
            change = as_expression(rate).evaluate({**values, **state})
            rank = tensor.rank
            letters = "abcdefghijklmnopqrstuvwxyz"
            outer, inner = letters[: slope.ndim - rank], letters[slope.ndim - rank : slope.ndim]
            pushed = pushed + np.einsum(f"{outer}{inner},{inner}->{outer}", slope, change)
        gap = np.abs(rates[name] - pushed)
        bound = 4 * bounds[name] + _ROUNDINGS * _EPS * np.abs(pushed)
        if np.any(gap > bound):
            k = int(np.argmax(gap - bound))
            _fail(f"residual of d{name}/dt", float(gap.flat[k]), float(bound.flat[k]), "rounding")


def assert_agrees(
    first: Any, second: Any, *, relative: float = 1e-6, absolute: float | None = None
) -> None:
    """Assert that two runs agree at the times of the first.

    Parameters
    ----------
    first, second : Solution
        With the same state names; the second needs outputs at the first's times or dense output.
    relative : float, optional
        Of each state's largest value along the run: the solvers' promise by default.
    absolute : float, optional
        Default: ``relative`` times the largest value.
    """
    for name in first.states:
        left = first[name]
        right = np.stack([np.asarray(second.at(float(t))[name]) for t in first.t])
        if left.shape != right.shape:
            raise InputError(
                f"{name} has shape {left.shape} in one run and {right.shape} in the other"
            )
        size = float(np.max(np.abs(left), initial=0.0))
        bound = relative * size if absolute is None else absolute
        gap = np.abs(left - right)
        if np.any(gap > bound):
            k = int(np.argmax(np.max(gap.reshape(len(first.t), -1), axis=1)))
            _fail(
                f"{name} at t = {first.t[k]:.6g}",
                float(gap.max()),
                bound,
                f"{relative:g} of {size:.3g}",
            )
