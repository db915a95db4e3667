"""What happens along the zero modes of a linearisation: manifolds, and escape of higher order.

Lyapunov-Schmidt reduction: along a kernel direction z the state follows ``s z + w(s)``, w in the
complement chosen so that the rates there vanish order by order; what is left in the kernel,
``sum_k s^k phi_k(z)``, is the reduced field. Directions in which its leading form does not change
are followed to higher order; those in which it never appears are tangent to a manifold of fixed
points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odekit.analysis.local_expansion import LocalField

__all__ = ["CenterBlock", "center_blocks"]

Array = NDArray[np.float64]
NEGLIGIBLE = 1e-7


@dataclass(frozen=True)
class CenterBlock:
    """Kernel directions that share their leading order.

    Parameters
    ----------
    basis : ndarray, shape (n, d)
        Orthonormal directions.
    order : int or None
        Order of the leading form of the reduced field; None for tangents of a manifold.
    highest, lowest : float
        Largest and smallest rate ``u . phi_k(u)`` over unit vectors u of the block.
    direction : ndarray or None, shape (n,)
        Where the largest is taken.
    decided : bool
        Whether the direction is a ray of the reduced field (always so for gradient flows).
    """

    basis: Array
    order: int | None
    highest: float = 0.0
    lowest: float = 0.0
    direction: Array | None = None
    decided: bool = True


class _Reduced:
    """The reduced field on a kernel."""

    def __init__(self, local: LocalField, kernel: Array, left: Array, jacobian: Array) -> None:
        self.local, self.kernel = local, kernel
        # Oblique projection onto the kernel along the range of the Jacobian.
        self.dual = np.linalg.solve(left.T @ kernel, left.T)
        self.inverse = np.linalg.pinv(jacobian, rcond=1e-9)

    def forms(self, z: Array, order: int) -> Array:
        """phi_2 .. phi_order at kernel coordinates z (m, d): shape (m, order - 1, d)."""
        directions = z @ self.kernel.T
        curve = directions[:, None, :]
        found = []
        for k in range(2, order + 1):
            coefficient = self.local.along(curve, k)[:, k]
            inside = coefficient @ self.dual.T
            found.append(inside)
            outside = coefficient - inside @ self.kernel.T
            step = -outside @ self.inverse.T
            step -= (step @ self.dual.T) @ self.kernel.T
            curve = np.concatenate([curve, step[:, None, :]], axis=1)
        return np.stack(found, axis=1)

    def form(self, z: Array, k: int) -> Array:
        """phi_k at kernel coordinates."""
        return self.forms(z, k)[:, -1]


def center_blocks(
    local: LocalField, kernel: Array, left: Array, jacobian: Array, scale: float, gradient: bool
) -> list[CenterBlock]:
    """Split the kernel of the Jacobian by the leading order of the reduced field.

    Parameters
    ----------
    local : LocalField
        The field at the point.
    kernel, left : ndarray, shape (n, d)
        Right and left null vectors.
    jacobian : ndarray, shape (n, n)
        The linear part.
    scale : float
        Size of the field's Taylor coefficients, to tell zero from rounding.
    gradient : bool
        Whether the field is a gradient flow of one rate.
    """
    reduced = _Reduced(local, kernel, left, jacobian)
    dimension = kernel.shape[1]
    rng = np.random.default_rng(4)
    highest = 7 if local.degree is None else max(5, 2 * local.degree - 1)
    if dimension > 12:
        highest = min(highest, 5)
    span = np.eye(dimension)
    blocks: list[CenterBlock] = []
    start = 2
    while span.shape[1]:
        z = rng.normal(size=(min(24, 4 + 2 * span.shape[1]), span.shape[1]))
        z /= np.linalg.norm(z, axis=1, keepdims=True)
        forms = reduced.forms(z @ span.T, highest)
        sizes = np.linalg.norm(forms, axis=2).max(axis=0)
        # Higher coefficients are less accurate and may be large: each order has its own threshold.
        levels = NEGLIGIBLE * scale * 4.0 ** np.arange(forms.shape[1])
        active = [k for k in range(start, highest + 1) if sizes[k - 2] > levels[k - 2]]
        if not active:
            blocks.append(CenterBlock(kernel @ span, None))
            break
        order = active[0]
        lineal, moving = _split(reduced, span, order, levels[order - 2], rng)
        blocks.append(_block(reduced, moving, order, gradient, rng))
        span, start = lineal, order
        if moving.shape[1] == 0:
            start = order + 1
    return [b for b in blocks if b.basis.shape[1]]


def _split(
    reduced: _Reduced, span: Array, order: int, level: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Directions t of the span with phi(y + t) = phi(y) for all y, and their complement."""
    dimension = span.shape[1]
    rows = []
    nodes = np.cos((2 * np.arange(order + 1) + 1) * np.pi / (2 * (order + 1)))
    vandermonde = np.linalg.inv(np.vander(nodes, order + 1, increasing=True))
    for _ in range(3):
        y = np.asarray(rng.normal(size=(dimension,)))
        y = y / np.linalg.norm(y)
        states = y + nodes[:, None, None] * np.eye(dimension)[None]
        values = reduced.form(states.reshape(-1, dimension) @ span.T, order)
        values = values.reshape(order + 1, dimension, -1)
        # The coefficient of the first power is the derivative along each direction.
        slope = np.einsum("t,tdn->nd", vandermonde[1], values)
        rows.append(slope)
    _, singular, right = np.linalg.svd(np.concatenate(rows))
    rank = int(np.sum(singular > max(1e-6 * singular[0], 30 * level)))
    return span @ right[rank:].T, span @ right[:rank].T


