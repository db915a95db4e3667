import re
from pathlib import Path

import numpy as np
import pytest

from odekit.errors import InputError
from odekit.problem import Problem, build_model, read_problem

MODEL = {
    "model": "attention_separate",
    "sizes": {"heads": 2, "rank": 1, "dim": 3, "context": 31},
    "parameters": {"Lambda": {"diagonal": [0.5, 0.3, 0.2]}},
    "random": {"scale": 0.01, "seed": 7},
    "time": 5.0,
}
OWN = {
    "equations": {"x": "a*x - x**3", "y": "-y"},
    "parameters": {"a": 2.0},
    "start": {"x": 0.1, "y": 1.0},
    "time": [1.0, 2.0],
}


def test_a_published_model():
    problem = Problem.from_mapping(MODEL)
    assert {name: array.shape for name, array in problem.y0.items()} == {
        "v": (2,),
        "K": (2, 1, 3),
        "Q": (2, 1, 3),
    }
    np.testing.assert_array_equal(problem.params["Lambda"], np.diag([0.5, 0.3, 0.2]))
    assert problem.t == 5.0
    rates = problem.field.evaluate(problem.y0, problem.params)
    assert rates["K"].shape == (2, 1, 3)


def test_the_start_is_drawn_from_its_seed_and_scale():
    first = Problem.from_mapping(MODEL).y0
    again = Problem.from_mapping(MODEL).y0
    wider = Problem.from_mapping({**MODEL, "random": {"scale": 0.02, "seed": 7}}).y0
    other = Problem.from_mapping({**MODEL, "random": {"scale": 0.01, "seed": 8}}).y0
    np.testing.assert_array_equal(first["K"], again["K"])
    np.testing.assert_allclose(wider["K"], 2 * first["K"], rtol=1e-15)
    assert not np.allclose(other["K"], first["K"])


def test_a_given_state_is_not_drawn_and_shifts_no_other():
    given = Problem.from_mapping({**MODEL, "start": {"Q": np.ones((2, 1, 3)).tolist()}}).y0
    np.testing.assert_array_equal(given["Q"], np.ones((2, 1, 3)))
    np.testing.assert_array_equal(given["K"], Problem.from_mapping(MODEL).y0["K"])


def test_own_equations_from_a_file(tmp_path):
    path = tmp_path / "pitchfork.toml"
    path.write_text(
        'loss = "x**4/4 - a*x**2/2 + y**2/2"\ntime = 2\npoints = 5\n'
        '[equations]\nx = "a*x - x**3"\ny = "-y"\n'
        "[parameters]\na = 2\n[start]\nx = 0.1\ny = 1\n[solve]\nrelative = 1e-9\n"
    )
    problem = read_problem(path)
    assert problem.title == "pitchfork"
    assert problem.relative == 1e-9
    np.testing.assert_array_equal(problem.t, [0.0, 0.5, 1.0, 1.5, 2.0])
    rates = problem.field.evaluate(problem.y0, problem.params)
    np.testing.assert_allclose(rates["x"], 2 * 0.1 - 0.1**3, rtol=1e-15)
    np.testing.assert_allclose(
        problem.field.loss_value(problem.y0, problem.params), 0.25e-4 - 0.01 + 0.5, rtol=1e-15
    )


@pytest.mark.parametrize(
    ("base", "change", "reason"),
    [
        (MODEL, {"model": "attention_merge"}, "Did you mean 'attention_merged'"),
        (MODEL, {"sizes": {"head": 2}}, "Did you mean 'heads'"),
        (MODEL, {"sizes": {"heads": 0}}, "positive"),
        (MODEL, {"sizes": {"heads": -1}}, "positive"),
        (MODEL, {"sizes": {"heads": 2}}, "open size"),
        (MODEL, {"sizes": 4}, "must be a table"),
        (MODEL, {"equations": {"x": "x"}}, "not both"),
        (MODEL, {"loss": "x"}, "its own loss"),
        (MODEL, {"start": {"k": 1}}, "Unknown state"),
        (MODEL, {"random": {"scale": -1}}, "at least 0"),
        (MODEL, {"random": {"seed": 0.5}}, "whole number"),
        (MODEL, {"parameters": {"Lambda": {"diag": [1]}}}, "Unknown key of Lambda"),
        (MODEL, {"parameters": {"Lambda": [1, "a"]}}, "array of numbers"),
        (MODEL, {"parameters": {"Lambda": [[float("nan")]]}}, "finite"),
        (MODEL, {"points": 1}, "at least 2"),
        (MODEL, {"points": 2.5}, "at least 2"),
        (MODEL, {"tiem": 1}, "Did you mean 'time'"),
        (MODEL, {"solve": {"rtol": 1e-9}}, "Unknown key"),
        (OWN, {"points": 3}, "one end time"),
        (OWN, {"sizes": {"N": 2}}, "go with a model"),
        (OWN, {"parameters": {"a": [1, 2]}}, "one number"),
        (OWN, {"start": {"x": 1}}, "lacks y"),
        (OWN, {"start": {"x": "1", "y": 1}}, "must be a number"),
        (OWN, {"start": {"x": True, "y": 1}}, "must be a number"),
        (OWN, {"time": "2"}, "must be a number"),
        (MODEL, {"parameters": {"N": "31"}}, "must be a number"),
        (OWN, {"equations": {"x y": "1"}}, "is no name"),
        (OWN, {"equations": {"x": "b*x"}}, "Unknown name"),
    ],
)
def test_bad_problems_are_refused(base, change, reason):
    with pytest.raises(InputError, match=reason):
        Problem.from_mapping({**base, **change})


def test_states_and_parameters_called_as_python_s_own_words(tmp_path):
    path = tmp_path / "decay.toml"
    path.write_text(
        'time = 1\nloss = "lambda**2"\n[equations]\nlambda = "-in*lambda"\n'
        "[parameters]\nin = 2\n[start]\nlambda = 3\n"
    )
    run = read_problem(path).solve()
    assert run["lambda"][-1] == pytest.approx(3 * np.exp(-2), rel=1e-7)
    assert run.loss[-1] == pytest.approx(9 * np.exp(-4), rel=1e-7)


def test_whole_numbers_beyond_sixty_four_bits():
    problem = Problem.from_mapping({**OWN, "start": {"x": 10**30, "y": 1}})
    assert problem.y0["x"] == 1e30


def test_neither_model_nor_equations_nor_time():
    with pytest.raises(InputError, match="either a model"):
        Problem.from_mapping({"time": 1})
    with pytest.raises(InputError, match="needs its time"):
        Problem.from_mapping({key: value for key, value in MODEL.items() if key != "time"})


def test_a_file_that_is_no_toml(tmp_path):
    path = tmp_path / "bad.toml"
    path.write_text("time = = 3")
    with pytest.raises(InputError, match=r"bad\.toml is not TOML"):
        read_problem(path)


def test_the_documented_files_are_problems(tmp_path):
    text = (Path(__file__).parents[2] / "docs" / "problems.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(examples) == 2
    for number, example in enumerate(examples):
        path = tmp_path / f"{number}.toml"
        path.write_text(example, encoding="utf-8")
        problem = read_problem(path)
        rates = problem.field.evaluate(problem.y0, problem.params)
        assert rates.keys() == problem.y0.keys()


def test_sizes_not_given_stay_symbols():
    model = build_model("attention_merged", {"dim": 4})
    assert "H" in {str(symbol) for symbol in model.flow.size_symbols}
