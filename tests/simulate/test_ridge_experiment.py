"""The finite-dimension experiment: exact sampling, exact errors, agreement with the theory."""

from __future__ import annotations

import numpy as np
import pytest

from odekit.errors import InputError
from odekit.simulate.ridge_experiment import (
    draw_tasks,
    feature_statistics,
    population_error,
    posterior_mean_errors,
    ridge_experiment,
    ridge_solution,
    sample_pretraining,
)
from odekit.theory import bayes_error, finite_equivalent, learning_curve, population_moments


def raw_contexts(tasks, length, noise, count, seed):
    """Contexts token by token, as the model defines them."""
    d = tasks.shape[1]
    rng = np.random.default_rng(seed)
    w = tasks[rng.integers(len(tasks), size=count)]
    x = rng.standard_normal((count, length + 1, d)) / np.sqrt(d)
    y = np.einsum("nld,nd->nl", x, w) + np.sqrt(noise) * rng.standard_normal((count, length + 1))
    label = d / length * np.einsum("nl,nld->nd", y[:, :-1], x[:, :-1])
    return x[:, -1], np.column_stack([label, (y[:, :-1] ** 2).mean(axis=1)]), y[:, -1]


def test_reduced_sampling_has_the_law_of_raw_contexts():
    d, length, noise, count = 5, 7, 0.3, 100_000
    tasks = draw_tasks(3, d, 1)
    data = sample_pretraining(tasks, context=length, samples=count, noise=noise, seed=2)

    def moments(x, h, y):
        norm, size, label = (h[:, :d] ** 2).sum(axis=1), (x**2).sum(axis=1), h[:, d]
        along = h[:, :d] @ tasks[0] / d
        return np.column_stack(
            [h, h**2, norm**2, norm * label, along**4, along**2 * label, label**3]
            + [y[:, None] * x, (y * x[:, 1])[:, None] * h, y**2 * norm * label, y**2 * size]
        )

    ours = moments(data.x, data.h, data.y)
    raw = moments(*raw_contexts(tasks, length, noise, count, 3))
    error = np.sqrt((ours.var(axis=0) + raw.var(axis=0)) / count)
    # 30 moments up to the sixth order; 4.5 errors are passed by chance once in 5000 runs
    assert np.all(np.abs(ours.mean(axis=0) - raw.mean(axis=0)) < 4.5 * error)


def test_population_error_is_that_of_a_test_set_and_of_the_moments():
    d, length, noise, count = 4, 6, 0.2, 200_000
    tasks = draw_tasks(3, d, 4)
    gamma = np.random.default_rng(5).standard_normal((d, d + 1)) / 2
    x, h, y = raw_contexts(tasks, length, noise, count, 6)
    squared = (y - np.einsum("nd,de,ne->n", x, gamma, h)) ** 2
    exact = population_error(gamma, context=length, noise=noise, tasks=tasks)
    assert abs(squared.mean() - exact) < 4.5 * squared.std() / np.sqrt(count)
    for pool in (tasks, None):
        target, second = population_moments(pool, context=length, noise=noise, dim=d)
        closed = 1 + noise - 2 / d * np.sum(gamma * target) + np.sum((gamma @ second) * gamma) / d
        ours = population_error(gamma, context=length, noise=noise, tasks=pool)
        assert ours == pytest.approx(closed, rel=1e-13)


