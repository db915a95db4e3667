"""Drops of softmax attention, and mixtures of in-context and in-weight sequences."""

import numpy as np
import pytest
from odekit_derivations.zhang2025 import fig5, icl_iwl


def stairs(times, heights, width, t):
    """One minus a sigmoid of each height at each time."""
    return 1 - sum(h / (1 + np.exp(-(t - s) / width)) for s, h in zip(times, heights, strict=True))


def test_drops_are_counted_and_placed():
    t = np.linspace(0, 1000, 1001)
    found = fig5.drops(t, stairs([200, 500, 800], [0.4, 0.3, 0.2], 10, t))
    assert [round(one["step"]) for one in found] == [200, 500, 800]
    # Between sigmoids 300 apart and 10 wide the curve is at its plateau to exp(-15).
    assert [one["after"] for one in found] == pytest.approx([0.6, 0.3, 0.1], abs=1e-4)


def test_drops_part_only_at_the_stated_contrast():
    t = np.linspace(0, 1000, 1001)
    # Rates sech((t - s)/2w)^2: half way, sech(50/24)^2 = .060 of each, a tenth to an eighth of
    # the peaks of .55 and .45.
    loss = stairs([450, 550], [0.55, 0.45], 12, t)
    assert len(fig5.drops(t, loss, contrast=5)) == 2
    assert len(fig5.drops(t, loss, contrast=12)) == 1


def test_small_falls_are_no_drops():
    t = np.linspace(0, 1000, 1001)
    loss = stairs([200, 700], [0.9, 0.01], 10, t)
    assert len(fig5.drops(t, loss, least=0.03)) == 1
    assert len(fig5.drops(t, loss, least=0.005)) == 2


def test_an_exponential_decay_is_one_drop():
    t = np.linspace(0, 1000, 1001)
    assert len(fig5.drops(t, np.exp(-t / 50))) == 1


@pytest.mark.slow
def test_softmax_drops_once_merged_and_often_separate():
    # On 500 sequences the later drops of the separate layer run into each other (4 of 6 seeds
    # have several); the merged layer's one drop does not need more.
    counts = {
        kind: [
            len(fig5.drops(run.t, run.loss))
            for run in (fig5.trained(kind, seed, count) for seed in range(6))
        ]
        for kind, count in (("merged", 500), ("separate", fig5.SEQUENCES))
    }
    assert sum(count == 1 for count in counts["merged"]) >= 5
    assert sum(count >= 2 for count in counts["separate"]) >= 5


def test_mixtures_trade_in_context_for_in_weight_loss():
    numbers = icl_iwl.draw(quick=True, progress=lambda line: None).numbers
    none, half, all_ = (next(r for r in numbers["runs"] if r["fraction"] == f) for f in (0, 0.5, 1))
    # With no in-context sequences their loss ends above that of predicting zero.
    assert none["in-context"][-1] > 1 and none["half fall"]["in-context"] is None
    assert all_["in-context"][-1] < half["in-context"][-1] < none["in-context"][-1]
    assert none["in-weight"][-1] < half["in-weight"][-1] < all_["in-weight"][-1]
    assert half["half fall"]["in-weight"] < half["half fall"]["in-context"]
    for row in (none, half, all_):
        # The rate is below the edge of stability: exact descent never rises.
        assert row["status"] == "success"
        assert np.all(np.diff(row["training loss"]) < 1e-12)
