"""The nonlinear check: its measures and its words exactly, its findings in short runs."""

from __future__ import annotations

import numpy as np
import pytest
from odekit_derivations.lu2025.nonlinear import SMALL, gap_in_words, peaks_in_words
from odekit_derivations.lu2025.trained import (
    CONTEXT,
    DIM,
    NOISE,
    law,
    linear_over_contexts,
    over_contexts,
    over_tasks,
    pool_of,
    probe_sets,
    ridge_in_context,
)

from odekit.simulate import RegressionNetwork, draw_tasks, population_error
from odekit.theory import population_moments

TINY = RegressionNetwork(DIM, heads=1, hidden=4)


def test_ridge_in_context_is_what_ridge_regression_reaches():
    data = law(draw_tasks(6000, DIM, 0), noisy_query=False).draw(6000, np.random.default_rng(1))
    x, y = data.x[:, :-1], data.y[:, :-1]
    moment = x.swapaxes(1, 2) @ x + NOISE * np.eye(DIM)
    estimate = np.linalg.solve(moment, np.einsum("bld,bl->bd", x, y)[:, :, None])[:, :, 0]
    errors = (np.einsum("bd,bd->b", data.x[:, -1], estimate) - data.y[:, -1]) ** 2
    spread = errors.std() / np.sqrt(len(errors))
    assert abs(errors.mean() + NOISE - ridge_in_context()) < 4 * spread


def test_probes_are_of_fresh_tasks_and_of_the_pool_and_zero_costs_one():
    pool = pool_of(3, 0)
    probes = probe_sets(pool)
    for data in probes.values():
        squares = data.y[:, -1] ** 2
        assert abs(squares.mean() - 1) < 4 * squares.std() / np.sqrt(len(squares))
    # the query's label has no noise, so a task of the pool meets it
    missed = {
        name: np.abs(data.x[:, -1] @ pool.T - data.y[:, -1:]).min(axis=1)
        for name, data in probes.items()
    }
    assert missed["idg"].max() < 1e-12
    assert np.median(missed["icl"]) > 0.1


def test_linear_attention_beside_the_network_is_its_population_optimum():
    row = over_tasks(TINY, 5, range(2), 3)
    for seed in range(2):
        pool = pool_of(5, seed)
        target, second = population_moments(pool, context=CONTEXT, noise=NOISE)
        best = np.linalg.solve(second, target.T).T
        for name, tasks in (("icl", None), ("idg", pool)):
            exact = population_error(best, context=CONTEXT, noise=NOISE, tasks=tasks)
            assert row[f"{name}_linear_seeds"][seed] == pytest.approx(exact, rel=1e-6)
    assert row["idg_dmmse"] == pytest.approx(NOISE, rel=0.05)  # 16 tokens tell 5 tasks apart
    assert row["gap"] == pytest.approx(row["icl"] - row["idg"])
    assert row["kappa"] == 5 / DIM


def test_runs_over_contexts_repeat_and_share_their_pools():
    first, second = (over_contexts(TINY, 4, 16, range(2), 20) for _ in "ab")
    assert first == second
    assert first["tau"] == 16 / DIM**2
    assert first["training"] < first["icl"]
    peak = DIM * (DIM + 1)
    below, above, far = linear_over_contexts(4, (peak - 8, peak + 8, 10**7), range(2))
    assert min(below[0], above[0]) > 2 * far[0]
    endless = over_tasks(TINY, 4, range(2), 1)
    assert far == pytest.approx([endless["icl_linear"], endless["idg_linear"]], rel=1e-3)


def rows_of(*seeds):
    return [
        {
            "samples": 2**i,
            "icl": float(np.mean(values)),
            "icl_error": 0.0,
            "icl_seeds": list(values),
        }
        for i, values in enumerate(seeds)
    ]


@pytest.mark.parametrize(
    "seeds, words",
    [
        ([(1.0, 1.1), (2.0, 2.1), (0.5, 0.6)], "first descent before it is not resolved"),
        ([(1.0, 1.1), (0.8, 0.9), (2.0, 2.1), (0.5, 0.6)], "first descent before it is resolved"),
        ([(1.0, 1.1), (1.05, 2.1), (0.5, 0.6)], "no peak"),  # one seed does not see it
        ([(3.0, 3.1), (2.0, 2.1), (0.5, 0.6)], "no peak"),
        ([(1.0, 1.1), (2.0, 2.1), (3.0, 3.1)], "no peak"),
    ],
)
def test_words_on_peaks_follow_the_numbers(seeds, words):
    assert words in peaks_in_words({"10": rows_of(*seeds)})


def test_words_on_the_gap_name_where_the_network_is_better():
    row = {"gap": 1.0, "gap_error": 0.0, "gap_linear": 1.0, "gap_dmmse": 1.0}
    rows = [
        row | {"kappa": 1.0, "icl_seeds": [0.5, 0.7], "icl_linear_seeds": [0.6, 0.6]},
        row | {"kappa": 2.0, "icl_seeds": [0.5, 0.55], "icl_linear_seeds": [0.6, 0.6]},
    ]
    assert "linear attention at kappa = 2." in gap_in_words(rows)
    assert "at no kappa" in gap_in_words(rows[:1])


@pytest.mark.slow
def test_the_gap_closes_with_the_number_of_tasks():
    few, many = (over_tasks(SMALL, count, range(2), 3000) for count in (1, 128))
    assert few["gap"] > 1.5 and few["idg"] < 0.15  # memorised
    assert many["gap"] < 0.1 and many["icl"] < 0.7
    assert many["gap_dmmse"] > 0.4


@pytest.mark.slow
def test_the_error_peaks_near_one_sequence_a_weight():
    rows = [over_contexts(SMALL, 32, n, range(2), 12000) for n in (128, 512, 2048)]
    assert min(rows[1]["icl_seeds"]) > 1.1 * max(rows[0]["icl_seeds"])
    assert min(rows[1]["icl_seeds"]) > 2 * max(rows[2]["icl_seeds"])
    assert rows[0]["training"] < 1e-3 < rows[1]["training"] < rows[2]["training"]
