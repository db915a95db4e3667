"""Solutions: names, times between outputs, expressions, files, views."""

import json

import numpy as np
import problems
import pytest

from odekit.errors import InputError, SolveError
from odekit.integrate import Crossing, Plateau, solve
from odekit.solution import Check, Event, Interpolant, Report, Solution, Status

T = np.linspace(0.0, 400.0, 9)


@pytest.fixture(scope="module")
def run():
    problem = problems.merged()
    return solve(
        problem.compiled,
        problem.y0,
        T,
        problem.params,
        method="DOP853",
        events=[Crossing("loss", 0.7), Plateau()],
    )


def test_states_come_by_name(run):
    assert run["U"].shape == (9, 8, 4, 4)
    assert run.loss.shape == (9,) and len(run) == 9
    np.testing.assert_array_equal(run.final["v"], run["v"][-1])
    with pytest.raises(InputError, match="Unknown state 'w'.*Known: v, U"):
        run["w"]


def test_stored_times_give_the_stored_states(run):
    np.testing.assert_array_equal(run.at(T[3])["U"], run["U"][3])
    np.testing.assert_array_equal(run.at(T[[5, 2]])["v"], run["v"][[5, 2]])
    np.testing.assert_array_equal(run.at(np.nextafter(T[3], 0))["v"], run["v"][3])
    with pytest.raises(InputError, match="Save"):
        run.at(0.5 * (T[1] + T[2]))
    with pytest.raises(InputError, match="axes"):
        run.at(np.zeros((2, 2)))


def test_a_run_survives_its_file(run, tmp_path):
    path = tmp_path / "run.npz"
    run.save(path)
    again = Solution.load(path)
    np.testing.assert_array_equal(again.t, run.t)
    for name in run.states:
        np.testing.assert_array_equal(again[name], run[name])
    np.testing.assert_array_equal(again.loss, run.loss)
    np.testing.assert_array_equal(again.params["Lambda"], run.params["Lambda"])
    assert again.status is run.status and again.message == run.message
    assert again.stats == json.loads(json.dumps(dict(run.stats)))
    assert [event.kind for event in again.events] == [event.kind for event in run.events]
    assert again.events[0].t == run.events[0].t
    np.testing.assert_array_equal(again.events[-1].state["U"], run.events[-1].state["U"])
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]  # no temporary file is left


@pytest.mark.parametrize("method", ["DOP853", "LSODA", "Tsit5"])
def test_dense_output_survives_its_file(method, tmp_path):
    problem = problems.merged()
    whole = solve(problem.compiled, problem.y0, 400.0, problem.params, method=method)
    whole.save(tmp_path / "run.npz")
    again = Solution.load(tmp_path / "run.npz")
    np.testing.assert_array_equal(again.at(123.4)["U"], whole.at(123.4)["U"])


