r"""Merged keys and queries: two fixed points, one drop, a sigmoid (statements 4 and 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike, NDArray

import odekit as ok

from .statement import Check, Statement, body, identical, named

Array = NDArray[np.float64]


# -- formulas ----------------------------------------------------------------------------------


def optimum(covariance: ArrayLike, context: float) -> Array:
    """``A* = [(1 + 1/N) L + (tr L / N) I]^{-1}``, where G vanishes; shape (D, D)."""
    L = np.asarray(covariance, dtype=np.float64)
    return np.linalg.inv((1 + 1 / context) * L + np.trace(L) / context * np.eye(len(L)))


def sigmoid(t: ArrayLike, dim: int, context: float, start: float) -> Array:
    """``sigma(t)`` of the white closed form; ``start`` is ``w_init^2``, time in units of tau."""
    c = 1 + (1 + dim) / context
    # Divided by the exponential, which overflows where the sigmoid has long saturated.
    decay = np.exp(-2 * np.sqrt(dim) * np.asarray(t, dtype=np.float64))
    return 1 / (c * (1 - decay) + np.sqrt(dim) / start * decay)


def half_rise(dim: int, context: float, start: float) -> float:
    """Time at which ``sigma`` is half its end value, in units of tau."""
    c = 1 + (1 + dim) / context
    return float(np.log(np.sqrt(dim) / (c * start) - 1) / (2 * np.sqrt(dim)))


def value_norm(y0: Mapping[str, ArrayLike]) -> float:
    """``w_init^2 = sum_h v_h(0)^2``, as the notes on the paper have it."""
    return float(np.sum(np.square(y0["v"])))


def growing_mode(y0: Mapping[str, ArrayLike]) -> float:
    r"""``w_init^2 = sum_h ((v_h + tr U_h / sqrt D)/2)^2``: the part of a white start that grows.

    Near zero ``d(v_h + tr U_h/sqrt D)/dt = +sqrt(D) (v_h + tr U_h/sqrt D)``, while the difference
    decays at the same rate.
    """
    v, U = np.asarray(y0["v"]), np.asarray(y0["U"])
    return float(np.sum(((v + np.trace(U, axis1=1, axis2=2) / np.sqrt(U.shape[-1])) / 2) ** 2))


def balanced_start(values: ArrayLike, dim: int) -> dict[str, Array]:
    """The aligned start of the closed form: ``U_h = v_h I / sqrt D``."""
    v = np.asarray(values, dtype=np.float64)
    return {"v": v, "U": v[:, None, None] * np.eye(dim) / np.sqrt(dim)}


def escape_rate(covariance: ArrayLike) -> float:
    """Rate at which a small start leaves zero, ``|Lambda^2|_F``, in units of 1/tau."""
    return float(np.linalg.norm(np.linalg.matrix_power(np.asarray(covariance), 2)))


# -- statements --------------------------------------------------------------------------------


def fixed_points() -> Statement:
    """4. In function space the merged flow rests at A = 0 and at A = A* only."""
    N, D, m = ok.dims("N D m")
    model: Any = ok.models.attention_merged()
    flow, (v, U) = model.flow, model.weights
    A, G, L = (named(flow, name) for name in ("A", "G_A", "Lambda"))
    E, a = ok.eigenvector("E", of=L, count=m), ok.parameter("a", (m,))
    trace = ok.einsum("ii->", L)
    # A diagonal in the eigenvectors: each of them is pulled by lambda^2 (1 - mu a).
    diagonal = body(flow, "G_A").substitute({A: ok.einsum("m,mi,mj->ij", a, E, E)})
    lam = E.value
    wanted = (
        ok.einsum("m,m,mi->mi", lam, lam, E)
        - (1 + 1 / N) * ok.einsum("m,m,m,m,mi->mi", lam, lam, lam, a, E)
        - trace * ok.einsum("m,m,m,mi->mi", lam, lam, a, E) / N
    )
    checks = [
        identical("dU_h/dt = v_h G", flow.rates[U], ok.einsum("h,ij->hij", v, G)),
        identical("G e = lambda^2 (1 - mu a) e", ok.einsum("ij,mj->mi", diagonal, E), wanted),
        identical(
            "near A = 0: dv_h/dt = tr(U_h^T L^2)",
            flow.rates[v].substitute({G: body(flow, "G_A")}).substitute({A: 0 * A}),
            ok.einsum("hij,ik,kj->h", U, L, L),
        ),
    ]
    spectrum, context = np.array([1.0, 0.5, 0.2]), 9
    covariance = np.diag(spectrum)
    values = {"Lambda": covariance, "N": context}
    best = optimum(covariance, context)
    rng = np.random.default_rng(0)
    heads = rng.standard_normal(2)
    at_optimum = {"v": heads, "U": rng.standard_normal((2, 3, 3))}
    at_optimum["U"][0] = (best - heads[1] * at_optimum["U"][1]) / heads[0]
    at_zero = {"v": np.zeros(2), "U": rng.standard_normal((2, 3, 3))}
    square = covariance @ covariance
    along = np.einsum("hij,ij->h", at_zero["U"], square) / np.sum(square**2)
    at_zero["U"] -= along[:, None, None] * square
    for what, point in (("A = A*", at_optimum), ("v = 0, tr(U_h^T L^2) = 0", at_zero)):
        rate = max(float(np.abs(r).max()) for r in flow.evaluate(point, values).values())
        # Rounding: a sum of about 30 products of entries up to 10.
        checks.append(Check(f"{what} is a fixed point", rate, 1e-12))
    return Statement(
        "4",
        "Since dU_h/dt = v_h G, a fixed point has all v_h = 0, hence A = 0, or G = 0, hence "
        "A = A*; L is convex in A, so A* is its minimum, and A = 0 is unstable: where v and U "
        "are small, (v_h, U_h along L^2) grows at rate |L^2|_F / tau.",
        (
            r"\dot U_h = 0 \;\Rightarrow\; v_h G = 0;\qquad"
            r" G=0 \iff A_* = \left[\left(1+\tfrac1N\right)\Lambda"
            r" + \tfrac{\operatorname{tr}\Lambda}{N}I\right]^{-1}",
            r"\text{escape rate}\quad \tau^{-1}\lVert\Lambda^2\rVert_F",
        ),
        ("Lambda is invertible; otherwise A* is fixed only where Lambda sees it",),
        corrects=(
            "Two fixed points exist in function space only. In weights both are manifolds, and "
            "the one at A = 0 is larger than the origin: v = 0 with every U_h orthogonal to L^2."
        ),
        checks=tuple(checks),
        derived=(r"G = " + body(flow, "G_A").latex(),),
    )


def white_closed_form_equations() -> tuple[str, ...]:
    """LaTeX of the closed form."""
    return (
        r"\sigma(t) = \frac{e^{2\sqrt D\,t/\tau}}{\left(1+\frac{1+D}{N}\right)"
        r"\left(e^{2\sqrt D\,t/\tau}-1\right) + \frac{\sqrt D}{w_\mathrm{init}^2}},\qquad"
        r" w_\mathrm{init}^2 = \sum_h \tfrac14\left(v_h"
        r" + \tfrac{\operatorname{tr}U_h}{\sqrt D}\right)^2",
    )


def white_closed_form() -> Statement:
    """5. White tokens and a balanced aligned start: the whole flow is one sigmoid."""
    model: Any = ok.models.attention_merged()
    flow, (v, U) = model.flow, model.weights
    L, G = named(flow, "Lambda"), named(flow, "G_A")
    D, N, H = U.shape[1], ok.dims("N"), v.shape[0]
    x, eye = ok.parameter("x", (H,)), ok.identity(D)
    aligned = {L: eye * 1, v: x * 1, U: ok.einsum("h,ij->hij", x, eye) / sp.sqrt(D)}

    def on_the_line(expression: Any) -> Any:
        return expression.substitute({G: body(flow, "G_A")}).expand().substitute(aligned)

    rate = on_the_line(flow.rates[v])
    c = 1 + (1 + D) / N
    size = ok.einsum("h,h->", x, x)
    checks = [
        identical(
            "the line is kept: dU_h/dt = (dv_h/dt) I/sqrt D",
            on_the_line(flow.rates[U]),
            ok.einsum("h,ij->hij", rate, eye) / sp.sqrt(D),
        ),
        identical(
            "dv_h/dt = sqrt(D) v_h (1 - c sigma)",
            rate,
            sp.sqrt(D) * x - c * ok.einsum(",h->h", size, x),
        ),
    ]
    t, w2, s = sp.symbols("t w2 s", positive=True)
    grown = sp.exp(2 * sp.sqrt(D) * t)
    sigma = grown / (c * (grown - 1) + sp.sqrt(D) / w2)
    checks += [
        identical(
            "sigma solves d(sigma)/dt = 2 sqrt(D) sigma (1 - c sigma)",
            sigma.diff(t),
            (2 * sp.sqrt(D) * s * (1 - c * s)).subs(s, sigma),
        ),
        identical("sigma(0) = w_init^2 / sqrt D", sigma.subs(t, 0), w2 / sp.sqrt(D)),
    ]
    checks += _white_runs(model)
    return Statement(
        "5",
        "For Lambda = I and U_h(0) = v_h(0) I/sqrt D the prediction is sigma(t) beta . x_q with "
        "the sigmoid sigma; from a generic small start it holds as the start shrinks, with w_init "
        "taken from the growing mode.",
        white_closed_form_equations(),
        ("Lambda = I", "U_h(0) = v_h(0) I / sqrt D, or a small start"),
        corrects=(
            "The notes state the closed form for white tokens without the balanced, aligned start. "
            "With w_init^2 = sum_h v_h(0)^2 it misses the drop of a generic small start by "
            "ln(sum v^2 / w_init^2) / (2 sqrt D) in time, however small the start."
        ),
        checks=tuple(checks),
    )


def _white_runs(model: Any, dim: int = 4, context: int = 31, heads: int = 8) -> list[Check]:
    values = {"Lambda": np.eye(dim), "N": context}
    rng = np.random.default_rng(0)
    y0 = balanced_start(0.01 * rng.standard_normal(heads), dim)
    times = np.linspace(0.0, 2 * half_rise(dim, context, value_norm(y0)), 60)
    run: Any = ok.solve(model.flow, y0, times, values)
    wanted = sigmoid(times, dim, context, value_norm(y0))[:, None, None] * np.eye(dim)
    # The solver's own promise at default tolerances is 1e-6 relative.
    checks = [
        Check(
            "run from a balanced start against sigma",
            float(np.abs(run.value("A") - wanted).max() * (1 + (1 + dim) / context)),
            1e-6,
        )
    ]
    shift = []
    for scale in (1e-2, 1e-4):
        rng = np.random.default_rng(1)
        y0 = {
            "v": scale * rng.standard_normal(heads),
            "U": scale * rng.standard_normal((heads, dim, dim)),
        }
        middle = half_rise(dim, context, growing_mode(y0))
        run = ok.solve(model.flow, y0, [middle], values)
        half = 0.5 / (1 + (1 + dim) / context)
        shift.append(abs(float(np.trace(run.value("A")[0])) / dim / half - 1))
    # What sigma leaves out is of second order in the start, times H D of order ten.
    for scale, gap in zip((1e-2, 1e-4), shift, strict=True):
        bound = 10 * scale**2 + 1e-6  # and the solver's own error
        checks.append(Check(f"generic start {scale:g}: sigma at its half-rise time", gap, bound))
    return checks
