"""The values that come out of a run: solution, status, events, interpolant, ensemble, report."""

from odekit.solution.ensemble import Ensemble
from odekit.solution.event import Event
from odekit.solution.interpolant import Interpolant
from odekit.solution.report import Check, Report
from odekit.solution.sensitivities import EventSensitivity, Sensitivities
from odekit.solution.solution import Solution
from odekit.solution.status import Status

__all__ = [
    "Check",
    "Ensemble",
    "Event",
    "EventSensitivity",
    "Interpolant",
    "Report",
    "Sensitivities",
    "Solution",
    "Status",
]
