r"""The derivation in its order, from the p, q layer to its modes and their time course.

Time in units of ``1/(eta P)``; half the mean squared error is descended. What of the published
statements holds, and under which assumption, is the business of `claims`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp

import odekit as ok
from odekit.claims import Check, Statement, identity

from .layer import LAWS, diagonal_modes, named, shared_scale, zero_blocks


def _vanish(differences: dict[str, Any], law: str = "") -> tuple[Check, ...]:
    where = f"{law} tasks: " if law else ""
    return tuple(identity(where + what, difference) for what, difference in differences.items())


def expected_loss() -> Statement:
    """1. The expected loss of the layer without its zero blocks."""
    model: Any = ok.models.linear_transformer(tasks="scalar")
    loss, target = model.loss.expression.expand(), model.target
    p2, q1 = (named(model.flow, name) for name in ("p2", "q1"))
    axes = "i" * target.rank
    blind = loss.substitute({p2: 0 * p2})
    error = target - model.prediction
    direct = ok.expectation(ok.einsum(f"{axes},{axes}->", error, error)).expand()
    return Statement(
        "1",
        "The prediction p2 W S q1 x_q is a polynomial in the data: its mean squared error is exact "
        "for every context length N and dimension d.",
        assumes=("Gaussian tokens", "the task is a multiple w I of the identity"),
        checks=(
            identity("E (target - prediction)^2, term by term", loss, direct),
            identity(
                "predicting zero costs E |target|^2",
                blind,
                ok.expectation(ok.einsum(f"{axes},{axes}->", target, target)),
            ),
            identity("and so does q1 = 0", loss.substitute({q1: 0 * q1}), blind),
        ),
        derived=(model.flow.loss_latex(),),
    )


def gradient_flow() -> Statement:
    """2. The flow of p2 and q1; the other two blocks stay zero."""
    model: Any = ok.models.linear_transformer(tasks="scalar")
    flow, loss = model.flow, model.loss.expression.expand()
    checks = [
        identity(
            f"2 d{weight.name}/dt = -dL/d{weight.name}",
            2 * flow.rates[weight].expand(),
            -1 * loss.diff(weight),
        )
        for weight in flow.states
    ]
    checks += [check for law in LAWS for check in _vanish(zero_blocks(law), law)]
    return Statement(
        "2",
        "The blocks p1 and q2 have zero expected gradient where both are zero, under every law of "
        "the tasks: they stay there. The others descend half the mean squared error.",
        checks=tuple(checks),
        derived=(flow.latex(),),
    )


def balance() -> Statement:
    """3. What the flow conserves."""
    flow: Any = ok.models.linear_transformer(tasks="scalar").flow
    found = ok.conserved(flow)
    p2, q1 = (named(flow, name) for name in ("p2", "q1"))
    norms = ok.einsum("ij,ij->", p2, p2) - ok.einsum("ij,ij->", q1, q1)
    scale = next(k for k in (1, -1) if not (found[0].expression - k * norms).expand().terms)
    return Statement(
        "3",
        "The difference of the squared norms of p2 and q1 is conserved; the search over all "
        "quadratics finds no other family.",
        (r"\lVert p_2\rVert_F^2 - \lVert q_1\rVert_F^2 = \mathrm{const}",),
        checks=(
            identity("the one that was found", found[0].expression, scale * norms),
            Check("number of families less one", float(len(found) - 1)),
        ),
        derived=tuple(rf"{each.latex()} = \mathrm{{const}}" for each in found),
    )


def _reduced() -> Any:
    """p2 and q1 diagonal in m eigenvectors of Lambda."""
    flow: Any = ok.models.linear_transformer(tasks="scalar").flow
    m = ok.dims("m")
    E = ok.eigenvector("E", of=named(flow, "Lambda"), count=m)
    p, q = ok.weight("p", (m,)), ok.weight("q", (m,))
    spread = "a,ai,aj->ij"
    return ok.reduce(flow, {"p2": ok.einsum(spread, p, E, E), "q1": ok.einsum(spread, q, E, E)})


def modes() -> Statement:
    """4. Matrices that are diagonal in the eigenvectors stay so: the modes, coupled by 1/N."""
    reduction = _reduced()
    checks = [Check("the ansatz is kept by the flow", 0.0 if reduction.exact else 1.0)]
    checks += [c for law in LAWS[1:] for c in _vanish(diagonal_modes(law), law)]
    return Statement(
        "4",
        "For p2 and q1 diagonal in the eigenvectors of the token covariance the flow closes on "
        "their diagonals. At finite N every mode feels all others through a sum of order 1/N.",
        assumes=("tasks are a multiple of the identity, or diagonal in the eigenvectors",),
        corrects="The published modes are decoupled; the layer's are so only as N -> infinity.",
        checks=tuple(checks),
        derived=(reduction.field.latex(),),
    )


def shared() -> Statement:
    """5. Independent task entries: one p for all modes."""
    return Statement(
        "5",
        "With independent task entries p2 stays a multiple p of the identity. All modes share it, "
        "and each rests where p q_a = 1/s_inf_a.",
        (
            r"\dot p = \sum_a s_a^2 q_a\left(1 - p\, q_a s^\infty_a\right),\qquad"
            r" \dot q_a = d\, p\, s_a^2\left(1 - p\, q_a s^\infty_a\right)",
        ),
        checks=_vanish(shared_scale()),
        derived=(ok.models.linear_transformer(tasks="iid").flow.latex(),),
    )


def logistic() -> Statement:
    """6. The published mode equations, and their balanced solution."""
    flow: Any = ok.models.modes().flow
    s, s_inf, a, p, q, t = sp.symbols("s s_inf a p q t", positive=True)
    grown = (1 - s_inf * p * q) * s**2
    rate = 2 * s**2 * a * (1 - s_inf * a)
    form = ok.closed_form(ok.vector_field({a: rate}, parameters=(s, s_inf)))
    a0 = form.start
    decay = sp.exp(-2 * s**2 * t)
    solved = a0 / (a0 * s_inf * (1 - decay) + decay)
    numbers = {"s": 0.7, "s_inf": 1.3}
    times = np.linspace(0, 12, 7)
    found = np.array([form.evaluate(now, {"a": 1e-2}, numbers)["a"] for now in times])
    values = {sp.Symbol(name, positive=True): value for name, value in numbers.items()}
    by_hand = sp.lambdify(t, solved.subs({a0: 1e-2, **values}))(times)
    return Statement(
        "6",
        "In the decoupled mode equations the product a = p q of a balanced mode obeys a logistic "
        "equation: a sigmoid with time constant 1/(2 s^2).",
        (
            r"\dot a = 2 s^2 a\,(1 - s^\infty a)",
            r"a(t) = \frac{a_0}{s^\infty a_0\,(1 - e^{-2 s^2 t}) + e^{-2 s^2 t}}",
        ),
        assumes=("p = q at the start; other starts have a closed form of their own",),
        checks=(
            identity(
                "d(p q)/dt at p = q",
                sp.expand((p * grown * p + q * grown * q).subs({p: sp.sqrt(a), q: sp.sqrt(a)})),
                sp.expand(rate),
            ),
            identity(
                "the sigmoid solves it",
                sp.simplify(solved.diff(t) - 2 * s**2 * solved * (1 - s_inf * solved)),
            ),
            # Rounding of values of order one.
            Check("odekit's closed form", float(np.abs(found - by_hand).max()), 1e-13, "rounding"),
        ),
        derived=(flow.latex(), sp.latex(form.equation)),
    )


STEPS: tuple[Callable[[], Statement], ...] = (
    expected_loss,
    gradient_flow,
    balance,
    modes,
    shared,
    logistic,
)
"""The derivation in its order; each step makes its statement and runs its checks."""
