"""`stability`: the kind of a fixed point, from the linearisation and beyond it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.analysis.center import CenterBlock, center_blocks
from odekit.analysis.fixed_point_set import FixedPoint
from odekit.analysis.local_expansion import LocalField, local_scalar, local_tensor
from odekit.analysis.newton import least_squares_root
from odekit.analysis.scalar_system import ScalarSystem, is_scalar_field, read_system
from odekit.errors import InputError

__all__ = ["Stability", "ZeroMode", "stability"]

Kind = Literal["stable", "semistable", "saddle", "degenerate saddle", "unstable", "undetermined"]


@dataclass(frozen=True, eq=False)
class ZeroMode:
    """A direction in which the linearisation vanishes.

    Parameters
    ----------
    direction : mapping
        State name -> array: a unit vector.
    reason : str
        Why: tangent to a manifold of fixed points (and whether a conserved quantity tells its
        points apart), or degenerate, with the order at which the field appears.
    order : int or None
        That order; None on a manifold.
    """

    direction: Mapping[str, NDArray[np.float64]]
    reason: str
    order: int | None


@dataclass(frozen=True, eq=False)
class Stability:
    """How trajectories behave near a fixed point.

    Parameters
    ----------
    kind : str
        "stable", "semistable", "saddle", "degenerate saddle" (unstable, but with no unstable
        eigenvalue), "unstable" or "undetermined"; transverse to the manifold of fixed points if
        the point lies on one.
    eigenvalues : ndarray
        Of the linearisation, by decreasing real part, in units of 1/time.
    index : int
        Number of eigenvalues with positive real part.
    zero_modes : tuple of ZeroMode
        Null directions and the reason for each.
    manifold_dimension : int
        Dimension of the manifold of fixed points through the point.
    escape_rate : float or None
        mu of the fastest way out, on which the distance s obeys ``s' = mu s**escape_order``.
    escape_order : int
        1 for an unstable eigenvalue, else the order of the leading form; 0 if nothing leaves.
    escape_direction : mapping or None
        State name -> array: the unit vector of the fastest way out.
    side : str
        For a semistable point: on which side trajectories leave.
    description : str
        One sentence.
    """

    kind: Kind
    eigenvalues: NDArray[Any]
    index: int
    zero_modes: tuple[ZeroMode, ...]
    manifold_dimension: int
    escape_rate: Any
    escape_order: int
    escape_direction: Mapping[str, NDArray[np.float64]] | None
    side: str
    description: str

    def time_near(self, distance: float, leave: float = 1.0) -> float:
        """Predicted time from entering at a distance along the way out until leaving.

        Parameters
        ----------
        distance : float
            Distance from the point, measured along the escape direction, at entrance.
        leave : float
            Distance at which the point counts as left.

        Returns
        -------
        float
            ``ln(leave/distance)/mu`` at order one,
            ``(distance**(1-k) - leave**(1-k))/((k-1) mu)`` at order k; inf if nothing leaves.
        """
        if not 0 < distance <= leave:
            raise InputError(f"distance is {distance}; give 0 < distance <= leave = {leave}.")
        if self.escape_order == 0 or self.escape_rate is None:
            return float("inf")
        rate, order = float(self.escape_rate), self.escape_order
        if order == 1:
            return float(np.log(leave / distance) / rate)
        return float((distance ** (1 - order) - leave ** (1 - order)) / ((order - 1) * rate))

    def __str__(self) -> str:
        return self.description


def stability(
    field: Any,
    point: Any,
    values: Mapping[Any, Any] | None = None,
    *,
    sizes: Mapping[Any, int] | None = None,
    tolerance: float = 1e-8,
) -> Stability:
    """Classify a fixed point.

    Parameters
    ----------
    field : VectorField
        The field.
    point : FixedPoint or mapping
        The point: state name -> array. A point of function space is taken through its lift.
    values : mapping, optional
        Parameters by name. A field of one state may keep symbols for them.
    sizes : mapping, optional
        Sizes that cannot be read off the arrays.
    tolerance : float
        Eigenvalues below this fraction of the linearisation's norm count as zero.

    Returns
    -------
    Stability
        The kind, the spectrum, the zero modes and the way out.

    Raises
    ------
    InputError
        If the point is not fixed.

    Notes
    -----
    Where the linearisation has zero modes, the field is reduced to them (Lyapunov-Schmidt) up to
    its first orders that do not vanish. Directions in which it never appears are tangent to a
    manifold of fixed points, and the rest is judged transverse to it.
    """
    if isinstance(point, FixedPoint) and point.lift is not None:
        point = point.lift
    if is_scalar_field(field):
        system = read_system(field, values)
        if len(system.states) == 1 and system.rates[0].free_symbols - set(system.states):
            return _one_symbolic_state(system, point)
        if isinstance(point, FixedPoint) and not point.values_by_name and point.exact:
            point = dict(point.exact)
        local = local_scalar(system, point)
        conserved_slopes = _conserved_slopes(system)
    else:
        names = {s.name for s in field.states}
        if not isinstance(point, Mapping) or not set(point) >= names:
            raise InputError(
                f"The point gives {', '.join(map(str, point))}; give the states "
                f"{', '.join(sorted(names))} (a point of function space needs sizes= in "
                "fixed_points for its lift)."
            )
        local = local_tensor(field, point, values or {}, sizes or {})
        conserved_slopes = _family_slopes(field, local)
    return _classify(_polished(local), tolerance, conserved_slopes)


def _polished(local: LocalField) -> LocalField:
    """The same with the point moved onto the nearest zero of the rates."""
    rate = local.rates(local.point[None])[0]
    size = float(np.abs(rate).max(initial=0.0))
    scale = 1 + float(np.abs(local.point).max(initial=0.0))
    if size == 0.0:
        return local
    better = least_squares_root(
        lambda y: local.rates(y[None])[0], local.jacobian, local.point, 1e-14 * scale, steps=8
    )
    if better is None and size < 1e-10 * scale:
        return local
    if better is None or np.abs(better - local.point).max() > 1e-4 * scale:
        raise InputError(
            f"The point is not fixed: its largest rate is {size:.3g}; find it with ok.fixed_points."
        )
    return LocalField(
        better, local.rates, local.jacobian, local.degree, local.symmetric, local.unpack
    )


def _classify(local: LocalField, tolerance: float, conserved_slopes: Any) -> Stability:
    jacobian = local.jacobian(local.point)
    count = jacobian.shape[0]
    rng = np.random.default_rng(1)
    u = rng.normal(size=(6, count))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    taylor = local.along(u[:, None, :], min(local.degree or 4, 7))
    scale = float(np.abs(taylor[:, 1:]).max(initial=0.0)) or 1.0
    norm = float(np.linalg.norm(jacobian, 2)) if count else 0.0
    symmetric = local.symmetric or bool(
        np.abs(jacobian - jacobian.T).max(initial=0.0) <= 1e-12 * max(norm, 1e-300)
    )
    zero = max(tolerance * norm, 1e-10 * scale)
    vectors: NDArray[Any]
    if symmetric:
        eigenvalues, vectors = np.linalg.eigh((jacobian + jacobian.T) / 2)
    else:
        eigenvalues, vectors = np.linalg.eig(jacobian)
        # Rounding splits a defective zero by its square root; widen the threshold once.
        zero = max(zero, 1e-7 * norm)
    order = np.argsort(-eigenvalues.real, kind="stable")
    eigenvalues, vectors = eigenvalues[order], vectors[:, order]
    null = np.abs(eigenvalues) <= zero
    positive = int(np.sum(eigenvalues.real > zero))
    negative = int(np.sum(eigenvalues.real < -zero))
    centers = int(np.sum((np.abs(eigenvalues.real) <= zero) & ~null))
    blocks: list[CenterBlock] = []
    kernel_size = int(null.sum())
    defective = False
    if kernel_size:
        left, _, right = np.linalg.svd(jacobian)
        kernel, coker = right[count - kernel_size :].T, left[:, count - kernel_size :]
        singular = np.linalg.svd(jacobian, compute_uv=False)
        defective = bool(
            singular[count - kernel_size] > 30 * zero or np.linalg.cond(coker.T @ kernel) > 1e7
        )
        if not defective:
            blocks = center_blocks(local, kernel, coker, jacobian, scale, symmetric)
    return _verdict(
        local,
        eigenvalues,
        vectors,
        positive,
        negative,
        centers,
        blocks,
        defective,
        conserved_slopes,
    )


def _verdict(
    local: LocalField,
    eigenvalues: NDArray[Any],
    vectors: NDArray[Any],
    positive: int,
    negative: int,
    centers: int,
    blocks: list[CenterBlock],
    defective: bool,
    conserved_slopes: Any,
) -> Stability:
    manifold = sum(b.basis.shape[1] for b in blocks if b.order is None)
    moving = [b for b in blocks if b.order is not None]
    rising = [b for b in moving if b.highest > 1e-9 * max(abs(b.highest), abs(b.lowest), 1e-300)]
    kind: Kind
    side = ""
    if positive:
        falling = negative or any(b.lowest < 0 for b in moving)
        kind = "saddle" if falling else "unstable"
    elif defective or centers:
        kind = "undetermined"
    elif not moving:
        kind = "stable" if negative or manifold or not eigenvalues.size else "stable"
    elif not rising:
        kind = "stable" if all(b.decided for b in moving) else "undetermined"
    elif not all(b.decided for b in rising):
        kind = "undetermined"
    else:
        leaving = rising[0]
        dimension = sum(b.basis.shape[1] for b in moving)
        order = leaving.order or 0
        if dimension == 1 and order % 2 == 0:
            kind = "semistable"
            side = _side(local, leaving)
        elif negative or any(b.lowest < -1e-9 * abs(b.highest) for b in moving):
            kind = "degenerate saddle"
        else:
            kind = "unstable"
    rate: float | None = None
    escape_order = 0
    direction: NDArray[np.float64] | None = None
    if positive:
        rate, escape_order = float(eigenvalues[0].real), 1
        direction = np.real(vectors[:, 0])
        direction = direction / np.linalg.norm(direction)
    elif rising and kind != "undetermined":
        best = rising[0]
        rate, escape_order, direction = best.highest, best.order or 0, best.direction
    modes = _zero_modes(local, blocks, conserved_slopes)
    return Stability(
        kind,
        eigenvalues,
        positive,
        modes,
        manifold,
        rate,
        escape_order,
        None if direction is None else local.unpack(direction),
        side,
        _sentence(kind, manifold, positive, moving, defective, centers, side, rate, escape_order),
    )


_WORDS = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}


def _sentence(
    kind: str,
    manifold: int,
    positive: int,
    moving: list[CenterBlock],
    defective: bool,
    centers: int,
    side: str,
    rate: float | None,
    order: int,
) -> str:
    text = kind
    if manifold:
        text += f" transverse to a {_WORDS.get(manifold, manifold)}-dimensional manifold"
    if side:
        text += f", leaving {side}"
    if positive:
        text += f", {positive} unstable direction(s), fastest rate {rate:.6g}"
    elif order and rate is not None:
        text += f", no unstable eigenvalue, escape of order {order}: s' = {rate:.6g} s^{order}"
    if kind == "undetermined":
        if defective:
            text += ": the zero eigenvalue has a nilpotent part"
        elif centers:
            text += ": imaginary eigenvalues"
        else:
            text += ": the leading order of the field does not decide"
    elif kind == "stable" and moving:
        text += f", approached algebraically at order {moving[0].order}"
    return text


def _side(local: LocalField, block: CenterBlock) -> str:
    assert block.direction is not None
    named = local.unpack(block.direction)
    at = local.unpack(local.point)
    name, step = max(named.items(), key=lambda item: float(np.abs(item[1]).max()))
    flat, here = step.ravel(), at[name].ravel()
    k = int(np.argmax(np.abs(flat)))
    label = name if step.ndim == 0 else f"{name}[{k}]" if step.ndim == 1 else f"{name} (entry {k})"
    relation = ">" if flat[k] > 0 else "<"
    return f"for {label} {relation} {here[k]:.6g}"


def _zero_modes(
    local: LocalField, blocks: list[CenterBlock], conserved_slopes: Any
) -> tuple[ZeroMode, ...]:
    slopes = None if conserved_slopes is None else conserved_slopes(local.point)
    modes = []
    for block in blocks:
        for direction in block.basis.T:
            if block.order is None:
                reason = "manifold of fixed points"
                if slopes is not None and slopes.size and np.abs(slopes @ direction).max() > 1e-9:
                    reason += ", along which a conserved quantity changes"
            elif block.highest > 0:
                reason = f"degenerate: escape of order {block.order}"
            else:
                reason = f"degenerate: approach of order {block.order}"
            modes.append(ZeroMode(local.unpack(direction), reason, block.order))
    return tuple(modes)


def _conserved_slopes(system: ScalarSystem) -> Any:
    """Gradients of the quadratic conserved quantities, for small polynomial fields."""
    from odekit.analysis.conserved_scalar import conserved_scalar

    if len(system.states) > 14:
        return None
    try:
        found = conserved_scalar(system, 2, seconds=2.0)
    except InputError:
        return None
    if not len(found):
        return None
    slopes = sp.lambdify(
        [system.states],
        [[sp.diff(i.expression, s) for s in system.states] for i in found],
        "numpy",
    )
    return lambda y: np.array(slopes(y), dtype=float).reshape(len(found), len(system.states))


def _family_slopes(field: Any, local: LocalField) -> Any:
    """Gradients of the entries of the conserved tensor families."""
    from odekit.analysis.conserved_tensor import quadratic_families

    try:
        families = quadratic_families(field)
    except InputError:
        return None
    scalars = {s for e in families for s in e.symbols()}
    if not families or scalars:
        return None

    def slopes(y: NDArray[np.float64]) -> NDArray[np.float64]:
        state = local.unpack(y)
        rows = []
        for family in families:
            blocks: list[NDArray[np.float64] | None] = []
            for s in field.states:
                slope = family.diff(s)
                size = state[s.name].size
                if slope.is_zero:
                    blocks.append(None)
                    continue
                blocks.append(np.asarray(slope.evaluate(state)).reshape(-1, size))
            count = next(b.shape[0] for b in blocks if b is not None)
            rows.append(
                np.concatenate(
                    [
                        np.zeros((count, state[s.name].size)) if b is None else b
                        for s, b in zip(field.states, blocks, strict=True)
                    ],
                    axis=1,
                )
            )
        return np.concatenate(rows)

    return slopes


def _one_symbolic_state(system: ScalarSystem, point: Any) -> Stability:
    """A field of one state with symbolic parameters: the first derivative that is not zero."""
    (state,), (rate,) = system.states, system.rates
    if isinstance(point, FixedPoint) and point.exact is not None:
        at = point.exact[state]
    else:
        raw = system.pack(point)[0]
        at = sp.sympify(raw if isinstance(raw, sp.Expr) else sp.nsimplify(raw))
    if sp.simplify(rate.subs(state, at)) != 0:
        raise InputError(f"{at} is not a fixed point of {rate}; find it with ok.fixed_points.")
    first = sp.simplify(sp.diff(rate, state).subs(state, at))
    eigenvalues = np.array([first], dtype=object)
    order, slope = 1, first
    while slope == 0 and order < 12:
        order += 1
        slope = sp.simplify(sp.diff(rate, state, order).subs(state, at) / sp.factorial(order))
    unit = {state.name: np.array(1.0)}
    if slope == 0:
        mode = ZeroMode(unit, "manifold of fixed points", None)
        return Stability(
            "stable",
            eigenvalues,
            0,
            (mode,),
            1,
            None,
            0,
            None,
            "",
            "stable transverse to a one-dimensional manifold",
        )
    modes = () if order == 1 else (ZeroMode(unit, f"degenerate: order {order}", order),)
    sign = slope.is_positive, slope.is_negative
    if sign == (None, None) or not any(sign):
        return Stability(
            "undetermined",
            eigenvalues,
            0,
            modes,
            0,
            None,
            0,
            None,
            "",
            f"undetermined: the sign of {slope} is not known; declare its symbols",
        )
    up = bool(sign[0])
    if order % 2 == 0:
        side = f"for {state} {'>' if up else '<'} {at}"
        return Stability(
            "semistable",
            eigenvalues,
            0,
            modes,
            0,
            sp.Abs(slope),
            order,
            unit,
            side,
            f"semistable, leaving {side}: s' = ({sp.Abs(slope)}) s^{order}",
        )
    if up:
        return Stability(
            "unstable",
            eigenvalues,
            int(order == 1),
            modes,
            0,
            slope,
            order,
            unit,
            "",
            f"unstable: s' = ({slope}) s^{order}",
        )
    return Stability("stable", eigenvalues, 0, modes, 0, None, 0, None, "", "stable")
