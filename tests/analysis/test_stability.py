from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

import odekit as ok

x, y, v = sp.symbols("x y v")
lam, c = sp.symbols("lambda c", positive=True)


def test_the_plateau_equation_is_semistable_at_zero():
    field = ok.vector_field({v: lam**2 * v**2 - lam**3 * c * v**5}, parameters=(lam, c))
    exact = ok.stability(field, {"v": 0})
    assert exact.kind == "semistable"
    assert "v > 0" in exact.side
    assert sp.simplify(exact.escape_rate - lam**2) == 0
    numeric = ok.stability(field, {"v": 0}, values={"lambda": 0.4, "c": 1.2})
    assert numeric.kind == "semistable"
    assert "v > 0" in numeric.side
    assert numeric.escape_order == 2
    assert numeric.escape_rate == pytest.approx(0.16, rel=1e-9)
    # MATH: a plateau entered at v0 lasts about 1/(lambda^2 v0).
    assert numeric.time_near(1e-4, leave=1e6) == pytest.approx(1 / (0.16 * 1e-4), rel=1e-6)
    top = next(p for p in ok.fixed_points(field) if p.exact[v] != 0)
    assert ok.stability(field, top).kind == "stable"


def test_transverse_to_a_manifold():
    loss = (2 - x * y) ** 2 / 2
    field = ok.vector_field({x: y * (2 - x * y), y: x * (2 - x * y)}, loss=loss)
    found = ok.fixed_points(field)
    on_curve = ok.stability(field, found.manifolds[0].sample)
    assert on_curve.kind == "stable"
    assert str(on_curve) == "stable transverse to a one-dimensional manifold"
    (mode,) = on_curve.zero_modes
    assert "conserved quantity" in mode.reason
    origin = ok.stability(field, found[0])
    assert (origin.kind, origin.index) == ("saddle", 1)
    assert origin.time_near(1e-3) == pytest.approx(np.log(1e3) / 2)


@pytest.mark.parametrize(
    ("rates", "kind"),
    [
        ({x: y, y: -x}, "undetermined"),
        ({x: y, y: -sp.sin(x) - y}, "stable"),
        ({x: x**2, y: -y}, "semistable"),
        ({x: -(x**3), y: -y}, "stable"),
        ({x: x**3, y: -y}, "degenerate saddle"),
        ({x: x**3, y: y}, "unstable"),
        ({x: x, y: 2 * y}, "unstable"),
        # The cubic that decides appears only after the fast variable is followed: y ~ -x^2.
        ({x: x * y, y: -y - x**2}, "stable"),
        ({x: x * y, y: -y + x**2}, "degenerate saddle"),
        ({x: y, y: x**2}, "undetermined"),
    ],
)
def test_kinds(rates, kind):
    assert ok.stability(ok.vector_field(rates), {"x": 0, "y": 0}).kind == kind


def test_separate_saddles_without_negative_curvature():
    spectrum = [0.5, 0.3, 0.2]
    values = {"Lambda": np.diag(spectrum), "N": 31}
    flow = ok.models.attention_separate().flow
    found = ok.fixed_points(flow, values=values, of="A", sizes={"H": 3, "R": 1})
    for point in found:
        learned = [i for i in range(3) if point["A"][i, i] > 1e-9]
        result = ok.stability(flow, point, values=values)
        visited = learned == list(range(len(learned)))
        if len(learned) == 3:
            assert result.kind == "stable"
            assert result.manifold_dimension == len(result.zero_modes)
        elif visited:
            assert (result.kind, result.index) == ("degenerate saddle", 0)
            # v = k = q = s/sqrt(3) along the next eigenvector: v' = lambda^2 v^2 in distance.
            expected = spectrum[len(learned)] ** 2 / np.sqrt(3)
            assert result.escape_order == 2
            assert result.escape_rate == pytest.approx(expected, rel=1e-6)
        else:
            # A smaller eigenvalue was learned before a larger one.
            assert result.kind == "saddle"
            assert result.index > 0


def test_jacobian_of_tensor_fields_agrees_with_components():
    from odekit.analysis.local_expansion import local_scalar, local_tensor
    from odekit.analysis.scalar_system import read_system

    flow = ok.models.attention_merged().flow
    rng = np.random.default_rng(2)
    values = {"Lambda": np.diag([0.6, 0.4]), "N": 7}
    point = {"v": rng.normal(size=2), "U": rng.normal(size=(2, 2, 2))}
    tensor = local_tensor(flow, point, values, {})
    system = read_system(flow.components(H=2, D=2), values)
    scalar = local_scalar(system, point)
    assert np.allclose(tensor.jacobian(tensor.point), scalar.jacobian(scalar.point), atol=1e-12)
    assert np.allclose(tensor.rates(tensor.point[None]), scalar.rates(scalar.point[None]))


def test_a_point_that_moves_is_refused():
    with pytest.raises(ok.InputError, match="not fixed"):
        ok.stability(ok.vector_field({x: 1 + x**2}), {"x": 0})
    with pytest.raises(ok.InputError, match="No value for parameter"):
        field = ok.vector_field({x: lam * x, y: -y}, parameters=(lam,))
        ok.stability(field, {"x": 0, "y": 0})
