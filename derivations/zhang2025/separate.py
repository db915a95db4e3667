r"""Separate keys and queries: saddles, their losses, and the scalar equation (statements 8 to 12).

Where the flow rests. Put ``M = (1 + 1/N) L + (tr L/N) I``, so that ``B = L M`` and
``G = L (I - M A) L``. At rest every head has ``v_h G q_hr = 0`` and ``v_h G^T k_hr = 0``; multiplied
with the other weights and summed, ``A G^T = 0`` and ``G^T A = 0``. With L invertible the second
reads ``L A = A^T M L A``, so ``L A`` is symmetric and, put back in, ``A = A M A``; the first makes
``A L M^{-1}`` symmetric. Together A commutes with ``L^2 M^{-1}``, an increasing function of L,
hence with L; then A is symmetric, and ``A M`` is an orthogonal projection that commutes with L.
If the eigenvalues of L are distinct that leaves ``A = sum_{d in S} e_d e_d^T / mu_d`` for the
``2^D`` subsets S, with ``mu_d = (1 + 1/N) lambda_d + tr L/N = lambda_d c_d``.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike, NDArray

import odekit as ok

from .statement import Check, Statement, body, identical, named

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


def plateau_equation() -> Any:
    """The scalar flow of one growing head, ``dv/dt = lam^2 v^2 - lam^3 c v^5``."""
    v, lam, c = sp.symbols("v lam c")
    return ok.vector_field({v: lam**2 * v**2 - lam**3 * c * v**5}, parameters=(lam, c))


def _primitive(u: Any, functions: Any) -> Any:
    log, arctan, sqrt = functions
    return log((u**2 + u + 1) / (1 - u) ** 2) / 6 - arctan((2 * u + 1) / sqrt(3)) / sqrt(3)


def plateau_time(v: ArrayLike, start: float, eigenvalue: float, c: float) -> Array:
    """Time at which the growing head has reached v from ``start``, in units of tau."""
    functions, k = (np.log, np.arctan, np.sqrt), np.cbrt(eigenvalue * c)
    values = np.asarray(v, dtype=np.float64)
    rest = k * (_primitive(k * values, functions) - _primitive(k * start, functions))
    return (1 / start - 1 / values + rest) / eigenvalue**2


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


def _setting() -> tuple[Any, Any, Any, Any, Any, Any]:
    """The flow, and A split into m learned modes and one growing, all eigenvectors of Lambda."""
    model = ok.models.attention_separate()
    L = named(model.flow, "Lambda")
    E, a = ok.eigenvector("E", of=L, count=ok.dims("m")), ok.parameter("a", (ok.dims("m"),))
    lam = sp.Symbol("lambda", positive=True)
    e, s = ok.eigenvector("e", of=L, value=lam), ok.parameter("s")
    return model, L, E, a, e, s


def fixed_points() -> Statement:
    """8. In function space the separate flow rests at one point for each subset of eigenvectors."""
    spectrum, context, dim = np.array([1.0, 0.6, 0.25]), 6, 3
    values = {"Lambda": np.diag(spectrum), "N": context}
    flow = ok.models.attention_separate().flow
    subsets = [s for size in range(dim + 1) for s in combinations(range(dim), size)]
    points = [saddle(np.eye(dim), spectrum, context, subset) for subset in subsets]
    rates = [
        np.abs(rate).max()
        for point in points
        for rate in flow.evaluate(at_saddle(point, heads=3), values).values()
    ]
    found = _rest(values, heads=3, dim=dim, starts=60)
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
            # The search stops at rates of 1e-12; near a rest A moves like their square root.
            Check("every rest found is one of them", float(gaps.min(axis=1).max()), 1e-5),
            Check("and each of them is found", float(2**dim - len(set(gaps.argmin(axis=1)))), 0.0),
            Check("white tokens: a turned direction rests too", white_rate, 1e-13),
            Check("one head: rank at most one", float(rank), 1.0),
        ),
    )


def _rest(values: dict[str, Any], heads: int, dim: int, starts: int) -> list[Array]:
    """Values of A where a search for zeros of the flow ends, from random starts."""
    from scipy.optimize import least_squares

    flow = ok.models.attention_separate().flow
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
        y = 0.8 * rng.standard_normal(sum(sizes.values()))
        end = least_squares(rate, y, slope, xtol=1e-15, ftol=1e-15, gtol=1e-15, max_nfev=500)
        if np.abs(end.fun).max() < 1e-12:
            state = machine.layout.unpack(end.x)
            ends.append(np.einsum("h,hri,hrj->ij", state["v"], state["K"], state["Q"]))
    return ends


def plateau_losses() -> Statement:
    """9. The loss at the saddle where m eigenvectors are learned."""
    model, L, E, a, _, _ = _setting()
    N, A = ok.dims("N"), named(model.flow, "A")
    lam, trace = E.value, ok.einsum("ii->", L)
    loss = model.loss.expression.substitute({A: ok.einsum("m,mi,mj->ij", a, E, E)})
    squares = ok.einsum("m,m,m,m->", a, a, lam, lam)
    wanted = (
        trace
        - 2 * ok.einsum("m,m,m->", a, lam, lam)
        + (1 + 1 / N) * ok.einsum("m,m,m,m,m->", a, a, lam, lam, lam)
        + trace * squares / N
    )
    x, l, T, n = sp.symbols("x l T n", positive=True)
    mode = -2 * x * l**2 + x**2 * l**2 * ((1 + 1 / n) * l + T / n)
    c = 1 + (1 + T / l) / n
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
            identical("a mode is best at 1/(lambda c)", mode.diff(x).subs(x, 1 / (l * c))),
            identical("a learned mode lowers the loss by", mode.subs(x, 1 / (l * c)), -l / c),
            # Rounding of a loss of order one.
            Check("ok.theory.plateau_losses", float(gap), 1e-14),
        ),
    )


def scalar_equation() -> Statement:
    """10. At a plateau one head grows along the next eigenvector by a scalar equation."""
    model, L, E, a, e, s = _setting()
    N, A = ok.dims("N"), named(model.flow, "A")
    lam, trace = e.value, ok.einsum("ii->", L)
    cube = ok.einsum(",,->", s, s, s)
    learned = ok.einsum("m,mi,mj->ij", a, E, E)
    growing = ok.einsum(",i,j->ij", cube, e, e)
    G = body(model.flow, "G_A").substitute({A: learned + growing})
    # The growing head has v = s, k = q = s e; lambda^3 c = lambda^2 ((1 + 1/N) lambda + tr L/N).
    square, fifth = ok.einsum(",->", s, s), ok.einsum(",,,,->", s, s, s, s, s)
    speed = lam**2 * square - lam**2 * (
        (1 + 1 / N) * lam * fifth + ok.einsum(",->", fifth, trace) / N
    )
    mode = E.value
    pull = (
        ok.einsum("m,m,mi->mi", mode, mode, E)
        - (1 + 1 / N) * ok.einsum("m,m,m,m,mi->mi", mode, mode, mode, a, E)
        - ok.einsum(",m,m,m,mi->mi", trace, mode, mode, a, E) / N
    )
    v, k, l = sp.symbols("v k l", positive=True)
    rise = (-1 / v + k * _primitive(k * v, (sp.log, sp.atan, sp.sqrt))) / l**2
    return Statement(
        "10",
        "With m modes learned by other heads, v = s, k = q = s e_{m+1} in one head and the rest "
        "at zero is kept by the flow: s obeys the scalar equation, the learned heads do not move.",
        (
            r"\tau\dot v_i = \lambda_{m+1}^2 v_i^2 - \lambda_{m+1}^3\left(1+\frac{1"
            r" +\operatorname{tr}\Lambda/\lambda_{m+1}}{N}\right) v_i^5",
            r"t(v) = \frac{\tau}{\lambda^2}\left[\frac1{v_0}-\frac1v"
            r" + k\left(F(kv)-F(kv_0)\right)\right],\quad k^3=\lambda c,\quad"
            r" F(u)=\tfrac16\ln\frac{u^2+u+1}{(1-u)^2}-\tfrac1{\sqrt3}"
            r"\arctan\frac{2u+1}{\sqrt3}",
        ),
        (
            "the growing head is balanced and aligned, v (k.e)(q.e) > 0",
            "every other head that is not learned is exactly zero",
        ),
        corrects=(
            "It is exact on this invariant line only. From a random start it describes the "
            "growing head once its key and query have turned to e_{m+1}, with "
            "v_0 = cbrt(v (k.e)(q.e)); while several small heads share a plateau it is an "
            "approximation that becomes exact as the start shrinks."
        ),
        checks=(
            identical(
                "dv/dt", ok.einsum(",i,ij,j->", square, e, G, e), speed
            ),
            identical(
                "dk/dt = (ds/dt) e",
                ok.einsum(",ij,j->i", square, G, e),
                ok.einsum(",i->i", speed, e),
            ),
            identical(
                "dq/dt = (ds/dt) e",
                ok.einsum(",ji,j->i", square, G, e),
                ok.einsum(",i->i", speed, e),
            ),
            identical("learned heads feel lambda^2 (1 - mu a) only", ok.einsum("ij,mj->mi", G, E), pull),
            identical("t(v) inverts the equation", rise.diff(v) * (l**2 * v**2 * (1 - (k * v) ** 3)), 1),
        ),
    )


def order_of_learning() -> Statement:
    """11. A plateau lasts about ``tau/(lambda^2 v0)``; who grows first depends on the start too."""
    spectrum, context = np.array([0.4, 0.3]), 31
    c = shortfall(spectrum, float(spectrum.sum()), context)
    checks = []
    for v0 in (1e-2, 1e-4):
        k = np.cbrt(spectrum[0] * c[0])
        half = float(plateau_time(0.5 / k, v0, spectrum[0], c[0])) * spectrum[0] ** 2 * v0
        # 1/v0 dominates the bracket; what is left is of order one: relative size k v0 times it.
        checks.append(Check(f"duration times lambda^2 v0 at v0 = {v0:g}", abs(half - 1), 3 * k * v0))
    flow = ok.models.attention_separate().flow
    values = {"Lambda": np.diag(spectrum), "N": context}
    first = []
    for sizes in ((1e-2, 1e-2), (1e-3, 1e-2)):
        y0 = {
            "v": np.array(sizes),
            "K": np.diag(sizes)[:, None, :],
            "Q": np.diag(sizes)[:, None, :],
        }
        ends = 1 / (spectrum**2 * np.array(sizes))
        run = ok.solve(flow, y0, [float(ends.mean())], values)
        first.append(int(np.argmax(run["v"][0])))
    checks.append(Check("equal starts: the larger eigenvalue first", float(first[0]), 0.0))
    checks.append(Check("a head ten times larger on e_2: e_2 first", float(1 - first[1]), 0.0))
    return Statement(
        "11",
        "A plateau lasts about tau/(lambda^2 v0); heads that start alike learn eigenvectors in "
        "the order of their eigenvalues.",
        (r"t_{m+1} \approx \frac{\tau}{\lambda_{m+1}^2 v_0}",),
        ("heads start isotropic, with comparable sizes",),
        corrects=(
            "The order by eigenvalue is not a property of the flow alone: aligned heads with "
            "lambda_2^2 v_0' > lambda_1^2 v_0 learn e_2 first."
        ),
        checks=tuple(checks),
    )


def principal_components() -> Statement:
    """12. At plateau m the layer does principal component regression in context."""
    l, T, n = sp.symbols("l T n", positive=True)
    c = 1 + (1 + T / l) / n
    spectrum = np.array([0.4, 0.3, 0.2, 0.1])
    regression = np.diag(np.where(np.arange(4) < 2, 1 / spectrum, 0.0))
    gaps = [
        np.abs(saddle(np.eye(4), spectrum, N, range(2)) - regression).max() / (1 / 0.3)
        for N in (100, 1000, 10000)
    ]
    slope = np.polyfit(np.log([100, 1000, 10000]), np.log(gaps), 1)[0]
    return Statement(
        "12",
        "A at plateau m is the regression matrix of the m leading principal components, each "
        "shrunk by c_d -> 1: at rate 1/N it tends to sum_{d <= m} e_d e_d^T/lambda_d.",
        (
            r"\hat y_q = x_q^\top\sum_{d\le m}\frac{e_d e_d^\top}{\lambda_d c_d}\,\beta"
            r"\;\xrightarrow{\,N\to\infty\,}\; x_q^\top\sum_{d\le m}\frac{e_d e_d^\top}{\lambda_d}"
            r"\,\beta",
        ),
        corrects=(
            "At finite N it is regression on the population's eigenvectors with the shrinkage "
            "1/c_d, not regression on the principal components of the context; the two "
            "predictions approach each other like N^(-1/2)."
        ),
        checks=(
            identical("1/(lambda c) -> 1/lambda", sp.limit(1 / (l * c), n, sp.oo), 1 / l),
            # c - 1 is exactly (1 + T/lambda)/N; relative corrections are 5 percent at N = 100.
            Check("the gap falls like 1/N: slope + 1", abs(float(slope) + 1), 0.02),
        ),
    )
