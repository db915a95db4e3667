"""Every method on the problems that list it, at default tolerances."""

import numpy as np
import problems
import pytest
from problems import PROBLEMS

from odekit.errors import SolveError
from odekit.integrate import Crossing, Limits, Tolerance, solve
from odekit.integrate.verification import relative_error

# CONTRACT: the achieved relative error of states and loss at default tolerances.
BOUND = 1e-6
SLOW = ("separate-1e-06", "separate-1e-10", "robertson", "van-der-pol", "separate-0.001")

WITH_REFERENCE = [
    pytest.param(
        problem, method, id=f"{problem.name}-{method}", marks=pytest.mark.slow if slow else ()
    )
    for problem in PROBLEMS
    if problem.reference is not None
    for method in problem.methods
    for slow in [problem.name in SLOW or method == "Radau"]
]
FAILING = [
    pytest.param(problem, method, id=f"{problem.name}-{method}")
    for problem in PROBLEMS
    if problem.status != "success"
    for method in problem.methods
]


@pytest.mark.parametrize(("problem", "method"), WITH_REFERENCE)
def test_default_tolerances_reach_the_promised_error(problem, method):
    compiled = problem.compiled
    solution = solve(compiled, problem.y0, problem.t, problem.params, method=method)
    assert solution.status == "success"
    np.testing.assert_array_equal(solution.t, problem.t)
    expected = problem.expected()
    for name, values in expected.items():
        assert relative_error(solution[name], values) < BOUND, name
    if compiled.loss is not None:
        p = compiled.layout.pack_parameters(problem.params)
        loss = np.array([compiled.loss(y, p) for y in problem.tight["y"]])
        assert relative_error(solution.loss, loss) < BOUND


@pytest.mark.parametrize(("problem", "method"), FAILING)
def test_every_method_fails_with_the_same_status_and_keeps_what_it_reached(problem, method):
    with pytest.raises(SolveError) as caught:
        solve(problem.compiled, problem.y0, problem.t, problem.params, method=method)
    solution = caught.value.solution
    assert solution.status == problem.status
    # Both problems fail at t = 1; the outputs before it are kept, and the last point reached.
    # BDF's own global error at the pole moves its blow-up by some 1e-8.
    np.testing.assert_array_equal(solution.t[:2], problem.t[:2])
    assert len(solution.t) == 3
    assert abs(solution.t[-1] - 1.0) < 1e-6
    assert np.isfinite(solution["y"]).all()
    assert solution.stats["outputs"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-6, 1e-10])
def test_tiny_starts_agree_at_the_drops(scale):
    problem = problems.separate(scale)
    times = {}
    for method in problem.methods:
        solution = solve(
            problem.compiled,
            problem.y0,
            problem.t,
            problem.params,
            method=method,
            events=[Crossing("loss", level) for level in problem.levels],
        )
        assert len(solution.events) == len(problem.levels)
        times[method] = np.array([event.t for event in solution.events])
        for event, level in zip(solution.events, problem.levels, strict=True):
            assert event.loss == pytest.approx(level, rel=1e-6)
    for method, found in times.items():
        # Two runs, each within the promised error.
        np.testing.assert_allclose(found, times["Rodas5P"], rtol=2 * BOUND, err_msg=method)


def test_an_explicit_method_on_a_stiff_problem_ends_in_its_limit_and_names_another():
    problem = problems.modes()
    solution = solve(
        problem.compiled,
        problem.y0,
        problem.t,
        problem.params,
        method="RK45",
        limits=Limits(steps=500),
        throw=False,
    )
    assert solution.status == "step_limit"
    assert solution.stats["steps"] == 500
    assert "Rodas5P" in solution.message and "LSODA" in solution.message
    assert 0 < solution.stats["outputs"] < len(problem.t)


def test_methods_agree_within_ten_times_the_tighter_error():
    problem = problems.merged()
    runs = {
        method: solve(
            problem.compiled,
            problem.y0,
            problem.t,
            problem.params,
            method=method,
            tolerance=Tolerance(1e-11),
        )
        for method in ("DOP853", "Tsit5", "CompiledDOP853", "LSODA")
    }
    expected = problem.expected()["v"]
    errors = {method: relative_error(run["v"], expected) for method, run in runs.items()}
    worst = max(errors.values())
    assert worst < 1e-8  # a thousand times the tolerance: what one saddle amplifies
    for run in runs.values():
        assert relative_error(run["v"], runs["DOP853"]["v"]) <= 10 * worst


@pytest.mark.parametrize(
    ("problem", "relative", "expected"),
    [
        (problems.separate(1e-2), None, "DOP853-ROCK4"),
        (problems.separate(1e-2), 1e-6, "Tsit5-ROCK4"),
        (problems.separate(1e-6), None, "Rodas5P"),
        (problems.modes(), None, "Rodas5P-blocks"),
        (problems.robertson(), None, "Tsit5-Rodas5P"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_auto_chooses_by_structure_and_scale_and_says_why(problem, relative, expected):
    end, tolerance = problem.t[1], Tolerance(relative)
    solution = solve(problem.compiled, problem.y0, [end], problem.params, tolerance=tolerance)
    assert solution.stats["method"] == expected
    assert len(solution.stats["reason"]) > 20


def test_auto_leaves_an_explicit_method_when_stability_limits_it():
    problem = problems.robertson()
    solution = solve(problem.compiled, problem.y0, [1e5], problem.params)
    assert any("went on with Rodas5P" in note for note in solution.stats["notes"])
