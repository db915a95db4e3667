"""odekit as a user calls it: the published model, compiled with `ok.compile`, and `ok.solve`."""

from __future__ import annotations

from typing import Any

import numpy as np

import odekit as ok
from benchmarks.hand_written import CONTEXT, SMALL, Problem
from benchmarks.work_precision import Tool
from odekit.codegen import CompiledField

# What `auto` is judged by, and beside it the methods that it could have taken.
METHODS = {
    "S": ("auto", "Tsit5", "CompiledDOP853", "ROCK4", "Rodas5P"),
    "M": ("auto", "Tsit5", "CompiledDOP853", "ROCK4"),
    "P": ("auto",),
}

PATIENCE = ok.Limits(steps=100_000)  # far beyond what a sensible choice takes
METHODS_SMALL = ("auto", "Rodas5P", "LSODA")


def kind_of(p: Problem) -> tuple[str, dict[str, int]]:
    """The published model that a problem is made of, and its sizes."""
    if p.name.startswith("P"):
        return "modes", {"D": p.y0.size // 2}
    dim = p.dim
    if p.name.startswith("M"):
        return "attention_merged", {"D": dim, "H": p.y0.size // (1 + dim * dim)}
    return "attention_separate", {"D": dim, "H": p.y0.size // (1 + 2 * dim), "R": 1}


def prepare(p: Problem) -> tuple[CompiledField, dict[str, Any], dict[str, Any]]:
    """The compiled field, the initial state and the parameters by name."""
    model, sizes = kind_of(p)
    compiled = ok.compile(getattr(ok.models, model)(), sizes)
    params: dict[str, Any] = {"N": CONTEXT}
    y0 = p.y0
    if model == "modes":
        # The hand-written modes are in units in which p q tends to 1 / a, the model's in 1 / s_inf.
        params["s"] = p.p[: sizes["D"]]
        y0 = y0 / np.sqrt(np.tile(params["s"], 2))
    else:
        matrix = p.p[: sizes["D"] ** 2].reshape(sizes["D"], -1)
        params["Lambda"] = (matrix + matrix.T) / 2
    return compiled, compiled.layout.unpack(y0), params


def tools(p: Problem) -> list[Tool]:
    """`ok.solve` with `method="auto"` and with each method worth a try on the problem."""
    compiled, y0, params = prepare(p)

    def tool(method: str) -> Tool:
        def solve(rtol: float, atol: float) -> ok.Solution:
            tolerance = ok.Tolerance(relative=rtol, absolute=atol)
            return ok.solve(
                compiled, y0, p.times, params, method=method, tolerance=tolerance, limits=PATIENCE
            )

        return Tool(f"odekit {method}", solve, lambda solution: solution.loss)

    small = p.name in SMALL
    return [tool(method) for method in (METHODS_SMALL if small else METHODS[p.name[0]])]
