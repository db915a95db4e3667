"""The reference problems: each with its methods, and a reference that is exact or much tighter.

`PROBLEMS` is what every method is run over. Sources: the separate and merged parametrizations are
Zhang et al. 2025 (arXiv:2501.16265); the modes are Mainali & Teixeira 2025 (arXiv:2504.12916,
eq. 12) with their closed form; Robertson and Van der Pol are the usual stiff problems (Hairer,
Wanner 1996, IV.10).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import numpy as np
from handmade import by_hand
from numpy.typing import NDArray
from scipy import integrate

from odekit.codegen.compiled_field import CompiledField
from odekit.codegen.layout import Layout

Array = NDArray[np.float64]
EXPLICIT = ("DOP853", "RK45", "Tsit5", "CompiledDOP853", "ROCK4", "Tsit5-ROCK4", "DOP853-ROCK4")
STIFF = ("LSODA", "BDF", "Radau", "Rodas5P", "Tsit5-Rodas5P", "auto")


@dataclass(frozen=True, eq=False)
class Problem:
    """One initial value problem with its reference.

    ``reference(t)`` gives the flat states at output times. It is None where the run must fail,
    and for starts so small that no method resolves the times of the drops to 1e-13 (a plateau
    lasts 1e6 to 1e11 times longer than a drop, so rounding of the right-hand side decides): there
    methods are compared with each other at the times when the loss passes ``levels``.
    ``status`` is how the run must end.
    """

    name: str
    build: Callable[[], CompiledField]
    y0: Mapping[str, Any]
    params: Mapping[str, Any]
    t: Array
    methods: tuple[str, ...]
    reference: Callable[[Array], Array] | None = None
    status: str = "success"
    levels: tuple[float, ...] = ()
    tight: dict[str, Array] = field(default_factory=dict)

    @property
    def compiled(self) -> CompiledField:
        """The field, compiled once in a process."""
        return self.build()

    def expected(self) -> dict[str, Array]:
        """Return the reference states at the output times, by name."""
        assert self.reference is not None
        if "y" not in self.tight:
            self.tight["y"] = self.reference(self.t)
        return self.compiled.layout.unpack(self.tight["y"])


def tight_reference(
    problem: Problem, t: Array, method: str = "Radau", rtol: float = 1e-13
) -> Array:
    """Solve with SciPy directly, at a tolerance that rounding alone limits."""
    compiled = problem.compiled
    y0 = compiled.layout.pack(problem.y0)
    p = compiled.layout.pack_parameters(problem.params)
    n = len(y0)

    def fun(time: float, y: Array) -> Array:
        out = np.empty(n)
        compiled.rhs(time, y, p, out)
        return out

    def jac(time: float, y: Array) -> Array:
        out = np.empty((n, n))
        compiled.jacobian(time, y, p, out)
        return out

    options: dict[str, Any] = {} if method == "DOP853" else {"jac": jac}
    smallest = np.min(np.abs(y0[y0 != 0]))
    run = integrate.solve_ivp(
        fun,
        (0.0, t[-1]),
        y0,
        method=method,
        t_eval=t,
        rtol=rtol,
        atol=1e-4 * rtol * smallest,
        **options,
    )
    assert run.success, run.message
    return np.ascontiguousarray(run.y.T)


# -- attention, by hand ------------------------------------------------------------------------


def spd(spectrum: tuple[float, ...], seed: int = 7) -> Array:
    """Return a covariance of this spectrum in a random basis."""
    basis, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(spectrum),) * 2))
    matrix = basis @ np.diag(spectrum) @ basis.T
    return np.asarray((matrix + matrix.T) / 2)


@cache
def separate_field(heads: int, dim: int) -> CompiledField:
    """Rank-one separate attention; p = Lambda, N, then scratch A, Lambda A, G, tangents."""
    H, D = heads, dim
    DD = D * D
    a0 = DD + 1

    def gradient(y, p):  # G = L^2 - B A L, B = (1 + 1/N) L^2 + tr(L)/N L
        L = p[:DD].reshape(D, D)
        n = p[DD]
        A = p[a0 : a0 + DD].reshape(D, D)
        LA = p[a0 + DD : a0 + 2 * DD].reshape(D, D)
        G = p[a0 + 2 * DD : a0 + 3 * DD].reshape(D, D)
        trace = 0.0
        for i in range(D):
            trace += L[i, i]
        for i in range(D):
            for j in range(D):
                s = 0.0
                for h in range(H):
                    s += y[h] * y[H + h * D + i] * y[H + H * D + h * D + j]
                A[i, j] = s
        product(L, A, LA)
        residual(L, LA, n, trace, G, 1.0)

    def product(X, Y, out):
        for i in range(D):
            for j in range(D):
                s = 0.0
                for k in range(D):
                    s += X[i, k] * Y[k, j]
                out[i, j] = s

    def residual(L, LA, n, trace, G, source):  # source * L^2 - ((1+1/N) L + tr/N) (L A) L
        for i in range(D):
            for j in range(D):
                s = 0.0
                for k in range(D):
                    inner = 0.0
                    for m in range(D):
                        inner += L[i, m] * LA[m, k]
                    inner = (1.0 + 1.0 / n) * inner + trace / n * LA[i, k]
                    s += (source * L[i, k] - inner) * L[k, j]
                G[i, j] = s

    from numba import njit

    product, residual = njit(product), njit(residual)
    gradient = njit(gradient)

    def rhs(t, y, p, out):
        gradient(y, p)
        G = p[a0 + 2 * DD : a0 + 3 * DD].reshape(D, D)
        for h in range(H):
            v, k, q = y[h], H + h * D, H + H * D + h * D
            rate = 0.0
            for i in range(D):
                left, right = 0.0, 0.0
                for j in range(D):
                    left += G[i, j] * y[q + j]
                    right += G[j, i] * y[k + j]
                rate += y[k + i] * left
                out[k + i] = v * left
                out[q + i] = v * right
            out[h] = rate

    def jacobian(t, y, p, out):
        gradient(y, p)
        L = p[:DD].reshape(D, D)
        n = p[DD]
        G = p[a0 + 2 * DD : a0 + 3 * DD].reshape(D, D)
        dA = p[a0 + 3 * DD : a0 + 4 * DD].reshape(D, D)
        LdA = p[a0 + 4 * DD : a0 + 5 * DD].reshape(D, D)
        dG = p[a0 + 5 * DD : a0 + 6 * DD].reshape(D, D)
        trace = 0.0
        for i in range(D):
            trace += L[i, i]
        size = H + 2 * H * D
        for column in range(size):
            dA[:, :] = 0.0
            dv, dk, dq = -1, -1, -1
            if column < H:
                dv = column
                for i in range(D):
                    for j in range(D):
                        dA[i, j] = y[H + dv * D + i] * y[H + H * D + dv * D + j]
            elif column < H + H * D:
                dk = column
                h, i = (column - H) // D, (column - H) % D
                for j in range(D):
                    dA[i, j] = y[h] * y[H + H * D + h * D + j]
            else:
                dq = column
                h, j = (column - H - H * D) // D, (column - H - H * D) % D
                for i in range(D):
                    dA[i, j] = y[h] * y[H + h * D + i]
            product(L, dA, LdA)
            residual(L, LdA, n, trace, dG, 0.0)
            for h in range(H):
                v, k, q = y[h], H + h * D, H + H * D + h * D
                v_dot = 1.0 if dv == h else 0.0
                rate = 0.0
                for i in range(D):
                    left, right, left_dot, right_dot = 0.0, 0.0, 0.0, 0.0
                    for j in range(D):
                        left += G[i, j] * y[q + j]
                        right += G[j, i] * y[k + j]
                        left_dot += dG[i, j] * y[q + j]
                        right_dot += dG[j, i] * y[k + j]
                        if dq == q + j:
                            left_dot += G[i, j]
                        if dk == k + j:
                            right_dot += G[j, i]
                    rate += y[k + i] * left_dot
                    if dk == k + i:
                        rate += left
                    out[k + i, column] = v_dot * left + v * left_dot
                    out[q + i, column] = v_dot * right + v * right_dot
                out[h, column] = rate

    def loss(y, p):  # tr L - tr(A^T (L^2 + G)), since the quadratic part is A . (B A L)
        gradient(y, p)
        L = p[:DD].reshape(D, D)
        A = p[a0 : a0 + DD].reshape(D, D)
        G = p[a0 + 2 * DD : a0 + 3 * DD].reshape(D, D)
        value = 0.0
        for i in range(D):
            value += L[i, i]
            for j in range(D):
                square = 0.0
                for k in range(D):
                    square += L[i, k] * L[k, j]
                value -= A[i, j] * (square + G[i, j])
        return value

    layout = Layout(
        states=(("v", (H,)), ("K", (H, 1, D)), ("Q", (H, 1, D))),
        parameters=(("Lambda", (D, D)), ("N", ())),
        scratch=6 * DD,
        covariances=("Lambda",),
        positive=("N",),
    )
    return by_hand(
        layout,
        rhs,
        jacobian,
        loss,
        partial(separate_field, heads, dim),
        symmetric=True,
        key=f"separate-{H}-{D}",
    )


@cache
def merged_field(heads: int, dim: int) -> CompiledField:
    """Merged attention, A = sum_h v_h U_h; p = Lambda, N, then scratch A, G."""
    H, D = heads, dim
    DD = D * D

    def rhs(t, y, p, out):
        L, n = p[:DD].reshape(D, D), p[DD]
        A = p[DD + 1 : 2 * DD + 1].reshape(D, D)
        G = p[2 * DD + 1 : 3 * DD + 1].reshape(D, D)
        trace = 0.0
        for i in range(D):
            trace += L[i, i]
        for i in range(D):
            for j in range(D):
                s = 0.0
                for h in range(H):
                    s += y[h] * y[H + h * DD + i * D + j]
                A[i, j] = s
        for i in range(D):
            for j in range(D):
                s = 0.0
                for k in range(D):
                    for m in range(D):
                        s += L[i, k] * A[k, m] * L[m, j]
                G[i, j] = s
        for j in range(D):  # column by column: G <- L^2 - B' G, B' = (1+1/N) L + tr/N
            for i in range(D):
                s = 0.0
                for k in range(D):
                    s += L[i, k] * (L[k, j] - (1.0 + 1.0 / n) * G[k, j])
                A[i, j] = s - trace / n * G[i, j]
        for h in range(H):
            rate = 0.0
            for k in range(DD):
                g = A[k // D, k % D]
                rate += g * y[H + h * DD + k]
                out[H + h * DD + k] = y[h] * g
            out[h] = rate

    def loss(y, p):
        L, n = p[:DD].reshape(D, D), p[DD]
        A = p[DD + 1 : 2 * DD + 1].reshape(D, D)
        M = p[2 * DD + 1 : 3 * DD + 1].reshape(D, D)
        for i in range(D):
            for j in range(D):
                s = 0.0
                for h in range(H):
                    s += y[h] * y[H + h * DD + i * D + j]
                A[i, j] = s
        trace = 0.0
        for i in range(D):
            trace += L[i, i]
        for i in range(D):
            for j in range(D):
                s = 0.0
                for k in range(D):
                    for m in range(D):
                        s += L[i, k] * A[k, m] * L[m, j]
                M[i, j] = s  # L A L
        value = trace
        for i in range(D):
            value -= 2.0 * M[i, i]
            for j in range(D):
                s = 0.0
                for k in range(D):
                    s += L[i, k] * M[k, j]
                value += A[i, j] * ((1.0 + 1.0 / n) * s + trace / n * M[i, j])
        return value

    def jacobian(t, y, p, out):  # G is linear in A: one column of A at a time
        L, n = p[:DD].reshape(D, D), p[DD]
        W = p[3 * DD + 1 : 3 * DD + 1 + H + H * DD]
        rhs_compiled(t, y, p, W)
        A = p[DD + 1 : 2 * DD + 1].reshape(D, D)
        dG = p[2 * DD + 1 : 3 * DD + 1].reshape(D, D)
        trace = 0.0
        for i in range(D):
            trace += L[i, i]
        for column in range(H + H * DD):
            source = column if column < H else (column - H) // DD
            entry = -1 if column < H else (column - H) % DD
            for i in range(D):
                for j in range(D):
                    s = 0.0
                    for k in range(D):
                        for m in range(D):
                            if entry < 0:
                                dA = y[H + source * DD + k * D + m]
                            elif entry == k * D + m:
                                dA = y[source]
                            else:
                                continue
                            inner = 0.0
                            for r in range(D):
                                inner += L[i, r] * L[r, k]
                            inner = (1.0 + 1.0 / n) * inner + trace / n * L[i, k]
                            s -= inner * dA * L[m, j]
                    dG[i, j] = s
            for h in range(H):
                rate = 0.0
                for k in range(DD):
                    g, d = A[k // D, k % D], dG[k // D, k % D]
                    rate += d * y[H + h * DD + k]
                    out[H + h * DD + k, column] = y[h] * d + (g if column == h else 0.0)
                    if h == source and k == entry:
                        rate += g
                out[h, column] = rate

    from numba import njit

    rhs_compiled = njit(rhs)
    layout = Layout(
        states=(("v", (H,)), ("U", (H, D, D))),
        parameters=(("Lambda", (D, D)), ("N", ())),
        scratch=2 * DD + H + H * DD,
        covariances=("Lambda",),
        positive=("N",),
    )
    return by_hand(layout, rhs, jacobian, loss, partial(merged_field, heads, dim), symmetric=True)


# -- modes -------------------------------------------------------------------------------------


@cache
def modes_field(count: int) -> CompiledField:
    """Decoupled modes, p' = l^2 q (1 - s p q), q' = l^2 p (1 - s p q), s = (1+1/N) l + tr/N."""
    M = count

    def rhs(t, y, p, out):
        trace = 0.0
        for i in range(M):
            trace += p[i]
        n = p[M]
        for i in range(M):
            rate = p[i] * p[i] * (1.0 - ((1.0 + 1.0 / n) * p[i] + trace / n) * y[i] * y[M + i])
            out[i] = rate * y[M + i]
            out[M + i] = rate * y[i]

    def jacobian(t, y, p, out):
        out[:, :] = 0.0
        trace = 0.0
        for i in range(M):
            trace += p[i]
        n = p[M]
        for i in range(M):
            s = (1.0 + 1.0 / n) * p[i] + trace / n
            square = p[i] * p[i]
            a, b = y[i], y[M + i]
            out[i, i] = -square * s * b * b
            out[M + i, M + i] = -square * s * a * a
            out[i, M + i] = square * (1.0 - 2.0 * s * a * b)
            out[M + i, i] = square * (1.0 - 2.0 * s * a * b)

    def loss(y, p):  # sum l - 2 l^2 a + l^2 s a^2 with a = p q
        trace = 0.0
        for i in range(M):
            trace += p[i]
        n = p[M]
        value = trace
        for i in range(M):
            s = (1.0 + 1.0 / n) * p[i] + trace / n
            a = y[i] * y[M + i]
            value += p[i] * p[i] * a * (s * a - 2.0)
        return value

    each = np.arange(M)
    rows = np.concatenate([each, each, each + M, each + M])
    columns = np.concatenate([each, each + M, each, each + M])
    layout = Layout(
        states=(("p", (M,)), ("q", (M,))),
        parameters=(("Lambda", (M,)), ("N", ())),
        positive=("Lambda", "N"),
    )
    return by_hand(
        layout,
        rhs,
        jacobian,
        loss,
        partial(modes_field, count),
        symmetric=True,
        pattern=(rows, columns),
    )


def modes_closed_form(spectrum: Array, context: float, p0: Array, q0: Array, t: Array) -> Array:
    """Exact modes from an unbalanced start (MATH.md, "unbalanced product"), ``(K, 2 M)``.

    ``a = p q`` obeys ``a' = r sqrt(K + 4 a^2) (1 - s a)`` with ``K = (p^2 - q^2)^2`` conserved.
    """
    s = (1 + 1 / context) * spectrum + spectrum.sum() / context
    gap = p0**2 - q0**2
    root = np.abs(gap)  # sqrt K
    a0 = p0 * q0
    start = (2 * a0 + np.sqrt(4 * a0**2 + root**2)) / root
    g = s * root / 2
    w = np.sqrt(1 + g * g)
    upper = (1 + w) / g
    lower = -1 / upper
    share = (start - upper) / (start - lower) * np.exp(-2 * spectrum**2 * w * t[:, None])
    e = (upper - lower * share) / (1 - share)
    a = root / 4 * (e - 1 / e)
    total = np.sqrt(gap**2 + 4 * a**2)  # p^2 + q^2
    return np.hstack([np.sqrt((total + gap) / 2), np.sqrt((total - gap) / 2)])


# -- small scalar problems ---------------------------------------------------------------------


def _scalars(*names: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((name, ()) for name in names)


@cache
def robertson_field() -> CompiledField:
    """Robertson's reactions, rate constants as parameters."""

    def rhs(t, y, p, out):
        slow, fast, square = p[0] * y[0], p[2] * y[1] * y[2], p[1] * y[1] * y[1]
        out[0] = fast - slow
        out[1] = slow - fast - square
        out[2] = square

    def jacobian(t, y, p, out):
        out[0, 0], out[0, 1], out[0, 2] = -p[0], p[2] * y[2], p[2] * y[1]
        out[2, 0], out[2, 1], out[2, 2] = 0.0, 2 * p[1] * y[1], 0.0
        out[1, 0] = p[0]
        out[1, 1] = -p[2] * y[2] - 2 * p[1] * y[1]
        out[1, 2] = -p[2] * y[1]

    return by_hand(Layout(_scalars("a", "b", "c"), _scalars("k1", "k2", "k3")), rhs, jacobian)


