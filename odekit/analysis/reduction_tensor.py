"""Reduction of a tensor field by an ansatz in new weights, for all sizes at once."""

from __future__ import annotations

import itertools
import string
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.analysis.reduction import Reduction
from odekit.errors import InputError, unknown_name
from odekit.field.tensor_field import TensorField
from odekit.tensor import Tensor, TensorExpr, as_expression, einsum, identity

__all__ = ["reduce_tensor"]


def reduce_tensor(field: Any, ansatz: Mapping[Any, Any]) -> Reduction:
    """See `odekit.analysis.reduction.reduce`."""
    images, specialised = _read_ansatz(field, ansatz)
    new = _new_weights(field, images)
    substitution = {**specialised, **images}
    rates = {s: field.rates[s].expand().substitute(substitution) for s in field.states}
    solved: dict[Tensor, TensorExpr] = {}
    scales: dict[Tensor, TensorExpr] = {}
    sources: list[str] = []
    for w in new:
        found = _solve_for(w, field, images, rates, new)
        if found is None:
            raise InputError(
                f"No state is a multiple of the new weight {w.name} by constant tensors, so its "
                "rate cannot be read off; use field.components(...) and a scalar ansatz."
            )
        solved[w], scale, source = found
        sources.append(f"{w.name} from {source}")
        if scale is not None:
            scales[w] = scale
    residual: dict[str, TensorExpr] = {}
    for state in field.states:
        # A norm that is no number (such as c[h] c[h]) multiplies the whole equation instead.
        factor: TensorExpr | None = None
        own = [w for w in new if w in scales and w in images[state].tensors()]
        for w in own:
            factor = scales[w] if factor is None else _scaled(scales[w], factor)
        rest = rates[state] if factor is None else _scaled(rates[state], factor)
        for w in new:
            slope = images[state].diff(w)
            if slope.is_zero:
                continue
            outer = string.ascii_lowercase[: state.rank]
            inner = string.ascii_uppercase[: w.rank]
            moved = einsum(f"{outer}{inner},{inner}->{outer}", slope, solved[w])
            for v in own:
                if v is not w:
                    moved = _scaled(moved, scales[v])
            rest = rest - moved
        residual[state.name] = _collapse_units(rest)
    exact = all(r.is_zero for r in residual.values())
    note = "rates read off: " + ", ".join(sources)
    if scales and exact:
        names = ", ".join(str(s) for s in scales.values())
        raise InputError(
            f"The ansatz is kept, but its rates would be divided by {names}; "
            "normalise its constant tensors."
        )
    if scales:
        note += "; residuals are multiplied by " + ", ".join(str(s) for s in scales.values())
    reduced = None
    if exact:
        loss = None
        if field.loss is not None:
            loss = field.loss.expand().substitute(substitution)
        reduced = TensorField(tuple(new), (), {w: _restored(solved[w], w) for w in new}, loss)
    lift, tangent = _maps(field, images, new)
    return Reduction(reduced, residual, exact, lift, field, tangent, note)


def _scaled(expression: TensorExpr, factor: TensorExpr) -> TensorExpr:
    letters = string.ascii_lowercase[: expression.rank]
    return einsum(f"{letters},->{letters}", expression, factor)


def _read_ansatz(
    field: Any, ansatz: Mapping[Any, Any]
) -> tuple[dict[Tensor, TensorExpr], dict[Tensor, TensorExpr]]:
    states = {s.name: s for s in field.states}
    parameters = {p.name: p for p in field.parameters}
    images: dict[Tensor, TensorExpr] = {}
    specialised: dict[Tensor, TensorExpr] = {}
    for key, value in ansatz.items():
        name = getattr(key, "name", str(key))
        if name in states:
            images[states[name]] = _fitted(as_expression(value), states[name])
        elif name in parameters:
            specialised[parameters[name]] = _fitted(as_expression(value), parameters[name])
        else:
            raise unknown_name("state", name, [*states, *parameters])
    for state in field.states:
        images.setdefault(state, state.as_expression())
    return images, specialised


