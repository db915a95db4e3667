"""What every vector field answers, whatever it is held as."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError, unknown_name

Array = NDArray[np.float64]


class VectorField(ABC):
    """A vector field ``d(state)/dt = rate(state, parameters)``, with its loss if it has one.

    Two kinds: `TensorField` (index notation, symbolic sizes) and `ScalarField` (SymPy symbols).
    """

    @property
    @abstractmethod
    def state_names(self) -> tuple[str, ...]:
        """Names of the states, the keys of every mapping of states."""

    @property
    @abstractmethod
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters and of the sizes that coefficients need."""

    @abstractmethod
    def evaluate(
        self, state: Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> dict[str, Array]:
        """The rate of each state at numbers, in the shapes of the states."""

    @abstractmethod
    def loss_value(
        self, state: Mapping[str, Any], params: Mapping[str, Any] | None = None
    ) -> float:
        """The loss at numbers."""

    @property
    @abstractmethod
    def equations(self) -> Mapping[str, Any]:
        """The equations by the name of what moves."""

    @abstractmethod
    def infer_sizes(
        self,
        state: Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> dict[str, int]:
        """Every size, read off the arrays of states and parameters."""

    @abstractmethod
    def latex(self) -> str:
        """The equations as LaTeX."""

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.latex()}$"

    @staticmethod
    def read_names(values: Mapping[Any, Any] | None, what: str) -> dict[str, Any]:
        """Numbers by name, from keys that are names, symbols or tensors."""
        if values is not None and not isinstance(values, Mapping):
            raise InputError(
                f"The {what} must be a mapping from name to array, got {type(values).__name__}."
            )
        return {str(getattr(k, "name", k)): value for k, value in (values or {}).items()}

    def check_state_names(self, state: Mapping[str, Any]) -> None:
        """Refuse unknown or missing states, listing the right ones."""
        for name in state:
            if name not in self.state_names:
                raise unknown_name("state", name, self.state_names)
        missing = [name for name in self.state_names if name not in state]
        if missing:
            raise InputError(
                f"No value for state {', '.join(missing)}. "
                f"States of this field: {', '.join(self.state_names)}."
            )

    def check_parameter_names(self, params: Mapping[str, Any], optional: set[str]) -> None:
        """Refuse unknown or missing parameters, listing the right ones."""
        known = (*self.parameter_names, *sorted(optional))
        for name in params:
            if name not in known:
                raise unknown_name("parameter", name, known)
        missing = [n for n in self.parameter_names if n not in params and n not in optional]
        if missing:
            raise InputError(
                f"No value for parameter {', '.join(missing)}. "
                f"Parameters of this field: {', '.join(self.parameter_names)}."
            )
