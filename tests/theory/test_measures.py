"""Effective rank and subspace distance on matrices that were worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from odekit.errors import InputError
from odekit.theory import (
    MeasureWarning,
    effective_rank,
    random_subspace_distance,
    subspace_distance,
)

EXACT = 1e-12


def rotation(angle):
    return np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])


# --- effective rank


def test_equal_singular_values_count_one_each():
    assert effective_rank(np.eye(5)) == pytest.approx(5, abs=EXACT)
    assert effective_rank(-3 * np.eye(4, 7)) == pytest.approx(4, abs=EXACT)
    assert effective_rank(np.eye(7, 3)) == pytest.approx(3, abs=EXACT)


def test_two_singular_values_by_hand():
    # shares 3/4 and 1/4: entropy 2 ln 2 - (3/4) ln 3, so 4 / 3^(3/4)
    matrix = rotation(0.3) @ np.diag([3.0, 1.0]) @ rotation(1.1)
    assert effective_rank(matrix) == pytest.approx(4 / 3**0.75, abs=EXACT)
    assert effective_rank(1e-200 * matrix) == pytest.approx(4 / 3**0.75, abs=EXACT)


def test_rank_one_has_effective_rank_one_and_nothing_after_it():
    rng = np.random.default_rng(0)
    matrix = np.outer(rng.standard_normal(9), rng.standard_normal(6))
    assert effective_rank(matrix) == pytest.approx(1, abs=EXACT)
    with pytest.warns(MeasureWarning, match="skip=1"):
        assert effective_rank(matrix, skip=1) == 0.0


def test_marginal_rank_leaves_out_the_leading_values():
    matrix = np.diag([100.0, 3.0, 1.0])
    assert effective_rank(matrix, skip=1) == pytest.approx(4 / 3**0.75, abs=EXACT)
    assert effective_rank(matrix, skip=2) == pytest.approx(1, abs=EXACT)


def test_zero_matrix_is_zero_with_a_warning():
    with pytest.warns(MeasureWarning, match="effective_rank"):
        assert effective_rank(np.zeros((3, 2))) == 0.0


def test_stack_of_checkpoints():
    stack = np.stack([np.eye(3), np.diag([3.0, 1.0, 0.0]), np.diag([1.0, 0.0, 0.0])])
    np.testing.assert_allclose(effective_rank(stack), [3, 4 / 3**0.75, 1], atol=EXACT)


def test_float32_rounding_does_not_count_as_rank():
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, 2, 40)).astype(np.float32)
    product = q.T @ k
    exact = q.T.astype(float) @ k.astype(float)
    with pytest.warns(MeasureWarning, match="skip=2"):
        assert effective_rank(product, skip=2) == 0.0
    # factors are multiplied in float64: the same digits as the exact product
    assert effective_rank((q.T, k)) == pytest.approx(effective_rank(exact), abs=EXACT)
    with pytest.warns(MeasureWarning):
        assert subspace_distance(product, np.eye(40), rank=3) == pytest.approx(
            random_subspace_distance(2, 40), abs=1e-6
        )


def test_marginal_curves_dip_when_the_next_mode_is_learned():
    # Mode k grows as a' = 2 s^2 a (1 - s c a), c = 1 + (1 + tr/s)/N, from a(0) = 1e-4; half-heights
    # and deepest dips were found independently, to two decimals.
    s, context, start = np.array([1.0, 0.5, 0.25, 0.125]), 100, 1e-4
    final = 1 / (s * (1 + (1 + s.sum() / s) / context))
    half = np.log(final / start - 1) / (2 * s**2)
    np.testing.assert_allclose(half[:3], [4.59, 19.71, 84.12], atol=0.005)
    times = np.arange(0.0, 150.0, 0.002)
    decayed = (final / start - 1) * np.exp(-2 * np.outer(times, s**2))
    modes = final / (1 + decayed)
    for skip, dip in enumerate((5.28, 19.79, 75.91)):
        curve = effective_rank(modes[:, :, None] * np.eye(4), skip=skip)
        assert times[np.argmin(curve)] == pytest.approx(dip, abs=0.0075)


# --- subspace distance


def test_residual_of_a_turned_line_is_the_sine():
    angle = 0.7
    line = np.array([[np.cos(angle), np.sin(angle)]])
    reference = np.array([[2.0, 0.0]])
    assert subspace_distance(line, reference) == pytest.approx(np.sin(angle), abs=EXACT)
    absolute = subspace_distance(line, reference, relative=False)
    assert absolute == pytest.approx(2 * np.sin(angle), abs=EXACT)
    projector = subspace_distance(line, reference, kind="projector", relative=False)
    assert projector == pytest.approx(np.sqrt(2) * np.sin(angle), abs=EXACT)
    assert subspace_distance(line, reference, kind="projector") == pytest.approx(
        np.sin(angle), abs=EXACT
    )
    assert subspace_distance(line, reference, kind="angle", relative=False) == pytest.approx(
        angle, abs=EXACT
    )
    assert subspace_distance(line, reference, kind="angle") == pytest.approx(
        angle / (np.pi / 2), abs=EXACT
    )


@pytest.mark.parametrize("angle", [1e-10, 1e-5, np.pi / 2 - 1e-10])
def test_small_and_right_angles_keep_their_digits(angle):
    line = np.array([[np.cos(angle), np.sin(angle)]])
    got = subspace_distance(line, np.array([[1.0, 0.0]]), kind="angle", relative=False)
    assert got == pytest.approx(angle, abs=1e-15)


def test_residual_is_the_least_squares_residual_on_both_sides():
    rng = np.random.default_rng(2)
    matrix, reference = rng.standard_normal((2, 3, 8)), rng.standard_normal((5, 8))
    fit = np.linalg.lstsq(matrix[0].T, reference.T, rcond=None)[0]
    expected = np.linalg.norm(reference - fit.T @ matrix[0])
    got = subspace_distance(matrix, reference, relative=False)
    assert got.shape == (2,)
    assert got[0] == pytest.approx(expected, abs=EXACT)
    transposed = subspace_distance(
        np.swapaxes(matrix, 1, 2), reference.T, side="column", relative=False
    )
    np.testing.assert_allclose(transposed, got, atol=EXACT)


def test_rank_and_energy_truncation():
    matrix = np.diag([3.0, 2.0, 1.0])[:, :3]
    reference = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert subspace_distance(matrix, reference, rank=1) == pytest.approx(1, abs=EXACT)
    assert subspace_distance(matrix, reference, rank=2) == pytest.approx(np.sqrt(0.5), abs=EXACT)
    # squared values 9, 4, 1: 9/14 = .643 and 13/14 = .929
    assert subspace_distance(matrix, reference, rank=0.64) == pytest.approx(1, abs=EXACT)
    assert subspace_distance(matrix, reference, rank=0.92) == pytest.approx(np.sqrt(0.5), abs=EXACT)


def test_truncated_kinds_cut_the_reference_too():
    matrix, reference = np.diag([2.0, 1.0, 0.5]), np.diag([1.0, 3.0, 0.5])
    # span(e1) against span(e2), then span(e1, e2) against itself
    assert subspace_distance(matrix, reference, rank=1, kind="projector") == pytest.approx(1)
    assert subspace_distance(matrix, reference, rank=1, kind="angle") == pytest.approx(1)
    assert subspace_distance(matrix, reference, rank=2, kind="projector") < EXACT
    assert subspace_distance(matrix, reference, rank=2, kind="angle") < EXACT


def test_full_rank_says_nothing():
    with pytest.warns(MeasureWarning, match="whole row space"):
        assert subspace_distance(np.eye(3), np.ones((2, 3))) == pytest.approx(0, abs=EXACT)
    tall = np.vstack([np.eye(3), np.ones((2, 3))])
    with pytest.warns(MeasureWarning, match="whole row space"):
        subspace_distance(tall, np.ones((2, 3)))
    # its column space is not everything, and says something
    assert subspace_distance(tall, np.ones((5, 1)), side="column") > 0.1


def test_zero_matrices():
    with pytest.warns(MeasureWarning, match="M is zero"):
        assert subspace_distance(np.zeros((2, 3)), np.ones((1, 3))) == 1.0
    with pytest.warns(MeasureWarning, match="reference is zero"):
        assert np.isnan(subspace_distance(np.ones((1, 3)), np.zeros((1, 3))))
    with pytest.warns(MeasureWarning, match="is zero"):
        assert np.isnan(subspace_distance(np.zeros((1, 3)), np.ones((1, 3)), kind="angle"))


def test_cut_between_equal_values_is_arbitrary():
    with pytest.warns(MeasureWarning, match="arbitrary"):
        subspace_distance(np.eye(3), np.ones((1, 3)), rank=1)


def test_random_baseline_is_the_mean_square_residual_of_random_subspaces():
    rng = np.random.default_rng(3)
    stack, reference = rng.standard_normal((4000, 3, 10)), rng.standard_normal((2, 10))
    squared = subspace_distance(stack, reference) ** 2
    error = squared.std() / np.sqrt(len(squared))
    assert abs(squared.mean() - random_subspace_distance(3, 10) ** 2) < 4 * error
    assert random_subspace_distance(10, 10) == 0.0
    np.testing.assert_allclose(random_subspace_distance([0, 6], 8), [1, 0.5], atol=EXACT)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: effective_rank(np.ones(3)), "shape"),
        (lambda: effective_rank(np.array([[np.nan]])), "finite"),
        (lambda: effective_rank(np.eye(2), skip=-1), "skip"),
        (lambda: effective_rank((np.eye(2), np.eye(3))), "chain"),
        (lambda: effective_rank(np.eye(2) * 1j), "real"),
        (lambda: subspace_distance(np.eye(2), np.eye(3)), "columns"),
        (lambda: subspace_distance(np.eye(2), np.eye(3), side="column"), "rows"),
        (lambda: subspace_distance(np.eye(2), np.eye(2), side="left"), "side"),
        (lambda: subspace_distance(np.eye(2), np.eye(2), kind="cosine"), "kind"),
        (lambda: subspace_distance(np.eye(2), np.eye(2), rank=3), "rank"),
        (lambda: subspace_distance(np.eye(2), np.eye(2), rank=1.5), "rank"),
        (lambda: random_subspace_distance(3, 2), "rank"),
    ],
)
def test_bad_input_is_named(call, named):
    with pytest.raises(InputError, match=named):
        call()
