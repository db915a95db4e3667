"""TRAPS.md, "Integration": what users of other tools meet, and odekit's answer."""

import os
import signal
import threading
import time
import warnings

import numpy as np
import problems
import pytest
from handmade import by_hand

from odekit.codegen.layout import Layout
from odekit.errors import InputError, OdekitWarning, SolveError
from odekit.integrate import Crossing, Limits, Save, Tolerance, solve

METHODS = ("LSODA", "BDF", "DOP853", "RK45", "Tsit5", "Rodas5P", "ROCK4")


@pytest.mark.parametrize("method", ["LSODA", "RK45", "Tsit5", "Rodas5P"])
def test_a_plateau_left_from_a_tiny_start_ends_on_time(method):
    # y' = y - y^3 from 1e-8: with a fixed absolute tolerance of 1e-6 the start counts as zero.
    compiled = _logistic()
    solution = solve(compiled, {"y": 1e-8}, 30.0, method=method, events=[Crossing("y", 0.5)])
    exact = np.log(0.5 / 1e-8) - 0.5 * np.log((1 - 0.25) / (1 - 1e-16))
    assert solution.events[0].t == pytest.approx(exact, rel=1e-8)


def test_a_state_that_starts_at_zero_takes_the_scale_of_the_others():
    layout = Layout((("a", ()), ("b", (2,))))
    y0 = layout.pack({"a": 0.0, "b": [3e-8, -4e-8]})
    absolute = Tolerance().absolute_for(layout, y0, 1e-9)
    rms = np.sqrt((3e-8**2 + 4e-8**2) / 2)
    np.testing.assert_allclose(absolute, 1e-9 * 1e-8 * rms)
    assert (Tolerance(floor=1e-3).absolute_for(layout, y0, 1e-9) == 1e-3).all()
    ones = Tolerance().absolute_for(layout, np.zeros(3), 1e-9)
    np.testing.assert_allclose(ones, 1e-17)


@pytest.mark.parametrize("method", METHODS)
def test_nan_at_the_start_is_one_status(method):
    problem = problems.nan()
    with pytest.raises(SolveError, match="not finite") as caught:
        solve(problem.compiled, {"y": -1.0}, 1.0, method=method)
    assert caught.value.solution.status == "nan"
    assert caught.value.solution.t.tolist() == [0.0]


@pytest.mark.parametrize("method", METHODS)
def test_the_size_limit_is_one_status(method):
    problem = problems.blow_up()
    solution = solve(
        problem.compiled, problem.y0, 2.0, method=method, limits=Limits(blow_up=1e3), throw=False
    )
    assert solution.status == "blow_up"
    # y = 1 / (1 - t): the limit is passed at t = 0.999, within a step of it.
    assert 0.9 < solution.t[-1] <= 1.0


@pytest.mark.parametrize("method", METHODS)
def test_step_and_time_limits_are_one_status(method):
    problem = problems.van_der_pol()
    options = {"method": method, "throw": False}
    by_steps = solve(
        problem.compiled, problem.y0, 1e9, problem.params, limits=Limits(steps=30), **options
    )
    assert by_steps.status == "step_limit"
    assert by_steps.stats["steps"] <= 30
    assert by_steps.t[-1] > 0
    began = time.perf_counter()
    by_time = solve(
        problem.compiled,
        problem.y0,
        1e9,
        problem.params,
        limits=Limits(steps=10**12, seconds=0.2),
        save=Save(dense=False),
        **options,
    )
    assert by_time.status == "time_limit"
    # Slices of .05 s, and a machine that may be busy.
    assert time.perf_counter() - began < 10


@pytest.mark.parametrize("method", ["LSODA", "DOP853", "Tsit5", "Rodas5P"])
def test_control_c_keeps_the_partial_trajectory(method):
    problem = problems.van_der_pol()
    solve(problem.compiled, problem.y0, 1.0, problem.params, method=method)  # compiled beforehand
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    solution = solve(
        problem.compiled,
        problem.y0,
        1e12,
        problem.params,
        method=method,
        limits=Limits(steps=10**12, seconds=30),
        save=Save(dense=False),
        throw=False,
    )
    timer.join()
    assert solution.status == "interrupted"
    assert 0 < solution.t[-1] < 1e12


def test_a_failed_run_raises_by_default_with_one_line():
    problem = problems.blow_up()
    with pytest.raises(SolveError) as caught:
        solve(problem.compiled, problem.y0, 2.0)
    assert "\n" not in str(caught.value)
    assert caught.value.solution.status == "blow_up"


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("tolerence", "tolerance"),
        ("rtol", "Tolerance"),
        ("t_eval", "output times"),
        ("zzz", "limits"),
    ],
)
def test_a_misspelt_option_is_an_error_with_a_suggestion(option, hint):
    problem = problems.merged()
    with pytest.raises(InputError, match=hint):
        solve(problem.compiled, problem.y0, 1.0, problem.params, **{option: 1})


def test_an_unknown_method_lists_the_right_ones():
    problem = problems.merged()
    with pytest.raises(InputError, match="Did you mean 'LSODA'"):
        solve(problem.compiled, problem.y0, 1.0, problem.params, method="LSODE")


def test_an_output_one_rounding_outside_the_span_is_accepted():
    problem = problems.merged()
    start = 0.3
    t = np.array([np.nextafter(start, 0), 0.5, 1.0])
    solution = solve(problem.compiled, problem.y0, t, problem.params, start=start)
    np.testing.assert_allclose(solution.t, t, rtol=1e-15)
    np.testing.assert_array_equal(solution["v"][0], problem.y0["v"])
    whole = solve(problem.compiled, problem.y0, 1.0, problem.params)
    whole.at(np.nextafter(1.0, 2))


