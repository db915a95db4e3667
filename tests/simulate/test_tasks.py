"""Training sequences and named initialisations."""

from __future__ import annotations

import numpy as np
import pytest

import odekit.simulate as sim
from odekit.errors import InputError

L = np.array([[0.6, 0.2], [0.2, 0.4]])


def test_labels_are_linear_in_the_tokens():
    data = sim.sequences(20, L, 6, seed=0)
    assert data.x.shape == (20, 7, 2)
    for x, y in zip(data.x, data.y, strict=True):
        w, *_ = np.linalg.lstsq(x, y, rcond=None)
        np.testing.assert_allclose(x @ w, y, atol=1e-12)


def test_covariances_of_tokens_tasks_and_noise():
    """Sample moments of 40,000 sequences, within 5 standard errors (normal: once in 1.7e6)."""
    task, P = np.array([[1.0, -0.5], [-0.5, 2.0]]), 40_000
    data = sim.sequences(P, L, 3, seed=1, task=task, noise=0.25)
    second = np.einsum("pi,pj->pij", data.x[:, 0], data.x[:, 0])
    assert np.all(np.abs(second.mean(0) - L) < 5 * second.std(0) / np.sqrt(P))
    power = data.y[:, 1] ** 2
    expected = np.trace(L @ task) + 0.25
    assert abs(power.mean() - expected) < 5 * power.std() / np.sqrt(P)
    clean = sim.sequences(P, L, 3, seed=1, task=task, noise=0.25, noisy_query=False)
    power = clean.y[:, -1] ** 2
    assert abs(power.mean() - np.trace(L @ task)) < 5 * power.std() / np.sqrt(P)


def test_a_singular_covariance_is_legitimate():
    data = sim.sequences(10, np.diag([1.0, 0.0]), 3, seed=2)
    assert not data.x[:, :, 1].any()


def test_unused_tokens_are_zero():
    data = sim.sequences(50, L, range(2, 6), seed=3)
    assert set(data.lengths) == {2, 3, 4, 5}
    for x, y, n in zip(data.x, data.y, data.lengths, strict=True):
        assert not x[n:-1].any()
        assert not y[n:-1].any()
        assert x[:n].all()


def test_mixtures_have_separate_test_sets():
    fixed = np.array([2.0, -1.0])
    law = sim.SequenceLaw(covariance=L, context=5, in_context=0.3, fixed=fixed)
    data = law.draw(4000, np.random.default_rng(4))
    # Binomial: standard deviation 0.0072; five of them.
    assert abs(data.in_context.mean() - 0.3) < 0.036
    weights = data.x[~data.in_context] @ fixed
    np.testing.assert_allclose(data.y[~data.in_context], weights, atol=1e-13)
    tests = law.tests(100, seed=5)
    assert set(tests) == {"in-context", "in-weight"}
    np.testing.assert_allclose(tests["in-weight"].y, tests["in-weight"].x @ fixed, atol=1e-13)
    assert tests["in-context"].in_context.all()
    assert not np.allclose(tests["in-context"].y, tests["in-context"].x @ fixed)
    assert not np.array_equal(tests["in-context"].x, tests["in-weight"].x)


def test_in_weight_tasks_are_learned_only_by_the_layer_with_all_blocks():
    """A fixed task is odd in no y of the context: the reduced model cannot hold it."""
    fixed = np.array([1.0, -1.0])
    train = sim.sequences(2000, L, 8, seed=6, in_context=0.0, fixed=fixed)
    tests = sim.SequenceLaw(covariance=L, context=8, in_context=0.5, fixed=fixed).tests(500, 7)
    large = sim.Layer("merged", "all", 4, 2)
    rng = np.random.default_rng(0)
    y0 = large.unpack(0.2 * rng.standard_normal(large.size))
    run = sim.gradient_descent(large, train.statistics(), y0=y0, lr=0.1, steps=3000)
    in_weight = sim.loss_curve(large, run, tests["in-weight"].statistics())
    in_context = sim.loss_curve(large, run, tests["in-context"].statistics())
    assert in_weight[-1] < 0.2 * in_weight[0]
    assert in_context[-1] > in_weight[-1] + 0.2


