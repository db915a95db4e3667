"""Mini-batch training laid over the flows: medians, spreads and levels, against theory."""

import io

import numpy as np
import pytest
from odekit_derivations.zhang2025 import training

import odekit as ok
from odekit.reproduce.files import plain


@pytest.fixture(scope="module")
def picture():
    return training.draw(quick=True, progress=lambda line: None)


def merged_start():
    model = ok.models.attention_merged(heads=8, dim=4)
    return model, ok.simulate.initial(model, training.ABRUPT["scale"], training.ABRUPT["start"])


def noise_floor(lr, batch):
    """Excess loss lr/(4 B) tr Cov of the loss's gradient, at the end of the merged flow."""
    model, y0 = merged_start()
    covariance = np.diag(training.SPECTRUM)
    params = {"Lambda": covariance, "N": training.CONTEXT}
    end = ok.solve(model.flow, y0, 400.0, params).final
    drawn = ok.simulate.sequences(20_000, covariance, training.CONTEXT, seed=1)
    z = drawn.features("reduced").reshape(-1, 4, 4)  # beta x_q^T
    by_value = np.einsum("hab,pab->ph", end["U"], z)
    residual = drawn.y[:, -1] - by_value @ end["v"]
    size = (by_value**2).sum(axis=1) + (end["v"] ** 2).sum() * (z**2).sum(axis=(1, 2))
    # The gradient of a sequence's loss is -2 residual d(prediction): 4/4 cancels.
    return lr / batch * float(np.mean(residual**2 * size))


def outside(panel, stretch=1.0):
    """Largest distance of the median from the flow read at times early and late by the spread."""
    escape = training.Escape.of(training.SPECTRUM, panel["lr"], panel["batch"])
    t, flow, median = (np.array(panel[name]) for name in ("time", "flow", "median"))
    # The median of three normal variables has .67 of their deviation: 3 are 4.5 of its own.
    late, early = escape.delay(t) + 3 * escape.spread(t), escape.delay(t) - 3 * escape.spread(t)
    upper, lower = (np.interp((t - shift) / stretch, t, flow) for shift in (late, early))
    return float(np.maximum(median - upper, lower - median).max())


def test_the_picture_is_labelled_and_its_numbers_are_strict_json(picture):
    plain(picture.numbers)
    assert all(ax.get_xlabel() and ax.get_ylabel() for ax in picture.figure.axes)
    picture.figure.savefig(io.BytesIO(), format="svg")


def test_the_median_follows_the_flow_within_the_spread_of_the_escape(picture):
    panel = picture.numbers["abrupt"]
    assert panel["verdict"] == "agree"
    # Beside the shift in time there is the excess that noise keeps up; twice its mean for the
    # median of three runs of some ten noisy directions.
    bound = 2 * noise_floor(panel["lr"], panel["batch"])
    assert outside(panel) < bound
    # A flow that is slower or faster by a half is told apart.
    assert outside(panel, stretch=1.5) > 10 * bound
    assert outside(panel, stretch=1 / 1.5) > 10 * bound


def test_the_spread_of_the_drop_over_seeds_is_the_predicted_one():
    model, y0 = merged_start()
    lr, batch, seeds = training.ABRUPT["lr"], 8, 24
    runs = training.train(model, training.SPECTRUM, y0, lr=lr, batch=batch, end=50.0, seeds=seeds)
    floor = ok.theory.plateau_losses(training.SPECTRUM, training.CONTEXT)[-1]
    middle = training.half_drop(runs.t, runs.flow.loss, floor)
    delays = [training.half_drop(runs.t, loss, floor) - middle for loss in runs.losses]
    escape = training.Escape.of(training.SPECTRUM, lr, batch)
    spread = float(escape.spread(middle))
    # Four standard errors of a deviation and of a mean over 24 seeds.
    assert np.std(delays, ddof=1) == pytest.approx(spread, rel=4 / np.sqrt(2 * (seeds - 1)))
    assert np.mean(delays) == pytest.approx(escape.delay(middle), abs=4 * spread / np.sqrt(seeds))


def test_training_makes_the_drops_that_the_flow_makes(picture):
    panel = picture.numbers["saddles"]
    levels = np.array(panel["levels"])
    middles = (levels[1:] + levels[:-1]) / 2
    passed = [int(np.sum(panel["end loss"][k] < middles)) for k in ("flow", "median of SGD")]
    assert passed == [3, 3]
    # Each plateau but the first is left by SGD when the flow leaves it, to a fifth.
    for middle in middles[:3]:
        times = [np.interp(-middle, -np.array(panel[k]), panel["time"]) for k in ("flow", "median")]
        assert times[1] == pytest.approx(times[0], rel=0.2)


def test_larger_starts_drop_sooner_and_less_abruptly(picture):
    rows = picture.numbers["scale"]
    half_lives = [row["half-life"] for row in rows]
    assert half_lives == sorted(half_lives, reverse=True)
    floor = ok.theory.plateau_losses(training.SPECTRUM, training.CONTEXT)[-1]
    waited = []
    for row in rows:
        excess = np.array(row["median"]) - floor
        early = np.interp(-0.9 * excess[0], -excess, row["time"])
        waited.append(early / row["half-life"])
    assert waited == sorted(waited, reverse=True)
