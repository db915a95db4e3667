"""Strategies draw what they promise; assertions pass what is true and refuse what is not."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

import odekit as ok
from odekit import testing

SEPARATE = ok.models.attention_separate().flow
MERGED = ok.models.attention_merged().flow


@given(testing.covariances(dim=(1, 5), condition=50.0))
def test_covariances_are_definite_with_bounded_condition(matrix) -> None:
    values = np.linalg.eigvalsh(matrix)
    np.testing.assert_array_equal(matrix, matrix.T)
    assert values[0] > 0
    assert values[-1] / values[0] <= 50 * (1 + 1e-9)


@given(testing.spectra(dim=(1, 6), condition=1e4, least_gap=1.2))
def test_spectra_descend_with_gaps(values) -> None:
    ratios = values[:-1] / values[1:]
    assert np.all(ratios >= 1.2 * (1 - 1e-12))
    assert values[0] / values[-1] <= 1e4 * (1 + 1e-9)


@given(testing.initial_states(SEPARATE, sizes={"H": 2, "R": 1, "D": 3}, scale=1e-3))
def test_states_have_the_fields_shapes(state) -> None:
    assert {n: a.shape for n, a in state.items()} == {"v": (2,), "K": (2, 1, 3), "Q": (2, 1, 3)}
    assert all(np.abs(a).max() <= 3e-3 for a in state.values())


def test_strategies_shrink_to_plain_cases_and_never_filter() -> None:
    # A strategy that filters fails the health check; none is suppressed here.
    smallest = find(testing.covariances(dim=(1, 3)), lambda m: True)
    np.testing.assert_array_equal(smallest, [[1.0]])
    sizes = find(testing.sizes(D=(1, 4), H=(1, 3)), lambda s: s["D"] >= 2)
    assert sizes == {"D": 2, "H": 1}
    tilted = find(testing.covariances(dim=2), lambda m: m[0, 1] != 0)
    assert np.linalg.eigvalsh(tilted)[0] > 0
    assert HealthCheck.filter_too_much not in settings.default.suppress_health_check


CASES = st.tuples(
    testing.covariances(dim=2),
    testing.initial_states(SEPARATE, sizes={"H": 1, "R": 2, "D": 2}),
    testing.sizes(N=(1, 50)),
)


@settings(max_examples=12)
@given(CASES)
def test_flows_are_gradient_flows(case) -> None:
    covariance, state, sizes = case
    testing.assert_gradient_flow(SEPARATE, state, {"Lambda": covariance, **sizes})


@settings(max_examples=12)
@given(CASES)
def test_balances_are_conserved(case) -> None:
    covariance, state, sizes = case
    v, K, Q = SEPARATE.states
    keys = ok.einsum("hra,hsa->hrs", K, K) - ok.einsum("hra,hsa->hrs", Q, Q)
    testing.assert_conserved(SEPARATE, keys, state, {"Lambda": covariance, **sizes})


def test_a_wrong_invariant_is_refused_with_its_tolerance() -> None:
    rng = np.random.default_rng(0)
    state = {
        "v": rng.normal(size=2),
        "K": rng.normal(size=(2, 1, 3)),
        "Q": rng.normal(size=(2, 1, 3)),
    }
    params = {"Lambda": np.diag([1.0, 0.5, 0.2]), "N": 5}
    _, K, Q = SEPARATE.states
    wrong = ok.einsum("hra,hra->h", K, K) + ok.einsum("hra,hra->h", Q, Q)
    with pytest.raises(AssertionError, match=r"dQ/dt: .* exceeds the tolerance .*rounding"):
        testing.assert_conserved(SEPARATE, wrong, state, params)
    right = ok.einsum("hra,hra->h", K, K) - ok.einsum("hra,hra->h", Q, Q)
    testing.assert_conserved(SEPARATE, right, state, params, time=5.0)


def test_fixed_points() -> None:
    spectrum, N = np.array([0.5, 0.3]), 7
    params = {"Lambda": np.diag(spectrum), "N": N}
    optimum = np.diag(1 / ((1 + 1 / N) * spectrum + spectrum.sum() / N))
    state = {"v": np.array([2.0]), "U": optimum[None] / 2}
    testing.assert_fixed_point(MERGED, state, params)
    with pytest.raises(AssertionError, match="exceeds the tolerance"):
        testing.assert_fixed_point(MERGED, {**state, "U": state["U"] * (1 + 1e-9)}, params)
    x, k = sp.symbols("x k")
    own = ok.vector_field({x: k - x**3}, parameters=(k,))
    testing.assert_fixed_point(own, {"x": 2.0}, {"k": 8.0})
    with pytest.raises(AssertionError):
        testing.assert_fixed_point(own, {"x": 2.001}, {"k": 8.0})


def test_a_field_that_is_no_gradient_flow_is_refused() -> None:
    x, y = sp.symbols("x y")
    plateau = ok.models.plateau().flow
    testing.assert_gradient_flow(plateau, {"v": 0.3}, {"lambda": 0.4, "trace": 1.0, "N": 31})
    turning = ok.vector_field({x: y, y: -x})
    with pytest.raises(ok.InputError, match="not a gradient flow"):
        testing.assert_gradient_flow(turning, {"x": 1.0, "y": 0.0})
    from dataclasses import replace

    wrong = replace(MERGED, time_scale={s: sp.Integer(3) for s in MERGED.states})
    state = {"v": np.array([1.0]), "U": np.ones((1, 1, 1))}
    with pytest.raises(AssertionError, match="central differences"):
        testing.assert_gradient_flow(wrong, state, {"Lambda": [[1.0]], "N": 3})


def test_invariant_manifold_and_one_that_is_not() -> None:
    """One head on an eigenvector, key and query equal: the scalar plateau equation."""
    v = ok.weight("s")
    e = ok.parameter("e", (SEPARATE.states[1].shape[2],))
    spread = ok.einsum(",d->d", v, e)
    as_head = ok.einsum("d,hr->hrd", spread, ok.parameter("one", SEPARATE.states[1].shape[:2]))
    ansatz = {
        "v": ok.einsum(",h->h", v, ok.parameter("ones", SEPARATE.states[0].shape)),
        "K": as_head,
        "Q": as_head,
    }
    lam, trace, N = 0.4, 1.0, 31
    rate = lam**2 * v**2 - lam**3 * (1 + (1 + trace / lam) / N) * v**5
    numbers = {
        "Lambda": np.diag([0.4, 0.3, 0.2, 0.1]),
        "N": N,
    }
    state = {"s": 0.7, "e": np.eye(4)[0], "one": [[1.0]], "ones": [1.0]}
    testing.assert_invariant_manifold(SEPARATE, ansatz, {v: rate}, state, numbers)
    with pytest.raises(AssertionError, match="residual"):
        testing.assert_invariant_manifold(SEPARATE, ansatz, {v: 1.001 * rate}, state, numbers)


def test_runs_agree_or_not() -> None:
    params = {"Lambda": np.diag([1.0, 0.5]), "N": 9}
    y0 = {"v": [0.1, 0.2], "U": 0.1 * np.ones((2, 2, 2))}
    times = np.linspace(0, 5, 6)
    first = ok.solve(MERGED, y0, times, params, method="DOP853")
    testing.assert_agrees(first, ok.solve(MERGED, y0, times, params, method="LSODA"))
    other = ok.solve(MERGED, y0, times, {**params, "N": 10})
    with pytest.raises(AssertionError, match="exceeds the tolerance"):
        testing.assert_agrees(first, other)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: testing.covariances(dim=0).example(), "dim is 0"),
        (lambda: testing.covariances(condition=0.5).example(), "condition is 0.5"),
        (lambda: testing.sizes(), "takes names"),
        (lambda: testing.sizes(D=(3, 2)), "min_value 3 exceeds max_value 2"),
        (lambda: testing.initial_states(SEPARATE, sizes={"H": 2}), "is not in sizes="),
        (lambda: testing.initial_states(SEPARATE, sizes={"h": 2}), "Unknown size 'h'"),
        (lambda: testing.initial_states(SEPARATE, {}, scale=0), "scale is 0"),
    ],
)
@pytest.mark.filterwarnings("ignore::hypothesis.errors.NonInteractiveExampleWarning")
def test_bad_input(make, words) -> None:
    with pytest.raises(ok.InputError) as caught:
        make()
    assert words in str(caught.value)