def _block(
    reduced: _Reduced, moving: Array, order: int, gradient: bool, rng: np.random.Generator
) -> CenterBlock:
    """Extreme rates over the unit sphere of a block."""
    dimension = moving.shape[1]
    basis = reduced.kernel @ moving
    if dimension == 0:
        return CenterBlock(basis, order)
    if dimension == 1:
        starts = np.array([[1.0], [-1.0]])
    else:
        starts = rng.normal(size=(24, dimension))
        starts = np.concatenate([starts, -starts, np.eye(dimension), -np.eye(dimension)])
        starts /= np.linalg.norm(starts, axis=1, keepdims=True)
    form = _quadratic(reduced, moving) if order == 2 and dimension > 1 else None

    def rates(u: Array) -> Array:
        if form is not None:
            return np.einsum("aij,mi,mj->ma", form, u, u)
        return np.asarray(reduced.form(u @ moving.T, order) @ moving)

    high, low = _extreme(rates, starts, 1.0, order), _extreme(rates, starts, -1.0, order)
    size = max(abs(high[0]), abs(low[0]), 1e-300)
    decided = gradient or dimension == 1 or high[2] < 1e-4 * size
    return CenterBlock(basis, order, high[0], low[0], basis @ high[1], decided)


def _quadratic(reduced: _Reduced, moving: Array) -> Array:
    """phi_2 on a block as an array (out, in, in)."""
    d = moving.shape[1]
    pairs = [(i, j) for i in range(d) for j in range(i + 1)]
    eye = np.eye(d)
    points = np.array([eye[i] + eye[j] if i != j else eye[i] for i, j in pairs])
    values = np.concatenate(
        [
            reduced.form(chunk @ moving.T, 2) @ moving
            for chunk in np.array_split(points, 1 + len(points) // 400)
        ]
    )
    form = np.zeros((d, d, d))
    square = {i: values[k] for k, (i, j) in enumerate(pairs) if i == j}
    for k, (i, j) in enumerate(pairs):
        mixed = values[k] if i == j else (values[k] - square[i] - square[j]) / 2
        form[:, i, j] = form[:, j, i] = mixed
    return form


def _extreme(rates: object, starts: Array, sign: float, order: int) -> tuple[float, Array, float]:
    """Largest ``sign * u . phi(u)`` by shifted power iteration; the value, u and its residual."""
    assert callable(rates)
    u = starts.copy()
    value = rates(u)
    shift = order * float(np.linalg.norm(value, axis=1).max()) + 1e-300
    if u.shape[1] > 1:
        for step in range(400 if order == 2 else 80):
            u = sign * rates(u) + shift * u
            u /= np.linalg.norm(u, axis=1, keepdims=True)
            if step % 20 == 19:
                heights = np.sum(u * rates(u), axis=1) * sign
                keep = np.argsort(-heights)[: max(6, u.shape[0] // 2)]
                u = u[keep]
                shift = max(0.5 * order * float(np.abs(heights).max()), 0.3 * shift)
    value = rates(u)
    heights = np.sum(u * value, axis=1)
    best = int(np.argmax(sign * heights))
    residual = float(np.linalg.norm(value[best] - heights[best] * u[best]))
    return float(heights[best]), u[best], residual
