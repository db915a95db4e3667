r"""The linearised (lazy) flow: what training does if the weights hardly move (statement 14).

With the weights' Jacobian frozen at the start, ``A`` obeys a linear equation with the kernel
``K0 = J J^T``: ``d vec(A)/dt = K0 (vec(L^2) - (B (x) L) vec(A))``, vec row-major. In
``b = C^(1/2) vec(A - A*)``, ``C = B (x) L``, it reads ``db/dt = - C^(1/2) K0 C^(1/2) b``, and the loss
is ``L(A*) + |b|^2``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .merged import optimum

Array = NDArray[np.float64]


def kernel(state: Mapping[str, Array]) -> Array:
    """``J J^T`` (D^2, D^2) of vec(A) with respect to all weights, at a state of either model."""
    v = state["v"]
    if "U" in state:
        U = state["U"].reshape(len(v), -1)
        return U.T @ U + np.sum(v**2) * np.eye(U.shape[1])
    H, R, D = state["K"].shape
    K, Q = state["K"], state["Q"]
    eye = np.eye(D)
    of_values = np.einsum("hri,hrj->hij", K, Q).reshape(H, -1)
    total = of_values.T @ of_values
    total = total + np.kron(eye, np.einsum("h,hri,hrj->ij", v**2, Q, Q))
    return total + np.kron(np.einsum("h,hri,hrj->ij", v**2, K, K), eye)


def matrix(state: Mapping[str, Array]) -> Array:
    """A (D, D) of a state of either model."""
    if "U" in state:
        return np.einsum("h,hij->ij", state["v"], state["U"])
    return np.einsum("h,hri,hrj->ij", state["v"], state["K"], state["Q"])


def lazy_excess(
    state: Mapping[str, Array], covariance: ArrayLike, context: float, times: ArrayLike
) -> Array:
    """Loss above its minimum along the lazy flow from a state, at times (K,) in units of tau."""
    L = np.asarray(covariance, dtype=np.float64)
    B = L @ ((1 + 1 / context) * L + np.trace(L) / context * np.eye(len(L)))
    values, vectors = np.linalg.eigh(np.kron(B, L))
    root = (vectors * np.sqrt(values)) @ vectors.T
    start = root @ (matrix(state) - optimum(L, context)).reshape(-1)
    rates, modes = np.linalg.eigh(root @ kernel(state) @ root)
    decay = np.exp(-np.multiply.outer(np.asarray(times, dtype=np.float64), 2 * rates))
    return decay @ (modes.T @ start) ** 2


def paired(state: Mapping[str, Array]) -> dict[str, Array]:
    """A start with A = 0: each head of the first half is followed by its mirror image, v -> -v."""
    half = len(state["v"]) // 2
    twice = {name: np.concatenate([value[:half]] * 2) for name, value in state.items()}
    twice["v"][half:] *= -1
    return twice
