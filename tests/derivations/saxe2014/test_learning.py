"""Every statement on deep linear networks holds, and the figure's numbers agree with theory."""

import io

import numpy as np
import pytest
from odekit_derivations.saxe2014 import TARGETS, learning, modes

import odekit as ok
from odekit.reproduce.files import plain


@pytest.mark.parametrize("depth", modes.DEPTHS)
@pytest.mark.parametrize("step", modes.STEPS, ids=lambda s: s.__name__)
def test_statement_holds(step, depth):
    made = step(depth)
    assert made
    assert all(check.exact for check in made)
    assert [c for c in made if not c.passes] == []


def test_the_sigmoid_is_the_closed_form():
    made = modes.sigmoidal_solution()
    assert [c for c in made if not c.passes] == []
    assert np.isfinite(modes.sigmoid(1e6, 1e-9, 2.0, 1.0, np.exp))


def test_a_wrong_ansatz_is_refused():
    flow, ansatz = modes.aligned(2, ok.dims("m"))
    # A teacher whose hidden side is read with the wrong strengths leaves the manifold: layers
    # that are aligned with two different bases of the hidden units are not kept.
    other = ok.eigenvector(
        "Q1", of=ok.parameter("PQ", (modes.named(flow, "W1").shape[0],) * 2, symmetric=True),
        count=ok.dims("m"),
    )  # fmt: skip
    a2 = next(t for t in ansatz["W2"].tensors() if t.name == "a2")
    R2 = next(t for t in ansatz["W2"].tensors() if t.name == "R2")
    wrong = {**ansatz, "W2": ok.einsum("m,mi,mj->ij", a2, R2, other)}
    reduction = ok.reduce(flow, wrong)
    assert not reduction.exact
    assert reduction.field is None
    assert any(not r.is_zero for r in reduction.residual.values())


def test_aligned_reduction_runs_beside_the_network():
    T, U, V = learning.task()
    y0 = learning.aligned_start(2, U, V, 1e-3)
    times = np.linspace(0, 12, 25)
    run = ok.solve(ok.models.deep_linear(2).flow, y0, times, {"Lambda": np.eye(4), "T": T})
    seen = learning.strengths(run, 2, U, V)
    wanted = np.stack(
        [modes.sigmoid(times, 1e-3, s, 1.0, np.exp) for s in learning.STRENGTHS], axis=1
    )
    # The solver's 1e-6 of each mode's end value.
    assert np.abs(seen - wanted).max() < 2e-6 * learning.STRENGTHS.max()


@pytest.mark.parametrize("depth", [2, 3])
def test_training_follows_the_flow(depth):
    T, U, V = learning.task()
    model = ok.models.deep_linear(depth)
    y0 = learning.aligned_start(depth, U, V, 0.3)
    params, lr, steps = {"Lambda": np.eye(4), "T": T}, 0.005, 120
    run = ok.simulate.sgd(
        model, y0=y0, params=params, lr=lr, steps=steps, batch=8, seed=5,
        save_at=np.arange(steps + 1),
    )  # fmt: skip
    flow = ok.solve(model.flow, y0, 2 * lr * steps, params)
    # `compare` derives its bounds: the mean step is the flow's rate at 99.9 percent confidence, and
    # the flow is the limit of small steps.
    assert ok.simulate.compare(flow, run).passed


@pytest.mark.slow
def test_the_figure():
    (target,) = TARGETS
    assert target.name == "saxe2014/learning"
    picture = learning.draw(quick=True, progress=lambda message: None)
    plain(picture.numbers)
    picture.figure.savefig(io.BytesIO(), format="svg")
    numbers = picture.numbers
    for row in numbers["depths"]:
        assert row["largest gap"] < 2e-6  # the solver's
    for row in numbers["balance"]:
        assert row["drift"] < 1e-6  # the solver's
    for row in numbers["half-rise"]:
        s, u0, depth = row["s"], row["start"], row["depth"]
        if depth == 2:
            # t = ln(s/u0 - 1)/(2 s): the logarithm takes 1/ln(s/u0) off the power 1.
            assert -1 + 1 / np.log(s[-1] / u0) < row["power"] < -1 + 1 / np.log(s[0] / u0)
        else:
            assert abs(row["power"] + 1) < (u0 / s[0]) ** (1 - 2 / depth)
    # u0^-(1 - 2/n): the hundredfold smaller start takes 100^(1 - 2/n) times as long, up to the
    # next term, of relative size (u0/s)^(1 - 2/n).
    rises = {(r["depth"], r["start"]): np.array(r["t"]) for r in numbers["half-rise"]}
    for depth in (3, 4):
        power = 1 - 2 / depth
        ratio = rises[depth, 1e-5] / rises[depth, 1e-3] / 100**power
        assert np.abs(ratio - 1).max() < (1e-3 / 0.2) ** power
    ends = numbers["modes"]
    # The noise of SGD vanishes where the teacher is matched: what is left is the curve itself.
    np.testing.assert_allclose(ends["end, sgd"][:2], ends["end, sigmoid"][:2], rtol=1e-4)
