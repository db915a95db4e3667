from __future__ import annotations

import time

import numpy as np
import pytest
import sympy as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import odekit as ok

x, y, z = sp.symbols("x y z")


def test_the_quintic_has_its_one_real_root():
    found = ok.fixed_points(ok.vector_field({x: x**5 - x + 1}))
    (point,) = found
    assert found.complete
    value = float(point["x"])
    assert abs(value**5 - value + 1) < 1e-15
    assert "Hermite" in found.method


def test_roots_lost_through_assumptions_are_named():
    v = sp.Symbol("v", positive=True)
    found = ok.fixed_points(ok.vector_field({v: v**2 - v**5}))
    assert [float(p["v"]) for p in found] == [1.0]
    (zero,) = found.excluded
    assert float(zero["v"]) == 0.0
    assert zero.multiplicity == 2
    assert "assumptions" in found.note


def test_lorenz_and_its_exact_points():
    field = ok.vector_field(
        {x: 10 * (y - x), y: x * (28 - z) - y, z: x * y - sp.Rational(8, 3) * z}
    )
    found = ok.fixed_points(field)
    assert found.complete
    assert {tuple(p.exact[s] for s in (x, y, z)) for p in found} == {
        (0, 0, 0),
        (6 * sp.sqrt(2), 6 * sp.sqrt(2), 27),
        (-6 * sp.sqrt(2), -6 * sp.sqrt(2), 27),
    }


def test_a_curve_of_fixed_points_is_a_manifold():
    found = ok.fixed_points(ok.vector_field({x: y * (2 - x * y), y: x * (2 - x * y)}))
    assert found.complete
    assert [tuple(float(v) for v in p.values()) for p in found] == [(0.0, 0.0)]
    (curve,) = found.manifolds
    assert curve.dimension == 1
    sample = curve.sample
    assert float(sample["x"] * sample["y"]) == pytest.approx(2.0, abs=1e-10)


def test_complex_components_do_not_count_as_complete():
    found = ok.fixed_points(ok.vector_field({x: x**2 + y**2, y: x**2 + y**2}))
    assert not found.complete
    assert "not fully resolved" in found.note


def test_symbolic_parameters():
    lam, c = sp.symbols("lambda c", positive=True)
    v = sp.Symbol("v")
    field = ok.vector_field({v: lam**2 * v**2 - lam**3 * c * v**5}, parameters=(lam, c))
    found = ok.fixed_points(field)
    assert found.complete
    values = [p.exact[v] for p in found]
    assert any(value == 0 for value in values)
    assert any(sp.simplify(value**3 - 1 / (lam * c)) == 0 for value in values)
    assert len(found) == 2


def test_poles_are_no_fixed_points():
    found = ok.fixed_points(ok.vector_field({x: (x**2 - x) / x}))
    assert [float(p["x"]) for p in found] == [1.0]


def test_functions_beyond_polynomials_are_searched():
    found = ok.fixed_points(ok.vector_field({x: x**2 + y**2 - 1, y: sp.exp(x) - y}))
    assert not found.complete
    assert "partial" in found.note
    assert len(found) == 2
    assert max(p.residual for p in found) < 1e-10


def test_a_system_too_big_returns_in_time_and_says_so():
    states = sp.symbols("x0:9")
    field = ok.vector_field(
        {
            s: s - s**3 + states[(k + 1) % 9] * states[(k + 2) % 9] / 3 + sp.Rational(1, 7)
            for k, s in enumerate(states)
        }
    )
    start = time.monotonic()
    found = ok.fixed_points(field, seconds=2.0)
    # The exact part stops at 2 s, the search that follows within 2 s more.
    assert time.monotonic() - start < 12.0
    assert not found.complete
    assert "partial" in found.note
    assert len(found) > 0
    assert max(p.residual for p in found) < 1e-9


@settings(max_examples=15)
@given(
    coefficients=st.lists(st.integers(-5, 5), min_size=4, max_size=4),
    mixed=st.integers(-3, 3),
)
def test_counts_agree_with_an_eliminated_polynomial(coefficients, mixed):
    a, b, c, d = coefficients
    field = ok.vector_field({x: x**3 + a * x + mixed * y + b, y: y - x**2 + c * x + d})
    found = ok.fixed_points(field)
    # y is eliminated by hand; numpy's roots are an independent count unless roots nearly meet.
    eliminated = np.polyadd([1, 0, a, b], mixed * np.array([1, -c, -d]))
    exact = sp.Poly([sp.Integer(int(k)) for k in eliminated], x)
    assert found.complete
    assert len(found) == len(set(sp.real_roots(exact)))
    for point in found:
        assert point.residual < 1e-12


def test_bad_input():
    field = ok.vector_field({x: 1 - x})
    with pytest.raises(ok.InputError, match="intermediate"):
        ok.fixed_points(field, of="A")
    with pytest.raises(ok.InputError, match="time budget"):
        ok.fixed_points(field, seconds=0)
    flow = ok.models.attention_separate().flow
    with pytest.raises(ok.InputError, match="Unknown intermediate"):
        ok.fixed_points(flow, values={"Lambda": np.eye(2), "N": 3}, of="B")