@pytest.mark.parametrize(
    ("samples", "ridge", "methods"),
    [(25, 0.0, ("dual", "cg")), (25, 0.2, ("dual", "cg")), (90, 0.0, ("cg",)), (90, 0.2, ("cg",))],
)
def test_solution_is_that_of_dense_least_squares(samples, ridge, methods):
    d = 6
    data = sample_pretraining(draw_tasks(4, d, 7), context=9, samples=samples, noise=0.1, seed=8)
    features = (data.x[:, :, None] * data.h[:, None, :]).reshape(samples, -1)
    if ridge:
        normal = features.T @ features + samples / d * ridge * np.eye(d * (d + 1))
        expected = np.linalg.solve(normal, features.T @ data.y)
    else:
        expected = np.linalg.lstsq(features, data.y, rcond=None)[0]
    for method in methods:
        gamma = ridge_solution(data, ridge, method=method, tolerance=1e-13)
        np.testing.assert_allclose(gamma.ravel(), expected, rtol=0, atol=1e-8 * abs(expected).max())
    second, first = feature_statistics(data)
    np.testing.assert_allclose(second, d / samples * features.T @ features, atol=1e-13)
    np.testing.assert_allclose(first, d / samples * features.T @ data.y, atol=1e-13)


def test_seeds_do_not_depend_on_the_number_of_workers():
    setting = {"context": 20, "samples": 130, "noise": 0.1, "ridge": 0.1, "seeds": 3}
    tasks = draw_tasks(5, 10, 0)
    one, two = (ridge_experiment(tasks, **setting, workers=w) for w in (1, 2))
    np.testing.assert_allclose(one.icl, two.icl, rtol=1e-10)
    assert len(set(one.icl)) == 3
    shorter = ridge_experiment(tasks, **{**setting, "seeds": 2})
    np.testing.assert_allclose(shorter.icl, one.icl[:2], rtol=1e-10)


# alpha, kappa, tau, noise, ridge; tau counts d (d + 1) contexts, so that the peak is at 1
POINTS = [
    (10, 0.5, 0.3, 0.1, 0.0),
    (10, 0.5, 0.6, 0.1, 0.0),
    (10, 0.5, 0.9, 0.1, 0.0),
    (10, 0.5, 1.1, 0.1, 0.0),
    (10, 0.5, 1.5, 0.1, 0.0),
    (10, 0.5, 2.0, 0.1, 0.0),
    (10, 2.0, 0.95, 0.1, 1e-3),
    (10, 2.0, 1.0, 0.1, 1e-2),
    (10, 2.0, 1.05, 0.1, 1e-3),
    (10, 2.0, 3.0, 0.1, 0.0),
    (1, 2.0, 0.9, 0.1, 0.1),
    (1, 0.5, 0.5, 0.5, 0.0),
    (1, 0.5, 3.0, 0.5, 0.0),
    (2, 1.0, 1.0, 0.01, 0.1),
    (2, 1.0, 0.4, 0.01, 1.0),
    (5, None, 0.5, 0.5, 0.0),
    (5, None, 1.0, 0.01, 0.01),
    (5, None, 1.2, 0.5, 0.0),
    (5, None, 4.0, 0.5, 0.5),
    (30, 0.8, 1.0, 0.3, 0.3),
    (30, 0.8, 0.7, 0.3, 0.1),
    (30, 0.3, 2.0, 0.3, 1e-4),
]


def check_against_equivalent(point, d, seeds):
    alpha, kappa, tau, noise, ridge = point
    tasks = None if kappa is None else draw_tasks(round(kappa * d), d, 11)
    setting = {
        "context": round(alpha * d),
        "samples": round(tau * d * (d + 1)),
        "noise": noise,
        "ridge": ridge,
        "dim": d,
    }
    found = ridge_experiment(tasks, **setting, seeds=seeds, seed=12)
    expected = finite_equivalent(tasks, **setting)
    for name in ("icl", "idg"):
        mean, error = found.mean[name], found.standard_error[name]
        true = getattr(expected, name)
        assert abs(mean - true) < 3.5 * error + 0.005 * true, (name, mean, error, true)


@pytest.mark.parametrize("point", POINTS[4:20:5], ids=str)
def test_agrees_with_the_finite_equivalent_quickly(point):
    check_against_equivalent(point, d=24, seeds=40)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS, ids=str)
def test_agrees_with_the_finite_equivalent(point):
    check_against_equivalent(point, d=40, seeds=40)


