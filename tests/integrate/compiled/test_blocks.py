"""Rodas5P on components: structure found, agreement with the whole system, statuses."""

from __future__ import annotations

import numpy as np
import pytest

from odekit.integrate.compiled.components import block_classes, find_components
from odekit.integrate.compiled.run import Run, solve_blocks
from odekit.integrate.compiled.slots import Code

from .fields import (
    decay,
    decay_jacobian,
    modes,
    modes_jacobian,
    modes_pattern,
    modes_values,
    square,
)


def test_components_of_a_shuffled_pattern() -> None:
    rng = np.random.default_rng(3)
    place = rng.permutation(60)
    label = np.sort(rng.integers(0, 12, size=60))
    rows, cols = [], []
    for k in range(12):
        inside = place[np.flatnonzero(label == k)]
        # A chain connects the component with as few entries as possible, in one direction only.
        rows += list(inside[:-1])
        cols += list(inside[1:])
    found = find_components(60, np.array(rows), np.array(cols))
    for k in range(12):
        inside = place[np.flatnonzero(label == k)]
        assert set(found[inside]) <= {inside.min()}


def test_classes_name_every_entry_once() -> None:
    rows = np.array([0, 0, 1, 1, 2, 3, 4, 3])
    cols = np.array([0, 1, 0, 1, 2, 4, 3, 3])
    classes = block_classes(6, rows, cols)
    assert [c.members.shape for c in classes] == [(1, 2), (2, 2)]
    assert sorted(np.concatenate([c.members.ravel() for c in classes])) == list(range(6))
    two = classes[1]
    for z in range(2):
        for i in range(2):
            for j in range(2):
                e = two.entries[i, j, z]
                pair = (two.members[i, z], two.members[j, z])
                assert (e == -1 and pair not in set(zip(rows, cols, strict=True))) or (
                    rows[e], cols[e]
                ) == pair  # fmt: skip


@pytest.mark.parametrize("by_values", [True, False])
@pytest.mark.parametrize("shuffled", [False, True])
def test_blocks_agree_with_the_whole(by_values: bool, shuffled: bool) -> None:
    m = 12
    s = np.logspace(0, -3, m)
    p = np.concatenate([s, 1 + 1 / s])
    y0 = 1e-2 * np.concatenate([1 + 0.1 * np.arange(m), 1.3 - 0.05 * np.arange(m)])
    times = np.concatenate([[0.0], np.logspace(0, 7, 30)])
    rows, cols = modes_pattern(m)
    # Lanes in another order than in memory must not matter.
    classes = block_classes(2 * m, rows, cols)
    if shuffled:
        order = np.random.default_rng(0).permutation(m)
        classes = tuple(
            type(c)(
                np.ascontiguousarray(c.members[:, order]),
                np.ascontiguousarray(c.entries[:, :, order]),
            )
            for c in classes
        )
    result = solve_blocks(
        modes, classes, p, 0.0, y0, 1e7, rtol=1e-8, atol=1e-11, t_out=times,
        values=modes_values if by_values else None, nonzeros=4 * m, jacobian=modes_jacobian,
    )  # fmt: skip
    whole = Run(
        "Rodas5P", modes, p, 0.0, y0, 1e7, rtol=1e-9, atol=1e-12, t_out=times,
        jacobian=modes_jacobian, autonomous=True,
    )  # fmt: skip
    assert result.code == whole.advance() == Code.DONE
    assert result.filled == times.size
    assert result.stats["components"] == m
    # Both tolerances are local; the drop in between amplifies them by the growth it takes off from.
    np.testing.assert_allclose(result.y_out, whole.y_out, rtol=3e-6, atol=1e-9)
    # Ten times the looser tolerance: the end lies on a manifold along which errors stay.
    np.testing.assert_allclose(result.y, whole.y, rtol=1e-7)


def test_blocks_of_several_sizes() -> None:
    """Decays in one class, a growing pair in another: exact solutions for all."""
    p = np.array([1.0, 10.0, 100.0])
    classes = block_classes(3, np.array([0, 1, 2, 1]), np.array([0, 1, 2, 2]))
    assert [c.members.shape for c in classes] == [(1, 1), (2, 1)]
    times = np.linspace(0.0, 1.0, 9)
    result = solve_blocks(
        decay, classes, p, 0.0, np.ones(3), 1.0, rtol=1e-8, atol=1e-12, t_out=times,
        jacobian=decay_jacobian,
    )  # fmt: skip
    assert result.code == Code.DONE
    np.testing.assert_allclose(result.y_out, np.exp(-np.outer(times, p)), atol=1e-7)


def test_blocks_notice_a_pole() -> None:
    classes = block_classes(3, np.arange(3), np.arange(3))
    result = solve_blocks(
        square, classes, np.zeros(1), 0.0, np.array([0.1, 1.0, 0.2]), 2.0, rtol=1e-8, atol=1e-12,
        values=_square_values(), nonzeros=3, t_out=np.array([0.5, 1.5]),
    )  # fmt: skip
    assert result.code == Code.BLOW_UP
    assert result.filled <= 1


def _square_values():  # type: ignore[no-untyped-def]
    from numba import njit

    from .fields import RHS

    @njit(RHS)
    def values(t, y, p, out):
        for i in range(y.size):
            out[i] = 2.0 * y[i]

    return values


def test_blocks_honour_limits() -> None:
    classes = block_classes(2, np.arange(2), np.arange(2))
    kwargs = {"rtol": 1e-8, "atol": 1e-12, "jacobian": decay_jacobian}
    limited = solve_blocks(decay, classes, np.ones(2), 0.0, np.ones(2), 9.0, max_steps=2, **kwargs)
    assert limited.code == Code.STEP_LIMIT
    flag = np.ones(1, np.int64)
    stopped = solve_blocks(decay, classes, np.ones(2), 0.0, np.ones(2), 9.0, flag=flag, **kwargs)
    assert stopped.code == Code.INTERRUPTED
