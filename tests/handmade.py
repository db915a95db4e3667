"""Compiled fields written by hand in Numba: oracles that do not pass through code generation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from odekit.codegen.compiled_field import CompiledField
from odekit.codegen.layout import Layout


def by_hand(
    layout: Layout,
    rhs: Callable[..., Any],
    jacobian: Callable[..., Any] | None = None,
    loss: Callable[..., Any] | None = None,
    rebuild: Callable[[], CompiledField] | None = None,
    **facts: Any,
) -> CompiledField:
    """Compile plain functions with the signatures that a compiled field promises."""
    vector, matrix = "float64[::1]", "float64[:, ::1]"
    head = f"float64, {vector}, {vector}"
    return CompiledField(
        rhs=njit(f"void({head}, {vector})", nogil=True, error_model="numpy")(rhs),
        layout=layout,
        loss=njit(f"float64({vector}, {vector})", nogil=True)(loss) if loss else None,
        make_jacobian=(lambda: njit(f"void({head}, {matrix})", nogil=True)(jacobian))
        if jacobian
        else None,
        rebuild=rebuild,
        **facts,
    )
