"""Arithmetic, contraction, derivative and views of tensor expressions."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

import odekit as ok

N, D, H = ok.dims("N D H")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_equal_contractions_are_collected() -> None:
    L = ok.parameter("Lambda", (D, D), symmetric=True)
    A = ok.weight("A", (D, D))
    first = ok.einsum("ij,jk,kl,li->", L, A, L, A)
    second = ok.einsum("ab,ca,dc,bd->", A, L, A, L)
    assert first == second
    assert (first - second).is_zero
    assert ok.einsum("ij,ij->", A, A) != ok.einsum("ij,ji->", A, A)


def test_closed_loops_and_deltas_are_sizes() -> None:
    eye = ok.identity(D)
    assert ok.einsum("ij,ij->", eye, eye) == D
    assert ok.einsum("ii->", eye) == D
    x = ok.weight("x", (D,))
    assert ok.einsum("i,jk->ijk", x, eye).rank == 3
    assert ok.einsum("i,ij->j", x, eye) == x
    assert ok.einsum("ij,jk->ik", eye, eye) == eye
    # The square of a delta entry by entry is the delta.
    assert ok.einsum("ij,ij->ij", eye, eye) == eye


def test_a_size_that_is_a_sum_multiplies_out() -> None:
    x = ok.weight("x", (D + 1,))
    ones = ok.einsum("i->i", x).diff(x)
    assert ok.einsum("ij,ij->", ones, ones) == D + 1


def test_scalar_arithmetic_is_exact() -> None:
    W = ok.weight("W", (D, D))
    square = ok.einsum("ij,ij->", W, W)
    assert 0.1 * square + square / 10 == square / 5
    assert sp.Rational(1, 3) * square * 3 == square
    assert N * square / N == square
    assert np.float64(2.0) * square == 2 * square == square * np.float64(2.0)
    assert np.float64(2.0) + square == square + 2
    assert np.float64(1.0) - square == 1 - square
    assert sp.Symbol("W") != W  # a comparison is no conversion
    assert (N + 1) * square == N * square + square
    assert square**2 == ok.einsum("ij,ij,kl,kl->", W, W, W, W)
    assert sp.sqrt(D) * (square * sp.sqrt(D)) == D * square
    assert 1 + square - 1 == square


def test_numbers_agree_with_numpy(rng: np.random.Generator) -> None:
    L = ok.parameter("Lambda", (D, D), symmetric=True)
    v, U = ok.weight("v", (H,)), ok.weight("U", (H, D, D))
    values = {
        "Lambda": (lambda m: m @ m.T)(rng.normal(size=(3, 3))),
        "v": rng.normal(size=4),
        "U": rng.normal(size=(4, 3, 3)),
        "N": 7,
    }
    e = ok.einsum("h,hij,jk->ik", v, U, L) / N + D * ok.identity(D) - ok.einsum("hij,h->ji", U, v)
    A = np.einsum("h,hij->ij", values["v"], values["U"])
    expected = A @ values["Lambda"] / 7 + 3 * np.eye(3) - A.T
    np.testing.assert_allclose(e.evaluate(values), expected, rtol=1e-14, atol=1e-14)


def test_batched_values(rng: np.random.Generator) -> None:
    L, x = ok.parameter("L", (D, D)), ok.weight("x", (D,))
    xs, matrix = rng.normal(size=(5, 3)), rng.normal(size=(3, 3))
    got = (ok.einsum("i,ij,j->", x, L, x) + 1).evaluate({"x": xs, "L": matrix}, batched=["x"])
    np.testing.assert_allclose(got, np.einsum("bi,ij,bj->b", xs, matrix, xs) + 1, rtol=1e-13)


def _finite_difference(expression, tensor, values, step=1e-6):
    base = values[tensor.name]
    columns = []
    for position in np.ndindex(*base.shape):
        high, low = base.copy(), base.copy()
        high[position] += step
        low[position] -= step
        up = expression.evaluate({**values, tensor.name: high})
        down = expression.evaluate({**values, tensor.name: low})
        columns.append((up - down) / (2 * step))
    return np.moveaxis(
        np.array(columns).reshape(*base.shape, *up.shape), range(base.ndim), range(-base.ndim, 0)
    )


@pytest.mark.parametrize("through_definition", [False, True])
def test_derivative_agrees_with_finite_difference(
    rng: np.random.Generator, through_definition: bool
) -> None:
    L = ok.parameter("Lambda", (D, D), symmetric=True)
    v, U = ok.weight("v", (H,)), ok.weight("U", (H, D, D))
    A = ok.einsum("h,hij->ij", v, U)
    if through_definition:
        A = ok.define("A", A)
    e = ok.einsum("ij,jk,kl,ml->im", L, A, A, L) + ok.einsum("hij->ij", U)
    e = e + ok.einsum("hii,hjk->jk", U, U)
    values = {
        "Lambda": (lambda m: m + m.T)(rng.normal(size=(3, 3))),
        "v": rng.normal(size=2),
        "U": rng.normal(size=(2, 3, 3)),
    }
    for tensor in (v, U):
        exact = e.diff(tensor).evaluate(values)
        numeric = _finite_difference(e, tensor, values)
        # Cubic in U: central differences with step h err by h^2 f'''/6 + rounding/h, below 1e-8.
        np.testing.assert_allclose(exact, numeric, rtol=1e-7, atol=1e-7)


def test_derivative_of_diagonal_and_sum_entries() -> None:
    W = ok.weight("W", (D, D))
    trace = ok.einsum("ii->", W)
    assert trace.diff(W) == ok.identity(D)
    total = ok.einsum("ij->", W)
    ones = total.diff(W)
    assert ones.shape == (D, D)
    np.testing.assert_array_equal(ones.evaluate({"D": 2}), np.ones((2, 2)))


def test_the_derivative_that_sympy_drops() -> None:
    """sympy#27406: d/dA [tr A'A + tr B'B] is 0 there."""
    A, B = ok.weight("A", (D, D)), ok.weight("B", (D, D))
    e = ok.einsum("ij,ij->", A, A) + ok.einsum("ij,ij->", B, B)
    assert e.diff(A) == 2 * A


