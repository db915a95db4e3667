"""Plateau levels of linear attention."""

from __future__ import annotations

import numpy as np
import pytest

from odekit.errors import InputError
from odekit.theory import plateau_losses


def published(spectrum, context):
    spectrum = sorted(spectrum, reverse=True)
    trace = sum(spectrum)
    levels = [trace]
    for value in spectrum:
        levels.append(levels[-1] - value / (1 + (1 + trace / value) / context))
    return np.array(levels)


def test_published_levels_of_the_four_dimensional_spectrum():
    expected = [1, 0.640580, 0.377372, 0.209805, 0.135995]
    # six decimals are quoted, hence half a unit of the sixth
    np.testing.assert_allclose(plateau_losses([0.1, 0.3, 0.4, 0.2], 31), expected, atol=5e-7)


def test_published_levels_of_the_eight_dimensional_spectrum():
    expected = [1, 0.8113, 0.649, 0.513, 0.4032, 0.3192, 0.2605, 0.226, 0.2133]
    np.testing.assert_allclose(plateau_losses(np.arange(1, 9) / 36, 31), expected, atol=5e-5)


@pytest.mark.parametrize("context", [1, 2.5, 31, 1e6])
def test_agrees_with_the_formula_as_printed(context):
    spectrum = [3.0, 0.02, 0.5, 1.0, 0.5]
    # cancellation in the printed form loses at most a few units of the trace's last digit
    np.testing.assert_allclose(
        plateau_losses(spectrum, context), published(spectrum, context), atol=1e-14 * 5.02
    )


def test_endless_context_learns_each_direction_without_error():
    np.testing.assert_allclose(plateau_losses([4, 1, 2], np.inf), [7, 3, 1, 0], rtol=1e-15)


def test_long_context_keeps_its_digits():
    # lambda (lambda + T) / N to first order: the printed form would return 0 or noise here
    assert plateau_losses([1.0, 1.0], 1e20)[-1] == pytest.approx(6e-20, rel=1e-12)


def test_directions_without_variance_add_nothing():
    levels = plateau_losses([1.0, 0.0, 0.0], 10)
    assert levels[1] == levels[2] == levels[3]
    assert np.array_equal(plateau_losses([0.0, 0.0], 10), np.zeros(3))


@pytest.mark.parametrize(
    ("spectrum", "context", "named"),
    [
        ([1.0, -0.1], 10, "spectrum"),
        ([1.0, np.nan], 10, "spectrum"),
        (np.eye(2), 10, "eigvalsh"),
        ([], 10, "spectrum"),
        ([1.0], 0, "context"),
        ([1.0], np.nan, "context"),
    ],
)
def test_bad_input_is_named(spectrum, context, named):
    with pytest.raises(InputError, match=named):
        plateau_losses(spectrum, context)
