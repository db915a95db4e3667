"""Full-batch gradient descent on the exact expected loss of any model, by its own flow."""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError
from odekit.simulate.edge import WINDOWS, report_edge
from odekit.simulate.flow_loop import descend_field
from odekit.simulate.layer import Floats
from odekit.simulate.population import Population
from odekit.simulate.record import configuration_of, solution_of
from odekit.solution import Solution, Status

__all__ = ["descend_flow", "step_factors"]

_CALL_STEPS = 200_000
_GAP = 50
_LONG = 100_000  # steps from which the slower compilation to the faster code pays


def descend_flow(
    model: Any,
    data: Population,
    *,
    y0: Mapping[str, ArrayLike],
    lr: float,
    steps: int,
    at: NDArray[np.int64],
    momentum: float,
) -> Solution:
    """Train on the model's exact expected loss; see `odekit.simulate.gradient_descent`.

    The gradient is ``- time_scale * rate`` of the model's own flow, compiled, so that a step of
    gradient descent is a step ``lr * time_scale`` of Euler's method on it.
    """
    from odekit.codegen import compile as compile_field

    flow = getattr(model, "flow", model)
    if not hasattr(flow, "state_names"):
        raise InputError(
            f"{type(model).__name__} has no flow; Population needs a model or a vector field."
        )
    blocks = getattr(model, "blocks", None)
    if blocks is not None and not set(y0) <= set(flow.state_names):
        # States of a whole layer: the flow holds them in blocks.
        y0 = blocks.unpack(y0)
        join = blocks.pack
    else:
        join = dict
    constants = dict(getattr(flow, "constants", {}))
    params = {str(k): v for k, v in data.params.items() if str(k) not in constants}
    flow.loss_value(y0, dict(data.params))  # checks names, shapes and values, one line if wrong
    compiled = compile_field(
        flow,
        sizes=sizes_of(flow, y0, data.params),
        effort="full" if steps >= _LONG else "quick",
    )
    if compiled.loss is None:
        raise InputError("The field has no loss, so there is nothing to descend.")
    layout = compiled.layout
    y, p = layout.pack(y0), layout.pack_parameters(params)
    factor = lr * step_factors(flow, layout)
    n = y.size
    states, losses = np.empty((at.size, n)), np.empty(at.size)
    span, saved = np.array([0, 0]), np.zeros(2, dtype=np.int64)
    rises, starts = np.zeros((WINDOWS, 2), dtype=np.int64), np.zeros((WINDOWS, n))
    memory, velocity = np.array([np.nan]), np.zeros(n)
    first = float(compiled.loss(y, p))
    ceiling, slack = 1e12 * (1.0 + abs(first)), 1e-12 * abs(first)
    started, status, code = time.perf_counter(), Status.success, 0
    try:
        while True:
            span[1] = min(span[0] + _CALL_STEPS, steps)
            code = descend_field(
                compiled.rhs, compiled.loss, y, velocity, p, factor, momentum, span, at, saved,
                states, losses, ceiling, slack, _GAP, rises, starts, memory,
            )  # fmt: skip
            if code or span[0] >= steps:
                break
    except KeyboardInterrupt:
        status = Status.interrupted
    if code:
        status = Status.nan if code == 1 else Status.blow_up

    def gradient(theta: Floats) -> Floats:
        rate = np.empty(n)
        compiled.rhs(0.0, np.ascontiguousarray(theta), p, rate)
        return -rate * factor / lr

    edge = report_edge(rises, starts, int(saved[1]), gradient, lr, momentum)
    done, step = int(saved[0]), int(span[0])
    t, states, losses = at[:done], states[:done], losses[:done]
    if status is not Status.success and (not done or t[-1] != step):
        t, states = np.append(t, step), np.vstack([states, y])
        losses = np.append(losses, memory[0])
    return solution_of(
        t=t,
        states=join(layout.unpack(states)),
        loss=losses,
        status=status,
        step=step,
        stats={
            "method": "heavy ball" if momentum else "gradient descent",
            "seconds": time.perf_counter() - started,
            "lr": lr,
            "edge": edge,
            "configuration": configuration_of(
                "gradient_descent",
                model=str(getattr(model, "name", type(model).__name__)),
                lr=lr,
                steps=steps,
                momentum=momentum,
                attention="linear",
                data="Population: compiled flow",
                key=compiled.key,
            ),  # fmt: skip
        },
        params=data.params,
        field=flow,
    )


def sizes_of(
    flow: Any, y0: Mapping[str, ArrayLike], params: Mapping[str, Any]
) -> dict[str, int] | None:
    """Sizes of a tensor field at these arrays; None for a scalar field, which has none."""
    if not hasattr(flow, "infer_sizes"):
        return None
    sizes: dict[str, int] = flow.infer_sizes(y0, params)
    return sizes


def step_factors(flow: Any, layout: Any) -> Floats:
    """Return ``time_scale`` for each entry of the flat state (1 where the field states none)."""
    scales = {
        str(getattr(state, "name", state)): scale
        for state, scale in (getattr(flow, "time_scale", None) or {}).items()
    }
    parts = []
    for name, shape in layout.states:
        scale = scales.get(name, 1)
        if getattr(scale, "free_symbols", None):
            raise InputError(f"The time scale {scale} of {name} is symbolic; give it a number.")
        parts.append(np.full(prod(shape), float(scale)))
    return np.concatenate(parts)
