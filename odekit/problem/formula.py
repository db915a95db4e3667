"""A safe reader of formulas: arithmetic, a few functions and known names, nothing else.

Text is parsed to Python's syntax tree, and only the nodes listed here are turned into SymPy; it is
never evaluated as Python, as ``sympy.sympify`` would do.
"""

from __future__ import annotations

import ast
import functools
import keyword
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from odekit.errors import InputError, unknown_name

__all__ = ["FUNCTIONS", "read_formula", "read_number"]

FUNCTIONS: dict[str, Any] = {
    name: getattr(sp, name)
    for name in ("exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "atan", "sign")
} | {"abs": sp.Abs}
_LONGEST = 20_000  # characters
_LARGEST_POWER = 64  # of plain numbers: 9**9**9 would fill the memory
_LARGEST_DEGREE = 1024  # of names
_MOST_BITS = 16_384  # of a power of an exact number

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda left, right: left + right,
    ast.Sub: lambda left, right: left - right,
    ast.Mult: lambda left, right: left * right,
    ast.Div: lambda left, right: left / right,
    ast.Pow: lambda left, right: left**right,
}


@dataclass(frozen=True)
class _Arithmetic:
    """What the parts of a formula become."""

    integer: Callable[[int], Any]
    decimal: Callable[[float], Any]
    functions: Mapping[str, Callable[[Any], Any]]
    constants: Mapping[str, Any]


_SYMBOLIC = _Arithmetic(sp.Integer, sp.Float, FUNCTIONS, {"pi": sp.pi})
_NUMERIC = _Arithmetic(
    int,
    float,
    {name: getattr(math, name) for name in FUNCTIONS if name not in ("abs", "sign")}
    | {"abs": abs, "sign": lambda x: (x > 0) - (x < 0)},
    {"pi": math.pi},
)


def read_number(text: str, names: Mapping[str, float]) -> float:
    """Read a formula of known numbers, in floating-point arithmetic.

    Parameters
    ----------
    text : str
        As for `read_formula`.
    names : mapping
        The number that each name stands for.

    Returns
    -------
    float or int
        A whole number stays one: a formula may be a seed.

    Raises
    ------
    InputError
        As `read_formula`, and for a result that is no finite number.
    """
    try:
        value = _parsed(text, names, _NUMERIC)
        finite = not isinstance(value, complex) and math.isfinite(value)
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        finite = False
    if not finite:
        raise InputError(f"Formula {_short(text)} is no finite number.")
    return value


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
    try:
        value = _parsed(text, names, _SYMBOLIC)
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"Formula {_short(text)} is malformed.") from error
    if value.has(sp.zoo, sp.nan, sp.oo):
        raise InputError(f"Formula {_short(text)} divides by zero.")
    return value


def _parsed(text: str, names: Mapping[str, Any], arithmetic: _Arithmetic) -> Any:
    if not isinstance(text, str):
        raise InputError(f"A formula is text in quotes, got {text!r}.")
    if len(text) > _LONGEST:
        raise InputError(f"A formula has at most {_LONGEST} characters, got {len(text)}.")
    try:
        text, names = _spelt(text.strip(), names)
        return _read(_tree(text), text, names, arithmetic)
    except SyntaxError as error:
        raise InputError(f"Formula {_short(text)} cannot be read: {error.msg}.") from error
    except (RecursionError, MemoryError) as error:
        raise InputError(f"Formula {_short(text)} is nested too deeply or malformed.") from error


def _spelt(text: str, names: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Spell names that Python keeps for itself, such as lambda, in a way that it can parse."""
    kept = [name for name in names if keyword.iskeyword(name)]
    for name in kept:
        text = re.sub(rf"(?<![\w.]){name}(?!\w)", f"{name}_", text)
    spelt = {f"{name}_": names[name] for name in kept if f"{name}_" not in names}
    if len(spelt) < len(kept):
        raise InputError(f"The names {kept[0]} and {kept[0]}_ cannot be told apart; rename one.")
    return text, {**names, **spelt} if kept else names


@functools.lru_cache(maxsize=256)
def _tree(text: str) -> ast.expr:
    """Parse; a sweep reads the same formula at every point."""
    return ast.parse(text, mode="eval").body


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def _read(node: ast.expr, text: str, names: Mapping[str, Any], arithmetic: _Arithmetic) -> Any:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() as value):
            return arithmetic.integer(value)
        case ast.Constant(value=float() as value):
            return arithmetic.decimal(value)
        case ast.Name(id=name):
            if name in names:
                return names[name]
            if name in arithmetic.constants:
                return arithmetic.constants[name]
            raise unknown_name(
                f"name in formula {_short(text)}", name, [*names, *arithmetic.constants]
            )
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_read(operand, text, names, arithmetic)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _read(operand, text, names, arithmetic)
        case ast.BinOp(op=ast.BitXor()):
            raise InputError(f"Formula {_short(text)}: write a power as '**', not '^'.")
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _BINARY:
            pair = tuple(_read(side, text, names, arithmetic) for side in (left, right))
            if isinstance(operator, ast.Pow):
                _check_power(pair[0], pair[1], text)
            return _BINARY[type(operator)](*pair)
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]):
            if name not in arithmetic.functions:
                raise unknown_name(f"function in formula {_short(text)}", name, FUNCTIONS)
            return arithmetic.functions[name](_read(argument, text, names, arithmetic))
    shown = ast.get_source_segment(text, node) or type(node).__name__
    raise InputError(
        f"Formula {_short(text)}: {shown!r} is not allowed; use numbers, + - * / **, parentheses, "
        f"names and {', '.join(FUNCTIONS)} of one argument."
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) or bool(getattr(value, "is_number", False))


def _check_power(base: Any, power: Any, text: str) -> None:
    """Refuse powers that would fill the memory, in one step or by towers of them."""
    if not _is_number(power):
        return
    real = isinstance(power, int | float) or getattr(power, "is_real", False)
    most = _LARGEST_POWER if _is_number(base) else _LARGEST_DEGREE
    if not real or abs(power) > most:
        raise InputError(
            f"Formula {_short(text)}: powers of plain numbers go up to {_LARGEST_POWER}, "
            f"others up to {_LARGEST_DEGREE}."
        )
    parts = (base,) if isinstance(base, int) else (getattr(base, k, 0) for k in ("p", "q"))
    if abs(power) * max(int(part).bit_length() for part in parts) > _MOST_BITS:
        raise InputError(f"Formula {_short(text)}: no finite number of reasonable size.")
