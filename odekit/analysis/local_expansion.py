"""Taylor coefficients of a field at a fixed point, along rays and along curves.

A polynomial field is sampled at as many nodes as determine it along the curve, which gives its
Taylor coefficients exactly up to rounding; the linear part comes from symbolic derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.analysis.expressions import polynomial_atoms
from odekit.analysis.scalar_system import ScalarSystem
from odekit.analysis.tensor_system import flatten, read_sizes, split_values, unflatten
from odekit.errors import InputError
from odekit.tensor.evaluation import Bindings, read_array

__all__ = ["LocalField", "local_scalar", "local_tensor"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LocalField:
    """A field near a point.

    Parameters
    ----------
    point : ndarray, shape (n,)
        The point, flat.
    rates : callable
        Rates (m, n) at states (m, n).
    jacobian : callable
        Exact Jacobian (n, n) at a state (n,).
    degree : int or None
        Degree of the rates in the states; None if they are not polynomial.
    symmetric : bool
        Whether the Jacobian is known to be symmetric.
    unpack : callable
        Named arrays of a flat state.
    """

    point: Array
    rates: Callable[[Array], Array]
    jacobian: Callable[[Array], Array]
    degree: int | None
    symmetric: bool
    unpack: Callable[[Array], dict[str, Array]]

    def along(self, curve: Array, order: int) -> Array:
        """Taylor coefficients in s of the rates along ``point + sum_k s^k curve[k - 1]``.

        Parameters
        ----------
        curve : ndarray, shape (directions, k, n)
            Coefficients of the curves.
        order : int
            Highest coefficient that is wanted.

        Returns
        -------
        ndarray, shape (directions, order + 1, n)
        """
        directions, steps, count = curve.shape
        reach = 1.0 if self.degree is not None else 0.08 * (1 + float(np.abs(self.point).max()))
        terms = 15 if self.degree is None else self.degree * steps + 1
        if self.degree is not None and steps > 1:
            reach = 0.5
        nodes = reach * np.cos((2 * np.arange(terms) + 1) * np.pi / (2 * terms))
        powers = nodes[:, None] ** np.arange(1, steps + 1)
        states = self.point + np.einsum("tk,dkn->dtn", powers, curve)
        values = self.rates(states.reshape(-1, count)).reshape(directions, terms, count)
        # Chebyshev coefficients first: the monomial basis alone is ill conditioned.
        cheb = np.cos(np.outer(np.arange(terms), np.arccos(nodes / reach)))
        weights = (2.0 / terms) * cheb
        weights[0] /= 2.0
        coefficients = np.einsum("kt,dtn->kdn", weights, values)
        monomial = np.zeros((order + 1, directions, count))
        for k in range(terms):
            basis = np.polynomial.chebyshev.cheb2poly(np.eye(terms)[k])
            for power, c in enumerate(basis[: order + 1]):
                if c:
                    monomial[power] += c * coefficients[k]
        scale = reach ** np.arange(order + 1)
        return np.moveaxis(monomial / scale[:, None, None], 0, 1)


def local_scalar(system: ScalarSystem, point: Any) -> LocalField:
    """The local form of a component field whose parameters all have numbers."""
    if system.parameters and any(
        rate.free_symbols & set(system.parameters) for rate in system.rates
    ):
        names = ", ".join(map(str, system.parameters))
        raise InputError(f"No value for parameter {names}; pass it in values=.")
    flat = read_array(system.pack(point), "The point")
    count = flat.size
    rates = sp.lambdify([system.states], list(system.rates), "numpy", cse=True)
    slopes = sp.lambdify(
        [system.states],
        system.slopes(),
        "numpy",
        cse=True,
    )

    def many(states: Array) -> Array:
        values = rates(states.T)
        return np.stack([np.broadcast_to(v, states.shape[:1]) for v in values], axis=1).astype(
            float
        )

    symbols, opaque = polynomial_atoms(system.rates)
    own = set(system.states)
    degree: int | None = None
    if not any(atom.free_symbols & own for atom in opaque):
        try:
            degree = max(
                (int(sp.Poly(r, *system.states).total_degree()) for r in system.rates), default=0
            )
            degree = max(degree, 1)
        except sp.PolynomialError:
            degree = None
    return LocalField(
        flat,
        many,
        lambda y: np.array(slopes(y), dtype=float).reshape(count, count),
        degree,
        system.gradient,
        system.unpack,
    )


def local_tensor(
    field: Any, point: Mapping[str, Any], values: Mapping[Any, Any], sizes: Mapping[Any, int]
) -> LocalField:
    """The local form of a tensor field at numbers."""
    named = split_values(field, values)
    state = {name: np.asarray(value, dtype=float) for name, value in point.items()}
    field.check_state_names(state)
    known = read_sizes(field, named, sizes, state)
    told = {str(s) for s in field.size_symbols}
    parameters = {n: v for n, v in named.items() if n not in told}
    field.bind(state, parameters)
    expanded = {s: field.rates[s].expand() for s in field.states}
    flat = flatten(field, state)
    shapes = [(s.name, np.shape(state[s.name])) for s in field.states]

    def many(states: Array) -> Array:
        batch: dict[str, Any] = {}
        start = 0
        for name, shape in shapes:
            size = int(np.prod(shape, dtype=int))
            batch[name] = states[:, start : start + size].reshape(-1, *shape)
            start += size
        bindings = Bindings(
            (*field.states, *field.parameters),
            field.symbols,
            {**parameters, **batch},
            batched=batch,
        )
        parts = []
        for s, (_, shape) in zip(field.states, shapes, strict=True):
            value = np.broadcast_to(bindings.evaluate(field.rates[s]), (states.shape[0], *shape))
            parts.append(value.reshape(states.shape[0], -1))
        return np.concatenate(parts, axis=1)

    slopes = {(s, t): expanded[s].diff(t) for s in field.states for t in field.states}

    def jacobian(y: Array) -> Array:
        here = unflatten(field, y, known)
        bindings = Bindings(
            (*field.states, *field.parameters), field.symbols, {**parameters, **here}
        )
        blocks = [
            [
                bindings.evaluate(slopes[s, t]).reshape(here[s.name].size, here[t.name].size)
                for t in field.states
            ]
            for s in field.states
        ]
        return np.block(blocks)

    moving = set(field.states)
    degree = max(
        (
            sum(1 for t, _ in factors if t in moving)
            for e in expanded.values()
            for factors, _ in e.terms
        ),
        default=1,
    )
    return LocalField(
        flat, many, jacobian, max(1, degree), field.uniform, lambda y: unflatten(field, y, known)
    )
