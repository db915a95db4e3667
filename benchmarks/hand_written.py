"""The reference problems with hand-written Numba right-hand sides, as an expert would feed them.

They stand beside odekit's generated code in the benchmarks, so a ratio between integrators never
hides a ratio between right-hand sides. Formulas: Zhang et al. 2025 (merged and separate linear
attention, rank one) with A = sum_h v_h K_h Q_h^T (or v_h U_h), G = L^2 - B A L,
B = L ((1 + 1/N) L + (tr L / N) I).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

CONTEXT = 31.0
SMALL = {f"S4e-{power}": 10.0**-power for power in (4, 6, 8)}
"""S4 from small starts: name and standard deviation."""


@dataclass(frozen=True)
class Problem:
    """An initial-value problem with compiled functions.

    `rhs(t, y, p, out)`, `jacobian(t, y, p, out)` (or None), `loss(Y (K, n)) -> (K,)`; `pattern` the
    Jacobian's nonzeros (rows, cols), or None, and `values(t, y, p, out)` fills these; `symmetric`
    when the field is a gradient flow in one time scale.
    """

    name: str
    y0: np.ndarray
    p: np.ndarray
    t_end: float
    rhs: Any
    jacobian: Any
    loss: Callable[[np.ndarray], np.ndarray]
    symmetric: bool
    pattern: tuple[np.ndarray, np.ndarray] | None = None
    values: Any = None
    times: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def dim(self) -> int:
        """D of the attention problems, as their names have it: S4, S4tiny, S4e-6, M32."""
        digits = re.match(r"[A-Z](\d+)", self.name)
        assert digits is not None
        return int(digits[1])


def _load(source: str) -> Any:
    """Import generated source from a content-hashed file, so Numba can cache its code."""
    key = hashlib.sha256(source.encode()).hexdigest()[:16]
    folder = Path(os.environ.get("ODEKIT_BENCH_CACHE", tempfile.gettempdir())) / "odekit_bench"
    folder.mkdir(exist_ok=True)
    path = folder / f"field_{key}.py"
    if not path.exists():
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(source)
        partial.replace(path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


_HEAD = """import numpy as np
from numba import njit, void, float64
V = float64[::1]
"""
_RHS = "@njit(void(float64, V, V, V), cache=True, nogil=True)\ndef rhs(t, y, p, out):\n"


def staged_separate(dim: int, heads: int, lanes: bool = False) -> str:
    """A, A L, G, then the contractions, each computed once as a named scalar."""
    d, h = dim, heads
    # state: v (h), K (h, d), Q (h, d); parameters: L (d, d), B (d, d), L2 (d, d)
    y = (lambda i: f"y[{i}, l]") if lanes else (lambda i: f"y[{i}]")
    p = (lambda i: f"p[{i}, l]") if lanes else (lambda i: f"p[{i}]")
    out = (lambda i: f"out[{i}, l]") if lanes else (lambda i: f"out[{i}]")
    lines = []
    for a in range(h):
        lines.append(f"v{a} = {y(a)}")
        for i in range(d):
            lines.append(f"k{a}_{i} = {y(h + a * d + i)}")
            lines.append(f"q{a}_{i} = {y(h + h * d + a * d + i)}")
    for i in range(d):
        for j in range(d):
            lines.append(f"L{i}_{j} = {p(i * d + j)}")
            lines.append(f"B{i}_{j} = {p(d * d + i * d + j)}")
    for a in range(h):
        for i in range(d):
            lines.append(f"w{a}_{i} = v{a} * k{a}_{i}")
    for i in range(d):
        for j in range(d):
            lines.append(f"A{i}_{j} = " + " + ".join(f"w{a}_{i} * q{a}_{j}" for a in range(h)))
    for i in range(d):
        for j in range(d):
            lines.append(f"C{i}_{j} = " + " + ".join(f"A{i}_{m} * L{m}_{j}" for m in range(d)))
    for i in range(d):
        for j in range(d):
            total = " + ".join(f"B{i}_{m} * C{m}_{j}" for m in range(d))
            lines.append(f"G{i}_{j} = {p(2 * d * d + i * d + j)} - ({total})")
    for a in range(h):
        for i in range(d):
            lines.append(f"g{a}_{i} = " + " + ".join(f"G{i}_{j} * q{a}_{j}" for j in range(d)))
        lines.append(f"{out(a)} = " + " + ".join(f"k{a}_{i} * g{a}_{i}" for i in range(d)))
        for i in range(d):
            lines.append(f"{out(h + a * d + i)} = v{a} * g{a}_{i}")
        for i in range(d):
            total = " + ".join(f"G{j}_{i} * k{a}_{j}" for j in range(d))
            lines.append(f"{out(h + h * d + a * d + i)} = v{a} * ({total})")
    if lanes:
        head = (
            "@njit(void(float64[::1], float64[:, ::1], float64[:, ::1], float64[:, ::1]),"
            " cache=True, nogil=True)\ndef rhs_lanes(t, y, p, out):\n    for l in range(t.size):\n"
        )
        return _HEAD + head + "".join(f"        {line}\n" for line in lines)
    return _HEAD + _RHS + "".join(f"    {line}\n" for line in lines)


def _loops_jacobian_separate(dim: int, heads: int) -> str:
    """Exact Jacobian of the separate flow, loops over named tensors."""
    return f"""
