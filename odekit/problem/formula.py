"""A safe reader of formulas: arithmetic, a few functions and known names, nothing else.

Text is parsed to Python's syntax tree, and only the nodes listed here are turned into SymPy; it is
never evaluated as Python, as ``sympy.sympify`` would do.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

import sympy as sp

from odekit.errors import InputError, unknown_name

__all__ = ["FUNCTIONS", "read_formula"]

FUNCTIONS: dict[str, Any] = {
    name: getattr(sp, name)
    for name in ("exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "atan", "sign")
} | {"abs": sp.Abs}
CONSTANTS = {"pi": sp.pi}
_LONGEST = 20_000  # characters
_LARGEST_POWER = 64  # of plain numbers: 9**9**9 would fill the memory

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right,
    ast.Pow: lambda left, right: left**right,
}


def read_formula(text: str, names: Mapping[str, sp.Expr]) -> sp.Expr:
    """Read a formula.

    Parameters
    ----------
    text : str
        In Python's notation, ``"a*x - x**3"``; ``^`` is refused, since it means something else.
    names : mapping
        What each name stands for.

    Returns
    -------
    sympy.Expr
        Integers are exact, decimals are floats.

    Raises
    ------
    InputError
        For anything but numbers, ``+ - * / **``, parentheses, known names and functions.
    """
    if not isinstance(text, str):
        raise InputError(f"A formula is text in quotes, got {text!r}.")
    if len(text) > _LONGEST:
        raise InputError(f"A formula has at most {_LONGEST} characters, got {len(text)}.")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        value = _read(tree.body, text, names)
    except SyntaxError as error:
        raise InputError(f"Formula {_short(text)} cannot be read: {error.msg}.") from error
    except (RecursionError, MemoryError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"Formula {_short(text)} is nested too deeply or malformed.") from error
    if value.has(sp.zoo, sp.nan, sp.oo):
        raise InputError(f"Formula {_short(text)} divides by zero.")
    return value


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _read(node: ast.expr, text: str, names: Mapping[str, sp.Expr]) -> Any:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() as value):
            return sp.Integer(value)
        case ast.Constant(value=float() as value):
            return sp.Float(value)
        case ast.Name(id=name):
            if name in names:
                return names[name]
            if name in CONSTANTS:
                return CONSTANTS[name]
            raise unknown_name(f"name in formula {_short(text)}", name, [*names, *CONSTANTS])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read(operand, text, names)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _read(operand, text, names)
        case ast.BinOp(op=ast.BitXor()):
            raise InputError(f"Formula {_short(text)}: write a power as '**', not '^'.")
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _BINARY:
            pair = _read(left, text, names), _read(right, text, names)
            if isinstance(operator, ast.Pow) and all(value.is_number for value in pair):
                _check_power(pair[1], text)
            return _BINARY[type(operator)](*pair)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
            if name not in FUNCTIONS:
                raise unknown_name(f"function in formula {_short(text)}", name, FUNCTIONS)
            return FUNCTIONS[name](_read(argument, text, names))
    shown = ast.get_source_segment(text.strip(), node) or type(node).__name__
    raise InputError(
        f"Formula {_short(text)}: {shown!r} is not allowed; use numbers, + - * / **, parentheses, "
        f"names and {', '.join(FUNCTIONS)} of one argument."
    )


def _check_power(power: Any, text: str) -> None:
    if not power.is_real or abs(power) > _LARGEST_POWER:
        raise InputError(
            f"Formula {_short(text)}: powers of plain numbers go up to {_LARGEST_POWER}."
        )
