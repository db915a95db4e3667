"""What the claims share: cases to draw, and rates as plain sums that take complex weights.

The sums are those of `loss.gradient_flow` (the claim ``zhang2025.flow`` compares them with the
derived flow). They are polynomials, so that a complex step gives their Jacobian to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

import odekit as ok
from odekit.claims import Check
from odekit.testing import rotations, spectra

from .staircase import speed
from .statement import Statement

Array = NDArray[np.float64]
Case = Mapping[str, Any]
State = dict[str, Array]

NOTE = "Notes on Zhang et al. 2025 (arXiv:2501.16265)"
ROUNDING = "rounding of a sum of at most a few hundred products"
_STEP = 1e-20  # a complex step: no difference is formed, so that no digit is lost


class _Flows(dict[str, Any]):
    """The models with symbolic sizes, each derived at first use."""

    def __missing__(self, name: str) -> Any:
        make: dict[str, Any] = {
            "merged": ok.models.attention_merged,
            "separate": ok.models.attention_separate,
        }
        self[name] = make[name]()
        return self[name]


MODELS = _Flows()


@lru_cache(maxsize=2)
def speed_of(kind: str) -> Any:
    """``-d(loss)/dt`` along the flow of a parametrization, as an expression."""
    return speed(MODELS[kind].flow)


def proof(*steps: Callable[[], Statement]) -> Callable[[], Iterable[Check]]:
    """Return the exact checks of steps of the derivation."""

    def checks() -> Iterable[Check]:
        for step in steps:
            for check in step().checks:
                if check.exact:
                    yield check

    return checks


# -- cases ----------------------------------------------------------------------------------------


def tenths(count: int, reach: int = 20) -> st.SearchStrategy[list[float]]:
    """Lists of multiples of one tenth."""
    entry = st.integers(-reach, reach).map(lambda k: k / 10)
    return st.lists(entry, min_size=count, max_size=count)


@st.composite
def weights(
    draw: st.DrawFn, kind: str, dim: int, heads: tuple[int, int] = (1, 3), ranks: int = 2
) -> State:
    """Weights of a layer, entries up to 2."""
    H = draw(st.integers(*heads))
    R = draw(st.integers(1, ranks)) if kind == "separate" else 1
    shapes: dict[str, tuple[int, ...]] = {"v": (H,)}
    shapes |= {"U": (H, dim, dim)} if kind == "merged" else {"K": (H, R, dim), "Q": (H, R, dim)}
    return {
        name: np.array(draw(tenths(int(np.prod(shape))))).reshape(shape)
        for name, shape in shapes.items()
    }


@st.composite
def layers(
    draw: st.DrawFn, kind: str | None = None, dim: tuple[int, int] = (1, 3), context: int = 100
) -> Case:
    """A parametrization, its weights, a covariance (spectrum and rotation) and a context length."""
    chosen = kind or draw(st.sampled_from(["merged", "separate"]))
    spectrum = draw(spectra(dim=dim, condition=20.0))
    turn = draw(rotations(len(spectrum)))
    return {
        "kind": chosen,
        "spectrum": spectrum,
        "turn": turn,
        "N": draw(st.integers(1, context)),
        "state": draw(weights(chosen, len(spectrum))),
        "seed": draw(st.integers(0, 10_000)),
    }


def covariance(case: Case) -> Array:
    """Return the covariance of a case."""
    spectrum = np.asarray(case["spectrum"], dtype=np.float64)
    turn = np.asarray(case.get("turn", np.eye(len(spectrum))))
    matrix = (turn * spectrum) @ turn.T
    result: Array = (matrix + matrix.T) / 2
    return result


def sequence(case: Case) -> tuple[Array, Array]:
    """Tokens (N + 1, D), query last, and a task (D,) of a case's seed."""
    rng = np.random.default_rng(int(case["seed"]))
    L = covariance(case)
    factor = np.linalg.cholesky(L)
    return rng.standard_normal((int(case["N"]) + 1, len(L))) @ factor.T, rng.standard_normal(len(L))


# -- formulas -------------------------------------------------------------------------------------


def second_moment(L: Array, N: float) -> Array:
    """``B = L ((1 + 1/N) L + (tr L / N) I)``."""
    result: Array = L @ ((1 + 1 / N) * L + np.trace(L) / N * np.eye(len(L)))
    return result


def product(state: Mapping[str, Any]) -> Any:
    """``A`` (..., D, D) of weights."""
    if "U" in state:
        return np.einsum("...h,...hij->...ij", state["v"], state["U"])
    return np.einsum("...h,...hri,...hrj->...ij", state["v"], state["K"], state["Q"])


