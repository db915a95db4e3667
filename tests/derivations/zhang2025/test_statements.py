"""Every step of the derivation holds, and its formulas agree with oracles of their own."""

import re
from pathlib import Path

import numpy as np
import pytest
from odekit_derivations.zhang2025 import lazy, merged, plateaus, separate, staircase, statement
from odekit_derivations.zhang2025.steps import STEPS

import odekit as ok

SPECTRUM = np.array([0.4, 0.3, 0.2, 0.1])


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_step_holds(step):
    made = step()
    failed = [check for check in made.checks if not check.passes]
    assert made.checks
    assert not failed, failed
    assert made.holds
    assert made.says and made.equations


def test_a_wrong_statement_does_not_hold():
    D = ok.dims("D")
    L = ok.parameter("L", (D, D), symmetric=True)
    square = ok.einsum("ij,jk->ik", L, L)
    assert statement.identical("right", square, square).passes
    assert not statement.identical("wrong", square, 2 * square).passes
    wrong = statement.Statement("0", "wrong", checks=(statement.Check("gap", 1.0, 0.5),))
    assert not wrong.holds
    assert not statement.Statement("0", "unchecked").holds


def test_readme_lists_every_statement_once():
    text = (Path(__file__).parents[3] / "derivations" / "README.md").read_text()
    numbers = re.findall(r"^\| (\d+) \|", text, re.MULTILINE)
    assert numbers == [str(n + 1) for n in range(len(STEPS))]
    for step in STEPS:
        assert f"{step.__module__.rpartition('.')[2]}.{step.__name__}" in text


def test_saddle_losses_are_the_known_numbers():
    # Published levels of figure 3, to the digits given.
    known = [1, 0.640580, 0.377372, 0.209805, 0.135995]
    L = np.diag(SPECTRUM)
    B = L @ ((1 + 1 / 31) * L + np.eye(4) / 31)
    for m, level in enumerate(known):
        A = separate.saddle(np.eye(4), SPECTRUM, 31, range(m))
        loss = np.trace(L) - 2 * np.trace(L @ A @ L) + np.trace(B @ A @ L @ A.T)
        assert loss == pytest.approx(level, abs=5e-7)


def test_plateau_time_is_the_time_of_the_scalar_equation():
    lam, trace, context, v0 = 0.3, 1.0, 31, 0.02
    c = float(separate.shortfall(lam, trace, context))
    top = 1 / np.cbrt(lam * c)
    values = np.array([0.05, 0.5 * top, 0.9 * top, 0.99 * top])
    times = plateaus.plateau_time(values, v0, lam, c)
    run = ok.solve(
        ok.models.plateau().flow,
        {"v": v0},
        times,
        {"lambda": lam, "trace": trace, "N": context},
    )
    # The solver's 1e-6, at the steepest point of the rise as everywhere.
    assert np.allclose(run["v"], values, rtol=1e-6)


def test_sigmoid_starts_ends_and_rises_where_it_should():
    dim, context, start = 4, 31, 1e-5
    c = 1 + (1 + dim) / context
    half = merged.half_rise(dim, context, start)
    got = merged.sigmoid([0.0, half, 1e3], dim, context, start)
    assert np.allclose(got, [start / 2.0, 0.5 / c, 1 / c], rtol=1e-12)


def test_growing_mode_of_a_balanced_start_is_its_value_norm():
    y0 = merged.balanced_start([0.1, -0.2], 3)
    assert merged.growing_mode(y0) == pytest.approx(merged.value_norm(y0), rel=1e-14)


def test_kernel_is_the_product_of_the_jacobians():
    rng = np.random.default_rng(0)
    shapes = {"v": (3,), "K": (3, 2, 2), "Q": (3, 2, 2)}
    merged_shapes = {"v": (3,), "U": (3, 2, 2)}
    for chosen in (shapes, merged_shapes):
        state = {name: rng.standard_normal(shape) for name, shape in chosen.items()}
        columns = []
        for name, value in state.items():
            for place in np.ndindex(value.shape):
                moved = {key: array.copy() for key, array in state.items()}
                moved[name][place] += 1.0
                # A is linear in each single weight: a difference of size one is its derivative.
                columns.append((lazy.matrix(moved) - lazy.matrix(state)).reshape(-1))
        jacobian = np.array(columns).T
        assert np.allclose(lazy.kernel(state), jacobian @ jacobian.T, rtol=1e-12, atol=1e-12)


def test_lazy_excess_starts_at_the_loss_and_ends_at_zero():
    model = ok.models.attention_merged(heads=8, dim=4)
    y0 = ok.simulate.initial(model, 1.0, 0)
    excess = lazy.lazy_excess(y0, np.diag(SPECTRUM), 31, [0.0, 1e6])
    floor = ok.theory.plateau_losses(SPECTRUM, 31)[-1]
    loss = model.flow.loss_value(y0, {"Lambda": np.diag(SPECTRUM), "N": 31})
    assert excess[0] == pytest.approx(loss - floor, rel=1e-12)
    assert excess[1] < 1e-12 * excess[0]


def test_paired_heads_cancel():
    model = ok.models.attention_separate(heads=4, rank=2, dim=3)
    y0 = lazy.paired(ok.simulate.initial(model, 1.0, 0))
    # Rounding of sums of four products of entries below 0.3.
    assert np.abs(lazy.matrix(y0)).max() < 1e-16


def stairs(levels, drops, width, depth):
    """A curve with sigmoid drops and a known, shallow slope between them."""
    t = np.linspace(0.0, drops[-1] + 40 * width, 20001)
    loss = np.full_like(t, levels[0])
    fall = np.full_like(t, 10.0 ** (-depth))
    for before, after, at in zip(levels[:-1], levels[1:], drops, strict=True):
        rise = 1 / (1 + np.exp(-np.clip((t - at) / width, -500, 500)))
        loss -= (before - after) * rise
        fall += (before - after) / width * rise * (1 - rise)
    return t, loss, fall


def test_staircase_reads_what_was_drawn():
    levels, drops = [1.0, 0.6, 0.35, 0.1], [10.0, 30.0, 60.0]
    t, loss, fall = stairs(levels, drops, 0.2, 8)
    read = staircase.staircase_of(t, loss, fall, depth=1.0, least=1e-2)
    # The tails of the sigmoids next to a plateau have decayed by exp(-50) at its middle.
    assert np.allclose(read.levels, levels, rtol=0, atol=1e-12)
    assert np.allclose(read.drops, drops, rtol=0, atol=t[1])
    assert np.allclose(read.lengths, np.diff([0.0, *drops]), rtol=0, atol=2 * t[1])


def test_staircase_takes_no_ripple_at_rest_for_a_drop():
    t, loss, fall = stairs([1.0, 0.2], [10.0], 0.2, 12)
    ripple = fall * np.where(t > 14, 10 ** (2 * np.sin(3 * t)), 1.0)
    read = staircase.staircase_of(t, loss, ripple, depth=1.0, least=1e-2)
    assert len(read.drops) == 1
    assert read.levels[-1] == pytest.approx(0.2, abs=1e-6)


def test_staircase_without_drops_is_one_plateau():
    t = np.linspace(0, 1, 50)
    read = staircase.staircase_of(t, np.ones(50), np.full(50, 1e-9), depth=1.0, least=1e-2)
    assert len(read.levels) == 1
    assert len(read.drops) == 0
