"""Drawing the very Gaussian tensors that the expectation is exact for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError
from odekit.gaussian.gaussians import Gaussian
from odekit.tensor import Tensor
from odekit.tensor.evaluation import Bindings, check_semidefinite


def square_root(matrix: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    """A factor ``F`` with ``F F^T = matrix``; singular covariances are legitimate."""
    check_semidefinite(matrix, name)
    eigenvalues, vectors = np.linalg.eigh(matrix)
    factor: NDArray[np.float64] = vectors * np.sqrt(np.clip(eigenvalues, 0.0, None))
    return factor


def sample(
    tensors: Gaussian | Iterable[Gaussian],
    values: Mapping[str, Any] | None = None,
    *,
    size: int | None = None,
    seed: int | np.random.Generator = 0,
) -> dict[str, NDArray[np.float64]]:
    """Draw Gaussian tensors.

    Parameters
    ----------
    tensors : Gaussian or iterable of Gaussian
        What to draw.
    values : Mapping[str, array_like], optional
        Numbers for sizes and covariances by name.
    size : int, optional
        Number of independent draws, a leading axis; None draws one without that axis.
    seed : int or numpy.random.Generator, optional
        Seed of the draw.

    Returns
    -------
    dict
        Name to array of shape ``(size, *shape)`` or ``shape``.
    """
    chosen = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    for tensor in chosen:
        if not isinstance(tensor, Gaussian):
            raise InputError(f"sample draws Gaussian tensors, not {tensor!r}")
    if len({t.name for t in chosen}) < len(chosen):
        raise InputError("sample: two tensors share a name; give them different names")
    count: Any = size
    whole = not isinstance(count, bool) and isinstance(count, Integral)
    if count is not None and not (whole and count >= 1):
        raise InputError(f"sample: size is {size!r}; give a positive integer or None")
    try:
        generator = np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise InputError(f"sample: seed is {seed!r}; give a whole number of at least 0") from None
    parts = [
        e for t in chosen for e in (*(m for m in t.axis_covariance if m is not None), t.variance)
    ]
    inner = {x for e in parts for x in e.tensors(deep=True)}
    symbols = {s for e in parts for s in e.symbols(deep=True)}
    symbols |= {s for t in chosen for axis in t.shape for s in axis.free_symbols}
    bindings = Bindings(
        sorted(inner, key=lambda t: t.order), sorted(symbols, key=str), values or {}
    )
    result = {}
    for tensor in chosen:
        shape = tuple(bindings.size(s) for s in tensor.shape)
        try:
            draw = generator.standard_normal(((size,) if size is not None else ()) + shape)
        except (MemoryError, ValueError):
            raise InputError(
                f"sample: {tensor.name} of shape {shape} does not fit in memory; draw fewer"
            ) from None
        variance = float(bindings.evaluate(tensor.variance))
        if variance < 0:
            raise InputError(f"variance of {tensor.name} is {variance:g}; it must not be negative")
        draw *= np.sqrt(variance)
        offset = 0 if size is None else 1
        for axis, matrix in enumerate(tensor.axis_covariance):
            if matrix is not None:
                name = f"covariance of {tensor.name}"
                factor = square_root(bindings.evaluate(matrix), name)
                draw = np.moveaxis(
                    np.tensordot(draw, factor, axes=(axis + offset, 1)), -1, axis + offset
                )
        result[tensor.name] = draw
    return result