@pytest.mark.slow
@pytest.mark.parametrize("tau", [0.5, 2.0])
def test_approaches_the_limit_as_the_dimension_grows(tau):
    limit = learning_curve(3, np.inf, tau, 0.2)
    gaps = []
    for d in (10, 20, 40, 80):
        found = ridge_experiment(
            None, dim=d, context=3 * d, samples=round(tau * d * d), noise=0.2, seeds=400 // d
        )
        gaps.append(abs(found.mean["icl"] / limit.icl - 1))
    # the distance is of order 1/d: an eighth over the range, with room for sampling noise
    assert gaps[-1] < 0.25 * gaps[0]
    assert gaps[-1] < 0.05


def test_posterior_mean_with_a_vast_pool_is_the_ideal_learner_and_with_few_tasks_memorises():
    d, noise = 4, 0.3
    vast = posterior_mean_errors(
        draw_tasks(60_000, d, 1), context=12, noise=noise, trials=300, seed=2
    )
    # for fresh tasks no learner beats Bayes; at d = 4 the sphere differs from the Gaussian prior
    assert vast.mean["icl"] == pytest.approx(bayes_error(3, noise), rel=0.15)
    assert abs(vast.mean["icl"] - vast.mean["idg"]) < 4 * (
        vast.standard_error["icl"] + vast.standard_error["idg"]
    )
    few = posterior_mean_errors(draw_tasks(3, 20, 1), context=100, noise=0.1, trials=50, seed=2)
    assert few.mean["idg"] == pytest.approx(0.1, abs=1e-3)
    assert few.mean["icl"] > 1.0


def test_posterior_mean_is_bayes_rule_on_raw_tokens():
    # one context with its tokens: the weights of the sufficient statistics are those of the tokens
    d, length, noise, trials = 3, 5, 0.5, 20_000
    tasks = draw_tasks(4, d, 3)
    rng = np.random.default_rng(4)
    w = tasks[rng.integers(4, size=trials)]
    x = rng.standard_normal((trials, length, d)) / np.sqrt(d)
    y = np.einsum("nld,nd->nl", x, w) + np.sqrt(noise) * rng.standard_normal((trials, length))
    logs = -((y[:, None, :] - np.einsum("nld,kd->nkl", x, tasks)) ** 2).sum(axis=2) / (2 * noise)
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    estimate = weights @ tasks / weights.sum(axis=1, keepdims=True)
    raw = noise + ((w - estimate) ** 2).sum(axis=1) / d
    ours = posterior_mean_errors(tasks, context=length, noise=noise, trials=4000, seed=5)
    error = np.hypot(raw.std() / np.sqrt(trials), ours.standard_error["idg"])
    assert abs(raw.mean() - ours.mean["idg"]) < 4 * error


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: draw_tasks(0, 3, 0), "count"),
        (
            lambda: sample_pretraining(None, context=3, samples=2, noise=0.1, seed=0),
            "pass dim",
        ),
        (
            lambda: sample_pretraining(np.ones(3), context=3, samples=2, noise=0.1, seed=0),
            "tasks",
        ),
        (
            lambda: sample_pretraining(np.ones((2, 3)), context=1.5, samples=2, noise=0.1, seed=0),
            "context",
        ),
        (
            lambda: sample_pretraining(np.ones((2, 3)), context=2, samples=0, noise=0.1, seed=0),
            "samples",
        ),
        (lambda: population_error(np.ones((2, 2)), context=2, noise=0.1), "gamma"),
        (
            lambda: posterior_mean_errors(np.ones((2, 3)), context=2, noise=0.0, trials=1, seed=0),
            "noise",
        ),
        (
            lambda: ridge_experiment(np.ones((2, 3)), context=2, samples=9, noise=0.1, seeds=0),
            "seeds",
        ),
    ],
)
def test_bad_input_is_named(call, named):
    with pytest.raises(InputError, match=named):
        call()
