"""Sufficient statistics: their definition, mixtures, lengths, closure, memory."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import odekit.simulate as sim
from odekit.errors import InputError


def draw(P=40, N=6, D=3, seed=0):
    return sim.sequences(P, np.diag(np.arange(1.0, D + 1)) / D, N, seed=seed)


def test_features_follow_the_published_order():
    """One sequence, features written out by hand from their definition."""
    x, y = draw(P=1)
    D, N = 3, 6
    labels = y[0].copy()
    labels[-1] = 0
    tokens = np.column_stack([x[0], labels])
    G = tokens.T @ tokens / N
    full = [x[0, -1, d] * G[e, f] for d in range(D) for e in range(D + 1) for f in range(e, D + 1)]
    beta = y[0, :N] @ x[0, :N] / N
    reduced = [beta[i] * x[0, -1, j] for i in range(D) for j in range(D)]
    for kind, z in (("full", full), ("reduced", reduced)):
        made = sim.statistics(x, y, kind)
        # One rounding for each of the N + 1 products and sums: a few ulp.
        np.testing.assert_allclose(made.c, y[0, -1] * np.array(z), rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(made.C, np.outer(z, z), rtol=1e-13, atol=1e-15)
        assert made.y2 == pytest.approx(y[0, -1] ** 2, rel=1e-15)


def test_leaving_out_the_normalisation_scales_the_features_by_the_context():
    x, y = draw()
    for kind in ("full", "reduced"):
        plain, divided = sim.statistics(x, y, kind, False), sim.statistics(x, y, kind)
        np.testing.assert_allclose(plain.C, 36 * divided.C, rtol=1e-12)
        np.testing.assert_allclose(plain.c, 6 * divided.c, rtol=1e-12)


def test_chunks_do_not_change_the_moments(monkeypatch):
    x, y = draw(P=101)
    whole = sim.statistics(x, y)
    monkeypatch.setattr("odekit.simulate.moments._CHUNK_NUMBERS", 500)
    pieces = sim.statistics(x, y)
    np.testing.assert_allclose(pieces.C, whole.C, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(pieces.c, whole.c, rtol=1e-12, atol=1e-14)


def test_a_weighted_sum_is_the_statistics_of_the_mixture():
    first, second = draw(P=30, seed=1), draw(P=10, seed=2)
    x, y = np.concatenate([first.x, second.x]), np.concatenate([first.y, second.y])
    mixture = 0.75 * first.statistics() + 0.25 * second.statistics()
    together = sim.statistics(x, y)
    np.testing.assert_allclose(mixture.C, together.C, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(mixture.c, together.c, rtol=1e-12, atol=1e-14)
    assert mixture.y2 == pytest.approx(together.y2, rel=1e-13)


def test_a_shorter_sequence_counts_its_own_tokens():
    x, y = draw(P=12)
    short = sim.statistics(x, y, lengths=np.full(12, 4))
    kept = [0, 1, 2, 3, 6]
    np.testing.assert_allclose(short.C, sim.statistics(x[:, kept], y[:, kept]).C, rtol=1e-12)


def test_prefixes_average_over_their_lengths():
    x, y = draw(P=12)
    mean = sim.prefix_statistics(x, y, lengths=[2, 5])
    by_hand = 0.5 * sim.statistics(x[:, :3], y[:, :3]) + 0.5 * sim.statistics(x[:, :6], y[:, :6])
    np.testing.assert_allclose(mean.C, by_hand.C, rtol=1e-13)
    last = sim.prefix_statistics(x, y, lengths=[2, 5], query="last")
    lengths = 0.5 * sim.statistics(x, y, lengths=np.full(12, 2)) + 0.5 * sim.statistics(
        x, y, lengths=np.full(12, 5)
    )
    np.testing.assert_allclose(last.C, lengths.C, rtol=1e-12, atol=1e-15)


def test_closing_a_set_cancels_odd_moments():
    x, y = draw()
    closed = sim.statistics(*sim.close_under_sign(x, y))
    exact = sim.statistics(x, y).symmetrised()
    size = np.abs(exact.C).max()
    np.testing.assert_allclose(closed.C, exact.C, atol=1e-14 * size)
    np.testing.assert_allclose(closed.c, exact.c, atol=1e-14 * size)
    assert np.count_nonzero(exact.C == 0) > 0.4 * exact.C.size


def test_full_statistics_hold_the_reduced_ones():
    x, y = draw()
    inside, direct = sim.statistics(x, y).reduced(), sim.statistics(x, y, "reduced")
    np.testing.assert_allclose(inside.C, direct.C, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(inside.c, direct.c, rtol=1e-12, atol=1e-14)


def test_the_population_is_the_limit_of_large_sets():
    """Monte-Carlo mean of 200,000 sequences, each entry within 5 standard errors of blocks."""
    L, M2 = np.diag([0.6, 0.3]), np.array([[1.0, 0.4], [0.4, 0.5]])
    exact = sim.population_statistics(L, 5, task=M2, noise=0.3)
    parts = [
        sim.sequences(10_000, L, 5, task=M2, noise=0.3, seed=s).statistics("reduced")
        for s in range(20)
    ]
    for name in ("C", "c"):
        draws = np.array([getattr(part, name) for part in parts])
        error = draws.std(axis=0, ddof=1) / np.sqrt(20)
        # 20 blocks: Student's t with 19 degrees of freedom exceeds 5 once in 12,000.
        assert np.all(np.abs(draws.mean(axis=0) - getattr(exact, name)) < 5 * error)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "half"}, "kind must be"),
        ({"C": np.eye(3)}, "C has shape"),
        ({"c": np.ones(5)}, "no number of reduced features"),
        ({"C": np.arange(16.0).reshape(4, 4)}, "not symmetric"),
        ({"y2": -1.0}, "cannot be negative"),
        ({"y2": np.nan}, "NaN"),
        ({"c": np.ones(4) * 1j}, "complex"),
    ],
)
def test_bad_statistics_are_refused(change, words):
    good = {"kind": "reduced", "C": np.eye(4), "c": np.ones(4), "y2": 1.0}
    with pytest.raises(InputError, match=words):
        sim.Statistics(**(good | change))


def test_bad_sequences_are_refused():
    x, y = draw()
    bad = x.copy()
    bad[0, 0, 0] = np.inf
    for args, words in (
        ((x, y[:, :-1]), "a label for each token"),
        ((x[:, :1], y[:, :1]), "at least 1"),
        ((bad, y), "NaN or infinity"),
        ((x[0], y), "axes"),
    ):
        with pytest.raises(InputError, match=words):
            sim.statistics(*args)
    with pytest.raises(InputError, match="whole numbers from 1"):
        sim.statistics(x, y, lengths=np.full(40, 7))
    with pytest.raises(InputError, match="Cannot add"):
        sim.statistics(x, y) + sim.statistics(x, y, "reduced")


@pytest.mark.slow
def test_large_sets_stay_in_memory():
    """80,000 sequences of length 32 at D = 8: peak resident memory under 500 MB, all included.

    Exact descent runs on the statistics alone: with the sequences gone it needs next to nothing.
    """
    code = """
import gc, weakref
import numpy as np
import odekit.simulate as sim

def megabytes(kind):
    # Not ru_maxrss: a child inherits the peak of the process that started it.
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(kind)) / 1024

data = sim.sequences(80_000, np.diag(np.arange(1.0, 9.0)) / 36, 31, seed=0)
tokens, held = weakref.ref(data.x), data.x.nbytes / 2**20
moments = data.statistics()
before = megabytes("VmRSS")
del data
gc.collect()
assert tokens() is None
layer = sim.Layer("separate", "all", 9, 8, 2)
run = sim.gradient_descent(layer, moments, y0=sim.initial(layer, 0.1, 0), lr=0.01, steps=2000)
print(moments.c.size, run.t[-1], megabytes("VmHWM"), before - megabytes("VmRSS"), held)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    features, steps, peak, given_back, held = map(float, done.stdout.split())
    assert (features, steps) == (360, 2000)
    assert peak < 500, f"{peak} MB"
    # What the run needs beside the 360 x 360 moments (compiled code, 2000 states) is small.
    assert given_back > held - 60