def test_substitution_reaches_into_definitions() -> None:
    v, k, e = ok.weight("v"), ok.weight("k"), ok.weight("e", (D,))
    K = ok.weight("K", (D,))
    A = ok.define("A", v * ok.einsum("i,j->ij", K, K))
    trace = ok.einsum("ii->", A)
    assert trace.substitute({K: ok.einsum(",i->i", k, e)}) == v * k**2 * ok.einsum("i,i->", e, e)
    assert trace.expand() == v * ok.einsum("i,i->", K, K)


def test_eigenvectors_are_orthonormal_and_diagonalise() -> None:
    L = ok.parameter("Lambda", (D, D), symmetric=True)
    lam = sp.Symbol("lam", positive=True)
    e = ok.eigenvector("e", of=L, value=lam)
    f = ok.eigenvector("f", of=L)
    assert ok.einsum("i,ij,jk,k->", e, L, L, e) == lam**2
    assert ok.einsum("i,i->", e, e) == 1
    assert ok.einsum("i,ij,j->", e, L, f).is_zero
    family = ok.eigenvector("E", of=L, count=H)
    assert ok.einsum("hi,gi->hg", family, family) == ok.identity(H)
    assert ok.einsum("hi,ij->hj", family, L) == ok.einsum("h,hj->hj", family.value, family)


def test_views() -> None:
    L = ok.parameter("Lambda", (D, D), symmetric=True)
    A, U = ok.weight("A", (D, D)), ok.weight("U", (H, D, D))
    e = ok.einsum("ij,jk,lk,li->", L, A, A, L)
    view = e.sympy()
    # A 1 x 1 entry of a product would unfold into a sum; a trace does not.
    assert isinstance(view, sp.Trace)
    assert sp.sympify(e) == view
    assert "tr" in e.latex() and r"A^{\top}" in e.latex().replace("{A}", "A")
    assert r"\sum" in ok.einsum("hij->ij", U).latex()
    x = ok.weight("x_q", (D,))
    matrix = sp.MatrixSymbol("A", D, D) * sp.MatrixSymbol("x_q", D, 1)
    assert (A @ x).sympy() == matrix
    assert "x_{q}" in (A @ x).latex()
    assert str(ok.einsum("ij,ij->", A, A) / N) == "1/N A[a,b] A[a,b]"


