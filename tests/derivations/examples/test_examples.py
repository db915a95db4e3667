"""Short models of a user's own: their statements, their training, their figures."""

import importlib
import inspect
import io

import numpy as np
import pytest
from odekit_derivations.examples import (
    TARGETS,
    autoencoder,
    low_rank,
    phase_diagram,
    phase_maps,
    tasks,
    two_layer,
)

import odekit as ok
from odekit.reproduce.files import plain

MODULES = (low_rank, autoencoder, tasks, two_layer, phase_diagram)


def name_of(module):
    return module.__name__.rpartition(".")[2]


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_every_statement_holds(module):
    made = module.derive()
    assert len(made) > 3
    assert any(check.exact for check in made)
    assert [check for check in made if not check.passes] == []


@pytest.mark.parametrize("module", MODULES[:-1], ids=name_of)  # the last sweeps published models
def test_the_model_is_short(module):
    before, line, _ = inspect.getsource(module).partition("# -- statements")
    assert line
    assert before.count("\n") < 60


def training_cases():
    rng = np.random.default_rng(7)
    eye = np.eye(3)
    low = rng.standard_normal((3, 3))
    yield pytest.param(
        *low_rank.low_rank_adaptation(),
        {"A": 0.5 * rng.standard_normal((2, 3)), "B": np.zeros((3, 2))},
        {"Lambda": np.diag([1.0, 0.6, 0.3]), "W0": low, "T": low + np.diag([1.0, 0.5, 0.2])},
        id="low_rank",
    )
    yield pytest.param(
        *autoencoder.linear_autoencoder(),
        {"W1": 0.4 * rng.standard_normal((2, 3)), "W2": 0.4 * rng.standard_normal((3, 2))},
        {"Lambda": np.diag([1.0, 0.6, 0.3])},
        id="autoencoder",
    )
    start = {"v": 0.6 * np.ones(3), "K": 0.6 * eye, "Q": 0.6 * eye}
    shared = {"Lambda": np.diag([1.0, 0.6, 0.3]), "s2": 0.25, "N": 6}
    yield pytest.param(
        *tasks.attention(), start, {**shared, "M1": np.diag([0.5, 1.0, 2.0])}, id="noisy labels"
    )
    yield pytest.param(
        *tasks.attention(2),
        start,
        {**shared, "M1": np.diag([0.5, 1.0, 2.0]), "M2": eye, "p": 0.3},
        id="mixture",
    )
    y0, params = two_layer.setting(3.0)
    yield pytest.param(
        *two_layer.at_one_rate(), {k: 20 * v for k, v in y0.items()}, params, id="two_layer"
    )


@pytest.mark.parametrize(("loss", "flow", "y0", "params"), tuple(training_cases()))
def test_training_needs_no_further_code(loss, flow, y0, params):
    """Plain SGD on the loss's own data against the flow at matched time.

    `compare` derives the tolerance: given the past, a step's mean is the flow's rate, exactly, so
    the residuals along chosen directions are a martingale (99.9 percent confidence), and steps of
    lr, lr/2, ... must extrapolate to the flow's curve.
    """
    lr, steps = 0.005, 120
    run = ok.simulate.sgd(
        loss, y0=y0, params=params, lr=lr, steps=steps, batch=8, seed=11,
        save_at=np.arange(steps + 1),
    )  # fmt: skip
    solution = ok.solve(flow, y0, 2 * lr * steps, params)
    assert solution.loss[-1] < 0.9 * solution.loss[0]
    assert ok.simulate.compare(solution, run).passed


def test_training_off_the_flow_is_noticed():
    loss, _, y0, params = next(training_cases()).values
    lr, steps = 0.005, 120
    run = ok.simulate.sgd(
        loss, y0=y0, params=params, lr=lr, steps=steps, batch=64, seed=11,
        save_at=np.arange(steps + 1),
    )  # fmt: skip
    wrong = ok.gradient_flow(loss * 1.3, time_scale=2)
    assert not ok.simulate.compare(ok.solve(wrong, y0, 2 * lr * steps, params), run).passed


