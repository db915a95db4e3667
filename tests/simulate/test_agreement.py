"""`compare`: a right flow agrees, a wrong one does not, and the deviation is split as it should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import odekit as ok
import odekit.simulate as sim
from odekit.errors import InputError
from odekit.simulate.agreement import student_quantile

L = np.diag([0.6, 0.4])
PARAMS = {"Lambda": L, "N": 3}  # small N, so that N + 1 differs visibly
MODEL = ok.models.attention_merged(heads=2, dim=2)


def without_trace_term():
    """The flow of the loss without its term tr(L) tr(L A L A^T) / N."""
    v, U = MODEL.weights
    (covariance,) = MODEL.flow.parameters
    (N,) = (s for s in MODEL.flow.symbols if str(s) == "N")
    A = ok.define("A2", ok.einsum("h,hij->ij", v, U))
    trace = ok.einsum("kk->", covariance)
    term = trace * ok.einsum("ab,bc,cd,ad->", covariance, A, covariance, A) / N
    return ok.gradient_flow(MODEL.loss + (-1) * term, weights=MODEL.weights, time_scale=2)


def with_other_lengths(y0, end):
    """The right flow and its neighbours in N: one compiled field for all."""
    return {
        name: ok.solve(MODEL.flow, y0, end, PARAMS | {"N": N})
        for name, N in (("right", 3), ("N + 1", 4), ("N - 1", 2))
    }


def flows(y0, end):
    """The right flow and those with one wrong factor."""
    twice = replace(MODEL.flow, rates={s: 2 * e for s, e in MODEL.flow.rates.items()})
    claimed = replace(MODEL.flow, time_scale=dict.fromkeys(MODEL.flow.states, 1))
    return {
        **with_other_lengths(y0, end),
        "twice as fast": ok.solve(twice, y0, end, PARAMS),
        "time scale 1 instead of 2": ok.solve(claimed, y0, end, PARAMS),
        "no trace term": ok.solve(without_trace_term(), y0, end, PARAMS),
    }


def population(y0, lr=0.05, steps=300):
    return sim.gradient_descent(MODEL, sim.Population(PARAMS), y0=y0, lr=lr, steps=steps)


def fresh(y0, seed, steps=400):
    return sim.sgd(
        MODEL, y0=y0, params=PARAMS, lr=0.02, steps=steps, batch=64, seed=seed,
        save_at=np.arange(steps + 1),
    )  # fmt: skip


def finite_sets(y0, seed, sets=20, count=10_000, steps=100):
    """Exact descent on independent sets: what each says beyond the population is noise."""
    return [
        sim.gradient_descent(
            MODEL,
            sim.sequences(count, L, 3, seed=1000 * seed + k).statistics("reduced"),
            y0=y0,
            lr=0.05,
            steps=steps,
        )
        for k in range(sets)
    ]


@pytest.mark.slow
def test_wrong_factors_are_detected_in_every_repetition():
    """20 of 20 wrong flows disagree, 20 of 20 right ones agree, at 99.9 %.

    A right flow fails by chance once in 1000 for fresh data and for finite sets, never for the
    population. 20 sets of 10,000 see the least of these effects, N off by one, at five times the
    bound; 12 sets of 2,000 would miss a factor of two in the rate once in six.
    """
    for repetition in range(20):
        y0 = sim.initial(MODEL, 0.5, repetition)
        groups = {
            "population": [population(y0)],
            "fresh": [fresh(y0, 100 * repetition + seed) for seed in range(4)],
            "sets": finite_sets(y0, repetition),
        }
        for name, flow in flows(y0, 60.0).items():
            for kind, runs in groups.items():
                report = sim.compare(flow, runs, confidence=0.999)
                assert report.passed == (name == "right"), (repetition, name, kind, str(report))
                assert report.verdict == ("agree" if name == "right" else "disagree")


def test_one_repetition_with_other_lengths():
    y0 = sim.initial(MODEL, 0.5, 77)
    groups = [population(y0)], [fresh(y0, seed) for seed in range(3)], finite_sets(y0, 77)
    for name, flow in with_other_lengths(y0, 60.0).items():
        for runs in groups:
            assert sim.compare(flow, runs).passed == (name == "right"), name


def test_a_solution_that_is_not_its_fields_is_detected():
    """The field is right, the curve is not: read at half its time."""
    y0 = sim.initial(MODEL, 0.5, 1)
    run = population(y0)
    times = run.t * 0.05 * 2
    right = ok.solve(MODEL.flow, y0, times, PARAMS)
    wrong = replace(ok.solve(MODEL.flow, y0, times / 2, PARAMS), t=times, interpolant=None)
    assert sim.compare(right, run).passed
    report = sim.compare(wrong, run)
    assert not report.checks[0].passed
    assert report.checks[1].passed


def test_the_deviation_at_finite_lr_is_first_order_and_predicted():
    y0 = sim.initial(MODEL, 0.5, 2)
    flow = ok.solve(MODEL.flow, y0, 30.0, PARAMS)
    runs = [population(y0, lr=0.05 / 2**k, steps=300 * 2**k) for k in range(3)]
    report = sim.compare(flow, runs)
    assert report.passed
    assert report.order == pytest.approx(1, abs=0.05)
    largest = []
    for k, curve in enumerate(report.curves):
        assert curve.lr == 0.05 / 2**k
        scale = np.abs(curve.learning_rate).max()
        largest.append(scale)
        # lr/4 |grad L|^2 leaves a remainder of second order: it halves with lr, relative to scale.
        remainder = np.abs(curve.learning_rate - curve.first_order).max() / scale
        assert remainder < 0.1 / 2**k
        np.testing.assert_allclose(curve.runs[0], runs[k].loss, rtol=1e-9)
    assert report.slope == pytest.approx(largest[0] / 0.05, rel=1e-12)
    assert largest[0] / largest[2] == pytest.approx(4, rel=0.1)


def test_noise_and_training_sets_are_told_apart():
    y0 = sim.initial(MODEL, 0.5, 3)
    flow = ok.solve(MODEL.flow, y0, 30.0, PARAMS)
    sets = [
        sim.gradient_descent(
            MODEL, sim.sequences(2000, L, 3, seed=seed).statistics(), y0=y0, lr=0.05, steps=300
        )
        for seed in range(8)
    ]
    report = sim.compare(flow, sets)
    curve = report.curves[0]
    assert report.passed
    assert curve.noise is None
    assert curve.training_set is not None
    assert curve.band is not None
    assert np.all(curve.band[0] <= curve.band[1])
    # A deviation of the empirical from the population flow falls like 1/sqrt(P) at least.
    assert 0 < np.abs(curve.training_set).max() < 0.1
    noisy = sim.compare(flow, [fresh(y0, seed) for seed in range(3)]).curves[0]
    assert noisy.training_set is None
    assert noisy.noise is not None
    content = report.to_dict()
    assert content["verdict"] == "agree"
    assert content["confidence"] == 0.999
    assert "99.9 % confidence" in str(report)


def test_chance_is_calibrated():
    """Scores of a right flow are standard normal: their mean square over 40 seeds is near 1."""
    y0 = sim.initial(MODEL, 0.5, 4)
    flow = ok.solve(MODEL.flow, y0, 30.0, PARAMS)
    squares = []
    for seed in range(40):
        report = sim.compare(flow, [fresh(y0, 1000 + seed, steps=150)])
        squares.append([check.value**2 for check in report.checks[1:]])
    mean = np.mean(squares, axis=0)
    # Chi-squared with 40 degrees of freedom over 40: standard deviation 0.22; four of them.
    assert np.all(np.abs(mean - 1) < 0.9), mean


def test_it_draws_itself():
    y0 = sim.initial(MODEL, 0.5, 5)
    flow = ok.solve(MODEL.flow, y0, 30.0, PARAMS)
    figure = sim.compare(flow, [fresh(y0, seed) for seed in range(3)]).plot()
    left, right = figure.axes[:2]
    assert len(left.lines) == 2
    assert len(right.lines) == 3
    assert left.get_xlabel()
    assert right.get_ylabel()


def test_student_quantiles():
    # Tabulated: t_{0.975} for 1, 5 and 30 degrees of freedom.
    for freedom, value in ((1, 12.7062), (5, 2.57058), (30, 2.04227)):
        assert student_quantile(0.975, freedom) == pytest.approx(value, rel=1e-4)
    assert student_quantile(0.5, 4) == pytest.approx(0, abs=1e-6)


def test_runs_that_cannot_be_matched_are_refused():
    y0 = sim.initial(MODEL, 0.5, 6)
    flow = ok.solve(MODEL.flow, y0, 30.0, PARAMS)
    run = population(y0)
    large = sim.Layer("merged", "all", 2, 2)
    moments = sim.sequences(50, L, 3, seed=0).statistics()
    other = sim.gradient_descent(large, moments, y0=sim.initial(large, 0.5, 6), lr=0.05, steps=30)
    ball = sim.gradient_descent(
        MODEL, sim.Population(PARAMS), y0=y0, lr=0.01, steps=30, momentum=0.5
    )
    one_set = sim.gradient_descent(MODEL, moments, y0=y0, lr=0.05, steps=30)
    for runs, words in (
        ([], "at least one training run"),
        (flow, "from gradient_descent or sgd"),
        (ball, "does not follow the gradient flow"),
        (other, "use the same model"),
        (one_set, "at least 3 independent sets"),
        (population(sim.initial(MODEL, 0.5, 7)), "same y0"),
        (population(y0, steps=900), "solve to t=90"),
    ):
        with pytest.raises(InputError, match=words):
            sim.compare(flow, runs)
    with pytest.raises(InputError, match="confidence"):
        sim.compare(flow, run, confidence=1.0)
    with pytest.raises(InputError, match="lost its field"):
        sim.compare(replace(flow, field=None), run)


def test_one_run_given_twice_is_refused():
    y0 = sim.initial(MODEL, 0.5, 2)
    flow = ok.solve(MODEL.flow, y0, 3.0, PARAMS)
    one = population(y0, lr=0.05, steps=30)
    with pytest.raises(InputError, match="Runs 0 and 2 are the same run"):
        sim.compare(flow, [one, population(y0, lr=0.025, steps=60), one])
