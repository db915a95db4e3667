"""Derivation of the coefficients in `rock_table`: a stabilised explicit method of order four.

Method of A. Abdulle, "Fourth order Chebyshev methods with recurrence relation", SIAM J. Sci.
Comput. 23 (2002) 2041-2054, rederived here from its conditions (no table is taken from anywhere):

1. For s stages find the polynomial R of degree s, R(z) = exp(z) + O(z^5), that stays within the
   damping 0.95 on the longest interval [-ell, -0.8]: a linear programme for each ell, bisected
   (Ketcheson & Ahmadia, CAMCoS 7 (2012) 247).
2. R has s - 4 real zeros and two complex pairs. The real zeros are the nodes of a discrete
   orthogonality whose recurrence (Lanczos) gives the inner stages
   g_{k+1} = mu h f(g_k) + (1 + kappa) g_k - kappa g_{k-1}, with weights w4^2 so that they stay
   small.
3. Four last stages complete order four also for nonlinear systems: the eight order conditions of
   the composition (Butcher trees) fix their elementary weights, these their coefficients.
4. The error estimate is the only combination of the four stages and f(y_new) that vanishes to
   order three.

The interpolant is the cubic Hermite polynomial, whose error h^4 y''''/384 is of the estimate's own
size, so the tolerance holds between steps too. A quartic from the stages exists, but its
coefficients are of order 100 to 1000 and amplify what the stiff components leave in the slopes.

Run `python -m odekit.integrate.compiled.derive_rock` to write `rock_table.py` anew (minutes).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.polynomial import chebyshev

DAMPING = 0.95
STAGES = (*range(5, 25), 26, 28, 30, 33, 36, 40, 44, 48, 53, 58, 64, 70, 77, 85, 94)
ESTIMATE = 0.1  # size of the error estimate's leading term relative to the exact solution's
ABSCISSAE = (0.45, 0.35)  # of the second and third of the last stages, in units of their span

# Trees of order <= 4: ., [.], [..], [[.]], [...], [.[.]], [[..]], [[[.]]].
DENSITY = np.array([1.0, 2.0, 3.0, 6.0, 4.0, 8.0, 12.0, 24.0])


def slope_weights(g: np.ndarray) -> np.ndarray:
    """Elementary weights of h f(g) for a stage with elementary weights g."""
    a, b, c, d = g[:4]
    return np.array([1.0, a, a * a, b, a**3, a * b, c, d])


def optimal_polynomial(s: int) -> tuple[float, np.ndarray]:
    """Longest stability interval ell and R in Chebyshev form on [-ell, 0]."""
    from scipy.optimize import linprog

    count = 12 * s + 200
    x = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    vander = chebyshev.chebvander(x, s)
    unit = np.eye(s + 1)

    def bound(ell: float) -> tuple[float, np.ndarray | None]:
        rows, targets = [], []
        for k in range(5):
            row = np.array([chebyshev.chebval(1.0, chebyshev.chebder(e, k)) for e in unit])
            rows.append(np.append(row / row[-1], 0.0))
            targets.append((ell / 2) ** k / row[-1])
        inside = vander[ell * (x - 1) / 2 < -0.8]
        one = np.ones((inside.shape[0], 1))
        result = linprog(
            np.append(np.zeros(s + 1), 1.0),
            A_ub=np.block([[inside, -one], [-inside, -one]]),
            b_ub=np.zeros(2 * inside.shape[0]),
            A_eq=np.array(rows),
            b_eq=targets,
            bounds=[(None, None)] * (s + 1) + [(0, None)],
            method="highs",
        )
        if result.status != 0:
            return np.inf, None
        solution = np.asarray(result.x, dtype=np.float64)
        return float(solution[-1]), solution[:-1]

    low, high = (0.1 if s < 7 else 0.28) * s * s, 0.37 * s * s
    best: tuple[float, np.ndarray] | None = None
    for _ in range(14):
        middle = 0.5 * (low + high)
        size, coefficients = bound(middle)
        if size <= DAMPING and coefficients is not None:
            low, best = middle, (middle, coefficients)
        else:
            high = middle
    assert best is not None, f"no stable polynomial of degree {s} found in the bracket"
    return best


def recurrence(nodes: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Three-term recurrence (alpha, beta) of the discrete orthogonal polynomials (Lanczos)."""
    q = [np.sqrt(weights / weights.sum())]
    alpha, beta = [], [0.0]
    for k in range(nodes.size):
        v = nodes * q[k]
        alpha.append(q[k] @ v)
        for _ in range(2):
            for u in q:
                v = v - (u @ v) * u
        if k < nodes.size - 1:
            beta.append(float(v @ v))
            q.append(v / np.sqrt(v @ v))
    return np.array(alpha), np.array(beta)


def last_weights(a: np.ndarray) -> np.ndarray:
    """Elementary weights that the last stages need after an inner method with weights a."""
    t = 1 / DENSITY
    w = np.zeros(8)
    w[0] = t[0] - a[0]
    w[1] = t[1] - a[1] - w[0] * a[0]
    w[2] = t[2] - a[2] - w[0] * a[0] ** 2 - 2 * w[1] * a[0]
    w[3] = t[3] - a[3] - w[0] * a[1] - w[1] * a[0]
    w[4] = t[4] - a[4] - w[0] * a[0] ** 3 - 3 * w[1] * a[0] ** 2 - 3 * w[2] * a[0]
    w[5] = t[5] - a[5] - w[0] * a[0] * a[1] - w[1] * (a[1] + a[0] ** 2) - (w[2] + w[3]) * a[0]
    w[6] = t[6] - a[6] - w[0] * a[2] - w[1] * a[0] ** 2 - 2 * w[3] * a[0]
    w[7] = t[7] - a[7] - w[0] * a[3] - w[1] * a[1] - w[3] * a[0]
    return w


