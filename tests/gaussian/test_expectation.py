"""Exact expectation against a table of moments, component-wise Wick, and Monte Carlo."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
import pytest
import sympy as sp

import odekit as ok
from odekit.gaussian import BudgetError
from odekit.tensor import TensorExpr

N, D, H = ok.dims("N D H")
L = ok.parameter("L", (D, D), symmetric=True)
x = ok.gaussian("x", (N, D), covariance=L)
S = ok.einsum("na,nb->ab", x, x) / N
A, B = ok.weight("A", (D, D)), ok.weight("B", (D, D))


def tr(e: TensorExpr) -> TensorExpr:
    return ok.einsum("ii->", e)


def outer(scalar: TensorExpr, matrix) -> TensorExpr:
    return ok.einsum(",ij->ij", scalar, matrix)


def half(M) -> TensorExpr:
    return (M + M.T) / 2


def e4(M) -> TensorExpr:
    return L @ (M + M.T) @ L + outer(tr(L @ M), L)


def e6(M, P) -> TensorExpr:
    m, p = half(M), half(P)
    return (
        outer(tr(M @ L) * tr(P @ L) + 2 * tr(m @ L @ p @ L), L)
        + 2 * outer(tr(M @ L), L @ p @ L)
        + 2 * outer(tr(P @ L), L @ m @ L)
        + 4 * (L @ (m @ L @ p + p @ L @ m) @ L)
    )


def test_second_moments_of_the_sample_covariance() -> None:
    assert ok.expectation(S) == L
    assert ok.expectation(S @ A @ S) == L @ A @ L + (L @ A.T @ L + outer(tr(A @ L), L)) / N
    assert ok.expectation(outer(tr(S @ A), S)) == outer(tr(L @ A), L) + (L @ (A + A.T) @ L) / N
    assert ok.expectation(tr(S @ A) * tr(S @ B)) == (
        tr(L @ A) * tr(L @ B) + (tr(L @ A @ L @ B) + tr(L @ A @ L @ B.T)) / N
    )


def test_third_moment_of_the_sample_covariance() -> None:
    expected = (
        (N - 1) * (N - 2) * (L @ A @ L @ B @ L)
        + (N - 1) * (e4(A) @ B @ L + L @ A @ e4(B) + e4(A @ L @ B))
        + e6(A, B)
    ) / N**2
    assert ok.expectation(S @ A @ S @ B @ S) == expected


def test_white_third_moment() -> None:
    z = ok.gaussian("z", (N, D))
    W = ok.einsum("na,nb->ab", z, z) / N
    factor = (N**2 + 3 * N * (D + 1) + D**2 + 3 * D + 4) / N**2
    assert ok.expectation(W @ W @ W) == factor * ok.identity(D)


def test_high_order_is_quick_and_agrees_with_a_scalar_chi_square() -> None:
    """In one dimension S is a chi-square over N: E S^8 = prod_k (N + 2k) / N^8."""
    z = ok.gaussian("z", (N, D))
    W = ok.einsum("na,nb->ab", z, z) / N
    power = W
    for _ in range(7):
        power = power @ W
    start = time.monotonic()
    moment = ok.expectation(tr(power))
    assert time.monotonic() - start < 20  # a runaway, not a benchmark
    scalar = sum(
        c * sp.Mul(*(a.subs(D, 1) ** e for a, e in t.monomial)) for t, c in moment.terms.items()
    )
    expected = sp.Mul(*(N + 2 * k for k in range(8))) / N**8
    assert sp.expand(scalar - expected) == 0


def _wick_by_components(expression: TensorExpr, sizes: dict, rng) -> sp.Expr:
    """The mean with every Gaussian entry a polynomial in independent standard normals."""
    from odekit.field.components import component_array, entry_symbols

    arrays = {}
    normals: list[sp.Symbol] = []
    factor = sp.Matrix(2, 2, lambda i, j: sp.Rational(int(rng.integers(-3, 4)), 2) + int(i == j))
    arrays[L] = np.array(factor * factor.T, dtype=object)
    for tensor in expression.tensors(deep=True):
        shape = tuple(int(s.subs(sizes)) for s in tensor.shape)
        if tensor.kind != "gaussian":
            arrays[tensor] = np.empty(shape, dtype=object)
            for position in np.ndindex(*shape):
                arrays[tensor][position] = sp.Rational(int(rng.integers(-4, 5)), 3)
            continue
        z = entry_symbols(tensor, shape, f"z{tensor.uid}")
        normals += list(z.reshape(-1))
        structured = tensor.axis_covariance[-1] is not None
        arrays[tensor] = z @ np.array(factor.T, dtype=object) if structured else z
    value = component_array(expression, arrays, sizes).item()
    polynomial = sp.Poly(value, *normals)
    mean = sp.Integer(0)
    for powers, coefficient in polynomial.terms():
        if all(p % 2 == 0 for p in powers):
            mean += coefficient * sp.Mul(*(sp.factorial2(p - 1) if p else 1 for p in powers))
    exact = component_array(ok.expectation(expression), arrays, sizes).item()
    return sp.simplify(mean - exact)


@pytest.mark.parametrize("seed", range(3))
def test_against_component_wick_in_rational_arithmetic(seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = ok.gaussian("w", (D,))
    y = ok.einsum("d,nd->n", w, x)
    beta = ok.einsum("n,nd->d", y, x) / N
    cases = [
        ok.einsum("i,ij,j->", beta, A, beta),
        tr(S @ A @ S @ B),
        tr(S @ A) * tr(S @ B) * tr(S),
        ok.einsum("i,j,ij->", w, w, S) ** 2,
    ]
    for case in cases:
        assert _wick_by_components(case, {N: 2, D: 2}, rng) == 0


@pytest.mark.parametrize(
    "case", ["attention", "matrix-valued", "label noise", "correlated rows", "full layer"]
)
def test_against_monte_carlo(case: str) -> None:
    rng = np.random.default_rng(11)
    size, dim, context = 40_000, 2, 3
    root = rng.normal(size=(dim, dim))
    values = {
        "L": root @ root.T + 0.1 * np.eye(dim),
        "C": np.array([[1.0, 0.4, 0.1], [0.4, 1.2, 0.3], [0.1, 0.3, 0.8]]),
        "N": context,
        "D": dim,
        "A": rng.normal(size=(dim, dim)),
        "B": rng.normal(size=(dim, dim)),
        "s2": 0.3,
    }
    w, q = ok.gaussian("w", (D,)), ok.gaussian("q", (D,), covariance=L)
    noise = ok.gaussian("eps", (N,), covariance=ok.parameter("s2"))
    W = ok.gaussian("W", (D, D))
    C = ok.parameter("C", (N, N), symmetric=True)
    rows = ok.gaussian("X", (N, D), covariance=(C, L))
    y = ok.einsum("d,nd->n", w, x)
    beta = ok.einsum("n,nd->d", y, x) / N
    loss = {
        "attention": (ok.einsum("d,d->", w, q) - ok.einsum("a,ab,b->", beta, A, q)) ** 2,
        "matrix-valued": ok.einsum(
            "i,i->",
            W @ q - A @ (ok.einsum("ij,nj,nk->ik", W, x, x) / N) @ B @ q,
            W @ q - A @ (ok.einsum("ij,nj,nk->ik", W, x, x) / N) @ B @ q,
        ),
        "label noise": (ok.einsum("d,d->", w, q) - ok.einsum("n,na,ab,b->", y + noise, x, A, q) / N)
        ** 2,
        "correlated rows": ok.einsum("na,ab,nb,mc,mc->", rows, A, rows, rows, rows) / N,
        "full layer": (
            ok.einsum("d,d->", w, q)
            - ok.einsum("i,ij,jk,k->", q, A, S + ok.einsum("a,b->ab", q, q) / N, beta)
        )
        ** 2,
    }[case]
    exact = float(ok.expectation(loss).evaluate(values))
    random = [t for t in loss.tensors(deep=True) if t.kind == "gaussian"]
    draws = ok.sample(random, values, size=size, seed=5)
    samples = loss.evaluate({**values, **draws}, batched=list(draws))
    error = samples.std() / np.sqrt(size)
    assert abs(samples.mean() - exact) < 4 * error
    # The check could fail: the standard error is small against the value.
    assert error < 0.1 * abs(exact)


def test_average_over_some_variables_only() -> None:
    w = ok.gaussian("w", (D,))
    e = ok.einsum("na,a,nb,b->", x, w, x, w)
    assert ok.expectation(e, over=w) == ok.einsum("na,na->", x, x)
    assert ok.expectation(ok.expectation(e, over=(x,)), over=w) == ok.expectation(e) == N * tr(L)


def test_scalar_covariances_and_odd_moments() -> None:
    s2 = ok.parameter("s2")
    eps = ok.gaussian("eps", (N,), covariance=s2)
    assert ok.expectation(ok.einsum("n,n->", eps, eps)) == N * s2
    assert ok.expectation(ok.einsum("n->", eps)).is_zero
    assert ok.expectation(ok.einsum("n,n,n,n->", eps, eps, eps, eps)) == 3 * N * s2**2
    unit = ok.gaussian("g", covariance=2)
    assert ok.expectation(unit**6) == 15 * 8


def test_random_definitions_are_multiplied_out() -> None:
    beta = ok.define("beta", ok.einsum("na,nb->ab", x, x) / N)
    assert ok.expectation(ok.einsum("ab,ba->", beta, beta)) == ok.expectation(tr(S @ S))


def test_budget_names_the_variable() -> None:
    M = [ok.weight(f"M{k}", (D, D)) for k in range(8)]
    product = S @ M[0]
    for matrix in M[1:6]:
        product = product @ S @ matrix
    with pytest.raises(BudgetError, match=r"averaging over x reached \d+ terms"):
        ok.expectation(product, max_terms=200)


@pytest.mark.parametrize("singular", [False, True])
def test_samples_have_the_covariance_they_are_averaged_with(singular: bool) -> None:
    covariance = np.array([[2.0, 1.0], [1.0, 0.5 if singular else 1.0]])
    draws = ok.sample(x, {"L": covariance, "N": 3}, size=50_000, seed=1)["x"]
    assert draws.shape == (50_000, 3, 2)
    empirical = np.einsum("bna,bnc->ac", draws, draws) / draws[..., 0].size
    # Each entry's standard error is at most sqrt(3) * largest variance / sqrt(samples).
    assert np.abs(empirical - covariance).max() < 4 * np.sqrt(3) * 2 / np.sqrt(150_000)
    again = ok.sample(x, {"L": covariance, "N": 3}, size=50_000, seed=1)["x"]
    np.testing.assert_array_equal(draws, again)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ok.gaussian("x", (N, D), covariance=ok.parameter("M", (D, D))), "symmetric"),
        (lambda: ok.gaussian("x", (N, D), covariance=ok.identity(N)), "expected (D, D)"),
        (lambda: ok.gaussian("x", (N, D), covariance=(L,)), "one per axis"),
        (lambda: ok.gaussian("x", (D,), covariance=half(A)), "depends on A"),
        (lambda: ok.sample(A, {"D": 2}), "Gaussian"),
        (lambda: ok.sample(x, {"L": [[1.0, 2.0], [2.0, 1.0]], "N": 2}), "negative eigenvalue"),
        (lambda: ok.sample(x, {"L": [[1.0, 2.0], [0.0, 1.0]], "N": 2}), "not symmetric"),
        (lambda: ok.sample(x, {"L": np.eye(2), "N": 0}), "must be positive"),
        (lambda: ok.sample(x, {"L": np.eye(2), "N": 2.5}), "integer"),
        (lambda: ok.sample(x, {"L": np.eye(2)}), "no value for N"),
        (lambda: ok.sample(x, {"L": np.eye(2), "N": 2}, size=0), "size is 0"),
        (lambda: ok.expectation(S, over=A), "no Gaussian"),
    ],
)
def test_bad_input(make, words) -> None:
    with pytest.raises(ok.InputError) as caught:
        make()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_fractions_stay_exact() -> None:
    e = ok.expectation(S @ S) * Fraction(1, 3)
    assert all(isinstance(c, Fraction) for c in e.terms.values())
