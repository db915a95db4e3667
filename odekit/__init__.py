"""odekit: exact gradient-flow ODEs of learning models.

Random variables and a predictor become an expected loss, its gradient flow, answers to exact
questions about it, compiled code, trajectories, and verdicts on what was published::

    import odekit as ok

Public names are loaded when first used (PEP 562), so that importing the package costs little and
brings in no compiler, no integrator and no plotting library.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from odekit.errors import InputError, OdekitError, SolveError

if TYPE_CHECKING:
    from odekit import claims, models, plot, simulate, sweep, testing, theory
    from odekit.analysis import closed_form, conserved, fixed_points, reduce, stability
    from odekit.codegen import compile
    from odekit.field import expected_loss, gradient_flow, vector_field
    from odekit.gaussian import expectation, gaussian, sample
    from odekit.integrate import (
        Crossing,
        Direction,
        Limits,
        Plateau,
        Save,
        Tolerance,
        ensemble,
        sensitivities,
        solve,
    )
    from odekit.solution import Ensemble, Event, Report, Solution, Status
    from odekit.tensor import define, dims, eigenvector, einsum, identity, parameter, weight

__version__ = "0.1.0"

_ROOMS: dict[str, tuple[str, ...]] = {
    "tensor": ("define", "dims", "eigenvector", "einsum", "identity", "parameter", "weight"),
    "gaussian": ("expectation", "gaussian", "sample"),
    "field": ("expected_loss", "gradient_flow", "vector_field"),
    "codegen": ("compile",),
    "solution": ("Ensemble", "Event", "Report", "Solution", "Status"),
    "integrate": (
        "Crossing",
        "Direction",
        "Limits",
        "Plateau",
        "Save",
        "Tolerance",
        "ensemble",
        "sensitivities",
        "solve",
    ),
    "analysis": ("closed_form", "conserved", "fixed_points", "reduce", "stability"),
}
_SUBPACKAGES = ("claims", "models", "plot", "simulate", "sweep", "testing", "theory")
_HOME = {name: f"odekit.{room}" for room, names in _ROOMS.items() for name in names}

__all__ = [
    "Crossing",
    "Direction",
    "Ensemble",
    "Event",
    "InputError",
    "Limits",
    "OdekitError",
    "Plateau",
    "Report",
    "Save",
    "Solution",
    "SolveError",
    "Status",
    "Tolerance",
    "claims",
    "closed_form",
    "compile",
    "conserved",
    "define",
    "dims",
    "eigenvector",
    "einsum",
    "ensemble",
    "expectation",
    "expected_loss",
    "fixed_points",
    "gaussian",
    "gradient_flow",
    "identity",
    "models",
    "parameter",
    "plot",
    "reduce",
    "sample",
    "sensitivities",
    "simulate",
    "solve",
    "stability",
    "sweep",
    "testing",
    "theory",
    "vector_field",
    "weight",
]


class _Package(ModuleType):
    """A package whose public functions keep their names.

    Importing a room binds its name here, and one room, `odekit.gaussian`, is named like a public
    function: the function is what `ok.gaussian` means, whichever is loaded first.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"odekit.{name}")
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'odekit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
