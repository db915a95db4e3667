"""Problem files: a model or a user's own equations, with numbers, in TOML."""

from odekit.problem.formula import read_formula

__all__ = ["read_formula"]
