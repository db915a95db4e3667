"""Integration: methods behind one call, tolerances, events, limits, ensembles.

Nothing here imports SciPy or Numba until a method that needs them runs.
"""

from odekit.integrate.directions import Direction
from odekit.integrate.events import Crossing, Plateau
from odekit.integrate.members import ensemble
from odekit.integrate.options import Limits, Save, Tolerance
from odekit.integrate.solving import solve
from odekit.integrate.variation import sensitivities

__all__ = [
    "Crossing",
    "Direction",
    "Limits",
    "Plateau",
    "Save",
    "Tolerance",
    "ensemble",
    "sensitivities",
    "solve",
]
