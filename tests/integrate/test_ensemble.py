"""Ensembles: members equal their single solves bit for bit, on threads and in processes."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import problems
import pytest

from odekit.errors import InputError, SolveError
from odekit.integrate import Crossing, Limits, Tolerance, ensemble, solve

T = np.linspace(0.0, 3000.0, 31)


def starts(count, scale=1e-2):
    return [problems.separate_start(scale, seed=seed) for seed in range(count)]


@pytest.mark.parametrize("method", ["LSODA", "DOP853", "Tsit5", "Rodas5P", "auto"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_member_equals_its_single_solve_bit_for_bit(method, workers):
    problem = problems.separate(1e-2)
    members = starts(5)
    runs = ensemble(problem.compiled, members, T, problem.params, method=method, workers=workers)
    for member, y0 in zip(runs, members, strict=True):
        single = solve(problem.compiled, y0, T, problem.params, method=method)
        for name in ("v", "K", "Q"):
            np.testing.assert_array_equal(member[name], single[name])
        np.testing.assert_array_equal(member.loss, single.loss)
        for key in ("method", "steps", "rhs_calls", "absolute_tolerance"):
            assert member.stats[key] == single.stats[key]


def test_own_parameters_and_stacked_states():
    problem = problems.separate(1e-2)
    members = starts(2)
    pairs = [(members[0], {"N": 31.0}), (members[1], {"N": 5.0})]
    runs = ensemble(problem.compiled, pairs, T, problem.params)
    single = solve(problem.compiled, members[1], T, {**problem.params, "N": 5.0})
    np.testing.assert_array_equal(runs[1].loss, single.loss)
    assert runs[1].params["N"] == 5.0
    stacked = {name: np.stack([member[name] for member in members]) for name in members[0]}
    again = ensemble(problem.compiled, stacked, T, problem.params)
    np.testing.assert_array_equal(again[0].loss, runs[0].loss)
    assert again.stack("K").shape == (2, 31, 4, 1, 4)
    np.testing.assert_array_equal(again.t, T)


def test_quantile_bands_are_those_of_the_stack():
    problem = problems.separate(1e-2)
    runs = ensemble(problem.compiled, starts(6), T, problem.params)
    bands = runs.quantiles("loss", (0.0, 0.5, 1.0))
    losses = np.array([member.loss for member in runs])
    np.testing.assert_array_equal(bands[0], losses.min(axis=0))
    np.testing.assert_array_equal(bands[2], losses.max(axis=0))
    np.testing.assert_allclose(bands[1], np.median(losses, axis=0))
    assert runs.quantiles("v", (0.5,)).shape == (1, 31, 4)
    with pytest.raises(InputError, match="between 0 and 1"):
        runs.quantiles("loss", (2.0,))
    with pytest.raises(InputError, match="Unknown state"):
        runs.stack("w")


def test_failed_members_are_kept_and_change_nothing_for_the_others():
    problem = problems.blow_up()
    members = [{"y": 0.1}, {"y": 2.0}, {"y": 0.2}]
    t = [0.25, 1.0, 3.0]
    runs = ensemble(problem.compiled, members, t, workers=2)
    assert runs.failed == (1,)
    assert runs.statuses == ("success", "blow_up", "success")
    assert runs.stats["statuses"] == {"success": 2, "blow_up": 1}
    # y = y0 / (1 - y0 t)
    np.testing.assert_allclose(runs.stack("y")[0], [0.1 / (1 - 0.1 * s) for s in t], rtol=1e-8)
    assert runs.stack("y")[1, 0] == pytest.approx(4.0)
    assert np.isnan(runs.stack("y")[1, 1:]).all()
    assert np.isfinite(runs.quantiles("y")).all()
    assert len(runs[1].t) == 2  # the output, and the last point before the pole
    with pytest.raises(SolveError, match="blows up") as caught:
        ensemble(problem.compiled, members, t, throw=True)
    assert caught.value.solution.status == "blow_up"


def test_any_executor_is_used_and_left_open():
    problem = problems.separate(1e-2)
    with ThreadPoolExecutor(2) as pool:
        runs = ensemble(problem.compiled, starts(3), T, problem.params, executor=pool)
        assert pool.submit(lambda: 7).result() == 7
    assert runs.failed == ()


def test_processes_give_the_same_bits():
    problem = problems.separate(1e-2)
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        runs = ensemble(
            problem.compiled, starts(2), T, problem.params, method="DOP853", executor=pool
        )
    here = ensemble(problem.compiled, starts(2), T, problem.params, method="DOP853")
    for there, single in zip(runs, here, strict=True):
        np.testing.assert_array_equal(there["K"], single["K"])


def test_options_reach_the_members():
    problem = problems.separate(1e-2)
    runs = ensemble(
        problem.compiled,
        starts(2),
        T,
        problem.params,
        tolerance=Tolerance(1e-6),
        events=Crossing("loss", 0.8),
        limits=Limits(steps=10_000),
    )
    for member in runs:
        assert member.stats["relative_tolerance"] == 1e-6
        assert [event.label for event in member.events] == ["loss = 0.8"]


def test_progress_counts_members():
    problem = problems.separate(1e-2)
    seen = []
    ensemble(
        problem.compiled,
        starts(4),
        T,
        problem.params,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen[-1] == (4, 4)


@pytest.mark.parametrize(
    ("members", "hint"),
    [
        ([], "at least one"),
        (3, "sequence of initial states"),
        ([1.0], "Member 0"),
        ({"v": np.zeros((2, 4)), "K": np.zeros((3, 4, 1, 4)), "Q": np.zeros((2, 4, 1, 4))}, "same"),
        ([problems.separate_start(1e-2), {"v": np.zeros(4)}], "Member 1: Missing state"),
    ],
)
def test_bad_members_are_refused_before_anything_runs(members, hint):
    problem = problems.separate(1e-2)
    with pytest.raises(InputError, match=hint):
        ensemble(problem.compiled, members, T, problem.params)


def test_bad_options_are_refused():
    problem = problems.separate(1e-2)
    with pytest.raises(InputError, match="workers"):
        ensemble(problem.compiled, starts(1), T, problem.params, workers=0)
    with pytest.raises(InputError, match="Did you mean 'workers'"):
        ensemble(problem.compiled, starts(1), T, problem.params, worker=2)


def test_control_c_ends_the_threads():
    import os
    import signal
    import threading
    import time

    problem = problems.separate(1e-2)
    limits = Limits(steps=10**12)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    began = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        ensemble(problem.compiled, starts(4), [1e12], problem.params, method="Tsit5", limits=limits)
    assert time.perf_counter() - began < 30
