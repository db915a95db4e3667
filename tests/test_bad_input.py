"""Input that no computation can mean ends in one line of `InputError`, wherever it comes in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import sympy as sp

import odekit as ok
from odekit.theory import plateau_losses

N, D = ok.dims("N D")
LAMBDA = ok.parameter("Lambda", (D, D), symmetric=True)
X = ok.gaussian("x", (N, D), covariance=LAMBDA)
Z = ok.gaussian("z", (D,), covariance=LAMBDA)
W = ok.gaussian("w", (D,))
V = ok.weight("v", (D,))
x, a = sp.symbols("x a")

MERGED = ok.models.attention_merged(heads=1, dim=2).flow
STATE = {"v": np.zeros(1), "U": np.zeros((1, 2, 2))}
GOOD = {"Lambda": np.diag([0.7, 0.3]), "N": 31}
BAD_VALUES = {
    "indefinite": {**GOOD, "Lambda": np.diag([0.7, -0.3])},
    "asymmetric": {**GOOD, "Lambda": np.array([[0.7, 0.2], [0.0, 0.3]])},
    "wrong shape": {**GOOD, "Lambda": np.eye(3)},
    "complex": {**GOOD, "Lambda": 1j * np.eye(2)},
    "NaN": {**GOOD, "Lambda": np.diag([np.nan, 1.0])},
    "text": {**GOOD, "Lambda": [["1", "0"], ["0", "1"]]},
    "one word": {**GOOD, "Lambda": "I"},
    "no tokens": {**GOOD, "N": 0},
    "negative": {**GOOD, "N": -1},
    "broken": {**GOOD, "N": 2.5},
    "number as text": {**GOOD, "N": "31"},
    "infinite": {**GOOD, "N": np.inf},
    "no mapping": [1],
}
USES: dict[str, Callable[[object], object]] = {
    "evaluate": lambda v: MERGED.evaluate(STATE, v),
    "loss_value": lambda v: MERGED.loss_value(STATE, v),
    "components": lambda v: MERGED.components(v),
    "fixed_points": lambda v: ok.fixed_points(MERGED, v),
    "fixed_points of A": lambda v: ok.fixed_points(MERGED, v, of="A"),
    "stability": lambda v: ok.stability(MERGED, STATE, v),
    "solve": lambda v: ok.solve(MERGED, STATE, 1.0, v),
}


def refused(call: Callable[[], object]) -> None:
    with pytest.raises(ok.InputError) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("values", BAD_VALUES)
def test_parameters_are_refused_by_every_use(use: str, values: str) -> None:
    refused(lambda: USES[use](BAD_VALUES[values]))


def clash(name: str) -> object:
    """A flow whose weight is called like a size."""
    own = ok.weight(name, (D,))
    return ok.gradient_flow(ok.expected_loss(ok.einsum("d,d->", own, Z), ok.einsum("d,d->", W, Z)))


LOSS = ok.expected_loss(ok.einsum("d,d->", V, Z), ok.einsum("d,d->", W, Z))


@pytest.mark.parametrize(
    "call",
    [
        lambda: clash("D"),
        lambda: LOSS.diff("v"),  # type: ignore[arg-type]
        lambda: ok.gradient_flow(LOSS, weights=[V, V]),
        lambda: ok.gradient_flow(
            ok.expected_loss(
                ok.parameter("N", ()) * ok.einsum("nd,d->n", X, V), ok.einsum("nd,d->n", X, W)
            )
        ),
        lambda: ok.weight("v", None),
        lambda: ok.weight("v", (True,)),
        lambda: ok.gaussian("n", (D,), covariance=-1),
        lambda: ok.sample([Z], {"Lambda": np.eye(2)}, size="3"),  # type: ignore[arg-type]
        lambda: ok.sample([Z], {"Lambda": np.eye(2)}, seed=-1),
        lambda: ok.sample([X], {"Lambda": np.eye(2), "N": 10**30}),
        lambda: ok.vector_field({x: sp.Matrix([x])}),
        lambda: ok.vector_field({x: sp.Integral(sp.exp(-(a**2)), (a, 0, x))}),
        lambda: MERGED.evaluate(None, GOOD),  # type: ignore[arg-type]
        lambda: MERGED.evaluate(np.ones(5), GOOD),  # type: ignore[arg-type]
        lambda: ok.Tolerance(relative="a"),  # type: ignore[arg-type]
        lambda: ok.Tolerance(absolute="a"),  # type: ignore[arg-type]
        lambda: ok.Limits(seconds="a"),  # type: ignore[arg-type]
        lambda: ok.Limits(steps=None),  # type: ignore[arg-type]
        lambda: ok.Save(dense="x"),  # type: ignore[arg-type]
        lambda: ok.Solution.load(None),  # type: ignore[arg-type]
        lambda: ok.simulate.compare(1, 2),  # type: ignore[arg-type]
        lambda: ok.models.deep_linear(depth=2, widths=3),  # type: ignore[arg-type]
        lambda: ok.stability(ok.vector_field({x: -x}), None),
        lambda: ok.stability(ok.vector_field({x: -x}), {"x": "0"}),
        lambda: plateau_losses("a", 3),
        lambda: plateau_losses([1j], 3),
        lambda: plateau_losses([0.5], "3"),  # type: ignore[arg-type]
    ],
)
def test_each_is_one_line(call: Callable[[], object]) -> None:
    refused(call)


def test_losses_and_tensors_have_derivatives() -> None:
    assert LOSS.diff(V) == LOSS.expression.diff(V)
    assert V.diff(V).shape == (D, D)


def test_positive_symbol_keeps_its_sign() -> None:
    rate = sp.Symbol("rate", positive=True)
    field = ok.vector_field({x: rate * x - x**3}, parameters=(rate,))
    refused(lambda: ok.fixed_points(field, {"rate": -1}))


def test_sizes_of_a_compiled_field_are_settled(tmp_path: object) -> None:
    compiled = ok.compile(ok.vector_field({x: -x}), effort="quick")
    refused(lambda: ok.solve(compiled, {"x": 1.0}, 1.0, sizes={"D": 3}))
    run = ok.solve(compiled, {"x": 1.0}, 1.0)
    refused(lambda: run.at("a"))
    refused(lambda: run.at(None))
    refused(lambda: run.save(tmp_path))  # type: ignore[arg-type]
    refused(lambda: run.save(None))  # type: ignore[arg-type]
    refused(lambda: ok.ensemble(compiled, [{"x": 1.0}], 1.0, workers="a"))  # type: ignore[arg-type]
    refused(lambda: ok.ensemble(compiled, [{"x": 1.0}], 1.0, executor="x"))  # type: ignore[arg-type]


def test_no_root_where_a_rate_only_dies_out() -> None:
    found = ok.fixed_points(ok.vector_field({x: sp.exp(x)}))
    assert len(found.points) == 0
    assert not found.complete


def test_absolute_value_of_a_state() -> None:
    found = ok.fixed_points(ok.vector_field({x: sp.Abs(x) - 1}))
    assert sorted(float(p.values_by_name["x"]) for p in found.points) == pytest.approx([-1, 1])


def test_resting_field_has_a_closed_form() -> None:
    assert "x_0" in str(ok.closed_form(ok.vector_field({x: 0})))


def test_states_called_like_the_run_s_own_axes() -> None:
    t, loss = sp.symbols("t loss")
    field = ok.vector_field({t: -t, loss: -loss}, loss=(t**2 + loss**2) / 2)
    run = ok.solve(field, {"t": 1.0, "loss": 2.0}, 1.0)
    data = run.to_xarray()
    assert np.array_equal(data["t"].values, run["t"])
    assert np.array_equal(data["loss"].values, run["loss"])
    assert np.array_equal(data["loss_"].values, run.loss)


P, Q = sp.symbols("p q", real=True)
OSCILLATOR = ok.vector_field({P: -a * Q, Q: P}, parameters=(a,))
AT = {"p": 1.0, "q": 0.0}
HUGE = 10**400
ASKED: dict[str, Callable[[], object]] = {
    "events of parts with steps of their own": lambda: ok.solve(
        OSCILLATOR, AT, 3.0, {"a": 2.0}, method="Rodas5P-blocks", events=ok.Crossing("p", 0.0)
    ),
    "parts of a dense Jacobian": lambda: ok.solve(
        MERGED,
        {"v": np.ones(1), "U": np.ones((1, 2, 2))},
        1.0,
        GOOD,
        method="Rodas5P-blocks",
    ),
    "half a step": lambda: ok.Limits(steps=1.5),
    "endless steps": lambda: ok.Limits(steps=np.inf),  # type: ignore[arg-type]
    "steps past an integer": lambda: ok.Limits(steps=2**70),
    "huge seconds": lambda: ok.Limits(seconds=HUGE),
    "a huge state": lambda: ok.solve(OSCILLATOR, {"p": HUGE, "q": 0}, 1.0, {"a": 1.0}),
    "a huge end": lambda: ok.solve(OSCILLATOR, AT, HUGE, {"a": 1.0}),
    "a huge tolerance": lambda: ok.Tolerance(absolute=HUGE),
    "a huge level": lambda: ok.Crossing("p", HUGE),
    "a slope in words": lambda: ok.Plateau("0.1"),  # type: ignore[arg-type]
    "a complex direction": lambda: ok.sensitivities(
        OSCILLATOR, AT, 1.0, {"a": 1.0}, to=[ok.Direction("d", params={"a": 1j})]
    ),
    "a direction without names": lambda: ok.sensitivities(
        OSCILLATOR, AT, 1.0, {"a": 1.0}, to=[ok.Direction("d", states=[1, 2])]
    ),
}


@pytest.mark.parametrize("asked", ASKED.values(), ids=ASKED.keys())
def test_what_no_run_can_mean_ends_in_one_line(asked: Callable[[], object]) -> None:
    with pytest.raises(ok.errors.InputError) as caught:
        asked()
    assert "\n" not in str(caught.value)