def loss_of(A: Any, L: Array, N: float) -> float:
    """Expected loss of ``A``."""
    B = second_moment(L, N)
    return float(np.trace(L) - 2 * np.trace(L @ A @ L) + np.trace(A.T @ B @ A @ L))


def rates(state: Mapping[str, Any], L: Array, N: float) -> dict[str, Any]:
    """Rates of all weights, in units of 1/tau; any leading axes are states of their own."""
    G = L @ L - second_moment(L, N) @ product(state) @ L
    v = state["v"]
    if "U" in state:
        U = state["U"]
        return {
            "v": np.einsum("...hij,...ij->...h", U, G),
            "U": v[..., None, None] * G[..., None, :, :],
        }
    K, Q = state["K"], state["Q"]
    return {
        "v": np.einsum("...hri,...ij,...hrj->...h", K, G, Q),
        "K": np.einsum("...h,...ij,...hrj->...hri", v, G, Q),
        "Q": np.einsum("...h,...ji,...hrj->...hri", v, G, K),
    }


def flat(state: Mapping[str, Any]) -> Any:
    """All weights in one vector."""
    return np.concatenate([np.ravel(value) for value in state.values()])


def shaped(y: Any, like: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `flat`."""
    edges = np.cumsum([np.size(value) for value in like.values()])[:-1]
    parts = np.split(y, edges)
    return {n: p.reshape(np.shape(x)) for (n, x), p in zip(like.items(), parts, strict=True)}


def jacobian(state: Mapping[str, Any], L: Array, N: float) -> Array:
    """Jacobian of the rates, by a complex step in all weights at once."""
    y = flat(state)
    moved = y + 1j * _STEP * np.eye(len(y))
    edges = np.cumsum([np.size(value) for value in state.values()])[:-1]
    parts = np.split(moved, edges, axis=1)
    states = {
        n: p.reshape(len(y), *np.shape(x)) for (n, x), p in zip(state.items(), parts, strict=True)
    }
    changes = rates(states, L, N).values()
    columns = np.concatenate([np.reshape(change, (len(y), -1)) for change in changes], axis=1)
    result: Array = columns.imag.T / _STEP
    return result


def growth(state: Mapping[str, Any], L: Array, N: float) -> float:
    """Largest eigenvalue of the Jacobian (symmetric: it is minus half the loss' Hessian)."""
    return float(np.linalg.eigvalsh(jacobian(state, L, N))[-1])


def size_of(state: Mapping[str, Any], L: Array) -> float:
    """Bound of the terms of the rates: the sixth power of what enters them."""
    top = 1 + max(float(np.abs(value).max()) for value in state.values())
    return float(np.trace(L) + 1) ** 4 * top**6 * len(flat(state)) ** 2


def subsets(dim: int) -> list[tuple[int, ...]]:
    """All sets of the modes of a dimension, the smaller first."""
    return [s for size in range(dim + 1) for s in combinations(range(dim), size)]


def packed(A: Array, H: int, R: int) -> State:
    """Balanced weights of H heads of rank R whose A is a symmetric positive matrix."""
    strengths, vectors = np.linalg.eigh(A)
    D = len(A)
    state = {"v": np.zeros(H), "K": np.zeros((H, R, D)), "Q": np.zeros((H, R, D))}
    learned = np.flatnonzero(strengths > 1e-12 * max(1.0, float(np.abs(A).max())))
    for place, mode in enumerate(learned):
        head, pair = place // R, place % R
        state["v"][head] = 1.0
        state["K"][head, pair] = state["Q"][head, pair] = (
            np.sqrt(strengths[mode]) * vectors[:, mode]
        )
    return state


def rests(like: Mapping[str, Any], L: Array, N: float, seed: int, starts: int) -> list[State]:
    """Zeros of the rates, searched for from random starts."""
    from scipy.optimize import least_squares

    def residual(x: Array) -> Array:
        return flat(rates(shaped(x, like), L, N))

    def slope(x: Array) -> Array:
        return jacobian(shaped(x, like), L, N)

    rng = np.random.default_rng(seed)
    found = []
    for _ in range(starts):
        y = rng.uniform(0.3, 2.0) * rng.standard_normal(len(flat(like)))
        end = least_squares(
            residual,
            y,
            slope,
            xtol=1e-15,
            ftol=1e-15,
            gtol=1e-15,
            max_nfev=300,
        )
        if np.abs(end.fun).max() < 1e-10:
            found.append(shaped(end.x, like))
    return found


def solve(
    kind: str, y0: State, times: Any, L: Array, N: float, relative: float | None = None
) -> Any:
    """Integrate the flow of a parametrization."""
    tolerance = None if relative is None else ok.Tolerance(relative=relative)
    return ok.solve(MODELS[kind].flow, y0, times, {"Lambda": L, "N": N}, tolerance=tolerance)
