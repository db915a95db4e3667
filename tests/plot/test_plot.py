"""The pictures hold the numbers given to them, labels with units, and no overlapping levels."""

import io

import matplotlib as mpl
import numpy as np
import pytest
import sympy as sp

import odekit as ok
import odekit.plot as plot
from odekit.plot.curves import spread
from odekit.solution import Solution


@pytest.fixture
def run():
    t = np.linspace(0.0, 4.0, 41)
    v = np.stack([np.tanh(t), -np.tanh(t / 2)], axis=1)
    return Solution(t=t, states={"v": v, "M": v[:, :, None] * np.eye(2)}, loss=np.exp(-t))


def test_style_holds_inside_and_leaves_no_trace():
    before = mpl.rcParams["axes.linewidth"]
    with plot.style(font_size=11):
        assert mpl.rcParams["font.size"] == 11
        assert mpl.rcParams["axes.linewidth"] < before
    assert mpl.rcParams["axes.linewidth"] == before
    with pytest.raises(ok.InputError, match="no setting"), plot.style(font_sise=3):
        pass


def test_palette_stays_apart_without_red_green_sight():
    # Deuteranopia in linear RGB (Machado et al. 2009, severity 1).
    matrix = np.array([[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]])
    colours = np.array([mpl.colors.to_rgb(c) for c in plot.PALETTE]) ** 2.2
    seen = np.clip(colours @ matrix.T, 0, 1) ** (1 / 2.2)
    gaps = np.linalg.norm(seen[:, None] - seen[None], axis=-1)[np.triu_indices(len(seen), 1)]
    assert gaps.min() > 0.1  # a difference of 25 of 255 levels in RGB is seen at line width


def test_loss_curve_draws_the_run_and_the_predicted_levels(run):
    ax = plot.loss_curve(run, plateaus=[1.0, 0.5, 0.49], labels=["flow"])
    curve = next(line for line in ax.lines if line.get_label() == "flow")
    assert np.array_equal(curve.get_xdata(), run.t)
    assert np.array_equal(curve.get_ydata(), run.loss)
    dashed = [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == "--"]
    assert dashed == [1.0, 0.5, 0.49]
    figure = plot.finish(ax.figure)
    boxes = [text.get_window_extent() for text in ax.texts]
    assert len(boxes) == 3
    # Letters must not overlap; the box of a formula has a rim of a tenth of its height.
    for k, box in enumerate(boxes):
        for other in boxes[k + 1 :]:
            overlap = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert overlap <= 0.25 * box.height
    assert "\\tau" in ax.get_xlabel()
    figure.savefig(io.BytesIO(), format="png")


def test_log_time_leaves_out_the_start(run):
    ax = plot.loss_curve(run, time="log")
    assert ax.get_xscale() == "log"
    assert ax.lines[0].get_xdata()[0] == run.t[1]


def test_steps_are_laid_over_time(run):
    ax = plot.loss_curve(run, per_step=0.5)
    assert np.array_equal(ax.lines[0].get_xdata(), 0.5 * run.t)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (lambda r: plot.loss_curve(3), "Expected a Solution"),
        (lambda r: plot.loss_curve([]), "non-empty"),
        (lambda r: plot.loss_curve(r, labels=["a", "b"]), "2 labels for 1"),
        (lambda r: plot.loss_curve(r, time="loog"), "linear"),
        (lambda r: plot.loss_curve(Solution(t=r.t, states={})), "no loss"),
        (lambda r: plot.value_weights(r, state="M"), "expected"),
        (lambda r: plot.value_weights(r, state="u"), "u"),
        (lambda r: plot.modes(r, np.eye(3), of="M"), "square"),
        (lambda r: plot.band(r, quantile=0.5), "quantile"),
        (lambda r: plot.agreement([1, 2], [1, 2, 3]), "match"),
        (lambda r: plot.power_law([1, 2], [0, 1]), "positive"),
        (lambda r: plot.panels(width="triple"), "width"),
    ],
)
def test_bad_input_is_named(run, bad, reason):
    with pytest.raises(ok.InputError, match=reason):
        bad(run)


def test_value_weights_and_modes_draw_each_head_and_mode(run):
    ax = plot.value_weights(run, absolute=True)
    assert np.array_equal(ax.lines[1].get_ydata(), np.abs(run["v"][:, 1]))
    turned = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2)
    ax = plot.modes(run, turned, of="M")
    expected = run["v"].mean(axis=1)  # e^T diag(a, b) e for e = (1, 1)/sqrt 2
    assert np.allclose(ax.lines[0].get_ydata(), expected, rtol=0, atol=1e-15)


def test_band_spans_all_seeds():
    t = np.linspace(0.0, 2.0, 21)
    runs = [Solution(t=t, states={}, loss=np.full(21, level)) for level in (1.0, 2.0, 4.0)]
    ax = plot.band(runs, times=t)
    assert np.array_equal(ax.lines[0].get_ydata(), np.full(21, 2.0))
    heights = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == (1.0, 4.0)


def test_power_law_recovers_its_slope():
    x = np.array([1e-3, 1e-2, 1e-1])
    slope, factor = plot.power_law(x, 5 * x**1.5)
    assert slope == pytest.approx(1.5, abs=1e-12)
    assert factor == pytest.approx(5, rel=1e-12)


def test_spread_moves_little_and_keeps_order():
    places = np.array([0.5, 0.51, 0.9, 0.1])
    moved = spread(places, 0.1)
    assert np.array_equal(np.argsort(moved), np.argsort(places))
    assert np.diff(np.sort(moved)).min() >= 0.1 - 1e-12
    assert np.allclose(moved, [0.455, 0.555, 0.9, 0.1], rtol=0, atol=1e-12)
    assert np.array_equal(spread([0.0, 0.5], 0.1), [0.0, 0.5])


def test_a_solution_plots_itself(run):
    figure = run.plot(plateaus=[1.0])
    assert len(figure.axes) == 2
    assert len(figure.axes[1].lines) == 2 + 4  # every entry of v (2,) and M (2, 2)
    assert len(Solution(t=run.t, states={"v": run["v"]}).plot(time="log").axes) == 1


def test_sensitivities_are_drawn_as_shares_with_their_sizes_in_the_legend():
    x, k = sp.symbols("x k", positive=True)
    field = ok.vector_field({x: -k * x}, parameters=(k,), loss=x**2)
    found = ok.sensitivities(field, {"x": 2.0}, np.linspace(0, 3, 31), {"k": 0.7}, to=["k", "x"])
    figure = found.plot()
    lines = [line for line in figure.axes[1].lines if len(line.get_xdata()) == 31]
    for line, expected in zip(lines, found.loss.T, strict=True):
        np.testing.assert_allclose(line.get_ydata(), expected / np.abs(expected).max())
    texts = [text.get_text() for text in figure.axes[1].get_legend().get_texts()]
    assert texts[1] == "x: 4"
    with pytest.raises(ok.InputError, match="direction"):
        found.plot(directions=["kk"])
