"""Vector fields of scalar SymPy states: a user's own equations, and component forms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp
from sympy.concrete.expr_with_limits import ExprWithLimits

from odekit.errors import InputError
from odekit.field.vector_field import Array, VectorField
from odekit.tensor.evaluation import check_symmetry, read_array

Group = tuple[tuple[int, ...], tuple[sp.Expr, ...]]
"""A named array: its shape and the symbols of its entries in C order."""


@dataclass(frozen=True, eq=False)
class ScalarField(VectorField):
    """A vector field of SymPy expressions.

    Attributes
    ----------
    states : tuple of sympy.Symbol
        What moves, flat.
    rates : tuple of sympy.Expr
        ``d(state)/dt``, one for each state.
    parameters : tuple of sympy.Symbol
        Symbols bound to numbers at run time.
    loss : sympy.Expr or None
        A function of states and parameters.
    state_groups, parameter_groups : dict
        Name to ``(shape, symbols in C order)``: the names users give numbers under.
    gradient : bool
        Whether the field is minus the gradient of its loss up to one positive factor.
    """

    states: tuple[sp.Symbol, ...]
    rates: tuple[sp.Expr, ...]
    parameters: tuple[sp.Symbol, ...] = ()
    loss: sp.Expr | None = None
    state_groups: Mapping[str, Group] = field(default_factory=dict)
    parameter_groups: Mapping[str, Group] = field(default_factory=dict)
    gradient: bool = False

    @property
    def groups(self) -> dict[str, Group]:
        """All named arrays."""
        return {**self.state_groups, **self.parameter_groups}

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the states."""
        return tuple(self.state_groups)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(self.parameter_groups)

    @property
    def uniform(self) -> bool:
        """Whether its Jacobian is known to be symmetric."""
        return self.gradient

    @cached_property
    def _function(self) -> Any:
        return sp.lambdify((self.states, self.parameters), list(self.rates), "numpy", cse=True)

    @cached_property
    def _loss_function(self) -> Any:
        return sp.lambdify((self.states, self.parameters), self.loss, "numpy")

    def infer_sizes(
        self,
        state: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> dict[str, int]:
        """No size is open in component form."""
        return {}

    def flatten(self, values: Mapping[str, Any], groups: Mapping[str, Group]) -> Array:
        """Read named arrays into the flat order of states or parameters."""
        wanted = self.states if groups is self.state_groups else self.parameters
        found: dict[sp.Expr, float] = {}
        for name, (shape, symbols) in groups.items():
            array = read_array(values[name], name)
            if array.shape != shape:
                raise InputError(f"{name} has shape {array.shape}; expected {shape}")
            if len(shape) == 2 and len(set(symbols)) < len(symbols):
                check_symmetry(array, [(0, 1)], name)
            found.update(zip(symbols, array.reshape(-1).tolist(), strict=True))
        return np.array([found[s] for s in wanted], dtype=np.float64)

    def _flat(
        self, state: Mapping[str, Any], params: Mapping[str, Any] | None
    ) -> tuple[Array, Array]:
        state = self.read_names(state, "states")
        values = self.read_names(params, "parameters")
        self.check_state_names(state)
        self.check_parameter_names(values, set())
        return (
            self.flatten(state, self.state_groups),
            self.flatten(values, self.parameter_groups),
        )

    def evaluate(
        self, state: Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> dict[str, Array]:
        """The rate of each state at numbers, in the shapes of the states."""
        y, p = self._flat(state, params)
        rates = dict(zip(self.states, self._function(y, p), strict=True))
        return {
            name: np.array([rates[s] for s in symbols], dtype=np.float64).reshape(shape)
            for name, (shape, symbols) in self.state_groups.items()
        }

    def loss_value(
        self, state: Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> float:
        """The loss at numbers."""
        if self.loss is None:
            raise InputError("this field has no loss; pass loss= to ok.vector_field")
        return float(self._loss_function(*self._flat(state, params)))

    @property
    def equations(self) -> dict[str, Any]:
        """A SymPy equation for each state."""
        t = sp.Symbol("t")
        return {
            str(s): sp.Eq(sp.Derivative(sp.Function(str(s))(t), t), rate, evaluate=False)
            for s, rate in zip(self.states, self.rates, strict=True)
        }

    def latex(self) -> str:
        """The equations as LaTeX."""
        rows = [
            rf"\frac{{d}}{{dt}} {sp.latex(s)} &= {sp.latex(rate)}"
            for s, rate in zip(self.states, self.rates, strict=True)
        ]
        return r"\begin{aligned}" + r" \\ ".join(rows) + r"\end{aligned}"

    def components(self, **sizes: int) -> ScalarField:
        """Itself: it is in component form already."""
        return self

    def __repr__(self) -> str:
        lines = [f"d{s}/dt = {r}" for s, r in zip(self.states, self.rates, strict=True)]
        shown = lines if len(lines) <= 12 else [*lines[:12], f"... {len(lines) - 12} more"]
        return "ScalarField:\n  " + "\n  ".join(shown)


def vector_field(
    rates: Mapping[sp.Symbol, Any],
    parameters: Iterable[sp.Symbol] | sp.Symbol = (),
    loss: Any = None,
) -> ScalarField:
    """A field of scalar SymPy states from a user's own equations.

    Parameters
    ----------
    rates : Mapping[sympy.Symbol, sympy.Expr]
        ``d(state)/dt`` for each state.
    parameters : iterable of sympy.Symbol, optional
        Every other symbol that occurs; they are bound to numbers at run time.
    loss : sympy.Expr, optional
        Carried along; if the rates are minus its gradient (up to one positive factor), the field
        is known to be a gradient flow.

    Returns
    -------
    ScalarField
        With states and parameters under their symbols' names.

    Raises
    ------
    InputError
        For a symbol that is neither state nor parameter, naming it.
    """
    if not isinstance(rates, Mapping) or not rates:
        raise InputError("vector_field takes a mapping {state symbol: expression}")
    for state in rates:
        if not isinstance(state, sp.Symbol):
            raise InputError(f"state {state!r} is not a SymPy symbol")
    declared = (parameters,) if isinstance(parameters, sp.Symbol) else tuple(parameters)
    for symbol in declared:
        if not isinstance(symbol, sp.Symbol):
            raise InputError(f"parameter {symbol!r} is not a SymPy symbol")
        if symbol in rates:
            raise InputError(f"{symbol} is both a state and a parameter")
    states = tuple(rates)
    named = (*states, *declared)
    if len({str(s) for s in named}) < len(named):
        raise InputError("two symbols share a name; give each state and parameter its own")
    expressions = tuple(_read_expression(e, f"rate of {s}") for s, e in rates.items())
    potential = None if loss is None else _read_expression(loss, "loss")
    for what, expression in [
        *((f"rate of {s}", e) for s, e in zip(states, expressions, strict=True)),
        *([] if potential is None else [("loss", potential)]),
    ]:
        stray = sorted(expression.free_symbols - set(named), key=str)
        if stray:
            raise InputError(f"{what} holds {stray[0]}, neither a state nor in parameters=")
    return ScalarField(
        states,
        expressions,
        declared,
        potential,
        {str(s): ((), (s,)) for s in states},
        {str(s): ((), (s,)) for s in declared},
        _is_gradient(states, expressions, potential),
    )


def _read_expression(value: Any, what: str) -> sp.Expr:
    try:
        expression = sp.sympify(value, strict=True)
    except (sp.SympifyError, TypeError):
        raise InputError(f"{what} is {value!r}; give a SymPy expression") from None
    if not isinstance(expression, sp.Expr) or expression.has(sp.nan, sp.zoo, sp.oo, sp.I):
        raise InputError(f"{what} is {expression}; give a finite real SymPy expression")
    if isinstance(expression, sp.MatrixBase | sp.MatrixExpr):
        raise InputError(f"{what} is a matrix; give a scalar SymPy expression")
    unevaluated = sorted(expression.atoms(ExprWithLimits), key=str)
    if unevaluated:
        raise InputError(f"{what} holds {unevaluated[0]}; evaluate it, as in .doit()")
    return expression


def _is_gradient(
    states: tuple[sp.Symbol, ...], rates: tuple[sp.Expr, ...], loss: sp.Expr | None
) -> bool:
    if loss is None:
        return False
    factor = None
    for state, rate in zip(states, rates, strict=True):
        slope = sp.diff(loss, state)
        if slope == 0:
            if rate != 0:
                return False
            continue
        ratio = sp.cancel(-rate / slope)
        if ratio == 0 or ratio.free_symbols & set(states) or factor not in (None, ratio):
            return False
        factor = ratio
    return factor is not None and factor.is_negative is not True