@cache
def van_der_pol_field() -> CompiledField:
    """Van der Pol's oscillator, x'' = mu (1 - x^2) x' - x."""

    def rhs(t, y, p, out):
        out[0] = y[1]
        out[1] = p[0] * (1 - y[0] * y[0]) * y[1] - y[0]

    def jacobian(t, y, p, out):
        out[0, 0], out[0, 1] = 0.0, 1.0
        out[1, 0] = -2 * p[0] * y[0] * y[1] - 1
        out[1, 1] = p[0] * (1 - y[0] * y[0])

    return by_hand(Layout(_scalars("x", "w"), _scalars("mu")), rhs, jacobian)


@cache
def blow_up_field() -> CompiledField:
    """``y' = y^2``, which from 1 is infinite at t = 1."""

    def rhs(t, y, p, out):
        out[0] = y[0] * y[0]

    def jacobian(t, y, p, out):
        out[0, 0] = 2 * y[0]

    return by_hand(Layout(_scalars("y")), rhs, jacobian, symmetric=True)


@cache
def nan_field() -> CompiledField:
    """``y' = -1 + 0 sqrt(y)``: falls to zero at t = 1 and has no right-hand side beyond."""

    def rhs(t, y, p, out):
        out[0] = -1.0 + 0.0 * np.sqrt(y[0])

    def jacobian(t, y, p, out):
        out[0, 0] = 0.0 * np.sqrt(y[0])

    return by_hand(Layout(_scalars("y")), rhs, jacobian, symmetric=True)


