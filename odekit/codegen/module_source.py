"""The generated Python modules: readable, self-contained, and ready for Numba's disk cache."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import sympy as sp

from odekit.codegen.blas import write_blas
from odekit.codegen.loops import write_loops
from odekit.codegen.place import Place
from odekit.codegen.program import Program, Statement
from odekit.codegen.scalar_source import HEAD, OPTIONS, indented
from odekit.codegen.staged import count_work, write_staged
from odekit.tensor import TensorExpr

__all__ = ["jacobian_module", "main_module", "values_module"]

STAGED = 100
"""Multiplications up to which scalars without loops are faster than rows (separate, D = 2: 10
against 12 ns a call; D = 3: equal; D = 4: 65 against 39 ns)."""


def write(statements: Iterable[Statement], effort: str) -> list[str]:
    """Write statements in the form that suits their size.

    Parameters
    ----------
    statements : iterable of Statement
    effort : {"full", "quick"}
        "quick" writes loops, which compile fastest.

    Returns
    -------
    list of str
    """
    statements = list(statements)
    if effort == "quick":
        return write_loops(statements)
    if count_work(statements) <= STAGED:
        return write_staged(statements)
    return write_blas(statements)


def main_module(program: Program, effort: str) -> str:
    """Write the module that holds ``prepare``, ``rhs`` and ``loss``."""
    parts = [_prepare(program)]
    parts.append(
        f"@njit(void(float64, VECTOR, VECTOR, VECTOR), {OPTIONS})\ndef rhs(t, y, p, out):\n"
        + indented(write(program.rhs, effort))
    )
    if program.loss is not None:
        lines = write_loops(program.loss) if effort == "quick" else write_blas(program.loss)
        spot = program.loss[-1].target
        lines.append(f"return p[{spot.offset}]")
        parts.append(
            f"@njit(float64(VECTOR, VECTOR), {OPTIONS})\ndef loss(y, p):\n" + indented(lines)
        )
    return _module(parts)


def _module(parts: list[str]) -> str:
    """Join a module's parts under its head."""
    text = "\n\n".join(parts)
    more = "\nfrom odekit.codegen.rows import add_rows\n" if "add_rows(" in text else ""
    return "\n\n".join([HEAD + more, text])


def jacobian_module(program: Program, effort: str) -> str:
    """Write the module that holds ``jacobian``."""
    writer = write_loops if effort == "quick" else write_blas
    lines = ["J = out.reshape(out.size)", *writer(program.jacobian)]
    if program.mirrored:
        lines += [
            "# the Jacobian is symmetric",
            "for i0 in range(1, out.shape[0]):",
            "    for i1 in range(i0):",
            "        out[i0, i1] = out[i1, i0]",
        ]
    return _module(
        [
            f"@njit(void(float64, VECTOR, VECTOR, MATRIX), {OPTIONS})\n"
            "def jacobian(t, y, p, out):\n" + indented(lines),
        ]
    )


def values_module(program: Program, effort: str) -> str:
    """Write the module that holds ``jacobian_values``; empty where entries are not packed."""
    if program.values is None:
        return ""
    writer = write_loops if effort == "quick" else write_blas
    return _module(
        [
            f"@njit(void(float64, VECTOR, VECTOR, VECTOR), {OPTIONS})\n"
            "def jacobian_values(t, y, p, out):\n" + indented(writer(program.values)),
        ]
    )


def _prepare(program: Program) -> str:
    """Plain NumPy: it runs once for each parameter set, so machine code would not pay."""
    lines = ['"""Fill in what depends on the parameters alone."""']
    for place, body in program.prepare:
        lines += [f"# {place.name} = {body}"]
        lines += _numpy_lines(place, body, program)
    return "def prepare(p):\n" + indented(lines)


def _numpy_lines(target: Place, body: TensorExpr, program: Program) -> list[str]:
    lines = [f"a = np.zeros({target.shape})"]
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    for (factors, monomial), number in body.terms.items():
        scale = _coefficient(monomial, number, program)
        if not factors:
            lines.append(f"a += {scale}")
            continue
        names: dict[int, str] = {}
        groups, operands = [], []
        for tensor, indices in factors:
            groups.append("".join(names.setdefault(i, letters[len(names)]) for i in indices))
            if tensor.kind == "identity":
                size = int(sp.sympify(tensor.shape[0]).subs(dict(program.sizes)))
                operands.append(f"np.eye({size})")
                continue
            operands.append(_view(program.places[tensor]))
        present = [i for i in range(body.rank) if i in names]
        output = "".join(names[i] for i in present)
        path = ", optimize='greedy'" if len(factors) > 2 else ""
        value = f'np.einsum("{",".join(groups)}->{output}", {", ".join(operands)}{path})'
        if len(present) < body.rank:
            shape = tuple(n if i in names else 1 for i, n in enumerate(target.shape))
            value = f"np.reshape({value}, {shape})"
        lines.append(f"a += {scale} * {value}")
    count = 1
    for n in target.shape:
        count *= n
    lines.append(f"p[{target.offset}:{target.offset + count}] = a.reshape(-1)")
    return lines


def _view(place: Place) -> str:
    count = 1
    for n in place.shape:
        count *= n
    return f"p[{place.offset}:{place.offset + count}].reshape({place.shape})"


def _coefficient(monomial: Any, number: Any, program: Program) -> str:
    parts = [repr(float(number))]
    for atom, exponent in monomial:
        expression = sp.sympify(atom).subs(dict(program.sizes))
        names: Mapping[sp.Symbol, sp.Symbol] = {
            s: sp.Symbol(f"p[{program.places[s].offset}]") for s in expression.free_symbols
        }
        text = sp.pycode(expression.xreplace(dict(names)), fully_qualified_modules=True)
        power = int(exponent) if exponent.denominator == 1 else float(exponent)
        parts.append(f"({text}) ** {power}" if power != 1 else f"({text})")
    return " * ".join(parts)