@njit(void(float64, V, V, float64[:, ::1]), cache=True, nogil=True)
def jacobian(t, y, p, out):
    d = {dim}; h = {heads}
    L = p[:d*d].reshape(d, d); B = p[d*d:2*d*d].reshape(d, d); L2 = p[2*d*d:3*d*d].reshape(d, d)
    v = y[:h]; K = y[h:h+h*d].reshape(h, d); Q = y[h+h*d:].reshape(h, d)
    A = np.zeros((d, d))
    for a in range(h):
        for i in range(d):
            for j in range(d):
                A[i, j] += v[a] * K[a, i] * Q[a, j]
    G = L2 - np.dot(B, np.dot(A, L))
    BK = np.zeros((h, d)); LQ = np.zeros((h, d)); g = np.zeros((h, d)); m = np.zeros((h, d))
    for a in range(h):
        for i in range(d):
            for j in range(d):
                BK[a, i] += B[i, j] * K[a, j]
                LQ[a, i] += L[i, j] * Q[a, j]
                g[a, i] += G[i, j] * Q[a, j]
                m[a, i] += G[j, i] * K[a, j]
    KBK = np.zeros((h, h)); QLQ = np.zeros((h, h))
    for a in range(h):
        for b in range(h):
            for i in range(d):
                KBK[a, b] += K[a, i] * BK[b, i]
                QLQ[a, b] += Q[a, i] * LQ[b, i]
    # dG = -B dA L, dA = dv K Q^T + v dK Q^T + v K dQ^T
    for a in range(h):
        for b in range(h):
            out[a, b] = -KBK[a, b] * QLQ[a, b]
            for j in range(d):
                same = 1.0 if a == b else 0.0
                kj = h + b * d + j; qj = h + h * d + b * d + j
                out[a, kj] = same * g[a, j] - v[b] * BK[a, j] * QLQ[a, b]
                out[a, qj] = same * m[a, j] - v[b] * KBK[a, b] * LQ[a, j]
                out[kj, a] = out[a, kj]
                out[qj, a] = out[a, qj]
                for i in range(d):
                    ki = h + a * d + i; qi = h + h * d + a * d + i
                    out[ki, kj] = -v[a] * v[b] * B[i, j] * QLQ[a, b]
                    out[qi, qj] = -v[a] * v[b] * KBK[a, b] * L[i, j]
                    x = same * v[a] * G[i, j] - v[a] * v[b] * BK[b, i] * LQ[a, j]
                    out[ki, qj] = x
                    out[qj, ki] = x
