"""Plateaus read off a curve: against a loss whose slope is known, and against watched events."""

import numpy as np
import pytest

import odekit as ok
from odekit import sweep
from odekit.errors import InputError
from odekit.problem import read_sweep


def stairs(t, *drops):
    """``prod 1/(1 + (t/c)^p)``: flat, then falling with slope p, once for each (c, p)."""
    return np.prod([1 / (1 + (t / c) ** p) for c, p in drops], axis=0)


def test_the_slope_of_a_known_curve():
    t = np.concatenate([[0.0], np.geomspace(1e-3, 1e3, 400)])
    found = sweep.read_plateaus(t, stairs(t, (2.0, 3)), slope=0.1)
    # |d ln(loss) / d ln(t)| = 3 r/(1 + r) with r = (t/2)^3.
    end = 2 * (0.1 / 2.9) ** (1 / 3)
    np.testing.assert_array_equal(found.start, [0.0])
    np.testing.assert_allclose(found.end, [end], rtol=1e-7)
    np.testing.assert_array_equal(found.loss, [1.0])
    np.testing.assert_array_equal(found.left, [True])
    np.testing.assert_allclose(found.duration, [end], rtol=1e-7)


def test_a_start_that_is_not_zero_and_a_plateau_that_is_cut_off():
    t = np.concatenate([[0.0], np.geomspace(1e-3, 1e4, 2000)])
    loss = 0.2 + 0.8 / (1 + t**3)
    at_zero, later = sweep.read_plateaus(t, loss), sweep.read_plateaus(t + 7, loss)
    assert len(at_zero) == 2
    np.testing.assert_allclose(later.start, at_zero.start + 7, rtol=1e-9)
    np.testing.assert_allclose(later.end, at_zero.end + 7, rtol=1e-9)
    assert np.isnan(at_zero.end[1])
    assert at_zero.loss[1] == pytest.approx(0.2, rel=1e-9)


def test_a_loss_that_decays_to_rounding():
    t = np.concatenate([[0.0], np.geomspace(1e-3, 1e3, 2000)])
    loss = np.exp(-2 * t) + 1e-16 * np.random.default_rng(0).standard_normal(len(t))
    assert (loss < 0).any()
    found = sweep.read_plateaus(t, loss)
    # |d ln(loss) / d ln(t)| = 2 t.
    np.testing.assert_allclose(found.end, [0.05], rtol=1e-7)
    with pytest.raises(InputError, match="positive"):
        sweep.read_plateaus(t, np.exp(-t) - 0.1)


def test_plateaus_that_do_not_last_are_left_out():
    t = np.concatenate([[0.0], np.geomspace(1e-3, 1e5, 4000)])
    loss = 0.01 + 0.49 / (1 + (t / 10) ** 8) + 0.5 / (1 + t**8)
    every = sweep.read_plateaus(t, loss)
    assert len(every) == 3
    ratio = every.end[1] / every.start[1]
    assert 1 < ratio < 10
    assert len(sweep.read_plateaus(t, loss, lasting=0.99 * ratio)) == 3
    assert len(sweep.read_plateaus(t, loss, lasting=1.01 * ratio)) == 2


@pytest.mark.parametrize(
    ("t", "loss", "reason"),
    [
        ([0, 1, 2], [1, 1, 1], "at least"),
        (np.arange(9.0)[::-1], np.ones(9), "increase"),
        (np.arange(9.0), np.zeros(9), "positive"),
        (np.arange(9.0), np.full(9, np.nan), "positive"),
        (np.arange(9.0), np.ones(8), "one loss a time"),
    ],
)
def test_curves_without_a_slope_are_refused(t, loss, reason):
    with pytest.raises(InputError, match=reason):
        sweep.read_plateaus(t, loss)
    with pytest.raises(InputError, match="slope > 0"):
        sweep.read_plateaus(np.arange(9.0), np.ones(9), slope=-1)


@pytest.mark.parametrize("seed", [0, 1, pytest.param(2, marks=pytest.mark.slow)])
def test_steps_tell_what_events_tell(seed):
    """At random scales and gaps, against events inside the steps of a run a thousand times finer.

    The reader's polynomial of degree five is exact to a few 1e-6 on steps of the default tolerance
    (a run of 400 to 2000 steps); the run's own error there is below 1e-6.
    """
    rng = np.random.default_rng(seed)
    scale, gap = 10 ** rng.uniform(-2, -1), rng.uniform(0.1, 0.8)
    spectrum = np.array([0.5 + gap / 2, 0.5 - gap / 2])
    model = ok.models.attention_separate(heads=2, rank=1, dim=2)
    start = ok.simulate.initial(model, scale, seed)
    values = {"Lambda": np.diag(spectrum), "N": 31}
    run = ok.solve(model.flow, start, 300 / scale, values, method="Rodas5P")
    watched = ok.solve(
        model.flow, start, 300 / scale, values, method="Rodas5P", events=ok.Plateau(),
        tolerance=ok.Tolerance(relative=1e-12),
    )  # fmt: skip
    found = sweep.read_plateaus(run.t, run.loss)
    starts = [e.t for e in watched.events if e.kind == "plateau start"]
    ends = [e for e in watched.events if e.kind == "plateau end"]
    assert len(starts) >= 2
    np.testing.assert_allclose(found.start, starts, rtol=2e-5)
    np.testing.assert_allclose(found.end[: len(ends)], [e.t for e in ends], rtol=2e-5)
    np.testing.assert_allclose(found.loss[: len(ends)], [e.value for e in ends], rtol=1e-5)


FILE = """
time = 100.0
loss = "0.1 + x**2"
[equations]
x = "{rate}"
[start]
x = 0.01
[sweep]
record = ["plateaus"{more}]
[[sweep.list]]
"solve.relative" = 1e-10
"""


def test_a_file_records_them_beside_a_curve(tmp_path):
    """``x' = x - x^3``: the loss waits, rises, and rests."""
    results = []
    for more in ("", ', "curve"'):
        file = tmp_path / "rise.toml"
        file.write_text(FILE.format(rate="x - x**3", more=more))
        results.append(sweep.run(read_sweep(file), tmp_path / f"s{len(more)}", workers=1))
    for name in ("plateaus", "plateau_start", "plateau_end", "plateau_loss"):
        np.testing.assert_array_equal(results[0][name], results[1][name])
    assert results[0]["plateaus"] == 2
    assert np.isnan(results[0]["plateau_end"][0, 1])
    assert "loss_curve" in results[1].names


def test_a_loss_that_vanishes_is_watched_instead(tmp_path):
    file = tmp_path / "decay.toml"
    text = FILE.format(rate="1 - x", more="").replace("0.1 + x**2", "(1 - x)**2 - (1 - x)**2")
    file.write_text(text)
    results = sweep.run(read_sweep(file), tmp_path / "s", workers=1)
    assert results.failures == {}
    assert results["plateaus"] == 1