def test_task_covariance_sets_the_order():
    lam, mu = np.array([1.0, 0.6, 0.3]), np.array([0.2, 1.0, 3.0])
    times = np.linspace(0, 120, 401)
    run = tasks.learn(mu, times)
    A = np.einsum("th,thi,thi->ti", run["v"], run["K"], run["Q"])
    end = 1 / (lam * tasks.stretched(lam, mu, tasks.NOISE, tasks.CONTEXT))
    np.testing.assert_allclose(A[-1], end, rtol=1e-5)
    rise = [float(np.interp(0.5, A[:, k] / end[k], times)) for k in range(3)]
    assert list(np.argsort(rise)) == list(np.argsort(-(lam**2) * mu)) == [1, 2, 0]


def test_decay_takes_its_threshold_off():
    y0, params = two_layer.setting(1.0)
    _, flow = two_layer.at_one_rate()
    run = ok.solve(flow, y0, [0.0, 400.0], params)
    seen = two_layer.strengths(run, 1.0, params)[-1]
    wanted = np.maximum(0.0, two_layer.STRENGTHS - two_layer.DECAY)
    np.testing.assert_allclose(seen, wanted, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_target_draws_a_labelled_picture(target):
    picture = importlib.import_module(target.module).draw(True, lambda message: None)
    assert picture.caption
    assert picture.equations
    plain(picture.numbers)
    for ax in picture.figure.axes:
        assert ax.get_xlabel() or ax.get_label() == "<colorbar>"
        assert ax.get_ylabel()
    picture.figure.savefig(io.BytesIO(), format="svg")
    for row in picture.numbers.get("noise", ()):
        # A variance of 4000 draws of nearly Gaussian numbers (kurtosis below 9): 4 standard errors.
        assert abs(row["measured"] / row["theory"] - 1) < 4 * np.sqrt(8 / 4000)


def test_the_phase_diagram_is_ten_thousand_solves():
    count = sum(
        len(plan) * plan.runs[0].arguments["seeds"] for plan in phase_diagram.sweeps(False).values()
    )
    assert count >= 10_000


@pytest.mark.slow
def test_durations_at_random_points_are_those_of_watched_runs():
    """Four points of the full grids against events inside steps a hundred times finer."""
    rng = np.random.default_rng(5)
    plans = phase_diagram.sweeps(False)
    for kind in ("merged", "separate"):
        large = [run for run in plans[kind].runs if run.point["scale"] > 1e-2]
        for k in rng.choice(len(large), 2, replace=False):
            found = phase_diagram.duration(**{**large[k].arguments, "seeds": 2})["duration"]
            scale, gap = (large[k].point[name] for name in ("scale", "gap"))
            spectrum = np.array([0.5 + gap / 2, 0.5 - gap / 2])
            model, flow = phase_diagram.compiled(kind, 2, 1)
            for seed in range(2):
                run = ok.solve(
                    flow, ok.simulate.initial(model, scale, seed), 1e3 / spectrum[1] ** 2 / scale,
                    {"Lambda": np.diag(spectrum), "N": 31}, method="Rodas5P",
                    tolerance=ok.Tolerance(relative=1e-11), events=ok.Plateau(),
                )  # fmt: skip
                ends = [e.t for e in run.events if e.kind == "plateau end"]
                starts = [e.t for e in run.events if e.kind == "plateau start"]
                first = 0 if kind == "merged" else 1
                expected = ends[first] - starts[first] if len(ends) > first else 0.0
                # At the sweep's tolerance the reader is good to 5e-5 of a time.
                assert found[seed] == pytest.approx(expected, rel=5e-4, abs=1e-3)


@pytest.mark.slow
def test_the_map_follows_the_theory(tmp_path, monkeypatch):
    """The two smallest scales of the quick grid; the stores are resumed."""
    plans = phase_diagram.sweeps(True)
    for kind, bound in (("merged", 0.02), ("separate", 0.6)):
        results = ok.sweep.run(plans[kind], tmp_path / kind, workers=1)
        scales, gaps = (np.array(results.axes[name]) for name in ("scale", "gap"))
        measured = np.median(results["duration"], axis=-1)
        predicted = phase_maps.theory(kind, scales, gaps, results["duration"].shape[-1])
        # Merged: the linear flow of the very starts, off by what is not linear. Separate: heads
        # that start alike stand for random ones, a factor of order one at gaps of order one.
        assert np.abs(np.log(measured[:2, 2:] / predicted[:2, 2:])).max() < bound
    again = ok.sweep.run(plans["merged"], tmp_path / "merged", resume=True, workers=1)
    assert set(again.status) == {"done"}
