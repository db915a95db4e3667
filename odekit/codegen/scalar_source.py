"""Scalar SymPy fields as straight-line Python: states unpacked to locals, shared terms once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy as sp
from sympy.printing.pycode import PythonCodePrinter

from odekit.errors import InputError

__all__ = ["ScalarPrinter", "straight_line"]


class ScalarPrinter(PythonCodePrinter):
    """SymPy expressions as float64 Python that Numba compiles."""

    def _print_Integer(self, expression: Any) -> str:
        # An integer literal would make integer arithmetic, which overflows in silence.
        return repr(float(expression))

    def _print_Rational(self, expression: Any) -> str:
        return repr(float(expression))

    def _print_Float(self, expression: Any) -> str:
        return repr(float(expression))

    def _print_NumberSymbol(self, expression: Any) -> str:
        return repr(float(expression))

    _print_Exp1 = _print_Pi = _print_NumberSymbol

    def _print_Pow(self, expression: Any, rational: bool = False) -> str:
        base, exponent = expression.as_base_exp()
        inner = self._print(base)
        if not (base.is_Symbol or base.is_Function):
            inner = f"({inner})"
        if exponent.is_Integer and abs(int(exponent)) <= 64:
            power = abs(int(exponent))
            text = inner if power == 1 else f"{inner}**{power}"
            return text if exponent > 0 else f"(1.0 / {text})"
        if exponent == sp.Rational(1, 2):
            return f"math.sqrt({self._print(base)})"
        if exponent == sp.Rational(-1, 2):
            return f"(1.0 / math.sqrt({self._print(base)}))"
        return f"{inner}**({self._print(exponent)})"

    def _print_sign(self, expression: Any) -> str:
        inner = self._print(expression.args[0])
        return f"(1.0 if {inner} > 0.0 else (-1.0 if {inner} < 0.0 else 0.0))"

    def _print_DiracDelta(self, expression: Any) -> str:
        # Derivatives are those away from the kinks.
        return "0.0"

    def _print_Heaviside(self, expression: Any) -> str:
        inner = self._print(expression.args[0])
        at_zero = self._print(expression.args[1])
        return f"(1.0 if {inner} > 0.0 else (0.0 if {inner} < 0.0 else {at_zero}))"


def straight_line(
    targets: Sequence[str], expressions: Sequence[sp.Expr], prefix: str = "x"
) -> list[str]:
    """Write assignments of expressions as source lines.

    Parameters
    ----------
    targets : sequence of str
        What to assign to, such as ``"out[0]"``.
    expressions : sequence of sympy.Expr
        In real symbols ``y0, y1, ...`` and ``p0, p1, ...``: entries of the flat arrays.
    prefix : str
        Names of shared terms start with it.

    Returns
    -------
    list of str
        The entries that occur are unpacked to locals first, which compiles 3 times faster.
    """
    printer = ScalarPrinter({"fully_qualified_modules": True, "strict": False})
    used: set[sp.Symbol] = set().union(*(e.free_symbols for e in expressions))
    lines = [
        f"{s} = {str(s)[0]}[{str(s)[1:]}]"
        for s in sorted(used, key=lambda s: (str(s)[0] != "y", int(str(s)[1:])))
    ]
    shared, reduced = sp.cse(
        expressions, symbols=sp.numbered_symbols(f"{prefix}_", real=True), list=True
    )
    for symbol, value in shared:
        lines.append(f"{symbol} = {_printed(printer, value)}")
    for target, value in zip(targets, reduced, strict=True):
        lines.append(f"{target} = {_printed(printer, value)}")
    return lines


def _printed(printer: ScalarPrinter, expression: Any) -> str:
    text = str(printer.doprint(sp.sympify(expression)))
    if "# Not supported" in text or "\n" in text:
        unknown = text.splitlines()[1].strip("# ") if "\n" in text else text
        raise InputError(
            f"{unknown} has no numeric form; rewrite it with functions of Python's math module"
        )
    return text
