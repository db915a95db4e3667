"""Vector fields in index notation, with symbolic sizes and named intermediates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sympy as sp

from odekit.errors import InputError
from odekit.field.display import Equations, lines_latex
from odekit.field.vector_field import Array, VectorField
from odekit.tensor import Tensor, TensorExpr
from odekit.tensor.evaluation import Bindings, check_semidefinite, match_sizes, read_array

if TYPE_CHECKING:
    from odekit.field.scalar_field import ScalarField


@dataclass(frozen=True, eq=False)
class TensorField(VectorField):
    """A tensor-valued vector field.

    Attributes
    ----------
    states : tuple of Tensor
        What moves.
    definitions : tuple of (Tensor, TensorExpr)
        Named intermediates in order of evaluation: contractions of weights, then cotangents.
    rates : dict of Tensor to TensorExpr
        ``d(state)/dt``, in states, parameters and definitions.
    loss : TensorExpr or None
        Rank zero, in the same definitions.
    time_scale : dict of Tensor to sympy.Expr
        ``time_scale * d(state)/dt = - d(loss)/d(state)`` where the field is a gradient flow; else
        empty.
    constants : dict of str to int
        Sizes that were fixed when the field was made, by the name they bear in the paper: a number
        given for one is accepted if it is the same.
    """

    states: tuple[Tensor, ...]
    definitions: tuple[tuple[Tensor, TensorExpr], ...]
    rates: Mapping[Tensor, TensorExpr]
    loss: TensorExpr | None = None
    time_scale: Mapping[Tensor, sp.Expr] = field(default_factory=dict)
    constants: Mapping[str, int] = field(default_factory=dict)

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the states."""
        return tuple(t.name for t in self.states)

    @cached_property
    def expressions(self) -> tuple[TensorExpr, ...]:
        """All right-hand sides: definitions, rates, loss."""
        bodies = [body for _, body in self.definitions] + [self.rates[s] for s in self.states]
        return tuple(bodies if self.loss is None else [*bodies, self.loss])

    @cached_property
    def parameters(self) -> tuple[Tensor, ...]:
        """Tensors that are bound to numbers at run time: parameters and frozen weights."""
        found = {t for e in self.expressions for t in e.tensors()}
        found -= {t for t, _ in self.definitions} | set(self.states)
        extra = {t.of for t in found if hasattr(t, "of")} - found
        return tuple(
            sorted((t for t in found | extra if t.kind != "identity"), key=lambda t: t.order)
        )

    @cached_property
    def symbols(self) -> tuple[sp.Symbol, ...]:
        """Sizes and scalars that coefficients need at run time."""
        return tuple(sorted({s for e in self.expressions for s in e.symbols()}, key=str))

    @cached_property
    def size_symbols(self) -> tuple[sp.Symbol, ...]:
        """Sizes that are read off the arrays of states and parameters."""
        tensors = (*self.states, *self.parameters)
        return tuple(sorted({s for t in tensors for n in t.shape for s in n.free_symbols}, key=str))

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of parameters, then of sizes and scalars that no array tells."""
        told = set(self.size_symbols)
        return tuple(t.name for t in self.parameters) + tuple(
            str(s) for s in self.symbols if s not in told
        )

    @property
    def uniform(self) -> bool:
        """Whether it is a gradient flow with one rate: its Jacobian is then symmetric."""
        return len(set(self.time_scale.values())) == 1

    @property
    def covariances(self) -> tuple[Tensor, ...]:
        """Parameters that must be positive semidefinite."""
        return tuple(t for t in self.parameters if t.semidefinite)

    def check_parameter_names(self, params: Mapping[str, Any], optional: set[str]) -> None:
        """Refuse unknown or missing parameters, and other values for fixed sizes."""
        for name, fixed in self.constants.items():
            if name in params and params[name] != fixed:
                raise InputError(f"{name} is fixed at {fixed} in this field, not {params[name]}")
        super().check_parameter_names(
            {k: v for k, v in params.items() if k not in self.constants}, optional
        )

    # -- showing --------------------------------------------------------------------------------

    @property
    def equations(self) -> Equations:
        """The rate of each state by name; ``.definitions`` holds the intermediates."""
        return Equations(
            {s.name: (s, self.rates[s]) for s in self.states},
            {t.name: (t, body) for t, body in self.definitions},
        )

    def latex(self) -> str:
        """The equations as LaTeX: intermediates first, then the rates."""
        return self.equations.latex()

    def loss_latex(self) -> str:
        """The loss as LaTeX."""
        if self.loss is None:
            raise InputError("this field has no loss")
        return lines_latex([("L", self.loss)], self.loss)

    def __repr__(self) -> str:
        lines = [f"{t.name} = {body}" for t, body in self.definitions]
        lines += [f"d{s.name}/dt = {self.rates[s]}" for s in self.states]
        return "TensorField:\n  " + "\n  ".join(lines)

    # -- numbers --------------------------------------------------------------------------------

    def infer_sizes(
        self,
        state: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> dict[str, int]:
        """Read every size off the arrays of states and parameters.

        Raises
        ------
        InputError
            Where shapes contradict each other or a size stays unknown.
        """
        known: dict[sp.Symbol, int] = {}
        names = {str(s): s for s in self.size_symbols}
        for name, number in (sizes or {}).items():
            if name in names:
                known[names[name]] = int(number)
        for tensors, values in ((self.states, state), (self.parameters, params)):
            for tensor in tensors:
                if values is not None and tensor.name in values:
                    shape = read_array(values[tensor.name], tensor.name).shape
                    match_sizes(tensor.shape, shape, tensor.name, known)
        for name, symbol in names.items():
            if symbol not in known and params is not None and name in params:
                known[symbol] = int(params[name])
            if symbol not in known:
                raise InputError(f"size {name} is unknown; pass sizes={{'{name}': ...}}")
        return {name: known[symbol] for name, symbol in names.items()}

    def bind(self, state: Mapping[str, Any], params: Mapping[str, Any] | None = None) -> Bindings:
        """Check names, shapes, symmetry and positivity, and bind numbers."""
        values = self.read_names(params, "parameters")
        state = self.read_names(state, "states")
        self.check_state_names(state)
        self.check_parameter_names(values, {str(s) for s in self.size_symbols})
        values = {k: v for k, v in values.items() if k not in self.constants}
        bindings = Bindings((*self.states, *self.parameters), self.symbols, {**values, **state})
        for tensor in self.covariances:
            check_semidefinite(bindings.arrays[tensor], tensor.name)
        return bindings

    def evaluate(
        self, state: Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> dict[str, Array]:
        """The rate of each state at numbers.

        Parameters
        ----------
        state : Mapping[str, array_like]
            Every state by name; sizes are read off the arrays.
        params : Mapping[str, array_like], optional
            Every parameter, and sizes that are in no state's shape, by name.

        Returns
        -------
        dict
            State name to its rate, of the state's shape.
        """
        bindings = self.bind(state, params)
        return {s.name: bindings.evaluate(self.rates[s]) for s in self.states}

    def loss_value(
        self, state: Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> float:
        """The loss at numbers."""
        if self.loss is None:
            raise InputError("this field has no loss")
        return float(self.bind(state, params).evaluate(self.loss))

    def components(self, values: Mapping[str, Any] | None = None, **sizes: int) -> ScalarField:
        """The same field with every entry a SymPy symbol, at concrete sizes.

        Parameters
        ----------
        values : Mapping[str, array_like], optional
            Parameters to put in as exact numbers instead of symbols.
        **sizes : int
            Sizes by name, as in ``components(D=2, H=1)``; sizes that only stand in coefficients
            (such as N) may stay symbols.

        Notes
        -----
        For a gradient flow the rates are SymPy derivatives of the component form of the loss: an
        independent derivation of the tensor form.
        """
        from odekit.field.components import component_field

        return component_field(self, values or {}, sizes)