def _fitted(expression: TensorExpr, state: Tensor) -> TensorExpr:
    """Broadcast an expression that lacks some of the state's axes."""
    if expression.shape == state.shape:
        return expression
    fits = [
        axes
        for axes in itertools.combinations(range(state.rank), expression.rank)
        if tuple(state.shape[a] for a in axes) == expression.shape
    ]
    shown = "(" + ", ".join(map(str, state.shape)) + ")"
    got = "(" + ", ".join(map(str, expression.shape)) + ")"
    if len(fits) != 1:
        reason = "fits in several ways" if fits else "does not fit"
        raise InputError(
            f"{state.name} has shape {shown}; the ansatz of shape {got} {reason}. "
            "Give every axis with ok.einsum."
        )
    (axes,) = fits
    return TensorExpr.collect(
        state.shape,
        [
            ([(t, tuple(axes[i] if i >= 0 else i for i in ii)) for t, ii in factors], m, c, None)
            for factors, m, c in expression.raw()
        ],
    )


def _new_weights(field: Any, images: Mapping[Tensor, TensorExpr]) -> list[Tensor]:
    found = {t for e in images.values() for t in e.tensors() if t.kind == "weight"}
    parameters = set(field.parameters)
    new = sorted((t for t in found if t not in parameters), key=lambda t: t.order)
    if not new:
        raise InputError("The ansatz holds no new weight; declare one with ok.weight.")
    for state, image in images.items():
        for t in image.tensors():
            if t.definition is not None:
                raise InputError(f"The ansatz of {state.name} holds the definition {t.name}.")
    return new


def _solve_for(
    w: Tensor,
    field: Any,
    images: Mapping[Tensor, TensorExpr],
    rates: Mapping[Tensor, TensorExpr],
    new: list[Tensor],
) -> tuple[TensorExpr, TensorExpr | None, str] | None:
    """Rate of a new weight from a state that is ``number * w * constants``.

    Returns the rate (or the rate times a norm that is no number, with that norm).
    """
    fallback: tuple[TensorExpr, TensorExpr | None, str] | None = None
    for state in field.states:
        image = images[state]
        if len(image.terms) != 1:
            continue
        (((factors, monomial), number),) = image.terms.items()
        held = [(t, ii) for t, ii in factors if t is w]
        rest = [(t, ii) for t, ii in factors if t is not w]
        if len(held) != 1 or any(t in new for t, _ in rest):
            continue
        indices = held[0][1]
        units = {k for k, n in enumerate(w.shape) if n == 1}
        distinct = [i for k, i in enumerate(indices) if k not in units]
        if len(set(distinct)) < len(distinct) or any(i >= state.rank for i in distinct):
            continue
        letters = dict(enumerate(string.ascii_letters))
        axes = [letters[i] for i in range(state.rank)]
        operands: list[Any] = [rates[state]]
        names = ["".join(axes)]
        for t, ii in rest:
            operands.append(t)
            names.append("".join(letters[i] for i in ii))
        kept = "".join(letters[i] for i in distinct)
        projected = einsum(f"{','.join(names)}->{kept}", *operands)
        norm = _norm(state, rest, distinct)
        if norm is None:
            continue
        coefficient = _coefficient(monomial, number)
        value, scale = _divided(projected, norm, coefficient)
        value = _unit_axes(value, w, units)
        if scale is None:
            return value, None, state.name
        fallback = fallback or (value, scale, state.name)
    return _from_orthogonal(w, field, images, rates, new) or fallback