"""


def _dot_separate(dim: int, heads: int) -> str:
    return (
        _HEAD
        + _RHS
        + f"""    d = {dim}; h = {heads}
    L = p[:d*d].reshape(d, d); B = p[d*d:2*d*d].reshape(d, d); L2 = p[2*d*d:3*d*d].reshape(d, d)
    s = p[3*d*d:]
    W = s[:h*d].reshape(h, d); A = s[h*d:h*d+d*d].reshape(d, d)
    C = s[h*d+d*d:h*d+2*d*d].reshape(d, d); G = s[h*d+2*d*d:h*d+3*d*d].reshape(d, d)
    K = y[h:h+h*d].reshape(h, d); Q = y[h+h*d:].reshape(h, d)
    oK = out[h:h+h*d].reshape(h, d); oQ = out[h+h*d:].reshape(h, d)
    for a in range(h):
        for i in range(d):
            W[a, i] = y[a] * K[a, i]
    np.dot(W.T, Q, A)
    np.dot(A, L, C)
    np.dot(B, C, G)
    for i in range(d):
        for j in range(d):
            G[i, j] = L2[i, j] - G[i, j]
    np.dot(Q, G.T, oK)
    np.dot(K, G, oQ)
    for a in range(h):
        x = 0.0
        for i in range(d):
            x += K[a, i] * oK[a, i]
        out[a] = x
        for i in range(d):
            oK[a, i] *= y[a]
            oQ[a, i] *= y[a]
"""
    )


def _merged(dim: int, heads: int, dot: bool) -> str:
    products = (
        "    np.dot(A, L, C)\n    np.dot(B, C, G)\n"
        "    for i in range(d):\n        for j in range(d):\n"
        "            G[i, j] = L2[i, j] - G[i, j]\n"
        if dot
        else """    for i in range(d):
        for j in range(d):
            C[i, j] = 0.0
            G[i, j] = 0.0
        for m in range(d):
            for j in range(d):
                C[i, j] += A[i, m] * L[m, j]
    for i in range(d):
        for m in range(d):
            for j in range(d):
                G[i, j] -= B[i, m] * C[m, j]
        for j in range(d):
            G[i, j] += L2[i, j]
"""
    )
    return (
        _HEAD
        + _RHS
        + f"""    d = {dim}; h = {heads}; e = d * d
    L = p[:e].reshape(d, d); B = p[e:2*e].reshape(d, d); L2 = p[2*e:3*e].reshape(d, d)
    A = p[3*e:4*e].reshape(d, d); C = p[4*e:5*e].reshape(d, d); G = p[5*e:6*e].reshape(d, d)
    a1 = p[3*e:4*e]; g1 = p[5*e:6*e]
    for i in range(e):
        a1[i] = 0.0
    for b in range(h):
        v = y[b]
        U = y[h+b*e:h+(b+1)*e]
        for i in range(e):
            a1[i] += v * U[i]
{products}    for b in range(h):
        v = y[b]
        U = y[h+b*e:h+(b+1)*e]
        o = out[h+b*e:h+(b+1)*e]
        x0 = 0.0; x1 = 0.0; x2 = 0.0; x3 = 0.0
        for i in range(0, e - 3, 4):
            x0 += U[i] * g1[i]; x1 += U[i+1] * g1[i+1]
            x2 += U[i+2] * g1[i+2]; x3 += U[i+3] * g1[i+3]
        out[b] = (x0 + x1) + (x2 + x3)
        for i in range(e):
            o[i] = v * g1[i]

