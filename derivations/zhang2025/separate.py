r"""Separate keys and queries: where it rests, and the losses there (statements 8 and 9).

Where the flow rests. Put ``M = (1 + 1/N) L + (tr L/N) I``, so that ``B = L M`` and
``G = L (I - M A) L``. At rest every head has ``v_h G q_hr = 0`` and ``v_h G^T k_hr = 0``;
multiplied with the other weights and summed, ``A G^T = 0`` and ``G^T A = 0``. With L invertible
the second reads ``L A = A^T M L A``, so ``L A`` is symmetric and, put back in, ``A = A M A``; the
first makes ``A L M^{-1}`` symmetric. Together A commutes with ``L^2 M^{-1}``, an increasing
function of L, hence with L; then A is symmetric, and ``A M`` is an orthogonal projection that
commutes with L. If the eigenvalues of L are distinct that leaves
``A = sum_{d in S} e_d e_d^T / mu_d`` for the ``2^D`` subsets S, with
``mu_d = (1 + 1/N) lambda_d + tr L/N = lambda_d c_d``.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike, NDArray

import odekit as ok

from .statement import Check, Statement, identical, named

Array = NDArray[np.float64]


# -- formulas ----------------------------------------------------------------------------------


def shortfall(eigenvalue: ArrayLike, trace: float, context: float) -> Array:
    """``c(lambda) = 1 + (1 + tr L/lambda)/N``: what a finite context costs a mode."""
    return 1 + (1 + trace / np.asarray(eigenvalue, dtype=np.float64)) / context


def saddle(vectors: ArrayLike, spectrum: ArrayLike, context: float, modes: Any) -> Array:
    """``A = sum_{d in modes} e_d e_d^T / (lambda_d c_d)``; vectors (D, D) in columns."""
    lam, E = np.asarray(spectrum, dtype=np.float64), np.asarray(vectors, dtype=np.float64)
    chosen = list(modes)
    weights = 1 / (lam * shortfall(lam, float(lam.sum()), context))
    return (E[:, chosen] * weights[chosen]) @ E[:, chosen].T


def at_saddle(matrix: Array, heads: int, turn: int = 0) -> dict[str, Array]:
    """Balanced rank-one weights whose A is this symmetric matrix; the other heads are zero."""
    strengths, vectors = np.linalg.eigh(matrix)
    dim = len(matrix)
    state = {"v": np.zeros(heads), "K": np.zeros((heads, 1, dim)), "Q": np.zeros((heads, 1, dim))}
    learned = np.flatnonzero(np.abs(strengths) > 1e-12 * max(1.0, float(np.abs(matrix).max())))
    for place, mode in enumerate(learned):
        head, root = (place + turn) % heads, np.cbrt(strengths[mode])
        state["v"][head] = root
        state["K"][head, 0] = state["Q"][head, 0] = root * vectors[:, mode]
    return state


# -- statements --------------------------------------------------------------------------------


def fixed_points() -> Statement:
    """8. In function space the separate flow rests at one point for each subset of eigenvectors."""
    spectrum, context, dim = np.array([1.0, 0.6, 0.25]), 6, 3
    values = {"Lambda": np.diag(spectrum), "N": context}
    flow: Any = ok.models.attention_separate().flow
    subsets = [s for size in range(dim + 1) for s in combinations(range(dim), size)]
    points = [saddle(np.eye(dim), spectrum, context, subset) for subset in subsets]
    rates = [
        np.abs(rate).max()
        for point in points
        for rate in flow.evaluate(at_saddle(point, heads=3), values).values()
    ]
    found = _rest(values, heads=4, dim=dim, starts=150)
    gaps = np.array([[np.abs(A - point).max() for point in points] for A in found])
    turned = np.linalg.qr(np.random.default_rng(0).standard_normal((dim, dim)))[0]
    white = {"Lambda": np.eye(dim), "N": context}
    other = saddle(turned, np.ones(dim), context, [0])
    white_rate = max(
        float(np.abs(r).max()) for r in flow.evaluate(at_saddle(other, 3), white).values()
    )
    few = _rest(values, heads=1, dim=dim, starts=20)
    rank = max(int(np.linalg.matrix_rank(A, tol=1e-6)) for A in few)
    return Statement(
        "8",
        "A fixed point has A = sum over a subset S of the eigenvectors of e_d e_d^T/(lambda_d c_d);"
        " for distinct eigenvalues and H R >= D these are 2^D points in function space.",
        (
            r"A_S = \sum_{d\in S} \frac{e_d e_d^\top}{\lambda_d c_d},\qquad"
            r" c_d = 1+\frac{1+\operatorname{tr}\Lambda/\lambda_d}{N}",
        ),
        ("Lambda is invertible with distinct eigenvalues", "H R >= D"),
        corrects=(
            "2^D needs distinct eigenvalues (a repeated one gives continua: every subspace of its "
            "eigenspace), and H R >= D heads times rank (else only subsets of at most H R)."
        ),
        checks=(
            # Rounding of sums of some ten products of entries up to 5.
            Check("the flow rests at all 2^D points", float(max(rates)), 1e-13),
            # The search stops at rates of 1e-10; near a rest A moves like their square root.
            Check("every rest found is one of them", float(gaps.min(axis=1).max()), 1e-5),
            Check("and each of them is found", float(2**dim - len(set(gaps.argmin(axis=1)))), 0.0),
            Check("white tokens: a turned direction rests too", white_rate, 1e-13),
            Check("one head: rank at most one", float(rank), 1.0),
        ),
    )


def _rest(values: dict[str, Any], heads: int, dim: int, starts: int) -> list[Array]:
    """Values of A where a search for zeros of the flow ends, from random starts."""
    from scipy.optimize import least_squares

    flow: Any = ok.models.attention_separate().flow
    shapes = {"v": (heads,), "K": (heads, 1, dim), "Q": (heads, 1, dim)}
    sizes = {name: int(np.prod(shape)) for name, shape in shapes.items()}
    rng = np.random.default_rng(3)
    probe = {name: np.ones(shape) for name, shape in shapes.items()}
    machine = ok.compile(flow, sizes=flow.infer_sizes(probe, values))
    p = machine.layout.pack_parameters(values)

    def rate(y: Array) -> Array:
        out = np.empty_like(y)
        machine.rhs(0.0, np.ascontiguousarray(y), p, out)
        return out

    def slope(y: Array) -> Array:
        out = np.empty((len(y), len(y)))
        machine.jacobian(0.0, np.ascontiguousarray(y), p, out)
        return out

    ends = []
    for _ in range(starts):
        y = rng.uniform(0.2, 2.0) * rng.standard_normal(sum(sizes.values()))
        end = least_squares(rate, y, slope, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=500)
        if np.abs(end.fun).max() < 1e-10:
            state = machine.layout.unpack(end.x)
            ends.append(np.einsum("h,hri,hrj->ij", state["v"], state["K"], state["Q"]))
    return ends


def plateau_losses() -> Statement:
    """9. The loss at the saddle where m eigenvectors are learned."""
    model: Any = ok.models.attention_separate()
    L, A = named(model.flow, "Lambda"), named(model.flow, "A")
    N, m = ok.dims("N m")
    E, a = ok.eigenvector("E", of=L, count=m), ok.parameter("a", (m,))
    lam, trace = E.value, ok.einsum("ii->", L)
    loss = model.loss.expression.substitute({A: ok.einsum("m,mi,mj->ij", a, E, E)})
    squares = ok.einsum("m,m,m,m->", a, a, lam, lam)
    wanted = (
        trace
        - 2 * ok.einsum("m,m,m->", a, lam, lam)
        + (1 + 1 / N) * ok.einsum("m,m,m,m,m->", a, a, lam, lam, lam)
        + trace * squares / N
    )
    x, rate, T, n = sp.symbols("x lambda T n", positive=True)
    mode = -2 * x * rate**2 + x**2 * rate**2 * ((1 + 1 / n) * rate + T / n)
    c = 1 + (1 + T / rate) / n
    spectrum, context = np.array([0.4, 0.3, 0.2, 0.1]), 31
    measured = [
        model.flow.loss_value(
            at_saddle(saddle(np.eye(4), spectrum, context, range(m)), heads=4),
            {"Lambda": np.diag(spectrum), "N": context},
        )
        for m in range(5)
    ]
    gap = np.abs(np.array(measured) - ok.theory.plateau_losses(spectrum, context)).max()
    return Statement(
        "9",
        "With A = sum_d a_d e_d e_d^T the loss is a sum over modes, each smallest at "
        "a_d = 1/(lambda_d c_d); with m of them learned it is the plateau loss.",
        (
            r"\mathcal{L}(\mathcal{M}_m) = \operatorname{tr}\Lambda - \sum_{d=1}^{m}"
            r" \lambda_d\left(1+\frac{1+\operatorname{tr}\Lambda/\lambda_d}{N}\right)^{-1}",
        ),
        checks=(
            identical("loss of m modes", loss, wanted),
            identical("a mode is best at 1/(lambda c)", mode.diff(x).subs(x, 1 / (rate * c))),
            identical("a learned mode lowers the loss by", mode.subs(x, 1 / (rate * c)), -rate / c),
            # Rounding of a loss of order one.
            Check("ok.theory.plateau_losses", float(gap), 1e-14),
        ),
        derived=(r"\mathcal{L} = " + loss.latex(),),
    )