def test_closed_sets_hold_mirror_images():
    data = sim.sequences(10, L, 4, seed=8, closed=True)
    np.testing.assert_array_equal(data.x[0::2], data.x[1::2])
    np.testing.assert_array_equal(data.y[0::2], -data.y[1::2])
    with pytest.raises(InputError, match="must be even"):
        sim.sequences(9, L, 4, seed=8, closed=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"covariance": np.array([[1.0, 0.5], [0.0, 1.0]])}, "not symmetric"),
        ({"covariance": np.diag([1.0, -0.1])}, "negative eigenvalue"),
        ({"context": 0}, "context must be"),
        ({"context": []}, "context is empty"),
        ({"noise": -1.0}, "cannot be negative"),
        ({"in_context": 1.5}, "fraction from 0 to 1"),
        ({"in_context": 0.5}, "in-weight task"),
        ({"fixed": np.ones(3)}, "fixed has shape"),
        ({"task": np.eye(3)}, "expected \\(2, 2\\)"),
        ({"count": 0}, "count must be"),
        ({"seed": 1.5}, "seed must be"),
    ],
)
def test_bad_laws_are_refused(change, words):
    good = {"count": 5, "covariance": L, "context": 3, "seed": 0}
    with pytest.raises(InputError, match=words):
        sim.sequences(**(good | change))


def test_initial_rules_have_their_standard_deviations():
    H, R, D = 400, 3, 4
    made = sim.Layer("separate", "zero", H, D, R)
    for rule, value, key in (
        ("value", 0.1, 0.1 / np.sqrt(R * (D + 1))),
        ("fan", 0.1 / np.sqrt(H * (D + 1) ** 2), 0.1 / np.sqrt(H * R * (D + 1))),
        ("equal", 0.1, 0.1),
    ):
        y0 = sim.initial(made, 0.1, 0, rule=rule)
        # Relative error of a standard deviation from n numbers is 1/sqrt(2 n); five of them.
        assert y0["v"].std() == pytest.approx(value, rel=5 / np.sqrt(2 * H))
        assert y0["K"].std() == pytest.approx(key, rel=5 / np.sqrt(2 * H * R * D))
        assert y0["Q"].std() == pytest.approx(key, rel=5 / np.sqrt(2 * H * R * D))
    merged = sim.initial(sim.Layer("merged", "zero", H, D), 0.1, 0)
    assert merged["U"].std() == pytest.approx(0.1, rel=5 / np.sqrt(2 * H * D * D))


@pytest.mark.parametrize("family", ["merged", "separate"])
def test_zero_blocks_start_at_zero_and_predict_the_same(family):
    rank = 2 if family == "separate" else 1
    small = sim.Layer(family, "zero", 3, 2, rank)
    large = sim.Layer(family, "all", 3, 2, rank)
    data = sim.sequences(30, L, 5, seed=9)
    reduced, full = (sim.initial(made, 0.5, 1) for made in (small, large))
    losses = [
        sim.loss_curve(made, {k: v[None] for k, v in y0.items()}, data.statistics())[0]
        for made, y0 in ((small, reduced), (large, full))
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-13)
    assert not full["u"][:, :-1].any()


def test_initial_needs_known_sizes_and_rules():
    with pytest.raises(InputError, match="rule must be one of"):
        sim.initial(sim.Layer("merged", "zero", 2, 2), 0.1, 0, rule="xavier")
    with pytest.raises(InputError, match="merged takes"):
        sim.initial(sim.Layer("merged", "zero", 2, 2), 0.1, 0, rule="fan")
    with pytest.raises(InputError, match="scale holds NaN or infinity"):
        sim.initial(sim.Layer("merged", "zero", 2, 2), np.inf, 0)
    with pytest.raises(InputError, match="not a merged or separate"):
        sim.initial(object(), 0.1, 0)
