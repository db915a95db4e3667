"""`reduce`: the smaller field that an ansatz obeys, or the proof that it obeys none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.analysis.local_expansion import LocalField, local_scalar, local_tensor
from odekit.analysis.scalar_system import is_scalar_field, read_system
from odekit.errors import InputError

__all__ = ["LeaveRate", "Reduction", "TrajectoryCheck", "reduce"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LeaveRate:
    """How fast trajectories leave the set that an ansatz describes.

    Parameters
    ----------
    speed : float
        Norm of the part of the velocity that points out of the set; zero for an exact ansatz.
    growth : float
        Largest real part of the linearisation transverse to the set: small deviations grow (or
        decay) at this rate.
    """

    speed: float
    growth: float


@dataclass(frozen=True)
class TrajectoryCheck:
    """Full and reduced trajectories side by side.

    Parameters
    ----------
    t : ndarray, shape (K,)
        Times.
    full, reduced : ndarray, shape (K, n)
        Flat states of the full field, and the lifted states of the reduced one.
    deviation : float
        Largest absolute difference.
    bound : float
        Estimate of the two integrations' own errors, from a second run at a looser tolerance.
    """

    t: Array
    full: Array
    reduced: Array
    deviation: float
    bound: float

    @property
    def agrees(self) -> bool:
        """Whether the difference is explained by the integration errors."""
        return self.deviation <= self.bound


@dataclass(frozen=True, eq=False)
class Reduction:
    """The result of an ansatz.

    Parameters
    ----------
    field : VectorField or None
        The reduced field; None if the ansatz is not kept by the flow.
    residual : mapping
        State name -> what is left of its equation; all zero for an exact reduction. Where it is
        not zero, the rates of the new states were read from the equations that determine them.
    exact : bool
        Whether the ansatz was proved invariant, for all values of what stays a symbol.
    lift : callable
        ``lift(reduced_state, values=None)``: state of the full field, name -> array.
    original : VectorField
        The full field.
    note : str
        How the new states' rates were found.
    """

    field: Any
    residual: Mapping[str, Any]
    exact: bool
    lift: Callable[..., dict[str, Array]]
    original: Any
    tangent: Callable[..., Array]
    note: str = ""

    def __str__(self) -> str:
        if self.exact:
            return f"exact reduction to\n{self.field!r}"
        lines = [f"  {name}: {rest}" for name, rest in self.residual.items() if not _is_zero(rest)]
        return "the flow leaves the ansatz; residual\n" + "\n".join(lines)

    def _repr_latex_(self) -> str | None:
        # Without a field the text, with the residual, is shown instead.
        return None if self.field is None else str(self.field._repr_latex_())

    def _local(
        self, state: Mapping[str, Any], values: Mapping[Any, Any]
    ) -> tuple[LocalField, Array]:
        point = self.lift(state, values)
        own = {k: v for k, v in values.items() if _names_of(self.original, k)}
        if is_scalar_field(self.original):
            local = local_scalar(read_system(self.original, own), point)
        else:
            local = local_tensor(self.original, point, own, {})
        return local, self.tangent(state, values)

    def leave_rate(
        self, state: Mapping[str, Any], values: Mapping[Any, Any] | None = None
    ) -> LeaveRate:
        """How fast trajectories leave the ansatz from a state on it.

        Parameters
        ----------
        state : mapping
            A state of the reduced field: name -> array.
        values : mapping, optional
            Parameters, and what else the ansatz holds.
        """
        local, tangent = self._local(state, values or {})
        basis, singular, _ = np.linalg.svd(tangent, full_matrices=True)
        rank = int(np.sum(singular > 1e-12 * max(singular.max(initial=0.0), 1e-300)))
        normal = basis[:, rank:]
        velocity = local.rates(local.point[None])[0]
        speed = float(np.linalg.norm(normal.T @ velocity))
        transverse = normal.T @ local.jacobian(local.point) @ normal
        growth = (
            float(np.linalg.eigvals(transverse).real.max()) if transverse.size else float("-inf")
        )
        return LeaveRate(speed, growth)

    def check(
        self,
        state: Mapping[str, Any],
        t: Any,
        values: Mapping[Any, Any] | None = None,
    ) -> TrajectoryCheck:
        """Integrate the full and the reduced field from the same state and compare.

        Parameters
        ----------
        state : mapping
            Initial state of the reduced field.
        t : float or ndarray
            End time, or increasing times; the start is at 0.
        values : mapping, optional
            Parameters, and what else the ansatz holds.
        """
        if self.field is None:
            raise InputError("The ansatz is not kept by the flow; there is no reduced trajectory.")
        values = dict(values or {})
        times = np.linspace(0.0, float(t), 41) if np.ndim(t) == 0 else np.asarray(t, dtype=float)
        local, _ = self._local(state, values)
        inner = {k: v for k, v in values.items() if _names_of(self.field, k)}
        if is_scalar_field(self.field):
            small = local_scalar(read_system(self.field, inner), state)
        else:
            small = local_tensor(self.field, state, inner, {})
        names = list(local.unpack(local.point))
        runs = []
        for tolerance in (1e-12, 1e-9):
            pair = []
            for field in (local, small):
                pair.append(_integrated(field, times, tolerance))
            lifted = []
            for y in pair[1]:
                state_full = self.lift(small.unpack(y), values)
                lifted.append(np.concatenate([np.ravel(state_full[n]) for n in names]))
            runs.append((pair[0], np.array(lifted)))
        (full, reduced), (full_loose, reduced_loose) = runs
        deviation = float(np.abs(full - reduced).max())
        error = float(np.abs(full - full_loose).max() + np.abs(reduced - reduced_loose).max())
        bound = error + 1e-11 * (1 + float(np.abs(full).max()))
        return TrajectoryCheck(times, full, reduced, deviation, bound)


def _integrated(local: LocalField, times: Array, tolerance: float) -> Array:
    """States at times, from the local field's point at time zero."""
    from scipy.integrate import solve_ivp

    def rates(_: float, y: Array) -> Array:
        return np.asarray(local.rates(y[None])[0])

    scale = float(np.sqrt(np.mean(local.point**2))) or 1.0
    span = (0.0, float(times[-1]))
    run = solve_ivp(
        rates, span, local.point, "DOP853", times, rtol=tolerance, atol=tolerance * scale
    )
    return np.asarray(run.y.T)