@cache
def cubic_field() -> CompiledField:
    """``x' = 3 t^2 - 12 t + 11``: x = (t-1)(t-2)(t-3), three crossings of zero."""

    def rhs(t, y, p, out):
        out[0] = (3 * t - 12) * t + 11

    def jacobian(t, y, p, out):
        out[0, 0] = 0.0

    return by_hand(Layout(_scalars("x")), rhs, jacobian, symmetric=True, autonomous=False)


# -- the list ----------------------------------------------------------------------------------


def separate_start(scale: float, heads: int = 4, dim: int = 4, seed: int = 0) -> dict[str, Array]:
    """Return a generic start of standard deviation ``scale``."""
    draw = np.random.default_rng(seed)
    return {
        "v": scale * draw.normal(size=heads),
        "K": scale * draw.normal(size=(heads, 1, dim)),
        "Q": scale * draw.normal(size=(heads, 1, dim)),
    }


def separate(scale: float) -> Problem:
    """Saddle-to-saddle from a start of this standard deviation."""
    params = {"Lambda": spd((0.4, 0.3, 0.2, 0.1)), "N": 31.0}
    # BDF's Newton iteration asks for more than rounding allows on plateaus left from 1e-6.
    large = scale >= 1e-3
    patient = ("LSODA", "Rodas5P", "auto")
    methods = (*STIFF, *EXPLICIT) if large else (*patient, "Radau") if scale >= 1e-6 else patient
    problem = Problem(
        name=f"separate-{scale:g}",
        build=partial(separate_field, 4, 4),
        y0=separate_start(scale),
        params=params,
        t=np.linspace(0.0, 200.0 / scale, 201),
        methods=methods,
        reference=(lambda t: tight_reference(problem, t, "DOP853")) if large else None,
        levels=(0.8, 0.5, 0.3, 0.18),
    )
    return problem