def test_a_file_that_is_no_run_is_refused(tmp_path, run):
    with pytest.raises(InputError, match="no such file"):
        Solution.load(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    np.savez(tmp_path / "pickled.npz", header=np.array([{"a": 1}], dtype=object))
    run.save(tmp_path / "cut.npz")
    data = (tmp_path / "cut.npz").read_bytes()
    (tmp_path / "cut.npz").write_bytes(data[: len(data) // 2])
    for name in ("text.npz", "other.npz", "pickled.npz", "cut.npz"):
        with pytest.raises(InputError, match="not a solution"):
            Solution.load(tmp_path / name)
    with pytest.raises(InputError, match="Cannot write"):
        run.save(tmp_path / "nowhere" / "run.npz")


def test_values_along_the_run_by_name(run):
    np.testing.assert_array_equal(run.value("v"), run["v"])
    np.testing.assert_array_equal(run.value("loss"), run.loss)
    with pytest.raises(InputError, match="Unknown state or intermediate"):
        run.value("B")
    with pytest.raises(InputError, match="Cannot evaluate"):
        run.value(3.0)


def test_tensor_expressions_intermediates_and_other_losses_along_the_run(run):
    import odekit as ok

    model = ok.models.attention_merged()
    problem = problems.merged()
    v, U = model.weights
    norm = run.value(ok.einsum("h,h->", v, v))
    np.testing.assert_allclose(norm, np.sum(run["v"] ** 2, axis=1), rtol=1e-13)
    # The hand-written loss and the derived one: rounding of a sum of some hundred terms.
    np.testing.assert_allclose(run.value(model.loss), run.loss, rtol=1e-12)
    longer = run.value(model.loss, {"N": 62.0})
    assert (longer[-1] < run.loss[-1]) and longer.shape == (9,)
    constant = run.value(ok.einsum("aa->", ok.parameter("Lambda", (4, 4), symmetric=True)))
    np.testing.assert_allclose(constant, np.full(9, np.trace(problem.params["Lambda"])))
    square = run.value(ok.einsum("hij->ij", U))
    assert square.shape == (9, 4, 4)


def test_sympy_expressions_along_the_run():
    import sympy

    problem = problems.robertson()
    solution = solve(problem.compiled, problem.y0, [1.0, 2.0], problem.params)
    a, b, c, k1 = sympy.symbols("a b c k1")
    np.testing.assert_allclose(solution.value(a + b + c), 1.0, rtol=1e-12)
    np.testing.assert_allclose(solution.value(k1 * a), 0.04 * solution["a"], rtol=1e-15)
    with pytest.raises(InputError, match="Unknown symbol 'zz'"):
        solution.value(sympy.Symbol("zz"))


def test_xarray_has_the_same_numbers(run):
    import xarray

    data = run.to_xarray()
    assert isinstance(data, xarray.Dataset)
    np.testing.assert_array_equal(data["U"].values, run["U"])
    assert data["U"].dims == ("t", "U_0", "U_1", "U_2")
    assert data.attrs["status"] == "success"


def test_views_name_states_status_and_span(run):
    assert "U (8, 4, 4)" in repr(run) and "success" in repr(run)
    html = run._repr_html_()
    assert "DOP853" in html and "0 to 400" in html and "<script" not in html


def test_a_run_without_outputs_says_so():
    problem = problems.nan()
    with pytest.raises(SolveError) as caught:
        solve(problem.compiled, {"y": 1.0}, [5.0])
    assert caught.value.solution.stats["outputs"] == 0
    empty = Solution(np.zeros(0), {"y": np.zeros(0)})
    with pytest.raises(InputError, match="no outputs"):
        _ = empty.final
    with pytest.raises(InputError, match="no outputs"):
        empty.at(1.0)


@pytest.mark.parametrize("status", list(Status))
def test_each_status_has_a_sentence_and_a_code(status):
    assert status.message.endswith(".")
    assert Status.from_code(status.code) is status
    assert status.ok == (status in ("success", "event"))
    assert Status.success.code == 0


def test_interpolants_evaluate_both_forms():
    breaks = np.array([0.0, 2.0, 3.0])
    power = np.array([[[1.0], [2.0], [3.0]], [[0.0], [0.0], [1.0]]])
    theta = 0.25
    value = Interpolant(breaks, power)(0.5)
    assert value == pytest.approx([1 + 2 * theta + 3 * theta**2])
    nested = Interpolant(breaks, power, nested=True)(0.5)
    assert nested == pytest.approx([1 + theta * (2 + (1 - theta) * 3)])
    np.testing.assert_allclose(Interpolant(breaks, power)(np.array([2.5, 3.0])), [[0.25], [1.0]])
    with pytest.raises(InputError, match="outside"):
        Interpolant(breaks, power)(3.1)


def test_a_report_passes_only_if_every_check_does():
    good, bad = Check("a", 1.0, 2.0, "known"), Check("b", float("nan"), 2.0)
    assert Report("r", (good,)).passed
    assert not Report("r", (good, bad)).passed
    assert not Report("r", ()).passed
    assert "FAIL b" in str(Report("r", (good, bad)))
    assert json.loads(json.dumps(Report("r", (good,)).to_dict()))["passed"] is True


def test_events_carry_time_and_state(run):
    assert all(isinstance(event, Event) for event in run.events)
    assert [event.t for event in run.events] == sorted(event.t for event in run.events)
    crossing = next(event for event in run.events if event.kind == "crossing")
    assert crossing.loss == pytest.approx(0.7, rel=1e-9)
    assert crossing.state["U"].shape == (8, 4, 4)
