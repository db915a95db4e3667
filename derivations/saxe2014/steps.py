"""The derivation in its order, each step at depths 2, 3 and 4."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy as sp

import odekit as ok
from odekit.claims import Check, Statement

from . import modes
from .modes import DEPTHS


def _at_all_depths(step: Callable[[int], tuple[Check, ...]]) -> tuple[Check, ...]:
    return tuple(check for depth in DEPTHS for check in step(depth))


def gradient() -> Statement:
    """1. The flow of each layer."""
    flow: Any = ok.models.deep_linear(3).flow
    return Statement(
        "1",
        "Each layer follows the error seen from above and below.",
        (
            r"\dot W_k = (W_n\cdots W_{k+1})^\top (T - W_n\cdots W_1)\,\Lambda\,"
            r"(W_{k-1}\cdots W_1)^\top",
        ),
        checks=_at_all_depths(modes.gradient),
        derived=(flow.latex(),),
    )


def balances() -> Statement:
    """2. What the flow conserves."""
    found = ok.conserved(ok.models.deep_linear(3).flow)
    return Statement(
        "2",
        "Neighbouring layers keep their balance; the search finds no other family of quadratics.",
        (r"W_k W_k^\top - W_{k+1}^\top W_{k+1} = \mathrm{const}",),
        checks=_at_all_depths(modes.balances),
        derived=tuple(rf"{each.latex()} = \mathrm{{const}}" for each in found),
    )


def mode_dynamics() -> Statement:
    """3. Aligned layers stay aligned."""
    flow, ansatz = modes.aligned(3, ok.dims("m"))
    reduction = ok.reduce(flow, ansatz)
    return Statement(
        "3",
        "Layers that carry the teacher's modes keep doing so; each mode has its own equations.",
        (r"\dot a_k = \lambda\Big(s - \prod_j a_j\Big)\prod_{j\ne k} a_j",),
        checks=_at_all_depths(modes.mode_dynamics),
        derived=(reduction.field.latex(),),
    )


def balanced_dynamics() -> Statement:
    """4. Balanced modes: one equation for the whole strength."""
    return Statement(
        "4",
        "With one strength a in all n layers the mode's whole strength u = a^n obeys one equation.",
        (r"\dot u = n\lambda\, u^{2-2/n}\,(s-u)",),
        checks=_at_all_depths(modes.balanced_dynamics),
        derived=(modes.balanced_mode(3).latex(),),
    )


def sigmoidal_solution() -> Statement:
    """5. Depth two: the sigmoid."""
    form = ok.closed_form(modes.balanced_mode(2))
    return Statement(
        "5",
        "At depth two the strength is a sigmoid.",
        (r"u(t) = \frac{s\,u_0}{u_0 + (s-u_0)\,e^{-2 s\lambda t}}",),
        checks=modes.sigmoidal_solution(),
        derived=(sp.latex(form.equation),),
    )


STEPS: tuple[Callable[[], Statement], ...] = (
    gradient,
    balances,
    mode_dynamics,
    balanced_dynamics,
    sigmoidal_solution,
)
"""The derivation in its order; each step makes its statement and runs its checks."""