def _from_orthogonal(
    w: Tensor,
    field: Any,
    images: Mapping[Tensor, TensorExpr],
    rates: Mapping[Tensor, TensorExpr],
    new: list[Tensor],
) -> tuple[TensorExpr, None, str] | None:
    """Rate of a new weight whose entries multiply orthogonal tensors of one norm.

    Such as the strengths of modes: ``W = sum_a w[a] u[a] v[a]^T`` with orthonormal u and v.
    """
    for state in field.states:
        slope = images[state].diff(w)
        if slope.is_zero or any(t in new for t in slope.tensors()):
            continue
        outer = string.ascii_lowercase[: state.rank]
        inner = string.ascii_uppercase[: w.rank]
        other = string.ascii_uppercase[w.rank : 2 * w.rank]
        gram = einsum(f"{outer}{inner},{outer}{other}->{inner}{other}", slope, slope)
        pairs = [a + b for a, b in zip(inner, other, strict=True)]
        ones = [identity(n) for n in w.shape]
        unit = einsum(f"{','.join(pairs)}->{inner}{other}", *ones) if ones else TensorExpr.scalar(1)
        if len(gram.terms) != 1 or len(unit.terms) != 1:
            continue
        (((factors, monomial), number),) = gram.terms.items()
        if factors != next(iter(unit.terms)).factors:
            continue
        projected = einsum(f"{outer}{inner},{outer}->{inner}", slope, rates[state])
        return projected * (1 / _coefficient(monomial, number)), None, state.name
    return None


def _coefficient(monomial: Any, number: Fraction) -> sp.Expr:
    from odekit.tensor.coefficient import to_sympy

    return to_sympy(monomial, number)


def _norm(state: Tensor, rest: list[Any], distinct: list[int]) -> TensorExpr | None:
    """Squared norm of the constants over the axes that the new weight does not have."""
    if any(i in ii for _, ii in rest for i in distinct):
        return None
    letters = string.ascii_letters
    second = {i: letters[26 + k] for k, i in enumerate(range(state.rank, state.rank + 26))}
    names, operands = [], []
    for t, ii in rest:
        names.append("".join(letters[i] for i in ii))
        operands.append(t)
    for t, ii in rest:
        names.append("".join(letters[i] if i < state.rank else second[i] for i in ii))
        operands.append(t)
    norm = einsum(f"{','.join(names)}->", *operands) if rest else TensorExpr.scalar(1)
    present = {i for _, ii in rest for i in ii} | set(distinct)
    for axis in range(state.rank):
        if axis not in present:
            norm = norm * state.shape[axis]
    return norm


def _divided(
    projected: TensorExpr, norm: TensorExpr, coefficient: sp.Expr
) -> tuple[TensorExpr, TensorExpr | None]:
    if all(not term.factors for term in norm.terms):
        total = sum(
            (_coefficient(t.monomial, c) for t, c in norm.terms.items()), start=sp.Integer(0)
        )
        return projected * (1 / (coefficient * total)), None
    return projected * (1 / coefficient), norm


def _unit_axes(value: TensorExpr, w: Tensor, units: set[int]) -> TensorExpr:
    """Put axes of size one, over which nothing was projected, back into a rate."""
    if not units:
        return value
    axes = [k for k in range(w.rank) if k not in units]
    return TensorExpr.collect(
        w.shape,
        [
            ([(t, tuple(axes[i] if i >= 0 else i for i in ii)) for t, ii in factors], m, c, None)
            for factors, m, c in value.raw()
        ],
    )


def _squeeze(expression: TensorExpr, table: dict[Tensor, Tensor]) -> TensorExpr:
    """Drop axes of size one: their indices carry no information but hide equal terms."""
    kept = [k for k, n in enumerate(expression.shape) if n != 1]
    place = {old: k for k, old in enumerate(kept)}

    def twin(tensor: Tensor) -> Tensor:
        if all(n != 1 for n in tensor.shape) or tensor.kind in ("identity", "eigenvector"):
            return tensor
        if tensor not in table:
            shape = tuple(n for n in tensor.shape if n != 1)
            whole = (
                len(tensor.symmetric_groups) == 1 and len(tensor.symmetric_groups[0]) == tensor.rank
            )
            table[tensor] = Tensor(
                tensor.name, shape, tensor.kind, symmetric=whole and len(shape) > 1
            )
        return table[tensor]

    def products() -> Any:
        for factors, m, c in expression.raw():
            moved = []
            for t, ii in factors:
                other = twin(t)
                own = (
                    ii
                    if other is t
                    else tuple(i for i, n in zip(ii, t.shape, strict=True) if n != 1)
                )
                moved.append((other, tuple(place.get(i, i) if i >= 0 else i for i in own)))
            yield moved, m, c, None

    return TensorExpr.collect(tuple(expression.shape[k] for k in kept), products())


