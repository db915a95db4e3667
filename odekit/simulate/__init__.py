"""Discrete training without PyTorch, to lay over the gradient flows."""

from odekit.simulate.agreement import Agreement, compare
from odekit.simulate.derived import sample_gradient
from odekit.simulate.descent import coefficients, gradient_descent, loss_curve
from odekit.simulate.edge import EdgeOfStabilityWarning, sharpness
from odekit.simulate.layer import Layer
from odekit.simulate.moments import (
    Statistics,
    close_under_sign,
    prefix_statistics,
    statistics,
)
from odekit.simulate.optimiser import Optimiser
from odekit.simulate.population import Population, population_statistics
from odekit.simulate.ridge_experiment import (
    PosteriorMean,
    PretrainingSet,
    RidgeExperiment,
    draw_tasks,
    feature_statistics,
    population_error,
    posterior_mean_errors,
    ridge_experiment,
    ridge_solution,
    sample_pretraining,
)
from odekit.simulate.starts import initial
from odekit.simulate.stochastic import sgd
from odekit.simulate.tasks import SequenceLaw, Sequences, sequences

__all__ = [
    "Agreement",
    "EdgeOfStabilityWarning",
    "Layer",
    "Optimiser",
    "Population",
    "PosteriorMean",
    "PretrainingSet",
    "RidgeExperiment",
    "SequenceLaw",
    "Sequences",
    "Statistics",
    "close_under_sign",
    "coefficients",
    "compare",
    "draw_tasks",
    "feature_statistics",
    "gradient_descent",
    "initial",
    "loss_curve",
    "population_error",
    "population_statistics",
    "posterior_mean_errors",
    "prefix_statistics",
    "ridge_experiment",
    "ridge_solution",
    "sample_gradient",
    "sample_pretraining",
    "sequences",
    "sgd",
    "sharpness",
    "statistics",
]