@njit(void(float64, V, V, float64[:, ::1]), cache=True, nogil=True)
def jacobian(t, y, p, out):
    d = {dim}; h = {heads}; e = d * d
    L = p[:e].reshape(d, d); B = p[e:2*e].reshape(d, d); L2 = p[2*e:3*e].reshape(d, d)
    A = np.zeros((d, d))
    for b in range(h):
        A += y[b] * y[h+b*e:h+(b+1)*e].reshape(d, d)
    G = L2 - np.dot(B, np.dot(A, L))
    M = np.zeros((h, d, d))
    for b in range(h):
        M[b] = np.dot(B, np.dot(y[h+b*e:h+(b+1)*e].reshape(d, d).copy(), L))
    for a in range(h):
        for b in range(h):
            x = 0.0
            for i in range(e):
                x -= y[h+a*e+i] * M[b].ravel()[i]
            out[a, b] = x
            for i in range(d):
                for j in range(d):
                    col = h + b * e + i * d + j
                    x = (G[i, j] if a == b else 0.0) - y[b] * M[a, i, j]
                    out[a, col] = x
                    out[col, a] = x
                    for k in range(d):
                        for m in range(d):
                            out[h+a*e+k*d+m, col] = -y[a] * y[b] * B[k, i] * L[j, m]
"""
    )


_MODES = (
    _HEAD
    + _RHS
    + """    m = y.size // 2
    for i in range(m):
        r = p[i] * p[i] * (1.0 - y[i] * y[m + i] * p[m + i])
        out[i] = r * y[m + i]
        out[m + i] = r * y[i]

@njit(void(float64, V, V, float64[:, ::1]), cache=True, nogil=True)
def jacobian(t, y, p, out):
    m = y.size // 2
    out[:, :] = 0.0
    for i in range(m):
        s2 = p[i] * p[i]; a = p[m + i]; x = y[i]; z = y[m + i]
        out[i, i] = -s2 * z * z * a
        out[i, m + i] = s2 * (1.0 - 2.0 * x * z * a)
        out[m + i, i] = out[i, m + i]
        out[m + i, m + i] = -s2 * x * x * a

@njit(void(float64, V, V, V), cache=True, nogil=True)
def jacobian_values(t, y, p, out):
    m = y.size // 2
    for i in range(m):
        s2 = p[i] * p[i]; a = p[m + i]; x = y[i]; z = y[m + i]
        out[i] = -s2 * z * z * a
        out[m + i] = s2 * (1.0 - 2.0 * x * z * a)
        out[2 * m + i] = out[m + i]
        out[3 * m + i] = -s2 * x * x * a
