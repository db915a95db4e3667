"""Sums of rows, whatever the length of a row."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from odekit.integrate.compiled.combine import combine, subtract


@njit
def both(work, y, h):
    combine(work, 3, y, (0.1 * h, 0.2 * h, 0.3 * h), (0, 2, 1))
    combine(work, 4, None, (0.1 * h, 0.2 * h, 0.3 * h), (0, 2, 1))


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 36, 37])
def test_sums_of_rows_are_right_to_rounding(n: int) -> None:
    rng = np.random.default_rng(n)
    work, y = rng.normal(size=(5, n)), rng.normal(size=n)
    both(work, y, 0.7)
    parts = [0.07 * work[0], 0.14 * work[2], 0.21 * work[1]]
    # Three products and three sums, each rounded at most once.
    scale = 3 * np.finfo(float).eps * (np.abs(y) + sum(map(np.abs, parts)))
    assert np.all(np.abs(work[3] - (y + sum(parts))) <= scale)
    assert np.all(np.abs(work[4] - sum(parts)) <= scale)


def test_equal_entries_stay_equal_at_every_place() -> None:
    # An invariant set such as p = q must not be left by rounding: vectors and rests agree.
    rng = np.random.default_rng(0)
    work = np.repeat(rng.normal(size=(5, 1)), 39, axis=1)
    both(work, np.full(39, 0.3), 0.7)
    assert np.all(work[3] == work[3, 0])
    assert np.all(work[4] == work[4, 0])


@njit
def less(target, x, source, low, high):
    subtract(target, x, source, low, high)


@pytest.mark.parametrize(("low", "high"), [(0, 0), (0, 1), (3, 20), (1, 23), (22, 23)])
def test_a_multiple_is_taken_off_between_two_places_only(low: int, high: int) -> None:
    rng = np.random.default_rng(high)
    target, source = rng.normal(size=23), rng.normal(size=23)
    expected = target.copy()
    expected[low:high] -= 0.3 * source[low:high]
    less(target, 0.3, source, low, high)
    assert np.array_equal(target, expected)
