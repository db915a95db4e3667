from __future__ import annotations

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

import odekit as ok
from odekit.analysis.closed_form_patterns import unbalanced_product_values

x, p, q = sp.symbols("x p q", real=True)
a, b, c, lam = sp.symbols("a b c lambda", positive=True)
TIMES = np.linspace(0.0, 6.0, 25)


@pytest.mark.parametrize(
    ("rate", "parameters", "values", "start", "kind"),
    [
        (a - b * x, (a, b), {"a": 1, "b": 2}, 0.1, "linear"),
        (a * x - b * x**2, (a, b), {"a": 4, "b": 2}, 1e-6, "bernoulli"),
        (a * x - b * x**3, (a, b), {"a": 4, "b": 2}, -1e-6, "bernoulli"),
        (-a * x**3, (a,), {"a": 4}, 2.0, "bernoulli"),
        (b * x**2 - a * x, (a, b), {"a": 4, "b": 2}, 1.0, "bernoulli"),
        (a - b * x**2, (a, b), {"a": 4, "b": 2}, 0.0, "riccati"),
        (lam**2 * x**2 - lam**3 * c * x**5, (lam, c), {"lambda": 1.4, "c": 1.2}, 0.2, "separable"),
        (x * (1 - x) * (x - sp.Rational(1, 4)), (), {}, 0.3, "separable"),
        (x / (1 + x**2) - x**3, (), {}, 0.01, "separable"),
    ],
)
def test_forms_agree_with_integration(rate, parameters, values, start, kind):
    field = ok.vector_field({x: rate}, parameters=parameters)
    form = ok.closed_form(field)
    assert form.kind == kind
    # The reference is integrated to 1e-12 over a rise of six decades at most.
    assert form.check(TIMES, start, values) < 1e-9
    late = form.evaluate([1e3, 1e9, 1e300], start, values)["x"]
    assert np.all(np.isfinite(late))


def test_bernoulli_and_plateau_are_proved_exactly():
    logistic = ok.closed_form(ok.vector_field({x: a * x - b * x**2}, parameters=(a, b)))
    assert logistic.verification == "exact"
    rest = sp.diff(logistic.explicit, logistic.time) - (
        a * logistic.explicit - b * logistic.explicit**2
    )
    assert sp.simplify(rest) == 0
    plateau = ok.closed_form(
        ok.vector_field({x: lam**2 * x**2 - lam**3 * c * x**5}, parameters=(lam, c))
    )
    k = (lam * c) ** sp.Rational(1, 3)

    def F(u):
        return sp.log((u**2 + u + 1) / (1 - u) ** 2) / 6 - sp.atan(
            (2 * u + 1) / sp.sqrt(3)
        ) / sp.sqrt(3)

    x0 = plateau.start
    published = (1 / x0 - 1 / x + k * (F(k * x) - F(k * x0))) / lam**2
    point = {
        lam: sp.Rational(2, 5),
        c: sp.Rational(6, 5),
        x: sp.Rational(4, 5),
        x0: sp.Rational(1, 50),
    }
    assert abs(sp.N((plateau.implicit - published).subs(point), 40)) < sp.Float(10) ** -35


def test_small_starts_keep_their_digits():
    field = ok.vector_field({x: a * x - b * x**2}, parameters=(a, b))
    form = ok.closed_form(field)
    values = {"a": 1, "b": 1}
    tiny = form.evaluate(1.0, 1e-200, values)["x"]
    assert float(tiny) == pytest.approx(np.exp(1.0) * 1e-200, rel=1e-14)
    start = 1e-9
    plateau = ok.closed_form(ok.vector_field({x: x**2 - x**5}))
    # Over a hundredth of the plateau v is v0/(1 - t v0) up to v0^3.
    moved = float(plateau.evaluate(0.01 / start, start)["x"])
    assert moved == pytest.approx(start / 0.99, rel=1e-13)


def test_blow_up_gives_nan_and_not_nonsense():
    form = ok.closed_form(ok.vector_field({x: x**2}))
    before, after = form.evaluate([0.5, 2.0], 1.0)["x"]
    assert before == pytest.approx(2.0, rel=1e-14)
    assert np.isnan(after)
    tangent = ok.closed_form(ok.vector_field({x: 1 + x**2}))
    assert float(tangent.evaluate(1.0, 0.0)["x"]) == pytest.approx(np.tan(1.0), rel=1e-12)
    assert np.isnan(tangent.evaluate(2.0, 0.0)["x"])