def _names_of(field: Any, key: Any) -> bool:
    name = getattr(key, "name", str(key))
    if is_scalar_field(field):
        return name in field.parameter_names or name in {str(p) for p in field.parameters}
    return name in field.parameter_names or name in {str(s) for s in field.size_symbols}


def _is_zero(value: Any) -> bool:
    if hasattr(value, "is_zero") and hasattr(value, "terms"):
        return bool(value.is_zero)
    return all(v == 0 for v in np.ravel(np.asarray(value, dtype=object)))


def reduce(
    field: Any,
    ansatz: Mapping[Any, Any],
    *,
    parameters: Any = (),
) -> Reduction:
    """Restrict a field to an ansatz, if the flow keeps it.

    Parameters
    ----------
    field : VectorField
        The full field.
    ansatz : mapping
        State (name, symbol or tensor) -> its expression: in component form SymPy expressions in
        new symbols; in tensor form expressions in new weights, parameters and eigenvectors. A
        state that is left out stays as it is. A parameter may be a key as well (``"Lambda":
        ok.identity(D)``). In tensor form axes that the expression lacks are broadcast.
    parameters : iterable of Symbol, optional
        In component form: symbols of the ansatz that are constants and not new states.

    Returns
    -------
    Reduction
        With ``.exact`` False and the ``.residual`` where the flow leaves the ansatz: nothing is
        projected in silence.

    Notes
    -----
    With ``theta = g(u)`` the chain rule demands ``Dg(u) u' = f(g(u))``. As many equations as there
    are new states are solved for ``u'``; the rest must then vanish identically.
    """
    if not isinstance(ansatz, Mapping) or not ansatz:
        raise InputError("reduce takes a mapping {state: expression in new weights}.")
    if is_scalar_field(field):
        from odekit.analysis.reduction_scalar import reduce_scalar

        return reduce_scalar(field, ansatz, tuple(parameters))
    from odekit.analysis.reduction_tensor import reduce_tensor

    return reduce_tensor(field, ansatz)
