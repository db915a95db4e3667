"""The numbers drawn, in quick mode, against theory."""

import importlib
import io

import numpy as np
import pytest
from odekit_derivations.zhang2025 import TARGETS, separate

import odekit as ok
from odekit.reproduce import Picture
from odekit.reproduce.files import plain


@pytest.fixture(scope="module")
def drawn():
    made = {}

    def draw(name):
        if name not in made:
            target = next(t for t in TARGETS if t.name == f"zhang2025/{name}")
            module = importlib.import_module(target.module)
            made[name] = module.draw(quick=True, progress=lambda message: None)
        return made[name]

    return draw


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_target_draws_a_labelled_picture(drawn, target):
    picture = drawn(target.name.partition("/")[2])
    assert isinstance(picture, Picture)
    assert picture.caption
    assert picture.equations
    assert "meta" not in picture.numbers
    plain(picture.numbers)  # strict JSON holds it
    for ax in picture.figure.axes:
        assert ax.get_xlabel()
        assert ax.get_ylabel()
    picture.figure.savefig(io.BytesIO(), format="svg")


def test_fig1_four_ways_give_one_curve(drawn):
    one = drawn("fig1").numbers["one curve"]
    # Two float64 programs of one iteration: rounding times some thousand steps.
    assert one["largest gap, attention GD to network GD"] < 1e-11
    # At lr = 0.05 the error of the step is lr times that of panel (d), about 0.4 lr.
    assert one["largest gap, attention GD to the set's flow"] < 0.05
    # Escape takes ln(1/start)/rate: a set that escapes faster drops earlier, in that proportion.
    rates, drops = one["escape rates"], one["half-drop times"]
    ratio = rates["population"] / rates["training set"]
    assert drops["training set"] / drops["population"] == pytest.approx(ratio, rel=0.05)


def test_fig1_white_runs_follow_the_closed_form(drawn):
    gaps = drawn("fig1").numbers["white"]["largest gap to the closed form, of its end value"]
    assert gaps["balanced, aligned"] < 1e-6  # the solver's error
    assert gaps["generic"] < 1e-3  # first order in the start, 1e-3
    assert gaps["generic, with sum v^2"] > 0.1  # the notes' w_init misses the drop


def test_fig1_descent_approaches_the_flow_in_proportion_to_its_rate(drawn):
    rates = drawn("fig1").numbers["learning rates"]
    # The next order is lr times the escape rate, 2 percent at the rates of the quick picture.
    assert rates["slope"] == pytest.approx(1.0, abs=0.02)
    assert np.all(np.diff(rates["largest gaps"]) < 0)


def test_fig3_plateaus_are_at_the_predicted_levels(drawn):
    numbers = drawn("fig3").numbers
    predicted = ok.theory.plateau_losses([0.4, 0.3, 0.2, 0.1], 31)
    assert all(row["count"] == 4 for row in numbers["drops"])
    seen = {(r["heads"], r["seed"], r["level"]) for r in numbers["plateaus"]}
    assert seen == {(h, s, m) for h in (4, 5) for s in range(6) for m in range(5)}
    for row in numbers["plateaus"]:
        assert row["predicted"] == predicted[row["level"]]
        assert abs(row["measured"] - row["predicted"]) < 3e-3
    assert all(abs(row["gap"]) < 1e-6 for row in numbers["end loss minus predicted"])


def test_fig3_heads_follow_the_scalar_equation(drawn):
    heads = drawn("fig3").numbers["heads against the scalar equation"]["plateaus"]
    assert [row["mode"] for row in heads] == [1, 2, 3, 4]
    for row in heads:
        # Cosine .99: a share 1 - .99^3 of the head is not on its eigenvector yet.
        rise = row["half-rise, run"] - row["start time"]
        wanted = row["half-rise, scalar equation"] - row["start time"]
        assert wanted == pytest.approx(rise, rel=0.03)
        # The other heads are of the size of the start, 0.01.
        assert row["end, scalar equation"] == pytest.approx(row["end, run"], rel=1e-3)


