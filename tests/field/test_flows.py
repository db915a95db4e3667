"""Losses and flows by independent routes: component form, finite difference, Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

import odekit as ok
from odekit.field import ScalarField, TensorField

N, D, H = ok.dims("N D H")
LAMBDA = np.array([[1.0, 0.3, 0.0], [0.3, 0.5, 0.1], [0.0, 0.1, 0.7]])


def attention(scale=1, auto=True):
    """The worked example of the README: one long einsum, nothing named by hand."""
    Lam = ok.parameter("Lambda", (D, D), symmetric=True)
    x = ok.gaussian("x", (N, D), covariance=Lam)
    xq = ok.gaussian("x_q", (D,), covariance=Lam)
    w = ok.gaussian("w", (D,), covariance=ok.identity(D))
    v, U = ok.weight("v", (H,)), ok.weight("U", (H, D, D))
    beta = ok.einsum("n,nd->d", ok.einsum("d,nd->n", w, x), x) / N
    if auto:
        yhat = ok.einsum("h,a,hab,b->", v, beta, U, xq)
    else:
        A = ok.define("A", ok.einsum("h,hij->ij", v, U))
        yhat = ok.einsum("a,ab,b->", beta, A, xq)
    return ok.expected_loss(yhat, ok.einsum("d,d->", w, xq), scale=scale), v, U, Lam


def numbers(heads=2, dim=3, seed=0):
    rng = np.random.default_rng(seed)
    state = {"v": rng.normal(size=heads), "U": rng.normal(size=(heads, dim, dim))}
    return state, {"Lambda": LAMBDA[:dim, :dim], "N": 5}


def test_loss_is_the_published_one_and_contractions_are_named() -> None:
    loss, v, U, L = attention()
    names = {t.name: t for t in loss.expression.tensors()}
    assert set(names) == {"A", "Lambda"}
    A = names["A"]
    assert A.definition == ok.einsum("h,hij->ij", v, U)
    tr = lambda e: ok.einsum("ii->", e)  # noqa: E731
    assert loss.expression == (
        tr(L.as_expression())
        - 2 * tr(L @ A @ L)
        + (1 + 1 / N) * tr(L @ L @ A @ L @ A.T)
        + tr(L.as_expression()) / N * tr(L @ A @ L @ A.T)
    )


def test_cotangent_is_the_published_one() -> None:
    loss, v, U, L = attention()
    flow = ok.gradient_flow(loss, time_scale=2)
    bodies = flow.equations.definitions
    A = next(t for t, _ in flow.definitions if t.name == "A")
    B = (1 + 1 / N) * (L @ L) + ok.einsum("kk,ij->ij", L, L) / N
    assert bodies["G_A"] == L @ L - B @ A @ L


def test_one_long_einsum_gives_the_flow_of_the_named_form() -> None:
    state, params = numbers()
    first = ok.gradient_flow(attention(auto=True)[0])
    second = ok.gradient_flow(attention(auto=False)[0])
    assert first.latex() == second.latex()
    for name, rate in first.evaluate(state, params).items():
        np.testing.assert_array_equal(rate, second.evaluate(state, params)[name])


@pytest.mark.parametrize("scales", [{}, {"v": 1, "U": sp.Rational(1, 3)}])
def test_rates_are_finite_differences_of_the_loss(scales) -> None:
    loss, v, U, _ = attention(scale=sp.Rational(1, 2))
    time_scale = {v: scales["v"], U: scales["U"]} if scales else 2
    flow = ok.gradient_flow(loss, time_scale=time_scale)
    assert flow.uniform is not bool(scales)
    state, params = numbers()
    rates = flow.evaluate(state, params)
    for name, array in state.items():
        numeric = np.zeros_like(array)
        for position in np.ndindex(*array.shape):
            shifted = []
            for sign in (1, -1):
                moved = {k: a.copy() for k, a in state.items()}
                moved[name][position] += sign * 1e-5
                shifted.append(flow.loss_value(moved, params))
            numeric[position] = (shifted[0] - shifted[1]) / 2e-5
        # Quadratic in each weight: central differences are exact but for rounding (1e-16 / 1e-5).
        np.testing.assert_allclose(
            rates[name], -numeric / float(scales.get(name, 2)), rtol=1e-8, atol=1e-9
        )


@pytest.mark.parametrize("sizes", [(1, 1), (2, 1), (1, 3), (2, 2), (3, 2)])
def test_equal_to_the_component_form_in_rational_arithmetic(sizes) -> None:
    from odekit.field.components import component_array, entry_symbols

    dim, heads = sizes
    loss, v, U, L = attention()
    flow = ok.gradient_flow(loss, time_scale=2)
    scalar = flow.components(D=dim, H=heads)
    assert isinstance(scalar, ScalarField)
    # The tensor form of the rates, written out in components, against SymPy's derivative of the
    # component form of the loss.
    known = {D: dim, H: heads}
    arrays = {
        t: entry_symbols(t, tuple(int(s.subs(known)) for s in t.shape), t.name) for t in (v, U, L)
    }
    for tensor, body in flow.definitions:
        arrays[tensor] = component_array(body, arrays, known)
    got = [
        entry for s in flow.states for entry in component_array(flow.rates[s], arrays, known).flat
    ]
    for left, right in zip(got, scalar.rates, strict=True):
        assert sp.expand(left - right) == 0


def test_loss_is_the_monte_carlo_mean() -> None:
    loss, *_ = attention()
    state, params = numbers()
    (sample,) = loss.samples
    draws = ok.sample(
        [t for t in (sample.prediction + sample.target).tensors(deep=True) if t.kind == "gaussian"],
        {**params, "D": 3},
        size=60_000,
        seed=2,
    )
    values = {**state, **params, **draws}
    errors = sample.target.evaluate(values, list(draws)) - sample.prediction.evaluate(
        values, list(draws)
    )
    standard_error = (errors**2).std() / np.sqrt(errors.size)
    exact = loss.value(state, params)
    assert abs((errors**2).mean() - exact) < 4 * standard_error
    assert standard_error < 0.05 * exact


def test_losses_add_and_scale() -> None:
    loss, v, U, _ = attention()
    p = sp.Symbol("p", positive=True)
    decay = ok.einsum("hij,hij->", U, U)
    mixed = p * loss + (1 - p) * loss + 0.1 * decay
    state, params = numbers()
    assert mixed.value(state, {**params, "p": 0.3}) == pytest.approx(
        loss.value(state, params) + 0.1 * np.sum(state["U"] ** 2), rel=1e-13
    )
    assert len(mixed.samples) == 2
    assert mixed.penalty == decay / 10
    # One contraction of weights, one definition, however many losses share it.
    assert [t.name for t, _ in ok.gradient_flow(mixed).definitions] == ["A", "G_A"]


def test_vector_valued_prediction_sums_over_components() -> None:
    W = ok.weight("W", (H, D))
    T = ok.parameter("T", (H, D))
    x = ok.gaussian("x", (D,), covariance=ok.parameter("S", (D, D), symmetric=True))
    loss = ok.expected_loss(W @ x, T @ x)
    S = next(t for t in loss.expression.tensors() if t.name == "S")
    assert loss.expression == ok.einsum("ij,jk,ik->", W - T, S, W - T)


def test_freezing_some_weights() -> None:
    loss, v, U, _ = attention()
    flow = ok.gradient_flow(loss, weights=[v])
    assert flow.state_names == ("v",)
    assert set(flow.parameter_names) == {"U", "Lambda", "N"}
    state, params = numbers()
    full = ok.gradient_flow(loss).evaluate(state, params)["v"]
    got = flow.evaluate({"v": state["v"]}, {**params, "U": state["U"]})["v"]
    np.testing.assert_allclose(got, full, rtol=1e-13)


def test_nested_definitions_are_differentiated_through() -> None:
    W = ok.weight("W", (D, D))
    inner = ok.define("P", W @ W)
    outer = ok.define("Q", inner @ inner.T)
    flow = ok.gradient_flow(ok.einsum("ij,ij->", outer, outer) + ok.einsum("ij,ij->", inner, W))
    plain = ok.gradient_flow(
        (ok.einsum("ij,ij->", outer, outer) + ok.einsum("ij,ij->", inner, W)).expand()
    )
    W0 = {"W": np.random.default_rng(1).normal(size=(3, 3))}
    np.testing.assert_allclose(flow.evaluate(W0)["W"], plain.evaluate(W0)["W"], rtol=1e-11)
    scalar = flow.components(D=2)
    W0 = {"W": W0["W"][:2, :2]}
    np.testing.assert_allclose(scalar.evaluate(W0)["W"], flow.evaluate(W0)["W"], rtol=1e-11)


def test_components_with_numbers_put_in() -> None:
    flow = ok.gradient_flow(attention()[0])
    state, params = numbers(dim=2)
    scalar = flow.components(values={"Lambda": params["Lambda"], "N": 5}, D=2, H=2)
    assert scalar.parameter_names == ()
    np.testing.assert_allclose(
        scalar.evaluate(state)["U"], flow.evaluate(state, params)["U"], rtol=1e-12
    )


def test_vector_field_of_own_equations() -> None:
    y, z, k = sp.symbols("y z k")
    field = ok.vector_field({y: -k * y, z: sp.sin(y) - z}, parameters=(k,))
    got = field.evaluate({"y": 2.0, "z": 1.0}, {"k": 3.0})
    assert got["y"] == -6.0
    assert got["z"] == pytest.approx(np.sin(2.0) - 1)
    assert not field.gradient
    assert ok.vector_field({y: -2 * y}, loss=y**2).gradient
    assert ok.vector_field({y: -4 * k * y}, [k], loss=k * y**2).gradient
    assert not ok.vector_field({y: -2 * y, z: -z}, loss=y**2 + z**2).gradient


def test_views_of_a_flow() -> None:
    flow = ok.gradient_flow(attention()[0], time_scale=2)
    assert isinstance(flow, TensorField)
    assert set(flow.equations) == {"v", "U"}
    assert flow._repr_latex_().startswith("$")
    for words in (r"\frac{d}{dt} v", "G_{A}", r"\Lambda^{2}"):
        assert words in flow.latex()
    view = flow.equations.sympy()["A"]
    assert isinstance(view, sp.Eq)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ok.expected_loss(ok.weight("a", (D,)), ok.weight("b", (N,))), "target (N,)"),
        (lambda: ok.gradient_flow(ok.weight("a", (D,))), "a loss is a scalar"),
        (lambda: ok.gradient_flow(ok.gaussian("g") ** 2 * ok.weight("a")), "average it"),
        (lambda: ok.gradient_flow(ok.parameter("a") ** 2), "depends on no weight"),
        (lambda: ok.gradient_flow(ok.weight("a") ** 2, ok.weight("b")), "does not depend on b"),
        (lambda: ok.gradient_flow(ok.weight("a") * ok.weight("a")), "two different tensors"),
        (lambda: ok.gradient_flow(ok.weight("a") ** 2, time_scale=-1), "must be positive"),
        (lambda: attention()[0] + ok.gaussian("g"), "depends on random g"),
        (lambda: ok.vector_field({}), "takes a mapping"),
        (lambda: ok.vector_field({sp.Symbol("x"): sp.Symbol("y")}), "holds y"),
        (lambda: ok.vector_field({sp.Symbol("x"): sp.oo}), "finite"),
        (lambda: ok.vector_field({"x": 1}), "not a SymPy symbol"),
    ],
)
def test_bad_models(make, words) -> None:
    with pytest.raises(ok.InputError) as caught:
        make()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("state", "params", "words"),
    [
        ({"v": np.ones(3)}, {}, "v has shape (3,)"),
        ({"u": np.ones(2)}, {}, "Unknown state 'u'"),
        ({"U": np.ones((2, 3))}, {}, "expected 3 axes"),
        ({}, {"Lambda": np.eye(2)}, "Lambda has shape (2, 2)"),
        ({}, {"Lambda": np.diag([1.0, 1, -1])}, "negative eigenvalue"),
        ({}, {"Lambda": np.triu(np.ones((3, 3)))}, "not symmetric"),
        ({}, {"Lambda": np.full((3, 3), np.nan)}, "NaN"),
        ({}, {"Lambda": np.eye(3) * 1j}, "complex"),
        ({}, {"N": 0}, "must be positive"),
        ({}, {"N": -1}, "must be positive"),
        ({}, {"N": 2.5}, "integer"),
        ({}, {"M": 3}, "Unknown parameter 'M'"),
    ],
)
def test_bad_numbers(state, params, words) -> None:
    flow = ok.gradient_flow(attention()[0])
    good_state, good_params = numbers()
    merged = {k: a for k, a in {**good_state, **state}.items()}
    with pytest.raises(ok.InputError) as caught:
        flow.evaluate(merged, {**good_params, **params})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_singular_covariance_is_legitimate() -> None:
    flow = ok.gradient_flow(attention()[0])
    state, params = numbers()
    rates = flow.evaluate(state, {**params, "Lambda": np.diag([1.0, 0.5, 0.0])})
    assert np.all(np.isfinite(rates["U"]))


def test_fixed_sizes_are_accepted_again_by_name() -> None:
    flow = ok.models.attention_merged(heads=2, dim=3, context=5).flow
    state, params = numbers()
    first = flow.evaluate(state, {"Lambda": params["Lambda"]})
    again = flow.evaluate(state, params)
    np.testing.assert_array_equal(first["U"], again["U"])
    with pytest.raises(ok.InputError, match="N is fixed at 5"):
        flow.evaluate(state, {**params, "N": 6})
