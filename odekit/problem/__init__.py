"""Problem files: a model or a user's own equations, with numbers, in TOML."""

from odekit.problem.formula import read_formula, read_number
from odekit.problem.problem import Problem, build_model, read_document, read_problem
from odekit.problem.sweeps import first_document, read_sweep

__all__ = [
    "Problem",
    "build_model",
    "first_document",
    "read_document",
    "read_formula",
    "read_number",
    "read_problem",
    "read_sweep",
]