def last_stages(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Four explicit stages with elementary weights w: matrix A (4, 4) and weights b (4,)."""
    from scipy.optimize import brentq

    c2, c3 = ABSCISSAE[0] * w[0], ABSCISSAE[1] * w[0]

    def solve(c4: float) -> tuple[float, np.ndarray, np.ndarray]:
        c = np.array([c2, c3, c4])
        b = np.linalg.solve(np.array([c, c**2, c**3]), [w[1], w[2], w[4]])
        x3, x4 = np.linalg.solve([[1, 1], [c3, c4]], [w[3], w[5]])
        a32 = x3 / (b[1] * c2)
        a43 = w[7] / (b[2] * a32 * c2)
        a42 = (x4 / b[2] - a43 * c3) / c2
        A = np.zeros((4, 4))
        A[1, 0] = c2
        A[2, :2] = c3 - a32, a32
        A[3, :3] = c4 - a42 - a43, a42, a43
        rest = b[1] * a32 * c2**2 + b[2] * (a42 * c2**2 + a43 * c3**2) - w[6]
        return rest, A, np.append(w[0] - b.sum(), b)

    grid = np.linspace(0.5, 1.5, 401) * w[0]
    found: tuple[np.ndarray, np.ndarray] | None = None
    for left, right in zip(grid[:-1], grid[1:], strict=True):
        f, g = solve(left)[0], solve(right)[0]
        if f * g < 0 and abs(f) < 1:
            rest, A, b = solve(brentq(lambda c: solve(c)[0], left, right, xtol=1e-15))
            size = max(np.abs(A).max(), np.abs(b).max())
            if abs(rest) < 1e-13 and (
                found is None or size < max(np.abs(found[0]).max(), np.abs(found[1]).max())
            ):
                found = A, b
    assert found is not None, "no last stages with these abscissae"
    return found


def derive(s: int) -> dict[str, np.ndarray | float]:
    """All coefficients of the s-stage method."""
    ell, r = optimal_polynomial(s)
    roots = chebyshev.chebroots(r)
    is_real = (np.abs(roots.imag) < 1e-6) & (np.abs(roots) < 1 + 1e-9)
    nodes, pairs = np.sort(roots[is_real].real), roots[~is_real]
    assert nodes.size == s - 4, f"degree {s}: {nodes.size} real zeros"
    alpha, beta = recurrence(nodes, np.prod([np.abs(nodes - q) for q in pairs], axis=0) ** 2)
    p = [1.0, 1.0 - alpha[0]]
    for k in range(1, s - 4):
        p.append((1 - alpha[k]) * p[k] - beta[k] * p[k - 1])
    mu = np.array([2 / ell * p[k] / p[k + 1] for k in range(s - 4)])
    kappa = np.array([0.0] + [beta[k] * p[k - 1] / p[k + 1] for k in range(1, s - 4)])
    stages = [np.zeros(8)]
    for k in range(s - 4):
        before = stages[k - 1] if k else np.zeros(8)
        stages.append(
            (1 + kappa[k]) * stages[k] - kappa[k] * before + mu[k] * slope_weights(stages[k])
        )
    inner = stages[-1]
    A, b = last_stages(last_weights(inner))
    slopes: list[np.ndarray] = []
    for i in range(4):
        stage = inner + sum((A[i, j] * slopes[j] for j in range(i)), np.zeros(8))
        slopes.append(slope_weights(stage))
    new = inner + sum((b[j] * slopes[j] for j in range(4)), np.zeros(8))
    assert np.abs(new * DENSITY - 1).max() < 1e-11, f"order conditions of degree {s}"
    slopes.append(slope_weights(new))
    conditions = np.array(slopes).T
    null = np.linalg.svd(conditions[:4])[2][-1]
    null = null * (ESTIMATE / np.abs((conditions[4:] @ null) * DENSITY[4:]).max())
    return {
        "ell": ell, "mu": mu, "kappa": kappa, "c": np.array([g[0] for g in stages]),
        "last": np.concatenate([A[1, :1], A[2, :2], A[3, :3], b, null]),
    }  # fmt: skip


def main() -> None:
    """Write `rock_table.py`."""
    lines = [
        '"""Coefficients of the stabilised method, written by `derive_rock` (see there)."""',
        "",
        "# ruff: noqa: E501",
        "# stages -> (ell, mu, kappa, c, last)",
        "",
        "# fmt: off",
        "Row = tuple[float, ...]",
        "TABLE: dict[int, tuple[float, Row, Row, Row, Row]] = {",
    ]
    for s in STAGES:
        d = derive(s)
        parts = ", ".join(
            "(" + ", ".join(repr(float(x)) for x in np.atleast_1d(d[k])) + ",)"
            for k in ("mu", "kappa", "c", "last")
        )
        lines.append(f"    {s}: ({float(d['ell'])!r}, {parts}),")
        print(s, float(d["ell"]) / s**2, flush=True)
    lines += ["}", "# fmt: on"]
    Path(__file__).with_name("rock_table.py").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