def test_unbalanced_product_from_its_scalar_equation():
    K, r, al = sp.symbols("K r alpha", positive=True)
    field = ok.vector_field({x: r * sp.sqrt(K + 4 * x**2) * (1 - al * x)}, parameters=(K, r, al))
    form = ok.closed_form(field)
    assert form.kind == "unbalanced product"
    assert form.verification == "exact"
    values = {"K": 0.3, "r": 0.7, "alpha": 1.3}
    for start in (1e-7, -3.0, 2.0):
        assert form.check(TIMES, start, values) < 1e-9
        assert float(form.evaluate(1e12, start, values)["x"]) == pytest.approx(1 / 1.3, rel=1e-12)


@given(
    start=st.floats(-8, 0.5).map(lambda e: 10.0**e),
    imbalance=st.floats(-6, 2).map(lambda e: 10.0**e),
    rest=st.floats(-1, 1).map(lambda e: 10.0**e),
)
def test_unbalanced_product_is_a_flow(start, imbalance, rest):
    """Going on from the middle is the same as going through."""
    times = np.array([0.3, 1.0])
    middle, end = unbalanced_product_values(times, start, imbalance, 0.8, 1 / rest)
    (again,) = unbalanced_product_values(np.array([0.7]), float(middle), imbalance, 0.8, 1 / rest)
    # A few roundings, amplified by at most exp(2 r w dt) of the linearised flow near zero.
    assert again == pytest.approx(end, rel=1e-10)


@pytest.mark.parametrize(
    "start", [(1e-3, 2e-3), (1e-3, -2e-3), (0.5, 0.5), (0.5, -0.5), (1.0, -2.5), (2.0, 0.0)]
)
def test_product_pairs(start):
    field = ok.vector_field({p: 3 * q * (a - b * p * q), q: p * (a - b * p * q)}, parameters=(a, b))
    form = ok.closed_form(field)
    values = {"a": 1, "b": 2}
    first = dict(zip(("p", "q"), start, strict=True))
    assert form.check(TIMES, first, values) < 1e-9
    late = form.evaluate(1e6, first, values)
    assert float(late["p"] * late["q"]) == pytest.approx(0.5, rel=1e-10)


def test_the_published_plateau_model():
    model = ok.models.plateau()
    form = ok.closed_form(model.flow)
    values = {"lambda": 0.4, "trace": 1.0, "N": 31}
    assert form.check(np.linspace(0, 300, 30), 0.05, values) < 1e-8


def test_decoupled_modes_are_solved_side_by_side():
    field = ok.models.modes().flow.components(D=3)
    form = ok.closed_form(field)
    assert form.kind == "decoupled"
    assert form.verification == "exact"
    values = {"s": [0.5, 0.3, 0.2], "N": 31}
    start = {"p": [1e-3, 2e-3, -1e-3], "q": [1e-3, 1e-3, 3e-3]}
    assert form.check(np.linspace(0, 120, 20), start, values) < 1e-9
    late = form.evaluate(1e5, start, values)
    s = np.array(values["s"])
    rest = 1 / ((1 + 1 / 31) * s + s.sum() / 31)
    assert late["p"].shape == (3,)
    assert np.allclose(late["p"] * late["q"], rest, rtol=1e-12)


def test_the_plateau_equation_of_a_reduced_model():
    flow = ok.models.attention_separate(heads=1, rank=1).flow
    e = ok.eigenvector("e", of=flow.parameters[0], value=lam)
    s = ok.weight("s")
    reduced = ok.reduce(flow, {"v": s, "K": s * e, "Q": s * e}).field
    form = ok.closed_form(reduced)
    assert form.kind == "separable"
    values = {"Lambda": np.diag([0.4, 0.3]), "N": 31, "lambda": 0.4}
    assert form.check(np.linspace(0, 300, 12), 0.05, values) < 1e-8
    (trace,) = form.invariants
    assert str(trace) == "tr_Lambda"


def test_unknown_forms_are_refused():
    with pytest.raises(ok.InputError, match="No closed form"):
        ok.closed_form(ok.vector_field({x: sp.sin(x) + x}))
    with pytest.raises(ok.InputError, match="reduce"):
        ok.closed_form(ok.vector_field({p: q, q: -sp.sin(p)}))
    with pytest.raises(ok.InputError, match="one state"):
        ok.closed_form(ok.models.attention_merged().flow)
    field = ok.vector_field({x: a * x}, parameters=(a,))
    with pytest.raises(ok.InputError, match="No value for parameter"):
        ok.closed_form(field).evaluate(1.0, 1.0)
