"""Gaussian tensors: exact expectation, and sampling of the same objects."""

from odekit.gaussian.gaussians import Gaussian, gaussian
from odekit.gaussian.sampling import sample
from odekit.gaussian.wick import BudgetError, expectation

__all__ = ["BudgetError", "Gaussian", "expectation", "gaussian", "sample"]