@pytest.mark.parametrize(
    ("t", "hint"),
    [
        ([], "nonempty"),
        ([1.0, 1.0], "increase"),
        ([2.0, 1.0], "increase"),
        (-1.0, "before the start"),
        ([-1.0, 1.0], "before the start"),
        (np.nan, "finite"),
        (np.inf, "finite"),
        (1j, "real"),
        ("soon", "t must be"),
        ([[1.0]], "one-dimensional"),
    ],
)
def test_bad_times_are_refused(t, hint):
    problem = problems.merged()
    with pytest.raises(InputError, match=hint):
        solve(problem.compiled, problem.y0, t, problem.params)


def test_only_the_requested_outputs_are_stored():
    problem = problems.separate(1e-2)
    solution = solve(problem.compiled, problem.y0, [100.0, 20000.0], problem.params)
    assert solution.stats["steps"] > 500
    assert solution["K"].shape == (2, 4, 1, 4)
    assert solution.interpolant is None
    with pytest.raises(InputError, match="dense=True"):
        solution.at(150.0)


@pytest.mark.parametrize("method", ["LSODA", "Tsit5"])
def test_memory_of_an_end_time_run_is_bounded(method):
    problem = problems.separate(1e-2)
    solution = solve(
        problem.compiled,
        problem.y0,
        20000.0,
        problem.params,
        method=method,
        save=Save(points=100, memory=1e5),
    )
    assert 50 <= len(solution.t) <= 101
    assert solution.t[-1] == 20000.0
    assert solution.interpolant is None
    assert any("Dense output" in note for note in solution.stats["notes"])


def test_progress_reports_time_steps_and_loss():
    problem = problems.separate(1e-2)
    seen = []
    solve(
        problem.compiled,
        problem.y0,
        problem.t,
        problem.params,
        method="DOP853",
        progress=lambda t, steps, loss: seen.append((t, steps, loss)),
    )
    assert seen
    t, steps, loss = seen[0]
    assert 0 < t <= problem.t[-1] and steps >= 1 and 0 < loss <= 1
    with pytest.raises(InputError, match="progress"):
        solve(problem.compiled, problem.y0, 1.0, problem.params, progress="yes")


def test_the_bar_writes_to_standard_error_only(capfd):
    problem = problems.merged()
    solve(problem.compiled, problem.y0, 1.0, problem.params, progress=True)
    assert capfd.readouterr().out == ""


def test_a_start_at_a_fixed_point_is_noticed():
    problem = problems.merged()
    zero = {name: np.zeros_like(value) for name, value in problem.y0.items()}
    with pytest.warns(OdekitWarning, match="fixed point"):
        solution = solve(problem.compiled, zero, 10.0, problem.params)
    assert any("fixed point" in note for note in solution.stats["notes"])
    assert (solution["U"] == 0).all()


def test_scipy_warnings_are_replaced_by_the_status_and_filters_are_restored():
    problem = problems.blow_up()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = list(warnings.filters)
        for method in ("LSODA", "BDF", "Radau"):
            solve(problem.compiled, problem.y0, 2.0, method=method, throw=False)
        assert warnings.filters == before


@pytest.mark.parametrize("method", ["LSODA", "BDF", "Tsit5", "Rodas5P", "auto"])
def test_integer_starts_are_not_truncated(method):
    compiled = _logistic()
    solution = solve(compiled, {"y": 2}, 1.0, method=method)
    # z = y^-2 obeys z' = 2 - 2 z.
    exact = (1 - 0.75 * np.exp(-2.0)) ** -0.5
    assert solution["y"][-1] == pytest.approx(exact, rel=1e-8)


def test_verification_reports_the_achieved_error():
    problem = problems.merged()
    solution = solve(
        problem.compiled,
        problem.y0,
        problem.t,
        problem.params,
        tolerance=Tolerance(1e-6, verify=True),
    )
    found = solution.stats["verification"]
    true = {
        name: np.max(np.abs(solution[name] - values)) for name, values in problem.expected().items()
    }
    assert found["relative_tolerance"] == pytest.approx(1e-8)
    for name, value in problem.expected().items():
        scale = np.max(np.abs(value))
        # The second run's own error is some hundred times smaller.
        assert true[name] / scale <= 1.1 * found["states"][name] + 1e-12
    assert 0 < found["loss"] < 1e-3


@pytest.mark.parametrize(
    "make",
    [
        lambda: Tolerance(relative=0),
        lambda: Tolerance(relative=1.5),
        lambda: Tolerance(absolute=-1.0),
        lambda: Tolerance(floor=0),
        lambda: Limits(steps=0),
        lambda: Limits(seconds=0),
        lambda: Limits(blow_up=np.inf),
        lambda: Save(points=1),
        lambda: Save(memory=0),
    ],
)
def test_impossible_options_are_refused(make):
    with pytest.raises(InputError):
        make()


def test_an_option_of_the_wrong_kind_says_how_to_write_it():
    problem = problems.merged()
    with pytest.raises(InputError, match=r"ok.Tolerance\(\.\.\.\)"):
        solve(problem.compiled, problem.y0, 1.0, problem.params, tolerance=1e-6)


def _logistic():
    def rhs(t, y, p, out):
        out[0] = y[0] - y[0] ** 3

    def jacobian(t, y, p, out):
        out[0, 0] = 1 - 3 * y[0] ** 2

    return by_hand(Layout((("y", ()),)), rhs, jacobian, symmetric=True)
