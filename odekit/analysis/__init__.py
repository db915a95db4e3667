"""Exact questions on a field: what is conserved, where it rests, how it leaves, what it obeys."""

from odekit.analysis.closed_form import ClosedForm, closed_form
from odekit.analysis.conserved import conserved
from odekit.analysis.fixed_point_set import FixedManifold, FixedPoint, FixedPointSet
from odekit.analysis.fixed_points import fixed_points
from odekit.analysis.invariants import Invariant, Invariants, Symmetry
from odekit.analysis.reduction import LeaveRate, Reduction, TrajectoryCheck, reduce
from odekit.analysis.stability import Stability, ZeroMode, stability

__all__ = [
    "ClosedForm",
    "FixedManifold",
    "FixedPoint",
    "FixedPointSet",
    "Invariant",
    "Invariants",
    "LeaveRate",
    "Reduction",
    "Stability",
    "Symmetry",
    "TrajectoryCheck",
    "ZeroMode",
    "closed_form",
    "conserved",
    "fixed_points",
    "reduce",
    "stability",
]
