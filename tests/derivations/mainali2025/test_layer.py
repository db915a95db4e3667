"""The p, q layer's modes: proved by the engine, and against integration."""

from __future__ import annotations

import numpy as np
import pytest
from odekit_derivations.mainali2025 import layer
from odekit_derivations.mainali2025.conservation import unbalanced_product
from odekit_derivations.mainali2025.mode_equations import (
    half_height,
    layer_optimum,
    layer_rates,
    published_loss,
    published_product,
    stretched,
)
from scipy.integrate import solve_ivp

SPECTRUM = np.array([1.0, 0.5, 0.25, 0.125])


@pytest.mark.parametrize("law", layer.LAWS)
def test_the_zero_blocks_have_zero_expected_gradient(law: str) -> None:
    differences = layer.zero_blocks(law)
    assert set(differences) == {"dp1/dt at p1 = q2 = 0", "dq2/dt at p1 = q2 = 0"}
    assert all(d.is_zero for d in differences.values())


@pytest.mark.parametrize("law", ["scalar", "diagonal"])
def test_the_layer_keeps_the_diagonal_with_its_own_rates(law: str) -> None:
    assert all(d.is_zero for d in layer.diagonal_modes(law).values())


def test_independent_task_entries_share_one_p() -> None:
    assert all(d.is_zero for d in layer.shared_scale().values())


@pytest.mark.parametrize("context", [1, 2, 3, 10, 100])
def test_the_closed_fixed_point_is_where_the_flow_ends(context: int) -> None:
    def rates(_: float, y: np.ndarray) -> np.ndarray:
        return np.concatenate(layer_rates(y[:4], y[4:], SPECTRUM, context))

    # The slowest rate near the end is of order s^2 / N: 1e5 time units leave nothing of it.
    run = solve_ivp(rates, (0, 2e5), np.full(8, 0.1), method="LSODA", rtol=1e-10, atol=1e-14)
    end = run.y[:4, -1] * run.y[4:, -1]
    np.testing.assert_allclose(end, layer_optimum(SPECTRUM, context), rtol=1e-7, atol=1e-7)


def test_both_equations_agree_in_one_dimension_and_for_long_contexts() -> None:
    def published_rate(p, q, s, context):
        return s**2 * q * (1 - p * q * stretched(s, context))

    one = np.array([0.7])
    np.testing.assert_allclose(
        layer_rates([0.3], [0.4], one, 5)[0], published_rate(0.3, 0.4, one, 5), rtol=1e-14
    )
    p, q = np.array([0.3, 0.2, 0.5, 0.1]), np.array([0.1, 0.6, 0.2, 0.4])
    gaps = [
        np.abs(layer_rates(p, q, SPECTRUM, n)[0] - published_rate(p, q, SPECTRUM, n)).max()
        for n in (10, 1000)
    ]
    assert gaps[0] > 1e-3
    assert gaps[1] == pytest.approx(gaps[0] / 100, rel=1e-12)  # exactly of order 1/N


def test_logistic_solves_the_balanced_mode_and_halves_where_it_says() -> None:
    t = np.linspace(0, 40, 9)
    a = published_product(t, SPECTRUM, 10, 1e-3)
    step = 1e-5
    slope = (
        published_product(t + step, SPECTRUM, 10, 1e-3)
        - published_product(t - step, SPECTRUM, 10, 1e-3)
    ) / (2 * step)
    wanted = 2 * SPECTRUM**2 * a * (1 - stretched(SPECTRUM, 10) * a)
    # Central differences: step^2 times the third derivative (below 8 s^6 a) and rounding / step.
    np.testing.assert_allclose(slope, wanted, rtol=1e-7, atol=1e-9)
    middle = half_height(SPECTRUM, 10, 1e-3)
    halves = np.diagonal(published_product(middle, SPECTRUM, 10, 1e-3))
    np.testing.assert_allclose(halves, 0.5 / stretched(SPECTRUM, 10), rtol=1e-12)
    assert np.all(np.isfinite(published_product([1e6], SPECTRUM, 10, 1e-3)))


@pytest.mark.parametrize("ratio", [1.0, 2.0, 100.0, 1e4])
def test_unbalanced_closed_form_against_integration(ratio: float) -> None:
    s, s_inf, p0, q0 = 0.5, 0.6, np.sqrt(1e-4 * ratio), np.sqrt(1e-4 / ratio)

    def rates(_: float, y: np.ndarray) -> np.ndarray:
        pull = s**2 * (1 - s_inf * y[0] * y[1])
        return np.array([y[1] * pull, y[0] * pull])

    t = np.linspace(0, 60, 31)
    run = solve_ivp(rates, (0, 60), [p0, q0], t_eval=t, method="DOP853", rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(
        unbalanced_product(t, s, s_inf, p0, q0), run.y[0] * run.y[1], rtol=1e-9
    )


def test_the_corrected_loss_is_least_at_the_fixed_point_and_the_noted_one_is_not() -> None:
    end = 1 / stretched(SPECTRUM, 10)
    best = published_loss(end, SPECTRUM, 10)
    for step in (0.99, 1.01):
        assert published_loss(step * end, SPECTRUM, 10) > best

    def noted(a):
        return 0.5 * np.sum(SPECTRUM * (SPECTRUM * end * a**2 - 2 * SPECTRUM * a + 1))

    assert min(noted(0.99 * end), noted(1.01 * end)) < noted(end)
