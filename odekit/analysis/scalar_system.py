"""A scalar field read for exact work: numbers made exact, values put in, points sampled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from odekit.analysis import modular
from odekit.analysis.budget import Budget
from odekit.analysis.expressions import (
    GraphEvaluator,
    exact_number,
    exact_numbers,
    graph_nodes,
    polynomial_atoms,
    radical_degrees,
)
from odekit.errors import InputError, unknown_name
from odekit.tensor.evaluation import read_scalar_symbol

__all__ = ["ModularSample", "ScalarSystem", "bind_values", "is_scalar_field", "read_system"]


def is_scalar_field(field: Any) -> bool:
    """Whether a field is in component form: its states are SymPy symbols."""
    states = getattr(field, "states", None)
    if states is None:
        raise InputError(
            f"Expected a vector field, got {type(field).__name__}; make one with "
            "ok.gradient_flow or ok.vector_field."
        )
    return all(isinstance(state, sp.Symbol) for state in states)


@dataclass(frozen=True)
class ScalarSystem:
    """States, their rates and the loss, with exact coefficients.

    Parameters
    ----------
    states, rates : tuple
        Flat symbols and expressions.
    parameters : tuple of Symbol
        Symbols that are neither states nor bound.
    loss : Expr or None
        The loss.
    gradient : bool
        Whether the field says that it is a gradient flow.
    groups : mapping
        name -> (shape, symbols in C order).
    """

    states: tuple[sp.Symbol, ...]
    rates: tuple[sp.Expr, ...]
    parameters: tuple[sp.Symbol, ...]
    loss: sp.Expr | None
    gradient: bool
    groups: Mapping[str, tuple[tuple[int, ...], tuple[sp.Symbol, ...]]]

    def state_groups(self) -> dict[str, tuple[tuple[int, ...], tuple[sp.Symbol, ...]]]:
        """The states by name, those outside every named array under their own."""
        own = set(self.states)
        named = {
            name: (tuple(shape), tuple(symbols))
            for name, (shape, symbols) in self.groups.items()
            if symbols and all(s in own for s in symbols)
        }
        covered = {s for _, symbols in named.values() for s in symbols}
        for state in self.states:
            if state not in covered:
                named[state.name] = ((), (state,))
        return named

    def pack(self, point: Any) -> list[Any]:
        """Values of the flat states from a mapping by name or symbol, or from a flat array."""
        if hasattr(point, "values_by_name"):
            point = point.values_by_name
        if not isinstance(point, Mapping):
            flat = list(np.ravel(np.asarray(point, dtype=object)))
            if len(flat) != len(self.states):
                raise InputError(f"The point has {len(flat)} values; give {len(self.states)}.")
            return flat
        values: dict[sp.Symbol, Any] = {}
        groups = self.state_groups()
        for key, value in point.items():
            name = key.name if hasattr(key, "name") else str(key)
            if key in self.states:
                values[key] = value
            elif name in groups:
                shape, symbols = groups[name]
                array = np.asarray(value, dtype=object)
                if array.size != len(symbols):
                    raise InputError(f"State {name} has shape {shape}, got {array.shape}.")
                values.update(zip(symbols, array.ravel(), strict=True))
            else:
                raise unknown_name("state", name, groups)
        missing = [s for s in self.states if s not in values]
        if missing:
            raise InputError(
                f"The point leaves out {', '.join(map(str, missing[:5]))}; give every state."
            )
        return [values[s] for s in self.states]

    def slopes(self, rates: Sequence[sp.Expr] | None = None) -> list[sp.Expr]:
        """Derivatives of the rates by each state, row by row; states are real numbers."""
        # SymPy leaves the derivative of abs(x) open unless x is declared real.
        real = {s: sp.Dummy(s.name, real=True) for s in self.states}
        back = {dummy: s for s, dummy in real.items()}
        return [
            sp.diff(r.xreplace(real), real[s]).xreplace(back)
            for r in (self.rates if rates is None else rates)
            for s in self.states
        ]

    def unpack(self, flat: Any) -> dict[str, np.ndarray[Any, Any]]:
        """Named float arrays of flat values."""
        place = {s: i for i, s in enumerate(self.states)}
        return {
            name: np.array([float(flat[place[s]]) for s in symbols]).reshape(shape)
            for name, (shape, symbols) in self.state_groups().items()
        }


def bind_values(
    parameters: Any, groups: Mapping[str, Any], values: Mapping[Any, Any] | None
) -> dict[sp.Symbol, sp.Expr]:
    """Turn ``values=`` (by name or symbol, numbers or arrays) into symbol -> exact number."""
    bound: dict[sp.Symbol, sp.Expr] = {}
    by_name = {p.name: p for p in parameters}
    if values is not None and not isinstance(values, Mapping):
        raise InputError(f"values= must be a mapping from name to number, got {values!r:.60}.")
    for key, value in (values or {}).items():
        name = key.name if hasattr(key, "name") else str(key)
        if name in groups:
            shape, symbols = groups[name]
            array = np.asarray(value, dtype=object)
            if array.shape != tuple(shape):
                raise InputError(f"Parameter {name} has shape {shape}, got {array.shape}.")
            for symbol, entry in zip(symbols, array.ravel(), strict=True):
                number = exact_number(entry)
                if not number.free_symbols:
                    read_scalar_symbol(symbol, entry)
                # A symmetric array names a symbol twice; rounding may tell the two apart.
                if symbol in bound and abs(float(bound[symbol] - number)) > 1e-12 * (
                    1 + abs(float(number))
                ):
                    raise InputError(f"Parameter {name} is declared symmetric; its value is not.")
                bound.setdefault(symbol, number)
        elif name in by_name:
            if np.ndim(value):
                raise InputError(f"Parameter {name} is a scalar, got shape {np.shape(value)}.")
            bound[by_name[name]] = exact_number(value)
            if not bound[by_name[name]].free_symbols:
                read_scalar_symbol(by_name[name], value)
        else:
            raise unknown_name("parameter", name, dict.fromkeys([*groups, *by_name]))
    return bound


def read_system(field: Any, values: Mapping[Any, Any] | None = None) -> ScalarSystem:
    """Read a scalar field exactly, with parameters bound to the values given."""
    states = tuple(field.states)
    raw = field.rates
    rates = tuple(raw[s] for s in states) if isinstance(raw, Mapping) else tuple(raw)
    loss = getattr(field, "loss", None)
    groups = dict(getattr(field, "groups", {}) or {})
    parameters = tuple(getattr(field, "parameters", ()))
    own = set(states)
    parameter_groups = {n: g for n, g in groups.items() if not set(g[1]) <= own}
    bound = bind_values(parameters, parameter_groups, values)
    given = [sp.sympify(rate) for rate in rates] + ([] if loss is None else [sp.sympify(loss)])
    exact = exact_numbers(given)
    if bound:
        exact = tuple(e.xreplace(bound) for e in exact)
    rates = exact[: len(states)]
    loss = None if loss is None else exact[-1]
    free = {node for node in graph_nodes(exact) if node.is_Symbol}
    remaining = tuple(sorted(free - own, key=lambda s: s.name))
    return ScalarSystem(
        states, rates, remaining, loss, bool(getattr(field, "gradient", False)), groups
    )


class ModularSample:
    """States, parameters and rates at random points modulo a prime.

    Parameters
    ----------
    system : ScalarSystem
        The system.
    count : int
        Number of points.
    seed : int
        Seed of the draw.
    fixed_parameters : bool
        Whether all points share one draw of the parameters.
    also : tuple of Expr
        Further expressions whose symbols are drawn.
    free : tuple of Symbol
        Parameters drawn anew for each point although the others are shared.
    """

    def __init__(
        self,
        system: ScalarSystem,
        count: int,
        seed: int,
        fixed_parameters: bool = False,
        also: tuple[sp.Expr, ...] = (),
        free: tuple[sp.Symbol, ...] = (),
    ) -> None:
        rng = np.random.default_rng(seed)
        symbols, opaque = polynomial_atoms((*system.rates, *also))
        own = set(system.states)
        self.opaque_states = any(atom.free_symbols & own for atom in opaque)
        degrees = radical_degrees((*system.rates, *also))
        self.opaque = opaque
        if any(state in degrees for state in system.states):
            raise InputError("A state stands under a root; write the equations for that root.")

        def draw(shared: bool) -> np.ndarray[Any, Any]:
            if shared:
                return np.full(count, rng.integers(1, modular.PRIME), dtype=np.int64)
            return rng.integers(1, modular.PRIME, size=count)

        leaves: dict[sp.Expr, Any] = {s: draw(False) for s in system.states}
        roots: dict[sp.Symbol, tuple[int, Any]] = {}
        for symbol in sorted(symbols - own, key=str):
            if symbol in degrees:
                root = draw(fixed_parameters and symbol not in free)
                value = np.ones(count, dtype=np.int64)
                for _ in range(degrees[symbol]):
                    value = value * root % modular.PRIME
                roots[symbol] = (degrees[symbol], root)
                leaves[symbol] = value
            else:
                leaves[symbol] = draw(fixed_parameters and symbol not in free)
        for atom in sorted(opaque, key=str):
            leaves[atom] = draw(fixed_parameters and not atom.free_symbols & own)
        evaluator = GraphEvaluator(
            leaves,
            modular.constant,
            modular.inverse,
            lambda value: value % modular.PRIME,
            roots,
        )
        self.leaves, self.roots = leaves, roots
        self.states = np.stack([leaves[s] for s in system.states])
        self.rates = np.stack(
            [
                np.broadcast_to(np.asarray(evaluator(rate), dtype=np.int64), (count,))
                for rate in system.rates
            ]
        )


def ring_evaluator(
    expressions: Any,
    budget: Budget | None = None,
    first: tuple[sp.Symbol, ...] = (),
    letters: set[sp.Expr] | frozenset[sp.Expr] = frozenset(),
) -> tuple[Any, GraphEvaluator]:
    """A polynomial ring over all atoms of some expressions, and the map into it.

    Negative powers of parameters become generators of their own (their relation to the parameter
    is dropped, which can hide a cancellation but never invent one). The sub-expressions in
    ``letters`` become generators as well, with the same effect.
    """
    symbols, opaque = polynomial_atoms(expressions, letters)
    degrees = radical_degrees(expressions)
    inverted: set[sp.Expr] = set()
    for node in graph_nodes(expressions, letters):
        if node.is_Pow and node.exp.is_Rational and node.exp < 0 and node not in letters:
            inverted.add(node.base)
    # Opaque atoms are not sorted: printing large ones would cost more than the proof.
    ordered = [*first, *sorted(symbols - set(first), key=str), *(opaque - set(first))]
    names = [f"g{i}" for i in range(len(ordered))]
    extra = list(inverted)
    names += [f"r{i}" for i in range(len(extra))]
    ring, *generators = sp.ring(names, sp.QQ) if names else (sp.ring("g", sp.QQ)[0],)
    leaves: dict[sp.Expr, Any] = {}
    roots: dict[sp.Symbol, tuple[int, Any]] = {}
    for atom, generator in zip(ordered, generators, strict=False):
        if atom in degrees:
            roots[atom] = (degrees[atom], generator)
            leaves[atom] = generator ** degrees[atom]
        else:
            leaves[atom] = generator
    by_image: dict[Any, Any] = {}
    evaluator = GraphEvaluator(
        leaves,
        lambda number: ring(sp.QQ(int(number.p), int(number.q))),
        lambda value: by_image[value],
        None,
        roots,
        budget,
    )
    for base, generator in zip(extra, generators[len(ordered) :], strict=True):
        by_image[evaluator(base)] = generator
        if base in roots:
            by_image[roots[base][1]] = generator
    return ring, evaluator
