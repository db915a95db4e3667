"""Tangents of fields: the tensor form against the component form, and both against steps."""

import numpy as np
import pytest
import sympy as sp

import odekit as ok
from odekit.field.tangent_field import tangent_field

SIZES = {"D": 2, "H": 1, "R": 1, "N": 7}
MODELS = {
    "merged": lambda: ok.models.attention_merged(),
    "separate": lambda: ok.models.attention_separate(),
    "modes": lambda: ok.models.modes(),
    "p, q": lambda: ok.models.linear_transformer(),
    "deep linear": lambda: ok.models.deep_linear(depth=2),
}


def numbers(field, seed=0):
    """Random states, parameters, tangents and directions, two of them, by name."""
    draw = np.random.default_rng(seed)
    sizes = {str(s): SIZES.get(str(s), 2) for s in field.size_symbols}

    def shape(tensor):
        return tuple(int(n.subs({s: sizes[str(s)] for s in n.free_symbols})) for n in tensor.shape)

    def symmetric(array, groups, shift=0):
        for group in groups:
            first, second = group[0] + shift, group[1] + shift
            array = (array + np.swapaxes(array, first, second)) / 2
        return array

    states = {s.name: draw.normal(size=shape(s)) for s in field.states}
    tangents = {s.name: draw.normal(size=(2, *shape(s))) for s in field.states}
    params, directions = {}, {}
    for p in field.parameters:
        value = symmetric(draw.normal(size=shape(p)), p.symmetric_groups)
        params[p.name] = value @ value.T + np.eye(len(value)) if value.ndim == 2 else abs(value) + 1
        directions[p.name] = symmetric(draw.normal(size=(2, *shape(p))), p.symmetric_groups, 1)
    for symbol in field.symbols:
        if symbol not in field.size_symbols:
            params[str(symbol)], directions[str(symbol)] = 7.0, draw.normal(size=2)
    return sizes, states, tangents, params, directions


def rates_of(made, states, tangents, params, directions):
    return made.field.evaluate(
        {**states, **{made.state_names[n]: a for n, a in tangents.items()}},
        {**params, **{made.parameter_names[n]: a for n, a in directions.items()}},
    )


@pytest.mark.parametrize("name", MODELS)
def test_tensor_tangents_equal_component_tangents_and_complex_steps(name):
    flow = MODELS[name]().flow
    sizes, states, tangents, params, directions = numbers(flow)
    known = {k: v for k, v in params.items() if k not in sizes}
    tensor = tangent_field(flow, directions, 2)
    rates = rates_of(tensor, states, tangents, known, directions)
    scalar_flow = flow.components(**sizes)
    forms = [(tensor, rates)]
    if name in {"merged", "modes", "deep linear"}:  # SymPy takes its time over the others
        scalar = tangent_field(scalar_flow, directions, 2)
        forms.append((scalar, rates_of(scalar, states, tangents, known, directions)))
    # A complex step of 1e-30 has neither truncation nor cancellation: exact to rounding.
    origin = scalar_flow

    def flat(values, groups, wanted):
        found = {}
        for group, (_, symbols) in groups.items():
            found.update(zip(symbols, np.ravel(values[group]), strict=True))
        return np.array([found[s] for s in wanted])

    y, p = (
        flat(states, origin.state_groups, origin.states),
        flat(known, origin.parameter_groups, origin.parameters),
    )
    for m in range(2):
        dy = flat({n: a[m] for n, a in tangents.items()}, origin.state_groups, origin.states)
        dp = flat(
            {n: a[m] for n, a in directions.items()}, origin.parameter_groups, origin.parameters
        )
        step = np.imag(origin._function(y + 1e-30j * dy, p + 1e-30j * dp)) / 1e-30
        exact = dict(zip(origin.states, step, strict=True))
        for state, (_, symbols) in origin.state_groups.items():
            expected = np.array([exact[s] for s in symbols])
            bound = 1e-12 * max(np.abs(step))
            for made, found in forms:
                ours = np.ravel(found[made.state_names[state]][m])
                np.testing.assert_allclose(ours, expected, rtol=1e-12, atol=bound)


def test_the_rate_of_the_loss_is_minus_the_squared_gradient_over_the_time_scale():
    flow = ok.models.attention_separate().flow
    _, states, _, params, _ = numbers(flow)
    made = tangent_field(flow, (), 1)
    rate = made.along_flow(flow.loss).evaluate({**states, **params})
    speeds = flow.evaluate(states, params)
    # With a time scale of 2: d(loss)/dt = -(1/2) |d(loss)/d(theta)|^2 = -2 |d(theta)/dt|^2.
    assert rate == pytest.approx(-2 * sum(np.sum(s**2) for s in speeds.values()), rel=1e-12)


def test_names_that_are_taken_are_told_apart():
    x, dx, k = sp.symbols("x dx k")
    made = tangent_field(ok.vector_field({x: -k * x, dx: x}, parameters=(k,)), ("k",), 1)
    assert made.state_names == {"x": "dx'", "dx": "ddx"}
    assert made.parameter_names == {"k": "dk"}


def test_a_coefficient_is_differentiated_by_its_symbols():
    w = ok.weight("w", (ok.dims("D"),))
    flow = ok.gradient_flow(ok.einsum("d,d->", w, w), time_scale=sp.Symbol("tau", positive=True))
    made = tangent_field(flow, ("tau",), 1)
    rates = rates_of(
        made, {"w": np.ones(3)}, {"w": np.zeros((1, 3))}, {"tau": 4.0}, {"tau": np.ones(1)}
    )
    np.testing.assert_allclose(rates[made.state_names["w"]], 2 / 16, rtol=1e-14)


def test_a_parameter_with_eigenvectors_in_the_field_is_refused():
    D = ok.dims("D")
    Lam = ok.parameter("Lambda", (D, D), symmetric=True)
    e = ok.eigenvector("e", of=Lam)
    w = ok.weight("w", (D,))
    overlap = ok.einsum("d,d->", e, w)
    flow = ok.gradient_flow(overlap * overlap + ok.einsum("a,ab,b->", w, Lam, w))
    with pytest.raises(ok.InputError, match="eigenvector of Lambda"):
        tangent_field(flow, ("Lambda",), 1)


def test_unknown_parameters_are_named():
    with pytest.raises(ok.InputError, match="Lambda"):
        tangent_field(ok.models.attention_merged().flow, ("Lamda",), 1)


def test_a_function_without_a_derivative_is_refused():
    x = sp.Symbol("x", real=True)
    with pytest.raises(ok.InputError, match="no derivative"):
        tangent_field(ok.vector_field({x: sp.Function("f")(x)}), (), 1)
