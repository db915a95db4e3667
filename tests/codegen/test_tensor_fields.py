"""Compiled tensor fields against plain evaluation by NumPy's einsum and finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy as sp

import odekit as ok
from odekit.codegen import CompiledField

RNG = np.random.default_rng(7)

# Rounding of sums of a few thousand products of numbers of order one.
ROUNDING = 1e-12
# Central differences with a step of 1e-5: truncation 1e-10, rounding 1e-16 / 1e-5, both times the
# size of third derivatives and of the field.
DIFFERENCE = 1e-6


def covariance(dim: int) -> np.ndarray:
    factor = RNG.normal(size=(dim, dim))
    return factor @ factor.T / dim


def check(field: Any, compiled: CompiledField, params: dict[str, Any], scale: float = 0.7) -> None:
    layout = compiled.layout
    state = {name: scale * RNG.normal(size=shape) for name, shape in layout.states}
    y, p = layout.pack(state), layout.pack_parameters(params)
    given = y.copy()
    rate = np.full_like(y, np.nan)
    compiled.rhs(0.0, y, p, rate)
    expected = layout.pack(field.evaluate(state, params))
    np.testing.assert_allclose(rate, expected, rtol=0, atol=ROUNDING * np.abs(expected).max())
    if field.loss is not None:
        value = field.loss_value(state, params)
        assert compiled.loss is not None
        assert compiled.loss(y, p) == pytest.approx(value, rel=ROUNDING * 10)
    jacobian = np.full((y.size, y.size), np.nan)
    compiled.jacobian(0.0, y, p, jacobian)
    numeric = np.empty_like(jacobian)
    ahead, behind, step = np.empty_like(y), np.empty_like(y), 1e-5
    for k in range(y.size):
        moved = y.copy()
        moved[k] += step
        compiled.rhs(0.0, moved, p, ahead)
        moved[k] -= 2 * step
        compiled.rhs(0.0, moved, p, behind)
        numeric[:, k] = (ahead - behind) / (2 * step)
    bound = DIFFERENCE * max(1.0, np.abs(numeric).max())
    np.testing.assert_allclose(jacobian, numeric, rtol=0, atol=bound)
    if compiled.symmetric:
        np.testing.assert_array_equal(jacobian, jacobian.T)
    if compiled.pattern is not None:
        outside = jacobian.copy()
        outside[compiled.pattern] = 0.0
        assert not outside.any()
        assert compiled.jacobian_values is not None
        values = np.full(compiled.pattern[0].size, np.nan)
        compiled.jacobian_values(0.0, y, p, values)
        np.testing.assert_array_equal(values, jacobian[compiled.pattern])
    again = np.empty_like(rate)
    compiled.rhs(0.0, y, p, again)
    np.testing.assert_array_equal(again, rate)
    np.testing.assert_array_equal(y, given)


@pytest.mark.parametrize("effort", ["quick", "full"])
@pytest.mark.parametrize(
    ("sizes", "model"),
    [
        ({"D": 1, "H": 1, "R": 1}, "attention_separate"),
        ({"D": 3, "H": 2, "R": 2}, "attention_separate"),
        ({"D": 1, "H": 3}, "attention_merged"),
        ({"D": 4, "H": 2}, "attention_merged"),
    ],
)
def test_published_models(sizes: dict[str, int], model: str, effort: str) -> None:
    flow = getattr(ok.models, model)().flow
    compiled = ok.compile(flow, sizes, effort=effort)
    assert compiled.symmetric
    check(flow, compiled, {"Lambda": covariance(sizes["D"]), "N": 31})


@pytest.mark.parametrize(("dim", "heads"), [(21, 3), pytest.param(17, 20, marks=pytest.mark.slow)])
def test_matrix_products_at_larger_sizes(dim: int, heads: int) -> None:
    flow = ok.models.attention_separate().flow
    compiled = ok.compile(flow, {"D": dim, "H": heads, "R": 1})
    assert ("np.dot" in compiled.source) == (dim > 20)
    check(flow, compiled, {"Lambda": covariance(dim), "N": 5}, scale=0.3)


def test_sizes_fixed_in_the_model_need_none_here() -> None:
    flow = ok.models.attention_merged(heads=2, dim=3, context=7).flow
    compiled = ok.compile(flow, effort="quick")
    check(flow, compiled, {"Lambda": covariance(3)})


def test_a_renamed_permuted_model_gets_the_same_plan() -> None:
    n, d, h, r = ok.dims("n d h r")
    spread = ok.parameter("lambda", (d, d), symmetric=True)
    tokens = ok.gaussian("tokens", (n, d), covariance=spread)
    query = ok.gaussian("query", (d,), covariance=spread)
    task = ok.gaussian("task", (d,), covariance=ok.identity(d))
    p, y, out = ok.weight("p", (h,)), ok.weight("y", (d, h, r)), ok.weight("out", (r, d, h))
    labels = ok.einsum("d,nd->n", task, tokens)
    beta = ok.einsum("n,nd->d", labels, tokens) / n
    prediction = ok.einsum("h,a,ahr,rbh,b->", p, beta, y, out, query)
    flow = ok.gradient_flow(
        ok.expected_loss(prediction, ok.einsum("d,d->", task, query)), time_scale=2
    )
    compiled = ok.compile(flow, {"d": 3, "h": 2, "r": 2}, effort="quick")
    check(flow, compiled, {"lambda": covariance(3), "n": 9})
    # The same numbers as the published model, through the renaming.
    published = ok.models.attention_separate().flow
    state = {name: RNG.normal(size=shape) for name, shape in compiled.layout.states}
    matrix = covariance(3)
    rates = published.evaluate(
        {"v": state["p"], "K": state["y"].transpose(1, 2, 0), "Q": state["out"].transpose(2, 0, 1)},
        {"Lambda": matrix, "N": 9},
    )
    rate = np.empty(compiled.layout.size)
    compiled.rhs(
        0.0,
        compiled.layout.pack(state),
        compiled.layout.pack_parameters({"lambda": matrix, "n": 9}),
        rate,
    )
    named = compiled.layout.unpack(rate)
    np.testing.assert_allclose(named["y"], rates["K"].transpose(2, 0, 1), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(named["out"], rates["Q"].transpose(1, 2, 0), rtol=1e-11, atol=1e-12)


def test_mixed_time_scales_with_a_symbol() -> None:
    D = ok.dims("D")
    eta = sp.Symbol("eta", positive=True)
    spread = ok.parameter("Lambda", (D, D), symmetric=True)
    a, b = ok.weight("a", (D,)), ok.weight("b", (D,))
    loss = ok.einsum("i,ij,j->", a, spread, b) ** 2 + ok.einsum("i,i->", b, b) / (1 + eta)
    flow = ok.gradient_flow(loss, time_scale={a: 3, b: eta})
    compiled = ok.compile(flow, {"D": 4}, effort="quick")
    assert not compiled.symmetric
    check(flow, compiled, {"Lambda": covariance(4), "eta": 0.3})


def test_broadcasting_over_an_axis_that_no_factor_has() -> None:
    D = ok.dims("D")
    w = ok.weight("w", (D,))
    total = ok.einsum("i->", w)
    flow = ok.gradient_flow(total**2 / 2 - 3 * total + ok.einsum("i,i,i->", w, w, w))
    compiled = ok.compile(flow, {"D": 5}, effort="quick")
    check(flow, compiled, {})


def test_matrix_valued_outputs_and_products_of_many_factors() -> None:
    D, H = ok.dims("D H")
    spread = ok.parameter("Sigma", (D, D), symmetric=True)
    teacher = ok.parameter("T", (D, D))
    x = ok.gaussian("x", (D,), covariance=spread)
    first, second = ok.weight("W1", (H, D)), ok.weight("W2", (D, H))
    loss = ok.expected_loss(
        ok.einsum("ij,jk,k->i", second, first, x), ok.einsum("ij,j->i", teacher, x)
    )
    fourth = ok.einsum("ij,kj,kl,il->", first, first, first, first)
    flow = ok.gradient_flow(loss + fourth / 10)
    compiled = ok.compile(flow, {"D": 4, "H": 3}, effort="quick")
    check(flow, compiled, {"Sigma": covariance(4), "T": RNG.normal(size=(4, 4))})


def test_third_order_products_of_a_sample_covariance() -> None:
    N, D = ok.dims("N D")
    spread = ok.parameter("Lambda", (D, D), symmetric=True)
    x = ok.gaussian("x", (N, D), covariance=spread)
    a, b = ok.weight("A", (D, D)), ok.weight("B", (D, D))
    sample = ok.einsum("na,nb->ab", x, x) / N
    cubic = ok.einsum("ab,bc,cd,de,ea->", sample, a, sample, b, sample)
    flow = ok.gradient_flow(ok.expectation(cubic) + ok.einsum("ij,ij->", a, a))
    compiled = ok.compile(flow, {"D": 3}, effort="quick")
    check(flow, compiled, {"Lambda": covariance(3), "N": 6})


def test_decoupled_modes_have_a_diagonal_pattern() -> None:
    d = ok.dims("d")
    s, r = ok.parameter("s", (d,)), ok.parameter("r", (d,))
    p, q = ok.weight("p", (d,)), ok.weight("q", (d,))
    loss = (
        ok.einsum("i->", s)
        - 2 * ok.einsum("i,i,i->", s, p, q)
        + ok.einsum("i,i,i,i,i,i->", s, r, p, p, q, q)
    )
    flow = ok.gradient_flow(loss, time_scale=2)
    compiled = ok.compile(flow, {"d": 9}, effort="quick")
    assert compiled.pattern is not None
    rows, columns = compiled.pattern
    assert set(zip(rows.tolist(), columns.tolist(), strict=True)) == {
        (i, j) for i in range(18) for j in range(18) if i % 9 == j % 9
    }
    check(flow, compiled, {"s": RNG.random(9), "r": RNG.random(9)})


def test_a_parameter_only_definition_is_computed_once() -> None:
    D = ok.dims("D")
    spread = ok.parameter("Lambda", (D, D), symmetric=True)
    square = ok.define("S", ok.einsum("ij,jk->ik", spread, spread))
    w = ok.weight("w", (D,))
    flow = ok.gradient_flow(ok.einsum("i,ij,j->", w, square, w) - ok.einsum("ii->", square))
    compiled = ok.compile(flow, {"D": 4}, effort="quick")
    assert "Lambda" not in compiled.source.split("def rhs")[1].split("def loss")[0]
    check(flow, compiled, {"Lambda": covariance(4)})


def test_one_parameter_array_serves_every_value() -> None:
    flow = ok.models.attention_merged().flow
    compiled = ok.compile(flow, {"D": 3, "H": 2}, effort="quick")
    state = {name: RNG.normal(size=shape) for name, shape in compiled.layout.states}
    y = compiled.layout.pack(state)
    for context in (1, 10, 1000):
        params = {"Lambda": covariance(3), "N": context}
        rate = np.empty_like(y)
        compiled.rhs(0.0, y, compiled.layout.pack_parameters(params), rate)
        expected = compiled.layout.pack(flow.evaluate(state, params))
        np.testing.assert_allclose(rate, expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def test_threads_with_their_own_parameters_do_not_meet() -> None:
    from concurrent.futures import ThreadPoolExecutor

    flow = ok.models.attention_separate().flow
    compiled = ok.compile(flow, {"D": 4, "H": 3, "R": 1}, effort="quick")
    starts = RNG.normal(size=(16, compiled.layout.size))
    p = compiled.layout.pack_parameters({"Lambda": covariance(4), "N": 31})

    def rate(y: np.ndarray) -> np.ndarray:
        own, out = p.copy(), np.empty_like(y)
        for _ in range(200):
            compiled.rhs(0.0, y, own, out)
        return out

    alone = [rate(y) for y in starts]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(rate, starts))
    np.testing.assert_array_equal(alone, together)
