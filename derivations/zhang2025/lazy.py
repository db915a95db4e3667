r"""The linearised (lazy) flow: what training does if the weights hardly move (statement 14).

With the weights' Jacobian frozen at the start, ``A`` obeys a linear equation with the kernel
``K0 = J J^T``: ``d vec(A)/dt = K0 (vec(L^2) - (B (x) L) vec(A))``, vec row-major. In
``b = C^(1/2) vec(A - A*)``, ``C = B (x) L``, it reads ``db/dt = - C^(1/2) K0 C^(1/2) b``, and the
loss is ``L(A*) + |b|^2``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import odekit as ok

from .merged import optimum
from .statement import Check, Statement

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


def large_starts() -> Statement:
    """14. Large starts decay exponentially; they are lazy only if A(0) = 0."""
    spectrum, context, scales = np.array([0.4, 0.3, 0.2, 0.1]), 31, (4.0, 8.0)
    covariance = np.diag(spectrum)
    floor = float(ok.theory.plateau_losses(spectrum, context)[-1])
    model: Any = ok.models.attention_merged(heads=8, dim=4)
    gaps: dict[str, list[float]] = {"paired": [], "independent": []}
    changes = []
    for kind, found in gaps.items():
        for scale in scales:
            y0 = ok.simulate.initial(model, scale, 0)
            y0 = paired(y0) if kind == "paired" else y0
            times = np.linspace(0.0, 60.0, 60) / scale**2
            run: Any = ok.solve(
                model.flow,
                y0,
                times,
                {"Lambda": covariance, "N": context},
                tolerance=ok.Tolerance(relative=1e-11),
            )
            line = lazy_excess(y0, covariance, context, times)
            found.append(float(np.abs(run.loss - floor - line).max() / line[0]))
            rate = model.flow.evaluate(y0, {"Lambda": covariance, "N": context})
            moved = {name: y0[name] + 1e-6 * rate[name] for name in y0}
            back = {name: y0[name] - 1e-6 * rate[name] for name in y0}
            first = np.abs(kernel(moved) - kernel(back)).max() / 2e-6
            changes.append(float(first) if kind == "paired" else 0.0)
    powers = {kind: np.log2(found[1] / found[0]) for kind, found in gaps.items()}
    return Statement(
        "14",
        "As the scale grows the run from paired heads (A(0) = 0) tends to the linearised flow, "
        "with a distance of scale^-4 (merged) and scale^-6 (separate): by the mirror symmetry the "
        "kernel does not change at first order.",
        (
            r"\tau\,\frac{d}{dt}\operatorname{vec}A = K_0\left[\operatorname{vec}\Lambda^2"
            r" - (B\otimes\Lambda)\operatorname{vec}A\right],\qquad K_0 = J J^\top",
        ),
        ("A(0) = 0, as from heads in pairs v, -v",),
        corrects=(
            "Large independent starts lose their plateaus and decay, but are not lazy: A(0) grows "
            "with the start, the weights move as far as they are large, and the distance to the "
            "linearised flow tends to a constant."
        ),
        checks=(
            # Central differences of a quadratic kernel of size 100 in double precision.
            Check("paired: the kernel rests at first order", max(changes), 1e-6),
            Check("paired: power of the distance + 4", abs(float(powers["paired"]) + 4), 0.1),
            Check("independent: power of the distance", abs(float(powers["independent"])), 0.1),
        ),
    )
