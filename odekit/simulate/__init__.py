"""Discrete training without PyTorch, to lay over the gradient flows."""

from odekit.simulate.agreement import Agreement, compare
from odekit.simulate.derived import sample_gradient
from odekit.simulate.descent import coefficients, gradient_descent, loss_curve
from odekit.simulate.edge import EdgeOfStabilityWarning, sharpness
from odekit.simulate.layer import Layer
from odekit.simulate.linear_moments import LinearStatistics, linear_statistics
from odekit.simulate.modular import (
    AdditionTask,
    addition_gradient,
    addition_start,
    fourier_concentration,
    random_concentration,
    train_addition,
)
from odekit.simulate.moments import (
    Statistics,
    close_under_sign,
    prefix_statistics,
    statistics,
)
from odekit.simulate.network_run import NetworkRun, first_step
from odekit.simulate.optimiser import Optimiser
from odekit.simulate.population import Population, population_statistics
from odekit.simulate.recall import (
    RecallNetwork,
    RecallTask,
    label_count_plateau,
    recall_gradient,
    recall_loss,
    train_recall,
)
from odekit.simulate.regression import (
    RegressionNetwork,
    regression_gradient,
    regression_prediction,
)
from odekit.simulate.regression_training import train_regression
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
    "AdditionTask",
    "Agreement",
    "EdgeOfStabilityWarning",
    "Layer",
    "LinearStatistics",
    "NetworkRun",
    "Optimiser",
    "Population",
    "PosteriorMean",
    "PretrainingSet",
    "RecallNetwork",
    "RecallTask",
    "RegressionNetwork",
    "RidgeExperiment",
    "SequenceLaw",
    "Sequences",
    "Statistics",
    "addition_gradient",
    "addition_start",
    "close_under_sign",
    "coefficients",
    "compare",
    "draw_tasks",
    "feature_statistics",
    "first_step",
    "fourier_concentration",
    "gradient_descent",
    "initial",
    "label_count_plateau",
    "linear_statistics",
    "loss_curve",
    "population_error",
    "population_statistics",
    "posterior_mean_errors",
    "prefix_statistics",
    "random_concentration",
    "recall_gradient",
    "recall_loss",
    "regression_gradient",
    "regression_prediction",
    "ridge_experiment",
    "ridge_solution",
    "sample_gradient",
    "sample_pretraining",
    "sequences",
    "sgd",
    "sharpness",
    "statistics",
    "train_addition",
    "train_recall",
    "train_regression",
]
