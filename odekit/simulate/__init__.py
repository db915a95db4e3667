"""Discrete training without PyTorch, to lay over the gradient flows."""

from odekit.simulate.descent import coefficients, gradient_descent, loss_curve
from odekit.simulate.edge import EdgeOfStabilityWarning, sharpness
from odekit.simulate.layer import Layer
from odekit.simulate.population import Population, population_statistics
from odekit.simulate.statistics import (
    Statistics,
    close_under_sign,
    prefix_statistics,
    statistics,
)

__all__ = [
    "EdgeOfStabilityWarning",
    "Layer",
    "Population",
    "Statistics",
    "close_under_sign",
    "coefficients",
    "gradient_descent",
    "loss_curve",
    "population_statistics",
    "prefix_statistics",
    "sharpness",
    "statistics",
]