def test_sympy_view_equals_numbers(rng: np.random.Generator) -> None:
    L = ok.parameter("L", (D, D), symmetric=True)
    A, x = ok.weight("A", (D, D)), ok.weight("x", (D,))
    e = 2 * (L @ A.T @ x) - x * ok.einsum("i,ij,j->", x, A, x) * ok.einsum("ij,ji->", L, A)
    values = {
        "L": np.array([[2.0, 1.0], [1.0, 3.0]]),
        "A": rng.normal(size=(2, 2)),
        "x": rng.normal(size=2),
    }
    explicit = e.sympy().subs(D, 2)
    table = {}
    for name, shape in (("L", (2, 2)), ("A", (2, 2)), ("x", (2, 1))):
        table[sp.MatrixSymbol(name, *shape)] = sp.ImmutableMatrix(values[name].reshape(shape))
    got = np.array(explicit.subs(table).doit(), dtype=float).reshape(-1)
    np.testing.assert_allclose(got, e.evaluate(values), rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda W, x: W + x, "cannot add shapes"),
        (lambda W, x: W * W, "ok.einsum"),
        (lambda W, x: 1 / W, "division by W"),
        (lambda W, x: W / x, "division by x"),
        (lambda W, x: ok.einsum("i,i->", x, x) ** -1, "x to the power -1"),
        (lambda W, x: ok.einsum("i,i->", x, x) ** 0.5, "x to the power 0.5"),
        (lambda W, x: ok.einsum("ij,j", W, x), "not of the form"),
        (lambda W, x: ok.einsum("ij->ij", W, x), "names 1 operands but 2"),
        (lambda W, x: ok.einsum("ij,jk->ik", W, x), "'jk' names 2 axes"),
        (lambda W, x: ok.einsum("ij,j->k", W, x), "output letter 'k'"),
        (lambda W, x: ok.einsum("ij,h->ijh", W, "x"), "str"),
        (lambda W, x: W * (1 + 2j), "complex"),
        (lambda W, x: np.exp(x), "exp of x is not polynomial"),
        (lambda W, x: np.tanh(W @ x), "tanh of W, x is not polynomial"),
        (lambda W, x: np.ones(3) * x, "array of shape (3,)"),
        (lambda W, x: ok.einsum("i,->i", x, sp.tanh(ok.einsum("i,i->", x, x))), "function of x"),
        (lambda W, x: W * float("nan"), "finite"),
        (lambda W, x: ok.einsum("i,i->", x, ok.weight("y", (N,))), "letter 'i' is D"),
        (lambda W, x: ok.parameter("L", (D, N), symmetric=True), "cannot be symmetric"),
        (lambda W, x: ok.weight("", (D,)), "tensor name"),
        (lambda W, x: ok.weight("w", (0,)), "positive integer"),
        (lambda W, x: ok.weight("w", (-2,)), "positive integer"),
        (lambda W, x: ok.weight("w", (2.5,)), "positive integer"),
        (lambda W, x: (W @ x).evaluate({"W": np.ones((2, 3)), "x": np.ones(3)}), "expected (D, D)"),
        (lambda W, x: (W @ x).evaluate({"W": np.ones((2, 2))}), "no value for x"),
        (lambda W, x: (W @ x).evaluate({"W": np.ones((2, 2)), "x": [1, np.nan]}), "NaN"),
        (lambda W, x: (W @ x).evaluate({"W": np.ones((2, 2)), "x": [1, 1j]}), "complex"),
    ],
)
def test_bad_input_is_one_line_that_names_it(make, words) -> None:
    W, x = ok.weight("W", (D, D)), ok.weight("x", (D,))
    with pytest.raises(ok.InputError) as caught:
        make(W, x)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
