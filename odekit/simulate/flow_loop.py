"""The compiled loop of gradient descent on the exact expected loss of any compiled field."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from odekit.simulate.loops import Floats, Ints

RHS = types.FunctionType(
    types.void(types.float64, types.float64[::1], types.float64[::1], types.float64[::1])
)
LOSS = types.FunctionType(types.float64(types.float64[::1], types.float64[::1]))
_I, _F, _FF = types.int64[::1], types.float64[::1], types.float64[:, ::1]


@njit(
    types.int64(
        RHS, LOSS, _F, _F, _F, _F, types.float64, _I, _I, _I, _FF, _F, types.float64,
        types.float64, types.int64, types.int64[:, ::1], _FF, _F,
    ),
    cache=True,
)  # fmt: skip
def descend_field(
    rhs: Any,
    loss: Any,
    y: Floats,
    velocity: Floats,
    p: Floats,
    factor: Floats,
    momentum: float,
    span: Ints,
    save_at: Ints,
    saved: Ints,
    states: Floats,
    losses: Floats,
    ceiling: float,
    slack: float,
    gap: int,
    rises: Ints,
    rise_states: Floats,
    memory: Floats,
) -> int:
    """Steps of `y += factor * rate`, with `factor = lr * time_scale` for each entry.

    The arguments and the outcome are those of `loops.descend`.
    """
    n = y.shape[0]
    rate = np.empty(n)
    good = y.copy()
    step, last = span[0], span[1]
    done, before, code = saved[0], memory[0], 0
    while True:
        value = loss(y, p)
        if not value <= ceiling:
            code = 2 if value > ceiling else 1
            for i in range(n):
                y[i] = good[i]
            step = max(step - 1, 0)
            break
        if value > before + slack:
            count = saved[1]
            kept = min(count, rises.shape[0]) - 1
            if count > 0 and step - rises[kept, 1] <= gap:
                rises[kept, 1] = step
            else:
                if count < rises.shape[0]:
                    rises[count, 0] = step - 1
                    rises[count, 1] = step
                    for i in range(n):
                        rise_states[count, i] = y[i]
                saved[1] = count + 1
        before = value
        while done < save_at.shape[0] and save_at[done] <= step:
            for i in range(n):
                states[done, i] = y[i]
            losses[done] = value
            done += 1
        if step == last:
            break
        rhs(0.0, y, p, rate)
        for i in range(n):
            good[i] = y[i]
            velocity[i] = momentum * velocity[i] + factor[i] * rate[i]
            y[i] += velocity[i]
        step += 1
    saved[0] = done
    memory[0] = before
    span[0] = step
    return code
