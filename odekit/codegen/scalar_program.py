"""A scalar field as source: right-hand side, loss and exact Jacobian, component by component."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.codegen.scalar_source import straight_line
from odekit.field.scalar_field import ScalarField

__all__ = ["ScalarProgram", "plan_scalar"]


@dataclass(frozen=True)
class ScalarProgram:
    """A scalar field, written out."""

    states: tuple[tuple[str, tuple[int, ...]], ...]
    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    symmetric: tuple[str, ...]
    main: str
    jacobian: str
    pattern: tuple[NDArray[np.intp], NDArray[np.intp]] | None


def plan_scalar(field: ScalarField) -> ScalarProgram:
    """Write a scalar field's functions."""
    from odekit.codegen.module_source import HEAD, OPTIONS

    states = tuple((name, shape) for name, (shape, _) in field.state_groups.items())
    parameters = tuple((name, shape) for name, (shape, _) in field.parameter_groups.items())
    ordered = [s for _, symbols in field.state_groups.values() for s in symbols]
    given = [s for _, symbols in field.parameter_groups.values() for s in symbols]
    # Real symbols: the derivative of |x| is then sign(x) and not one of a complex modulus.
    local = {s: sp.Symbol(f"y{k}", real=True) for k, s in enumerate(ordered)}
    local.update({s: sp.Symbol(f"p{k}", real=True) for k, s in enumerate(given) if s not in local})
    rate = dict(zip(field.states, field.rates, strict=True))
    rates = [sp.sympify(rate[s]).xreplace(local) for s in ordered]
    lines = straight_line([f"out[{k}]" for k in range(len(rates))], rates)
    main = [
        HEAD,
        f"@njit(void(float64, VECTOR, VECTOR, VECTOR), {OPTIONS})\ndef rhs(t, y, p, out):\n"
        + _indented(lines),
    ]
    if field.loss is not None:
        *before, last = straight_line(["value"], [sp.sympify(field.loss).xreplace(local)])
        main.append(
            f"@njit(float64(VECTOR, VECTOR), {OPTIONS})\ndef loss(y, p):\n"
            + _indented([*before, last, "return value"])
        )
    place = {local[s]: k for k, s in enumerate(ordered)}
    entries: list[tuple[int, int, Any]] = []
    for row, expression in enumerate(rates):
        for symbol in sorted(expression.free_symbols & set(place), key=place.__getitem__):
            slope = sp.diff(expression, symbol)
            if slope != 0:
                entries.append((row, place[symbol], slope))
    body = ["out[:, :] = 0.0"]
    body += straight_line([f"out[{r}, {c}]" for r, c, _ in entries], [e for *_, e in entries])
    jacobian = "\n\n".join(
        [
            HEAD,
            f"@njit(void(float64, VECTOR, VECTOR, MATRIX), {OPTIONS})\n"
            "def jacobian(t, y, p, out):\n" + _indented(body),
        ]
    )
    symmetric = tuple(
        name
        for name, (shape, symbols) in field.parameter_groups.items()
        if len(shape) == 2 and len(set(symbols)) < len(symbols)
    )
    pattern = None
    if len(entries) < len(rates) ** 2:
        pattern = (
            np.array([r for r, _, _ in entries], dtype=np.intp),
            np.array([c for _, c, _ in entries], dtype=np.intp),
        )
    return ScalarProgram(states, parameters, symmetric, "\n\n".join(main), jacobian, pattern)


def _indented(lines: list[str]) -> str:
    return "".join(f"    {line}\n" for line in (lines or ["pass"]))
