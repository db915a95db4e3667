"""The reference problems' right-hand sides as array formulas, for NumPy, JAX and symbols alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.hand_written import Problem


def formula(p: Problem, xp: Any) -> Callable[[Any], Any]:
    """`rates(y (n,)) -> (n,)` with the array functions of `xp`."""
    n = p.y0.size
    if p.pattern is not None:
        m = n // 2
        speed, a = xp.asarray(p.p[:m] ** 2), xp.asarray(p.p[m:])

        def modes(y: Any) -> Any:
            first, second = y[:m], y[m:]
            rate = speed * (1.0 - first * second * a)
            return xp.concatenate([rate * second, rate * first])

        return modes
    dim = p.dim
    size = dim * dim
    linear, square, drive = (
        xp.asarray(p.p[k * size : (k + 1) * size].reshape(dim, dim)) for k in range(3)
    )
    if p.name.startswith("M"):
        heads = n // (1 + size)

        def merged(y: Any) -> Any:
            v, u = y[:heads], y[heads:].reshape(heads, size)
            flow = drive - square @ (v @ u).reshape(dim, dim) @ linear
            flat = flow.reshape(size)
            return xp.concatenate([u @ flat, xp.outer(v, flat).reshape(heads * size)])

        return merged
    heads = n // (1 + 2 * dim)

    def separate(y: Any) -> Any:
        v = y[:heads]
        k = y[heads : heads * (1 + dim)].reshape(heads, dim)
        q = y[heads * (1 + dim) :].reshape(heads, dim)
        flow = drive - square @ ((v[:, None] * k).T @ q) @ linear
        down, up = q @ flow.T, k @ flow
        each = xp.sum(k * down, axis=1)
        scaled = [(v[:, None] * part).reshape(heads * dim) for part in (down, up)]
        return xp.concatenate([each, *scaled])

    return separate
