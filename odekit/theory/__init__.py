"""Closed results that are not differential equations.

Plateau levels of linear attention, sharp asymptotics of in-context learning, and the measures
(effective rank, subspace distance) that are taken along training.
"""

from odekit.theory.finite_dimension import finite_equivalent, population_moments
from odekit.theory.learning_curves import (
    LearningCurve,
    bayes_error,
    learning_curve,
    optimal_ridge,
    training_error,
)
from odekit.theory.linear_flow import linear_flow, population_flow
from odekit.theory.measures import (
    MeasureWarning,
    effective_rank,
    random_subspace_distance,
    subspace_distance,
)
from odekit.theory.plateaus import plateau_losses

__all__ = [
    "LearningCurve",
    "MeasureWarning",
    "bayes_error",
    "effective_rank",
    "finite_equivalent",
    "learning_curve",
    "linear_flow",
    "optimal_ridge",
    "plateau_losses",
    "population_flow",
    "population_moments",
    "random_subspace_distance",
    "subspace_distance",
    "training_error",
]
