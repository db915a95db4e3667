"""`closed_form`: explicit or implicit solutions, verified before they are returned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.analysis.closed_form_patterns import Pattern, find_pattern
from odekit.analysis.expressions import exact_number
from odekit.analysis.product_pair import ProductPair, product_pair
from odekit.analysis.scalar_system import ScalarSystem, bind_values, is_scalar_field, read_system
from odekit.errors import InputError, unknown_name

__all__ = ["ClosedForm", "closed_form"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """A solution of a field in closed form.

    Parameters
    ----------
    kind : str
        "constant", "linear", "bernoulli", "riccati", "separable", "unbalanced product", or
        "decoupled" for several of these side by side.
    state, time, start : Symbol
        The unknown, time and the initial value.
    rate : Expr
        The equation's right-hand side.
    explicit : Expr or None
        The unknown as a function of time and start.
    implicit : Expr or None
        Time as a function of the unknown and start, where there is no explicit form.
    verification : {"exact", "digits"}
        "exact": substitution into the equation gave zero symbolically; "digits": it vanishes to
        40 digits at random points.
    invariants : mapping
        Symbols that stand for rank-zero expressions of the field's parameters.
    reading : str
        How the field's states follow from the unknown.
    names : tuple of str
        Names of the field's states.
    parts : tuple of ClosedForm
        The forms of a decoupled field's blocks; empty otherwise.
    """

    kind: str
    state: sp.Symbol
    time: sp.Symbol
    start: sp.Symbol
    rate: sp.Expr
    explicit: sp.Expr | None
    implicit: sp.Expr | None
    verification: Literal["exact", "digits"]
    invariants: Mapping[sp.Symbol, Any]
    reading: str
    names: tuple[str, ...]
    _evaluate: Callable[[Array, Mapping[str, Any], Mapping[str, Any]], dict[str, Array]]
    _rates: Callable[[Mapping[str, Any]], Callable[[Array], Array]]
    parts: tuple[ClosedForm, ...] = ()

    @property
    def equation(self) -> sp.Expr:
        """The solution as a SymPy equation; a conjunction of them for a decoupled field."""
        if self.parts:
            return sp.And(*(part.equation for part in self.parts), evaluate=False)
        if self.explicit is not None:
            return sp.Eq(sp.Function(self.state.name)(self.time), self.explicit, evaluate=False)
        return sp.Eq(self.time, self.implicit, evaluate=False)

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {sp.latex(self.equation)}$"

    def __str__(self) -> str:
        if self.parts:
            return "\n".join(str(part) for part in self.parts)
        return f"{self.equation.lhs} = {self.equation.rhs}"

    def evaluate(
        self, t: Any, start: Any, values: Mapping[Any, Any] | None = None
    ) -> dict[str, Array]:
        """The states at times, without overflow or cancellation.

        Parameters
        ----------
        t : float or ndarray, shape (K,)
            Times; the start is at 0.
        start : number or mapping
            Initial state: name -> value, or the value where there is one state.
        values : mapping, optional
            Parameters by name.

        Returns
        -------
        dict
            State name -> array of shape ``(K, ...)`` (without the axis for a single time); nan from
            a finite-time blow-up on.
        """
        named = {getattr(k, "name", str(k)): v for k, v in (values or {}).items()}
        first = start if isinstance(start, Mapping) else {self.names[0]: start}
        first = {getattr(k, "name", str(k)): v for k, v in first.items()}
        for name in first:
            if name not in self.names:
                raise unknown_name("state", name, self.names)
        missing = [n for n in self.names if n not in first]
        if missing:
            raise InputError(f"No initial value for {', '.join(missing)}.")
        times = np.atleast_1d(np.asarray(t, dtype=float))
        result = self._evaluate(times, first, named)
        return {n: a[0] for n, a in result.items()} if np.ndim(t) == 0 else result

    def check(self, t: Any, start: Any, values: Mapping[Any, Any] | None = None) -> float:
        """Largest difference from a numerical integration of the field.

        Relative to the state or to its start, whichever is larger.

        Parameters
        ----------
        t : ndarray, shape (K,)
            Increasing times from 0 on.
        start, values
            As for `evaluate`.
        """
        from scipy.integrate import solve_ivp

        times = np.atleast_1d(np.asarray(t, dtype=float))
        named = {getattr(k, "name", str(k)): v for k, v in (values or {}).items()}
        mine = self.evaluate(times, start, values)
        flat = np.concatenate([mine[n].reshape(times.size, -1) for n in self.names], axis=1)
        first = start if isinstance(start, Mapping) else {self.names[0]: start}
        first = {getattr(k, "name", str(k)): v for k, v in first.items()}
        y0 = np.concatenate([np.ravel(np.asarray(first[n], dtype=float)) for n in self.names])
        rates = self._rates(named)
        scale = float(np.sqrt(np.mean(y0**2))) or 1.0
        run = solve_ivp(
            lambda _, y: rates(y),
            (0.0, float(times[-1])),
            y0,
            t_eval=times,
            method="DOP853",
            rtol=1e-12,
            atol=1e-13 * scale,
        )
        size = np.maximum(np.abs(run.y.T).max(axis=1, keepdims=True), np.abs(y0).max())
        return float((np.abs(run.y.T - flat) / np.maximum(size, 1e-300)).max())


def closed_form(field: Any) -> ClosedForm:
    """Solve a field in closed form.

    Parameters
    ----------
    field : VectorField
        One scalar state with a rate that is rational in it, or ``sqrt(A + B a^2) (c0 + c1 a)``; a
        pair ``p' = alpha q g(p q), q' = beta p g(p q)`` with g linear; or, in tensor form, one
        scalar state or ``u' = u g(u . u)``.

    Returns
    -------
    ClosedForm
        Explicit where the equation is linear, of Bernoulli's or Riccati's kind or an unbalanced
        product; else implicit, time as a function of the state.

    Raises
    ------
    InputError
        If the field is of none of these forms.

    Notes
    -----
    Every form is put back into the equation before it is returned; `ClosedForm.check` compares it
    with an integration. Source of the unbalanced product and of the plateau's implicit form: the
    mode equations of deep linear networks (Saxe et al. 2014) and Zhang et al. 2025.
    """
    if not is_scalar_field(field):
        if len(field.states) == 1 or field.size_symbols:
            return _of_tensor_field(field)
        # Several states of known sizes, such as the two strengths of a mode.
        field = field.components()
    return _of_system(field, read_system(field))


def _of_system(field: Any, system: ScalarSystem) -> ClosedForm:
    blocks = _dependent_states(system)
    if len(blocks) > 1:
        return _of_blocks(field, system, blocks)
    if len(system.states) == 2:
        return _of_pair(field, system)
    if len(system.states) != 1:
        raise InputError(
            f"closed_form needs one state (or a product pair), got {len(system.states)} that "
            "depend on each other; reduce the field first (ok.reduce)."
        )
    (state,), (rate,) = system.states, system.rates
    pattern = find_pattern(rate, state)
    name = next(iter(system.state_groups()))

    def bound(values: Mapping[str, Any]) -> dict[sp.Symbol, sp.Expr]:
        return _bind(field, system, values)

    def evaluate(
        times: Array, start: Mapping[str, Any], values: Mapping[str, Any]
    ) -> dict[str, Array]:
        first = np.asarray(start[name], dtype=float)
        result = pattern.evaluate(times, float(first.reshape(-1)[0]), bound(values))
        return {name: result.reshape(times.shape + first.shape)}

    def rates(values: Mapping[str, Any]) -> Callable[[Array], Array]:
        function = sp.lambdify([state], rate.subs(bound(values)), "numpy")
        return lambda y: np.array([float(function(y[0]))])

    return _made(pattern, state, rate, {}, f"{name} itself", (name,), evaluate, rates)


def _made(
    pattern: Pattern,
    state: sp.Symbol,
    rate: sp.Expr,
    invariants: Mapping[sp.Symbol, Any],
    reading: str,
    names: tuple[str, ...],
    evaluate: Any,
    rates: Any,
) -> ClosedForm:
    return ClosedForm(
        pattern.kind,
        state,
        pattern.time,
        pattern.start,
        rate,
        pattern.explicit,
        pattern.implicit,
        pattern.verification,
        invariants,
        reading,
        names,
        evaluate,
        rates,
    )


def _bind(field: Any, system: ScalarSystem, values: Mapping[str, Any]) -> dict[sp.Symbol, sp.Expr]:
    if isinstance(field, _Entries):
        field, system = field.field, field.system
    groups = {n: g for n, g in system.groups.items() if not set(g[1]) <= set(system.states)}
    bound = bind_values(system.parameters, groups, values)
    missing = [s for s in system.parameters if s not in bound]
    if missing:
        raise InputError(f"No value for parameter {', '.join(map(str, missing))}; pass values=.")
    return bound


def _dependent_states(system: ScalarSystem) -> list[list[int]]:
    """Groups of states whose rates hold each other."""
    groups: list[set[int]] = [{i} for i in range(len(system.states))]
    place = {s: i for i, s in enumerate(system.states)}
    for i, rate in enumerate(system.rates):
        own = {i} | {place[s] for s in rate.free_symbols if s in place}
        joined = [g for g in groups if g & own]
        groups = [g for g in groups if not g & own] + [set().union(*joined)]
    return sorted((sorted(g) for g in groups), key=min)


def _of_blocks(field: Any, system: ScalarSystem, blocks: list[list[int]]) -> ClosedForm:
    """Solve each block on its own."""
    parts = []
    for block in blocks:
        states = tuple(system.states[i] for i in block)
        equations = tuple(system.rates[i] for i in block)
        held = {s for r in equations for s in r.free_symbols}
        sub = replace(
            system,
            states=states,
            rates=equations,
            parameters=tuple(s for s in system.parameters if s in held),
            groups={s.name: ((), (s,)) for s in states},
        )
        parts.append(_of_system(_Entries(field, system), sub))
    groups = system.state_groups()
    names = tuple(groups)

    def evaluate(
        times: Array, start: Mapping[str, Any], values: Mapping[str, Any]
    ) -> dict[str, Array]:
        first = dict(zip(system.states, system.pack(start), strict=True))
        found: dict[str, Array] = {}
        for part in parts:
            inner = {n: first[_symbol(system, n)] for n in part.names}
            found.update(part._evaluate(times, inner, values))
        return {
            name: np.stack([found[s.name] for s in symbols], axis=1).reshape(times.shape + shape)
            for name, (shape, symbols) in groups.items()
        }

    def rates(values: Mapping[str, Any]) -> Callable[[Array], Array]:
        numbers = _bind(field, system, values)
        function = sp.lambdify([system.states], [r.subs(numbers) for r in system.rates])
        order = [s for _, symbols in groups.values() for s in symbols]
        place = [order.index(s) for s in system.states]
        back = [system.states.index(s) for s in order]
        return lambda y: np.array(function(y[place]), dtype=float)[back]

    first_part = parts[0]
    exact = all(part.verification == "exact" for part in parts)
    return ClosedForm(
        "decoupled",
        first_part.state,
        first_part.time,
        first_part.start,
        first_part.rate,
        None,
        None,
        "exact" if exact else "digits",
        {},
        "each block on its own",
        names,
        evaluate,
        rates,
        tuple(parts),
    )


def _symbol(system: ScalarSystem, name: str) -> sp.Symbol:
    return next(s for s in system.states if s.name == name)


@dataclass(frozen=True)
class _Entries:
    """A field seen by one of its blocks: parameters are bound as in the whole."""

    field: Any
    system: ScalarSystem


def _of_pair(field: Any, system: ScalarSystem) -> ClosedForm:
    pair: ProductPair = product_pair(system)

    def evaluate(
        times: Array, start: Mapping[str, Any], values: Mapping[str, Any]
    ) -> dict[str, Array]:
        numbers = _bind(field, system, values)
        p0, q0 = (float(np.asarray(start[n]).reshape(-1)[0]) for n in names)
        p, q = pair.evaluate(times, p0, q0, numbers)
        return dict(zip(names, (p, q), strict=True))

    def rates(values: Mapping[str, Any]) -> Callable[[Array], Array]:
        function = sp.lambdify(
            [system.states], [r.subs(_bind(field, system, values)) for r in system.rates]
        )
        return lambda y: np.array(function(y), dtype=float)

    names = tuple(system.state_groups())
    if any(shape != () for shape, _ in system.state_groups().values()):
        names = tuple(s.name for s in system.states)
    return _made(
        pair.pattern,
        pair.product,
        pair.rate,
        {},
        f"{pair.product} = {system.states[0]}*{system.states[1]}; {pair.conserved} is conserved",
        names,
        evaluate,
        rates,
    )


def _of_tensor_field(field: Any) -> ClosedForm:
    from odekit.analysis.scalar_view import scalar_view

    view = scalar_view(field)
    pattern = find_pattern(view.rate, view.state)
    needed = sorted(view.rate.free_symbols - {view.state}, key=str)

    def bound(values: Mapping[str, Any], start: Any) -> dict[sp.Symbol, sp.Expr]:
        told = dict(values)
        for n, size in zip(field.states[0].shape, np.shape(start), strict=False):
            if isinstance(n, sp.Symbol):
                told.setdefault(str(n), size)
        for p in field.parameters:
            for n, size in zip(p.shape, np.shape(told.get(p.name, ())), strict=False):
                if isinstance(n, sp.Symbol):
                    told.setdefault(str(n), size)
        numbers: dict[sp.Symbol, sp.Expr] = {}
        for s in needed:
            if s in view.invariants:
                numbers[s] = exact_number(float(view.invariants[s].evaluate(told)))
            elif str(s) in told:
                numbers[s] = exact_number(told[str(s)])
            else:
                raise InputError(f"No value for {s}; pass it in values=.")
        return numbers

    def evaluate(
        times: Array, start: Mapping[str, Any], values: Mapping[str, Any]
    ) -> dict[str, Array]:
        first = np.asarray(start[view.name], dtype=float)
        numbers = bound(values, first)
        if not view.radial:
            x = pattern.evaluate(times, float(first.reshape(-1)[0]), numbers)
            return {view.name: x.reshape(times.shape + first.shape)}
        norm = float(np.sum(first**2))
        squared = pattern.evaluate(times, norm, numbers)
        growth = np.sqrt(squared / norm) if norm > 0 else np.ones_like(times)
        return {view.name: growth.reshape(times.shape + (1,) * first.ndim) * first}

    def rates(values: Mapping[str, Any]) -> Callable[[Array], Array]:
        (state,) = field.states
        given = {n: v for n, v in values.items() if n in field.parameter_names}

        def rate(y: Array) -> Array:
            shape = tuple(1 if n == 1 else int(y.size) for n in state.shape) if state.rank else ()
            value = field.evaluate({state.name: y.reshape(shape)}, given)
            return np.ravel(value[state.name])

        return rate

    reading = (
        f"{view.state} = {view.name} . {view.name}; the direction of {view.name} is constant"
        if view.radial
        else f"{view.name} itself"
    )
    return _made(
        pattern, view.state, view.rate, view.invariants, reading, (view.name,), evaluate, rates
    )
