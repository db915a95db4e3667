"""From what the user gave to a compiled field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odekit.codegen.compiled_field import CompiledField
from odekit.errors import InputError, unknown_name

__all__ = ["compiled_for", "refuse_unknown"]

ELSEWHERE = {
    "rtol": "tolerance=ok.Tolerance(relative=...)",
    "atol": "tolerance=ok.Tolerance(absolute=...)",
    "t_eval": "output times as t",
    "t_span": "an end time as t, and start=",
    "dense_output": "save=ok.Save(dense=True)",
    "max_step": "events=, which look inside steps",
    "args": "params={name: value}",
    "jac": "nothing: the exact Jacobian is derived",
}


def compiled_for(
    field: Any,
    y0: Mapping[str, Any],
    params: Mapping[str, Any] | None,
    sizes: Mapping[str, Any] | None,
    effort: str = "quick",
) -> CompiledField:
    """Return the field compiled for the sizes of these arrays.

    Parameters
    ----------
    field : VectorField or CompiledField
        A model is taken as its flow.
    y0, params, sizes : mapping
        Sizes that are not given are read off the arrays.
    effort : {"quick", "full"}

    Returns
    -------
    CompiledField
    """
    if isinstance(field, CompiledField):
        if sizes:
            raise InputError(
                "sizes= has no effect on a compiled field; give the sizes to ok.compile instead."
            )
        return field
    field = getattr(field, "flow", field)
    if not hasattr(field, "infer_sizes"):
        raise InputError(
            f"Expected a field or a compiled field, got {type(field).__name__}; make one with "
            "ok.gradient_flow or ok.vector_field."
        )
    from odekit.codegen import compile as compile_field

    inferred = field.infer_sizes(y0, params or {}, sizes or {})
    compiled: CompiledField = compile_field(field, inferred, effort=effort)
    return compiled


def refuse_unknown(options: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise for options that do not exist, with what was probably meant."""
    for name in options:
        if name in ELSEWHERE:
            raise InputError(f"Unknown option {name!r}; use {ELSEWHERE[name]}.")
        raise unknown_name("option", name, known)
