"""`compile`: from a vector field to machine code."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import sympy as sp

from odekit.codegen.compiled_field import CompiledField
from odekit.codegen.layout import Layout
from odekit.codegen.store import load_module
from odekit.errors import InputError

__all__ = ["compile"]


def compile(
    field: Any, sizes: Mapping[str, int] | None = None, effort: str = "full"
) -> CompiledField:
    """Compile a vector field to machine code."""
    from odekit.field import ScalarField, TensorField

    started = time.perf_counter()
    field = getattr(field, "flow", field)
    if isinstance(field, CompiledField):
        return field
    if effort not in ("full", "quick"):
        raise InputError(f"effort is {effort!r}; give 'full' or 'quick'")
    if isinstance(field, TensorField):
        return _compile_tensor(field, dict(sizes or {}), effort, started)
    if isinstance(field, ScalarField):
        return _compile_scalar(field, effort, started)
    raise InputError(
        f"compile takes a vector field, got {type(field).__name__}; make one with "
        "ok.gradient_flow or ok.vector_field"
    )


def _compile_tensor(
    field: Any, sizes: dict[str, int], effort: str, started: float
) -> CompiledField:
    from odekit.codegen.module_source import jacobian_module, main_module
    from odekit.codegen.program import plan_field

    known: dict[sp.Symbol, int] = {}
    for symbol in field.size_symbols:
        if str(symbol) not in sizes:
            raise InputError(f"size {symbol} is unknown; pass sizes={{'{symbol}': ...}}")
        known[symbol] = int(sizes[str(symbol)])
    program = plan_field(field, known)
    source = main_module(program)
    module = load_module(source)
    symmetries = tuple(
        (t.name, t.symmetric_groups) for t in field.parameters if t.symmetric_groups
    )
    layout = Layout(
        program.states,
        program.parameters,
        program.scratch,
        symmetric=tuple(name for name, _ in symmetries),
        covariances=tuple(t.name for t in field.covariances),
        positive=tuple(str(s) for s in field.symbols if s.is_positive and s not in known),
        prepare=module.prepare,
    )
    jacobian_source = jacobian_module(program)
    return CompiledField(
        module.rhs,
        layout,
        getattr(module, "loss", None),
        source,
        "",
        effort,
        time.perf_counter() - started,
        False,
        field.uniform,
        None,
        True,
        lambda: load_module(jacobian_source).jacobian,
        None,
        field,
    )


def _compile_scalar(field: Any, effort: str, started: float) -> CompiledField:
    from odekit.codegen.scalar_program import plan_scalar

    program = plan_scalar(field)
    module = load_module(program.main)
    layout = Layout(
        program.states, program.parameters, 0, symmetric=program.symmetric
    )
    return CompiledField(
        module.rhs,
        layout,
        getattr(module, "loss", None),
        program.main,
        "",
        effort,
        time.perf_counter() - started,
        False,
        field.uniform,
        program.pattern,
        True,
        lambda: load_module(program.jacobian).jacobian,
        None,
        field,
    )