def _has_units(expression: TensorExpr) -> bool:
    return any(n == 1 for n in expression.shape) or any(
        n == 1 for t in expression.tensors() for n in t.shape
    )


def _collapse_units(expression: TensorExpr) -> TensorExpr:
    """Zero if the expression vanishes once indices of size one are dropped."""
    if expression.is_zero or not _has_units(expression):
        return expression
    return TensorExpr.zero(expression.shape) if _squeeze(expression, {}).is_zero else expression


def _restored(rate: TensorExpr, w: Tensor) -> TensorExpr:
    """Collect a rate as if axes of size one were absent, and put them back."""
    if not _has_units(rate):
        return rate
    table: dict[Tensor, Tensor] = {}
    small = _squeeze(rate, table)
    back = {other: t for t, other in table.items()}
    axes = [k for k, n in enumerate(w.shape) if n != 1]

    def products() -> Any:
        fresh = itertools.count(-(10**7), -1)
        for factors, m, c in small.raw():
            moved = []
            for t, ii in factors:
                placed = tuple(axes[i] if i >= 0 else i for i in ii)
                if t in back:
                    rest = iter(placed)
                    placed = tuple(next(fresh) if n == 1 else next(rest) for n in back[t].shape)
                moved.append((back.get(t, t), placed))
            yield moved, m, c, None

    return TensorExpr.collect(w.shape, products())


def _maps(field: Any, images: Mapping[Tensor, TensorExpr], new: list[Tensor]) -> tuple[Any, Any]:
    """The lift of a reduced state, and the tangent vectors of the ansatz there."""
    slopes = {(s, w): images[s].diff(w) for s in field.states for w in new}

    def numbers(
        state: Mapping[str, Any], values: Mapping[Any, Any] | None
    ) -> tuple[dict[str, Any], dict[sp.Symbol, int]]:
        given = {getattr(k, "name", str(k)): v for k, v in {**(values or {}), **state}.items()}
        sizes: dict[sp.Symbol, int] = {}
        held = {t for e in images.values() for t in e.tensors()} | set(new) | set(field.parameters)
        for t in held:
            if t.name in given:
                for n, actual in zip(t.shape, np.shape(given[t.name]), strict=True):
                    if isinstance(n, sp.Symbol):
                        sizes[n] = actual
        for name, value in given.items():
            symbol = next((s for s in field.size_symbols if str(s) == name), None)
            if symbol is not None:
                sizes[symbol] = int(value)
        missing = [w.name for w in new if w.name not in given]
        if missing:
            raise InputError(f"No value for the reduced state {', '.join(missing)}.")
        return {**{str(s): v for s, v in sizes.items()}, **given}, sizes

    def array(
        expression: TensorExpr, given: Mapping[str, Any], sizes: Mapping[sp.Symbol, int]
    ) -> NDArray[np.float64]:
        shape = []
        for n in expression.shape:
            number = sp.sympify(n).subs(sizes)
            if not number.is_Integer:
                raise InputError(f"size {n} is unknown; pass it in values=")
            shape.append(int(number))
        if expression.is_zero:
            return np.zeros(shape)
        from odekit.tensor.evaluation import Bindings

        bindings = Bindings(expression.tensors(), expression.symbols(), given)
        bindings.sizes.update(sizes)
        return np.array(np.broadcast_to(bindings.evaluate(expression), shape), dtype=float)

    def lift(
        state: Mapping[str, Any], values: Mapping[Any, Any] | None = None
    ) -> dict[str, NDArray[np.float64]]:
        given, sizes = numbers(state, values)
        return {s.name: array(images[s], given, sizes) for s in field.states}

    def tangent(
        state: Mapping[str, Any], values: Mapping[Any, Any] | None = None
    ) -> NDArray[np.float64]:
        given, sizes = numbers(state, values)
        columns = []
        for w in new:
            size = int(np.size(given[w.name]))
            blocks = [array(slopes[s, w], given, sizes).reshape(-1, size) for s in field.states]
            columns.append(np.concatenate(blocks))
        return np.concatenate(columns, axis=1)

    return lift, tangent
