r"""What happens at a plateau of separate attention (statements 10 to 13)."""

from __future__ import annotations

from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike, NDArray

import odekit as ok

from .separate import saddle, shortfall
from .statement import Check, Statement, body, identical, named

Array = NDArray[np.float64]


# -- formulas ----------------------------------------------------------------------------------


def _primitive(u: Any, functions: Any) -> Any:
    log, arctan, sqrt = functions
    return log((u**2 + u + 1) / (1 - u) ** 2) / 6 - arctan((2 * u + 1) / sqrt(3)) / sqrt(3)


def plateau_time(v: ArrayLike, start: float, eigenvalue: float, c: float) -> Array:
    """Time at which the growing head has reached v from ``start``, in units of tau."""
    functions, k = (np.log, np.arctan, np.sqrt), np.cbrt(eigenvalue * c)
    values = np.asarray(v, dtype=np.float64)
    rest = k * (_primitive(k * values, functions) - _primitive(k * start, functions))
    return (1 / start - 1 / values + rest) / eigenvalue**2


# -- statements --------------------------------------------------------------------------------


def _setting() -> tuple[Any, Any, Any, Any, Any, Any]:
    """The flow, and A split into m learned modes and one growing, all eigenvectors of Lambda."""
    model: Any = ok.models.attention_separate()
    L = named(model.flow, "Lambda")
    E, a = ok.eigenvector("E", of=L, count=ok.dims("m")), ok.parameter("a", (ok.dims("m"),))
    lam = sp.Symbol("lambda", positive=True)
    e, s = ok.eigenvector("e", of=L, value=lam), ok.parameter("s")
    return model, L, E, a, e, s


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
    reduced = ok.einsum(",i,ij,j->", square, e, G, e)
    v, k, rate = sp.symbols("v k lambda", positive=True)
    rise = (-1 / v + k * _primitive(k * v, (sp.log, sp.atan, sp.sqrt))) / rate**2
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
            identical("dv/dt", reduced, speed),
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
            identical(
                "learned heads feel lambda^2 (1 - mu a) only", ok.einsum("ij,mj->mi", G, E), pull
            ),
            identical(
                "t(v) inverts the equation", rise.diff(v) * (rate**2 * v**2 * (1 - (k * v) ** 3)), 1
            ),
        ),
        derived=(r"\tau\dot s = " + reduced.latex(),),
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
        checks.append(
            Check(f"length times lambda^2 v0 at {v0:g}", abs(half - 1), float(3 * k * v0))
        )
    flow: Any = ok.models.attention_separate().flow
    values = {"Lambda": np.diag(spectrum), "N": context}
    first = []
    for sizes in ((1e-2, 1e-2), (1e-3, 1e-2)):
        y0 = {
            "v": np.array(sizes),
            "K": np.diag(sizes)[:, None, :],
            "Q": np.diag(sizes)[:, None, :],
        }
        ends = 1 / (spectrum**2 * np.array(sizes))
        run: Any = ok.solve(flow, y0, [float(ends.mean())], values)
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
    rate, T, n = sp.symbols("lambda T n", positive=True)
    c = 1 + (1 + T / rate) / n
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
            identical("1/(lambda c) -> 1/lambda", sp.limit(1 / (rate * c), n, sp.oo), 1 / rate),
            # c - 1 is exactly (1 + T/lambda)/N; relative corrections are 5 percent at N = 100.
            Check("the gap falls like 1/N: slope + 1", abs(float(slope) + 1), 0.02),
        ),
    )


def within_a_head() -> Statement:
    """13. Pairs within a grown head learn exponentially: plateaus are long at multiples of R."""
    model, L, E, a, e, _ = _setting()
    A, lam = named(model.flow, "A"), e.value
    learned = ok.einsum("m,mi,mj->ij", a, E, E)
    G = body(model.flow, "G_A").substitute({A: learned})
    # A head with a learned pair: the share of another of its pairs along e, k = q = x e.
    rate, v0, x0, s, t = sp.symbols("lambda v0 x0 s t", positive=True)
    within, alone = x0 * sp.exp(s * rate**2 * t), v0 / (1 - rate**2 * v0 * t)
    return Statement(
        "13",
        "At a saddle the pull on an eigenvector that is not learned is lambda^2. A pair in a head "
        "whose value weight s has grown follows it at the exponential rate s lambda^2, a new head "
        "only like v0/(1 - lambda^2 v0 t): plateaus at multiples of R last 1/v0 times "
        "tau/lambda^2, the others its logarithm.",
        (
            r"\tau\dot k_{hr} = v_h\lambda^2 q_{hr}\;\Rightarrow\; k\sim e^{v_h\lambda^2 t/\tau}"
            r"\quad(v_h = O(1));\qquad \tau\dot v = \lambda^2 v^2\;\Rightarrow\;"
            r" v = \frac{v_0}{1-\lambda^2 v_0 t/\tau}",
        ),
        ("starts small enough: the two times differ by v0 ln(1/v0)",),
        corrects=(
            "Which plateaus are seen depends on the definition, on the scale of the start and on "
            "the seed: two heads with nearly equal starts merge two long plateaus at any scale. "
            "What separates the kinds is how their lengths grow as the start shrinks (figure 4)."
        ),
        checks=(
            identical(
                "G e = lambda^2 e where e is not learned",
                ok.einsum("ij,j->i", G, e),
                lam**2 * e,
            ),
            identical("within a head: dx/dt = s lambda^2 x", within.diff(t), s * rate**2 * within),
            identical("a new head: dv/dt = lambda^2 v^2", alone.diff(t), rate**2 * alone**2),
        ),
    )