@pytest.mark.slow
def test_fig3_levels_come_closer_as_the_start_shrinks():
    from odekit_derivations.zhang2025 import fig3

    predicted = ok.theory.plateau_losses(fig3.SPECTRUM, fig3.CONTEXT)
    for heads in fig3.HEADS:
        for seed in fig3.SEEDS:
            gaps = []
            for scale in (0.03, 0.01, 0.003, 0.001):
                levels = fig3.integrate(heads, seed, scale).stairs.levels
                gaps.append(np.abs(levels - predicted).max())
            assert np.all(np.diff(gaps) < 0)
            # The weights that are not learned enter the loss with their third power.
            assert np.log10(gaps[1] / gaps[3]) / 1.0 > 1.5


def test_fig4_long_plateaus_are_the_multiples_of_the_rank(drawn):
    numbers = drawn("fig4").numbers
    for row in numbers["long plateaus"]:
        if row["rank"] > 2:
            assert row["long"] == row["expected"]
        else:  # one seed: two heads that escape together merge a plateau
            assert set(row["long"]) <= set(row["expected"])
            assert len(row["long"]) >= len(row["expected"]) - 1
    growth = numbers["growth of the length as 1/scale to the power"]
    assert growth["8"][0] == pytest.approx(1.0, abs=0.1)
    # A logarithm, between two scales a factor 4 apart.
    assert max(g for g in growth["8"][1:] if g is not None) < 0.5


def test_fig4_counts_fall_with_the_threshold(drawn):
    numbers = drawn("fig4").numbers
    for kind in ("count by length", "count by depth"):
        for name, counts in numbers[kind].items():
            if name.startswith("rank"):
                assert np.all(np.diff(counts) <= 0)


def test_fig6_goes_from_plateau_to_decay(drawn):
    numbers = drawn("fig6").numbers
    widths = [row["time from 90 to 50 percent, in half-lives"] for row in numbers["merged, drop"]]
    # An exponential takes 1 - ln(1/.9)/ln 2 = .848 of its half-life from 90 to 50 percent.
    assert widths[0] < 0.5
    assert widths[-1] > 0.8


def test_fig6_only_paired_heads_become_lazy(drawn):
    lazy = drawn("fig6").numbers["lazy"]
    for name in ("merged", "separate"):
        paired, independent = lazy[f"{name}, paired"], lazy[f"{name}, independent"]
        assert paired[-1] < 0.02 * paired[0]
        assert independent[-1] > 0.5 * independent[0]


def test_pcr_learned_matrix_and_predictions(drawn):
    numbers = drawn("pcr").numbers
    for row in numbers["A against the sum over learned eigenvectors"]:
        # The loss is quadratic about A_m and agrees to 1e-4 there, so A does to its root.
        assert row["gap"] < 2e-2
    for m in (1, 2, 3, 4):
        rows = [r for r in numbers["tests"] if r["components"] == m]
        near, far = rows[0]["relative difference"], rows[-1]["relative difference"]
        # N^(-1/2) from 31 to 2000 is a factor 8; eigenvectors of short contexts mix, so less.
        assert near / far > 4


def test_regression_recovers_the_task_without_noise():
    from odekit_derivations.zhang2025 import pcr

    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 20, 3)), rng.standard_normal((5, 3))
    queries = rng.standard_normal((5, 3))
    y = np.einsum("pni,pi->pn", x, w)
    fitted = pcr.regression(x, y, queries, components=3)
    # Least squares without noise: condition numbers of 20 x 3 Gaussians stay below 100.
    assert np.allclose(fitted, np.einsum("pi,pi->p", w, queries), rtol=1e-11, atol=1e-11)


def test_saddle_of_all_modes_is_the_optimum():
    from odekit_derivations.zhang2025 import merged, pcr

    whole = separate.saddle(pcr.VECTORS, pcr.SPECTRUM, 31, range(4))
    assert np.allclose(whole, merged.optimum(pcr.COVARIANCE, 31), rtol=0, atol=1e-12)
