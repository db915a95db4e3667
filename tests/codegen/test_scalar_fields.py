"""Compiled scalar fields against SymPy's own numbers."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

import odekit as ok


def test_functions_and_kinks() -> None:
    x, z, a, lam = sp.symbols("x z a lambda")
    rates = {
        x: a * sp.sin(z) - x**3 + sp.exp(-x * z) / (1 + z**2) + sp.sqrt(x**2 + 1) + sp.pi,
        z: lam * x + sp.Abs(x) - sp.tanh(z) + sp.Max(x, z) + sp.Piecewise((x, x > 0), (z, True)),
    }
    field = ok.vector_field(rates, (a, lam))
    compiled = ok.compile(field, effort="quick")
    params = {"a": 1.2, "lambda": -0.4}
    p = compiled.layout.pack_parameters(params)
    for point in ((0.3, 0.7), (-0.6, 0.2), (1.4, -0.5)):
        y = np.array(point)
        rate, jacobian = np.empty(2), np.empty((2, 2))
        compiled.rhs(0.0, y, p, rate)
        expected = field.evaluate({"x": y[0], "z": y[1]}, params)
        np.testing.assert_allclose(rate, [expected["x"], expected["z"]], rtol=1e-14)
        compiled.jacobian(0.0, y, p, jacobian)
        step = 1e-6
        for k in range(2):
            ahead, behind = np.empty(2), np.empty(2)
            compiled.rhs(0.0, y + step * np.eye(2)[k], p, ahead)
            compiled.rhs(0.0, y - step * np.eye(2)[k], p, behind)
            np.testing.assert_allclose(
                jacobian[:, k], (ahead - behind) / (2 * step), rtol=1e-7, atol=1e-8
            )


def test_large_integers_and_integer_states_stay_floating_point() -> None:
    x, w = sp.symbols("x w")
    field = ok.vector_field({x: sp.Integer(10) ** 20 * x / 3, w: x / 2})
    compiled = ok.compile(field, effort="quick")
    y = compiled.layout.pack({"x": 1, "w": 0})
    rate = np.empty(2)
    compiled.rhs(0.0, y, compiled.layout.pack_parameters(), rate)
    np.testing.assert_allclose(rate, [1e20 / 3, 0.5], rtol=1e-15)


def test_division_by_zero_is_infinite_and_not_an_exception() -> None:
    x = sp.Symbol("x")
    compiled = ok.compile(ok.vector_field({x: 1 / x}), effort="quick")
    rate = np.empty(1)
    compiled.rhs(0.0, np.zeros(1), compiled.layout.pack_parameters(), rate)
    assert np.isinf(rate[0])


def test_pattern_and_loss() -> None:
    x, w, u, k = sp.symbols("x w u k")
    loss = k * (x**2 + w**4) + sp.cosh(u)
    field = ok.vector_field({s: -sp.diff(loss, s) for s in (x, w, u)}, (k,), loss=loss)
    compiled = ok.compile(field, effort="quick")
    assert compiled.symmetric
    assert compiled.pattern is not None
    rows, columns = compiled.pattern
    assert rows.tolist() == columns.tolist() == [0, 1, 2]
    p = compiled.layout.pack_parameters({"k": 2.0})
    values = np.full(3, np.nan)
    assert compiled.jacobian_values is not None
    compiled.jacobian_values(0.0, np.array([1.0, 2.0, 0.0]), p, values)
    np.testing.assert_allclose(values, [-4.0, -96.0, -1.0], rtol=1e-15)
    assert compiled.loss is not None
    assert compiled.loss(np.array([1.0, 2.0, 0.0]), p) == pytest.approx(35.0, rel=1e-15)


def test_names_of_the_user_never_reach_the_code() -> None:
    names = sp.symbols("lambda y p out t math x_0")
    field = ok.vector_field({s: -s * names[0] for s in names[1:]}, (names[0],))
    compiled = ok.compile(field, effort="quick")
    state = {str(s): float(k) for k, s in enumerate(names[1:])}
    y, p = compiled.layout.pack(state), compiled.layout.pack_parameters({"lambda": 3.0})
    rate = np.empty_like(y)
    compiled.rhs(0.0, y, p, rate)
    np.testing.assert_array_equal(rate, -3.0 * y)


def test_component_form_agrees_with_the_tensor_form() -> None:
    flow = ok.models.attention_merged().flow
    parts = flow.components(D=2, H=1)
    compiled = ok.compile(parts, effort="quick")
    rng = np.random.default_rng(3)
    state = {"v": rng.normal(size=1), "U": rng.normal(size=(1, 2, 2))}
    params = {"Lambda": np.array([[1.0, 0.3], [0.3, 0.5]]), "N": 5}
    y, p = compiled.layout.pack(state), compiled.layout.pack_parameters(params)
    rate = np.empty_like(y)
    compiled.rhs(0.0, y, p, rate)
    expected = compiled.layout.pack(flow.evaluate(state, params))
    np.testing.assert_allclose(rate, expected, rtol=1e-12, atol=1e-13)


def test_a_function_without_numbers_is_refused() -> None:
    x = sp.Symbol("x")
    strange = sp.Function("strange")
    with pytest.raises(ok.InputError, match="strange"):
        ok.compile(ok.vector_field({x: strange(x)}), effort="quick")
