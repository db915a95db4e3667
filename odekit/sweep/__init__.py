"""Grids and lists of runs: on threads, processes, any executor or Dask, into a crash-safe store."""

from odekit.sweep.keeping import kept
from odekit.sweep.plan import Run, Sweep, grid, listed
from odekit.sweep.plateaus import Plateaus, read_plateaus
from odekit.sweep.progress import Progress
from odekit.sweep.results import Results, load
from odekit.sweep.running import run

__all__ = [
    "Plateaus",
    "Progress",
    "Results",
    "Run",
    "Sweep",
    "grid",
    "kept",
    "listed",
    "load",
    "read_plateaus",
    "run",
]
