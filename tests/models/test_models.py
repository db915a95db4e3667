"""The published models: formulas, Monte Carlo, whole layers beside their reduced forms."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

import odekit as ok
from odekit.field import ScalarField, TensorField

SIZES = {"D": 2, "H": 2, "R": 2, "N": 3, "D0": 3, "D1": 2, "D2": 2, "D3": 2}
CASES = [
    (ok.models.attention_merged, {}),
    (ok.models.attention_merged, {"blocks": "all"}),
    (ok.models.attention_separate, {}),
    (ok.models.attention_separate, {"blocks": "all"}),
    *(
        (ok.models.linear_transformer, {"tasks": t, "blocks": b, "normalise": n})
        for t, b, n in [
            ("iid", "restricted", "N"),
            ("diagonal", "restricted", "N+1"),
            ("scalar", "restricted", "N"),
            ("iid", "all", "N+1"),
            ("diagonal", "all", "N"),
            ("scalar", "all", "N"),
            ("general", "restricted", "N"),
        ]
    ),
    (ok.models.deep_linear, {"depth": 2}),
    (ok.models.deep_linear, {"depth": 3}),
]


def label(case) -> str:
    return case[0].__name__ + "-" + "-".join(str(v) for v in case[1].values())


def numbers(model, seed=0):
    """Random numbers for every state and parameter at small sizes."""
    rng = np.random.default_rng(seed)
    sizes = {s: SIZES[str(s)] for s in model.flow.size_symbols}
    state, params = {}, {"N": 3}
    for tensor in (*model.flow.states, *model.flow.parameters):
        shape = tuple(int(s.subs(sizes)) for s in tensor.shape)
        array = rng.normal(size=shape)
        if tensor.semidefinite:
            array = array @ array.T / 2
        (state if tensor in model.flow.states else params)[tensor.name] = array
    if "N" not in model.flow.parameter_names:
        del params["N"]
    return state, params


@pytest.mark.parametrize("case", CASES, ids=label)
def test_loss_is_the_monte_carlo_mean(case) -> None:
    maker, options = case
    model = maker(**options)
    state, params = numbers(model)
    random = [
        t for t in (model.prediction + model.target).tensors(deep=True) if t.kind == "gaussian"
    ]
    sizes = {str(s): SIZES[str(s)] for s in model.flow.size_symbols}
    size = 100_000
    draws = ok.sample(random, {**sizes, **params}, size=size, seed=4)
    values = {**state, **params, **draws}
    error = model.target.evaluate(values, list(draws)) - model.prediction.evaluate(
        values, list(draws)
    )
    losses = (error.reshape(size, -1) ** 2).sum(axis=1)
    standard_error = losses.std() / np.sqrt(size)
    assert abs(losses.mean() - model.flow.loss_value(state, params)) < 4 * standard_error


@pytest.mark.parametrize("case", CASES, ids=label)
def test_tensor_form_equals_component_form(case) -> None:
    """Every rate against SymPy's derivative of the component form of the loss, in rationals."""
    maker, options = case
    model = maker(**options)
    state, params = numbers(model)
    rational = {
        k: np.vectorize(lambda a: sp.Rational(round(8 * a), 8), otypes=[object])(v)
        for k, v in {**state, **params}.items()
    }
    for name in [t.name for t in model.flow.parameters if t.semidefinite]:
        rational[name] = np.array(
            [[sp.Rational(2), sp.Rational(1, 2), 0], [sp.Rational(1, 2), 1, 0], [0, 0, 3]],
            dtype=object,
        )[: state_size(params[name]), : state_size(params[name])]
    sizes = {str(s): SIZES[str(s)] for s in model.flow.size_symbols}
    scalar = model.flow.components(values={n: rational[n] for n in params}, **sizes)
    symbols = {
        s: rational[name].reshape(-1)[k]
        for name, (_, group) in scalar.state_groups.items()
        for k, s in enumerate(group)
    }
    component = [rate.xreplace(symbols) for rate in scalar.rates]
    tensor = model.flow.evaluate(
        {n: np.array(rational[n], dtype=float) for n in state},
        {n: np.array(rational[n], dtype=float) for n in params},
    )
    flat = np.concatenate([tensor[n].reshape(-1) for n in model.flow.state_names])
    exact = np.array([float(c) for c in component])
    # Both are sums of at most a few thousand float64 products of order one.
    np.testing.assert_allclose(flat, exact, rtol=1e-11, atol=1e-11 * np.abs(exact).max())


def state_size(array) -> int:
    return np.shape(array)[0]