def merged() -> Problem:
    """One abrupt drop."""
    draw = np.random.default_rng(1)
    problem = Problem(
        name="merged",
        build=partial(merged_field, 8, 4),
        y0={"v": 1e-2 * draw.normal(size=8), "U": 1e-2 * draw.normal(size=(8, 4, 4))},
        params={"Lambda": spd((0.4, 0.3, 0.2, 0.1)), "N": 31.0},
        t=np.linspace(0.0, 450.0, 201),
        methods=(*STIFF, *EXPLICIT),
        reference=lambda t: tight_reference(problem, t, "DOP853"),
    )
    return problem


def modes(count: int = 16) -> Problem:
    """Decoupled stiff modes, eigenvalues 1 to 1e-4: rates from 1 to 1e-8."""
    spectrum = np.logspace(0, -4, count)
    draw = np.random.default_rng(2)
    p0, q0 = 1e-2 * (1 + draw.random(count)), 1e-2 * (1 + draw.random(count))
    return Problem(
        name=f"modes-{count}",
        build=partial(modes_field, count),
        y0={"p": p0, "q": q0},
        params={"Lambda": spectrum, "N": 31.0},
        t=np.concatenate([[0.0], np.logspace(-1, math.log10(3e9), 100)]),
        methods=(*STIFF, "Rodas5P-blocks"),
        reference=lambda t: modes_closed_form(spectrum, 31.0, p0, q0, t),
    )


