"""Closed results that are not differential equations.

Plateau levels of linear attention, sharp asymptotics of in-context learning, and the measures
(effective rank, subspace distance) that are taken along training.
"""

from odekit.theory.measures import (
    MeasureWarning,
    effective_rank,
    random_subspace_distance,
    subspace_distance,
)
from odekit.theory.plateaus import plateau_losses

__all__ = [
    "MeasureWarning",
    "effective_rank",
    "plateau_losses",
    "random_subspace_distance",
    "subspace_distance",
]
