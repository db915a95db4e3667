"""A field together with its own derivative along directions: the first variation of a flow.

For ``dx/dt = f(x, p)`` and directions ``m`` in the space of initial states and parameters, the
tangents ``dx_m = d x / d theta_m`` obey ``d(dx_m)/dt = (df/dx) dx_m + (df/dp) dp_m``: a field like
any other, so it is compiled and integrated like any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError, unknown_name
from odekit.field.scalar_field import ScalarField
from odekit.field.tensor_field import TensorField
from odekit.field.vector_field import VectorField

__all__ = ["Differential", "TangentField", "free_names", "tangent_field"]

Array = NDArray[np.float64]


class Differential(ABC):
    """The derivative of one quantity along directions, at numbers."""

    @abstractmethod
    def evaluate(
        self,
        states: Mapping[str, Array],
        tangents: Mapping[str, Array],
        params: Mapping[str, Any],
        directions: Mapping[str, Array],
    ) -> Array:
        """Evaluate at a stack of states.

        Parameters
        ----------
        states : mapping
            State name -> ``(K, *shape)``.
        tangents : mapping
            State name -> ``(K, M, *shape)``.
        params : mapping
            Parameter name -> value.
        directions : mapping
            Parameter name -> ``(M, *shape)``; every parameter that the tangent field moves.

        Returns
        -------
        ndarray (K, M, *shape of the quantity)
        """


@dataclass(frozen=True, eq=False)
class TangentField(ABC):
    """A field with tangents beside its states, and what is needed to differentiate along it.

    Attributes
    ----------
    field : VectorField
        States: those of ``origin``, and for each of them its tangents, with a leading axis of
        directions. Parameters: those of ``origin``, and for each that moves its directions.
    origin : VectorField
        The field that is differentiated.
    state_names : dict of str to str
        State -> the name of its tangents in ``field``.
    parameter_names : dict of str to str
        Parameter that moves -> the name of its directions in ``field``.
    sizes : dict of str to int
        The number of directions, where ``field`` has it as a size.
    """

    field: VectorField
    origin: VectorField
    state_names: Mapping[str, str]
    parameter_names: Mapping[str, str]
    sizes: Mapping[str, int]

    @abstractmethod
    def differential(self, quantity: Any) -> Differential:
        """The derivative of an expression in states and parameters of ``origin``."""

    @abstractmethod
    def along_flow(self, quantity: Any) -> Any:
        """The rate of an expression along the flow of ``origin``, an expression again."""


def tangent_field(field: VectorField, parameters: Iterable[str], count: int) -> TangentField:
    """Differentiate a field along directions of its initial state and of parameters.

    Parameters
    ----------
    field : TensorField or ScalarField
    parameters : iterable of str
        Parameters that move in some direction: numbers, arrays, and sizes that only coefficients
        hold, such as N.
    count : int
        Number of directions.

    Returns
    -------
    TangentField

    Raises
    ------
    InputError
        For an unknown parameter, a size of arrays, and the parameter that eigenvectors in the
        field belong to (they would have to move with it).
    """
    moving = tuple(dict.fromkeys(parameters))
    if isinstance(field, TensorField):
        from odekit.field.tensor_tangent import differentiate_tensor_field

        return differentiate_tensor_field(field, moving, count)
    if isinstance(field, ScalarField):
        from odekit.field.scalar_tangent import differentiate_scalar_field

        return differentiate_scalar_field(field, moving, count)
    raise InputError(f"Cannot differentiate a {type(field).__name__}; give a vector field.")


def free_names(wanted: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """A name ``d...`` for each, told apart from those taken by primes."""
    used = set(taken)
    out = {}
    for name in wanted:
        fresh = f"d{name}"
        while fresh in used:
            fresh += "'"
        used.add(fresh)
        out[name] = fresh
    return out


def refuse_unknown_parameters(field: VectorField, moving: Iterable[str]) -> None:
    """Say which parameters there are."""
    for name in moving:
        if name not in field.parameter_names:
            raise unknown_name("parameter", name, field.parameter_names)