def robertson() -> Problem:
    """Three reactions over sixteen decades of time."""
    problem = Problem(
        name="robertson",
        build=robertson_field,
        y0={"a": 1.0, "b": 0.0, "c": 0.0},
        params={"k1": 0.04, "k2": 3e7, "k3": 1e4},
        t=np.logspace(-5, 11, 65),
        methods=STIFF,
        reference=lambda t: tight_reference(problem, t),
    )
    return problem


def van_der_pol() -> Problem:
    """A relaxation oscillation of mu = 1e3, over two of its fast jumps."""
    problem = Problem(
        name="van-der-pol",
        build=van_der_pol_field,
        y0={"x": 2.0, "w": 0.0},
        params={"mu": 1e3},
        t=np.linspace(0.0, 2000.0, 41),
        methods=STIFF,
        reference=lambda t: tight_reference(problem, t),
    )
    return problem


def blow_up() -> Problem:
    """A pole of the solution at t = 1; the run is asked to pass it."""
    return Problem(
        name="blow-up",
        build=blow_up_field,
        y0={"y": 1.0},
        params={},
        t=np.array([0.5, 0.9, 2.0]),
        methods=(*STIFF, *EXPLICIT),
        status="blow_up",
    )


def nan() -> Problem:
    """The edge of the domain at t = 1; the run is asked to pass it."""
    return Problem(
        name="nan",
        build=nan_field,
        y0={"y": 1.0},
        params={},
        t=np.array([0.25, 0.5, 2.0]),
        methods=(*STIFF, *EXPLICIT),
        status="nan",
    )


def three_crossings() -> Problem:
    """A cubic in time, integrated exactly in one or a few steps."""
    return Problem(
        name="three-crossings",
        build=cubic_field,
        y0={"x": -6.0},
        params={},
        t=np.array([4.0]),
        methods=(*STIFF, *EXPLICIT),
        reference=lambda t: ((t - 1) * (t - 2) * (t - 3))[:, None],
    )


PROBLEMS: tuple[Problem, ...] = (
    separate(1e-2),
    separate(1e-3),
    separate(1e-6),
    separate(1e-10),
    merged(),
    modes(),
    robertson(),
    van_der_pol(),
    blow_up(),
    nan(),
    three_crossings(),
)