def test_general_tasks_with_unit_second_moment_are_iid_ones() -> None:
    iid = ok.models.linear_transformer(tasks="iid").flow
    general = ok.models.linear_transformer(tasks="general").flow
    state, params = numbers(ok.models.linear_transformer(tasks="iid"))
    rates = general.evaluate(state, {**params, "Omega": np.eye(2)})
    for name, rate in iid.evaluate(state, params).items():
        np.testing.assert_allclose(rates[name], rate, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("maker", [ok.models.attention_merged, ok.models.attention_separate])
def test_the_reduced_model_is_an_invariant_part_of_the_layer(maker) -> None:
    reduced, whole = maker(), maker(blocks="all")
    state, params = numbers(reduced)
    blocks = whole.unpack(whole.lift(state))
    assert whole.flow.loss_value(blocks, params) == pytest.approx(
        reduced.flow.loss_value(state, params), rel=1e-13
    )
    rates = whole.flow.evaluate(blocks, params)
    inside = whole.restrict(whole.pack(rates))
    for name, rate in reduced.flow.evaluate(state, params).items():
        np.testing.assert_allclose(inside[name], rate, rtol=1e-12, atol=1e-13)
    outside = [n for n in ("u_x", "A_y", "K_y") if n in rates]
    assert len(outside) == 2
    for name in outside:
        np.testing.assert_array_equal(rates[name], 0.0)
    again = whole.pack(whole.unpack(whole.lift(state)))
    for name, array in whole.lift(state).items():
        np.testing.assert_array_equal(again[name], array)


def test_sizes_may_be_numbers() -> None:
    symbolic = ok.models.attention_separate().flow
    fixed = ok.models.attention_separate(heads=2, rank=2, dim=2, context=3).flow
    state, params = numbers(ok.models.attention_separate())
    for name, rate in symbolic.evaluate(state, params).items():
        np.testing.assert_allclose(
            fixed.evaluate(state, {"Lambda": params["Lambda"]})[name], rate, rtol=1e-13
        )


def test_cotangent_of_the_separate_model_is_the_merged_one() -> None:
    merged, separate = ok.models.attention_merged(), ok.models.attention_separate()
    assert (
        merged.flow.equations.definitions["G_A"].latex()
        == separate.flow.equations.definitions["G_A"].latex()
    )


def test_modes_are_the_published_equations() -> None:
    s, N = np.array([1.0, 0.5, 0.2]), 10
    p, q = np.array([0.3, -0.2, 0.1]), np.array([0.1, 0.4, 0.6])
    rates = ok.models.modes().flow.evaluate({"p": p, "q": q}, {"s": s, "N": N})
    s_inf = (N + 1) / N * s + s.sum() / N
    np.testing.assert_allclose(rates["p"], s**2 * q * (1 - p * q * s_inf), rtol=1e-13)
    np.testing.assert_allclose(rates["q"], s**2 * p * (1 - p * q * s_inf), rtol=1e-13)


def test_plateau_is_the_separate_model_on_one_eigenvector() -> None:
    """One head with key and query v e: its value weight moves by the scalar equation."""
    spectrum, N, v = np.array([0.4, 0.3, 0.2]), 31, 0.7
    e = np.eye(3)[1]
    state = {"v": [v], "K": v * e[None, None], "Q": v * e[None, None]}
    rates = ok.models.attention_separate().flow.evaluate(
        state, {"Lambda": np.diag(spectrum), "N": N}
    )
    scalar = ok.models.plateau()
    assert isinstance(scalar.flow, ScalarField)
    assert scalar.flow.gradient
    got = scalar.flow.evaluate({"v": v}, {"lambda": 0.3, "trace": 0.9, "N": N})["v"]
    np.testing.assert_allclose(rates["v"], got, rtol=1e-13)
    np.testing.assert_allclose(rates["K"][0, 0], got * e, rtol=1e-13, atol=1e-16)


def test_registry_names_every_model() -> None:
    for name, maker in ok.models.REGISTRY.items():
        model = maker()
        assert model.name == name
        assert model.source
        assert isinstance(model.flow, TensorField | ScalarField)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ok.models.attention_merged(heads=0), "H is 0"),
        (lambda: ok.models.attention_merged(dim=-1), "D is -1"),
        (lambda: ok.models.attention_separate(context=2.5), "N is 2.5"),
        (lambda: ok.models.attention_merged(blocks="some"), "choice of blocks 'some'"),
        (lambda: ok.models.linear_transformer(tasks="iidd"), "Did you mean 'iid'"),
        (lambda: ok.models.deep_linear(0), "depth is 0"),
        (lambda: ok.models.deep_linear(2, widths=(1, 2)), "needs 3 widths, got 2"),
        (lambda: ok.models.attention_merged().lift({}), "blocks='all'"),
        (lambda: ok.models.attention_merged(blocks="all").lift({"v": [1.0]}), "No value for state"),
        (lambda: ok.models.attention_merged(blocks="all").unpack({"w": 1}), "Unknown state 'w'"),
    ],
)
def test_bad_input(make, words) -> None:
    with pytest.raises(ok.InputError) as caught:
        make()
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
