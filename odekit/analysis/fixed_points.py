"""`fixed_points`: where a field rests, in its states or in function space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odekit.analysis.fixed_point_set import FixedPointSet
from odekit.analysis.fixed_points_scalar import fixed_points_scalar
from odekit.analysis.scalar_system import is_scalar_field, read_system
from odekit.errors import InputError

__all__ = ["fixed_points"]

SECONDS = 30.0


def fixed_points(
    field: Any,
    values: Mapping[Any, Any] | None = None,
    of: str | None = None,
    *,
    sizes: Mapping[Any, int] | None = None,
    seconds: float = SECONDS,
    seed: int = 0,
) -> FixedPointSet:
    """Find the fixed points of a field.

    Parameters
    ----------
    field : VectorField
        The field.
    values : mapping, optional
        Parameters by name, numbers or arrays. Parameters left out of a component form stay
        symbols.
    of : str, optional
        Name of an intermediate of a tensor field: find its values at fixed points (function
        space) instead of the states.
    sizes : mapping, optional
        Sizes that cannot be read off the arrays, such as the number of heads.
    seconds : float
        Time budget of the exact computation; a partial answer says that it is partial.
    seed : int
        Seed of the starts of the numerical search.

    Returns
    -------
    FixedPointSet
        ``.points``, ``.manifolds``, ``.complete``, ``.method`` and what is missing in ``.note``.

    Notes
    -----
    Small polynomial systems are solved exactly: Groebner bases split by factors, a rational
    univariate representation of each finite part, real roots by isolation, and their number
    checked by Hermite's quadratic form. Floats stand for their shortest decimals. A system that
    is too large or not polynomial is searched by least-squares Newton from many starts, with
    ``complete=False``.
    """
    if not seconds > 0:
        raise InputError(f"seconds is {seconds}; give a positive time budget.")
    if is_scalar_field(field):
        if of is not None:
            raise InputError(
                f"of={of!r} names an intermediate of a tensor field; this field is in components."
            )
        return fixed_points_scalar(read_system(field, values), seconds, seed)
    from odekit.analysis.function_space import fixed_points_of
    from odekit.analysis.tensor_system import component_system

    if of is not None:
        return fixed_points_of(field, of, values or {}, sizes or {}, seconds, seed)
    searched = _searched(field, values or {}, sizes or {}, seconds, seed)
    if searched is not None:
        return searched
    return fixed_points_scalar(component_system(field, values or {}, sizes or {}), seconds, seed)


def _searched(
    field: Any, values: Mapping[Any, Any], sizes: Mapping[Any, int], seconds: float, seed: int
) -> FixedPointSet | None:
    """The search of a tensor field with many states, on its own numbers; None for few."""
    import numpy as np

    from odekit.analysis.budget import Budget
    from odekit.analysis.fixed_points_scalar import FEW_STATES, search
    from odekit.analysis.local_expansion import local_tensor
    from odekit.analysis.tensor_system import random_values, read_sizes, split_values

    named = split_values(field, values)
    known = read_sizes(field, named, sizes)
    state, _ = random_values(field, known, np.random.default_rng(seed))
    count = sum(array.size for array in state.values())
    if count <= FEW_STATES:
        return None
    local = local_tensor(field, state, named, sizes)
    reason = f"{count} states are too many for the exact computation; try of= an intermediate"
    return search(
        lambda y: local.rates(y[None])[0],
        local.jacobian,
        count,
        local.unpack,
        Budget(seconds),
        seed,
        reason,
    )
