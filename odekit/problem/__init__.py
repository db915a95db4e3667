"""Problem files: a model or a user's own equations, with numbers, in TOML."""

from odekit.problem.formula import read_formula
from odekit.problem.problem import Problem, build_model, read_document, read_problem

__all__ = ["Problem", "build_model", "read_document", "read_formula", "read_problem"]
