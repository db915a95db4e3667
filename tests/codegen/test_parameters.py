"""What is refused before anything is computed, and what is accepted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy as sp

import odekit as ok
from odekit.codegen import CompiledField
from odekit.codegen.layout import Layout

SIZES = {"D": 3, "H": 2}


@pytest.fixture(scope="module")
def compiled() -> CompiledField:
    return ok.compile(ok.models.attention_merged().flow, SIZES, effort="quick")


GOOD = {"Lambda": np.diag([0.5, 0.3, 0.2]), "N": 31}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Lambda": [[1, 2, 0], [0, 1, 0], [0, 0, 1]]}, "not symmetric"),
        ({"Lambda": np.diag([1.0, 1.0, -0.5])}, "positive semidefinite"),
        ({"Lambda": np.eye(4)}, "shape"),
        ({"Lambda": np.full((3, 3), np.nan)}, "NaN"),
        ({"Lambda": np.eye(3) * 1j}, "real"),
        ({"N": 0}, "positive"),
        ({"N": -3}, "positive"),
        ({"N": 2.5}, "integer"),
        ({"D": 4}, "fixed at 3"),
        ({"Lamda": np.eye(3)}, "Unknown parameter 'Lamda'.*Did you mean 'Lambda'"),
    ],
)
def test_bad_parameters(compiled: CompiledField, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ok.InputError, match=message) as caught:
        compiled.layout.pack_parameters({**GOOD, **change})
    assert "\n" not in str(caught.value)


def test_a_missing_parameter_is_named(compiled: CompiledField) -> None:
    with pytest.raises(ok.InputError, match="Missing parameter 'N'"):
        compiled.layout.pack_parameters({"Lambda": np.eye(3)})


def test_a_singular_covariance_and_sizes_said_again_are_fine(compiled: CompiledField) -> None:
    singular = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    one = compiled.layout.pack_parameters({"Lambda": singular, "N": 31})
    other = compiled.layout.pack_parameters({"Lambda": singular, "N": 31, "D": 3, "H": 2})
    np.testing.assert_array_equal(one, other)


def test_fixed_sizes_of_the_model_and_symbols_fixed_in_compile() -> None:
    flow = ok.models.attention_merged().flow
    compiled = ok.compile(flow, {**SIZES, "N": 31}, effort="quick")
    assert [name for name, _ in compiled.layout.parameters] == ["Lambda"]
    state = {"v": np.array([0.5, -1.0]), "U": np.arange(18.0).reshape(2, 3, 3)}
    rate = np.empty(compiled.layout.size)
    p = compiled.layout.pack_parameters(GOOD)
    compiled.rhs(0.0, compiled.layout.pack(state), p, rate)
    expected = compiled.layout.pack(flow.evaluate(state, GOOD))
    np.testing.assert_allclose(rate, expected, rtol=1e-12, atol=1e-10)
    with pytest.raises(ok.InputError, match="N is fixed at 31"):
        compiled.layout.pack_parameters({**GOOD, "N": 30})


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"D": 3}, "needs the sizes H"),
        ({}, "needs the sizes"),
        ({**SIZES, "E": 2}, "Unknown size 'E'"),
        ({**SIZES, "D": 0}, "positive integer"),
        ({**SIZES, "D": 2.5}, "positive integer"),
    ],
)
def test_bad_sizes(sizes: dict[str, Any], message: str) -> None:
    with pytest.raises(ok.InputError, match=message):
        ok.compile(ok.models.attention_merged().flow, sizes)


def test_bad_efforts_and_fields() -> None:
    x = sp.Symbol("x")
    with pytest.raises(ok.InputError, match="effort"):
        ok.compile(ok.vector_field({x: x}), effort="most")
    with pytest.raises(ok.InputError, match="takes a vector field, got dict"):
        ok.compile({x: x})


def test_parameters_that_give_no_number_are_refused() -> None:
    x, k = sp.symbols("x k")
    compiled = ok.compile(ok.vector_field({x: x * sp.log(k)}, (k,)), effort="quick")
    with pytest.raises(ok.InputError, match="no number"):
        compiled.layout.pack_parameters({"k": -1.0})


def test_parameters_prepared_once_are_copied_and_told_apart() -> None:
    prepared: list[float] = []

    def prepare(p: np.ndarray) -> None:
        prepared.append(p[0])
        p[1] = 2 * p[0]

    layout = Layout(states=(("x", ()),), parameters=(("a", ()),), scratch=1, prepare=prepare)
    first, again = layout.pack_parameters({"a": 3.0}), layout.pack_parameters({"a": 3.0})
    assert prepared == [3.0]
    assert np.array_equal(first, again)
    again[1] = -1.0  # the right-hand side may write here
    assert np.array_equal(layout.pack_parameters({"a": 3.0}), first)
    assert layout.pack_parameters({"a": 4.0})[1] == 8.0
    assert prepared == [3.0, 4.0]