"""
)


def _covariance(dim: int, spectrum: np.ndarray, seed: int) -> np.ndarray:
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(dim, dim)))
    return (rotation * spectrum) @ rotation.T


def _matrices(L: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    n = CONTEXT
    return L @ ((1 + 1 / n) * L + np.trace(L) / n * np.eye(L.shape[0])), L @ L


def _attention_loss(L: np.ndarray, to_a: Callable[[np.ndarray], np.ndarray]) -> Any:
    B, L2 = _matrices(L)

    def loss(y: np.ndarray) -> np.ndarray:
        a = to_a(y)
        return (
            np.trace(L)
            - 2 * np.einsum("kij,ji->k", a, L2)
            + np.einsum("ij,kjl,lm,kim->k", B, a, L, a)
        )

    return loss


def separate(
    name: str, dim: int, heads: int, std: float, t_end: float, spectrum: Any = None, seed: int = 3
) -> Problem:
    """Separate parametrization, rank one, generic random start."""
    s = np.array(spectrum if spectrum is not None else np.linspace(2.0, 1.0, dim))
    L = _covariance(dim, s / s.sum(), 1)
    B, L2 = _matrices(L)
    n = heads * (1 + 2 * dim)
    y0 = std * np.random.default_rng(seed).normal(size=n)
    scratch = np.zeros(heads * dim + 3 * dim * dim)
    p = np.concatenate([L.ravel(), B.ravel(), L2.ravel(), scratch])
    source = staged_separate(dim, heads) if dim <= 8 else _dot_separate(dim, heads)
    module = _load(source + _loops_jacobian_separate(dim, heads))

    def to_a(y: np.ndarray) -> np.ndarray:
        k = y[:, heads : heads * (1 + dim)].reshape(-1, heads, dim)
        q = y[:, heads * (1 + dim) :].reshape(-1, heads, dim)
        return np.einsum("kh,khi,khj->kij", y[:, :heads], k, q)

    return Problem(
        name, y0, p, t_end, module.rhs, module.jacobian, _attention_loss(L, to_a), True,
        times=np.linspace(0, t_end, 201)[1:],
    )  # fmt: skip


def merged(name: str, dim: int, heads: int, std: float, t_end: float, seed: int = 3) -> Problem:
    """Merged parametrization: v_h, U_h."""
    s = np.linspace(2.0, 1.0, dim) if dim > 4 else np.array([0.4, 0.3, 0.2, 0.1])
    L = _covariance(dim, s / s.sum() if dim <= 4 else s / s.mean(), 1)
    B, L2 = _matrices(L)
    y0 = std * np.random.default_rng(seed).normal(size=heads * (1 + dim * dim))
    p = np.concatenate([L.ravel(), B.ravel(), L2.ravel(), np.zeros(3 * dim * dim)])
    module = _load(_merged(dim, heads, dim > 16))

    def to_a(y: np.ndarray) -> np.ndarray:
        return np.einsum("kh,khij->kij", y[:, :heads], y[:, heads:].reshape(-1, heads, dim, dim))

    return Problem(
        name, y0, p, t_end, module.rhs, module.jacobian, _attention_loss(L, to_a), True,
        times=np.linspace(0, t_end, 201)[1:],
    )  # fmt: skip


def modes(name: str, count: int, t_end: float = 3e9) -> Problem:
    """Stiff decoupled modes p_i' = s_i^2 q_i (1 - p_i q_i a_i), same for q with p."""
    s = np.logspace(0, -4, count)
    a = 1 + (1 + s.sum() / s) / CONTEXT
    rng = np.random.default_rng(5)
    y0 = 1e-2 * np.concatenate([1 + 0.1 * rng.random(count), 1 + 0.1 * rng.random(count)])
    module = _load(_MODES)

    def loss(y: np.ndarray) -> np.ndarray:
        x = y[:, :count] * y[:, count:]
        return np.sum(s * (1 - 2 * x + a * x * x), axis=1)

    i = np.arange(count)
    rows, cols = np.concatenate([i, i, i + count, i + count]), np.concatenate([i, i + count] * 2)
    return Problem(
        name, y0, np.concatenate([s, a]), t_end, module.rhs, module.jacobian, loss, True,
        pattern=(rows, cols), values=module.jacobian_values,
        times=np.minimum(np.logspace(0, np.log10(t_end), 200), t_end),
    )  # fmt: skip


def problem(name: str, std: float | None = None) -> Problem:
    """A problem of the benchmarks by name."""
    four = (0.4, 0.3, 0.2, 0.1)
    makers: dict[str, Callable[[], Problem]] = {
        "S4": lambda: separate("S4", 4, 4, std or 1e-2, 2e4, four),
        "S4tiny": lambda: separate("S4tiny", 4, 4, 1e-3, 2e5, four),
        "S8": lambda: separate("S8", 8, 9, 1e-2, 8000.0),
        "S32": lambda: separate("S32", 32, 32, 1e-2, 1.3e5),
        "M4": lambda: merged("M4", 4, 8, 1e-2, 450.0),
        "M32": lambda: merged("M32", 32, 8, 1e-2, 120.0),
        "P16": lambda: modes("P16", 16),
        "P1000": lambda: modes("P1000", 1000),
    }
    for small, scale in SMALL.items():
        makers[small] = partial(separate, small, 4, 4, scale, 200 / scale, four)
    return makers[name]()
