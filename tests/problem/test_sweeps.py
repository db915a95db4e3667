"""Sweeps in problem files, honest and hostile."""

import json

import numpy as np
import pytest

import odekit as ok
from odekit import sweep
from odekit.cli import main
from odekit.errors import InputError
from odekit.problem import read_problem, read_sweep
from odekit.problem.formula import read_number

GRID = """
title = "Pitchfork"
time = 5.0
points = 6
[equations]
x = "a*x - x**3"
[parameters]
a = "2*rate"
[start]
x = 0.1
[sweep]
record = ["final", "trajectory"]
[sweep.grid]
rate = [0.5, 1]
"solve.relative" = { from = 1e-10, to = 1e-8, points = 3, spacing = "log" }
"""


def written(tmp_path, text, name="s.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_grid_of_solves_equals_single_solves(tmp_path):
    plan = read_sweep(written(tmp_path, GRID))
    assert plan.title == "Pitchfork"
    assert list(plan.axes) == ["rate", "solve.relative"]
    results = sweep.run(plan, tmp_path / "s", workers=1)
    assert results["x"].shape == (2, 3)
    assert results["x_curve"].shape == (2, 3, 6)
    single = read_problem(written(tmp_path, GRID.replace("[0.5, 1]", "[1]"), "one.toml"))
    assert single.params["a"] == 2.0
    compiled = ok.compile(single.field)
    alone = ok.solve(
        compiled, single.y0, single.t, single.params, tolerance=ok.Tolerance(single.relative)
    )
    np.testing.assert_array_equal(results["x_curve"][1, 0], alone["x"])


def test_a_list_of_runs_of_a_model(tmp_path):
    text = """
model = "attention_merged"
time = 20.0
[sizes]
heads = 1
context = 8
[parameters]
Lambda = { diagonal = ["0.5 + gap/2", "0.5 - gap/2"] }
[sweep]
record = ["loss", "plateaus"]
plateau = { lasting = 2.0 }
[[sweep.list]]
gap = 0.0
"random.seed" = 1
"sizes.dim" = 2
[[sweep.list]]
gap = 0.4
"random.seed" = 2
"sizes.dim" = 2
"""
    results = sweep.run(read_sweep(written(tmp_path, text)), tmp_path / "s", workers=1)
    assert results.failures == {}
    assert (results["plateaus"] >= 1).all()
    assert results["loss"].shape == (2,)


@pytest.mark.parametrize("kind", ["ensemble", "simulate"])
def test_ensembles_and_training(kind, tmp_path):
    extra = {"ensemble": "members = 3", "simulate": "lr = 0.01\nsteps = 50"}[kind]
    text = f"""
model = "attention_merged"
time = 2.0
sizes = {{ heads = 1, dim = 2, context = 8 }}
random = {{ scale = 0.1, seed = 4 }}
[parameters]
Lambda = {{ diagonal = [0.6, 0.4] }}
[sweep]
kind = "{kind}"
{extra}
[sweep.grid]
"random.scale" = [0.1, 0.2]
"""
    results = sweep.run(read_sweep(written(tmp_path, text)), tmp_path / "s", workers=1)
    assert results.failures == {}
    assert results["loss"].shape == ((2, 3) if kind == "ensemble" else (2,))
    assert results["U"].shape[-3:] == (1, 2, 2)


def test_numbers_from_formulas():
    assert read_number("2*a + 1", {"a": 3}) == 7
    assert isinstance(read_number("2*a", {"a": 3}), int)
    assert read_number("sqrt(a) - sign(a)", {"a": 4.0}) == 1.0
    for text in ("1/0", "exp(1000)", "exp(exp(exp(9)))", "log(0)", "(-1)**0.5", "sqrt(-1)"):
        with pytest.raises(InputError, match="no finite number"):
            read_number(text, {})


def last(text):
    """The grid file with one line replaced by hostile content."""
    return GRID.replace('a = "2*rate"', text).replace("x = 0.1", 'x = "0.1*rate"')


HOSTILE = {
    "code": (last("""a = "__import__('os').system('touch HACKED')" """), "not allowed"),
    "attribute": (last('a = "rate.__class__"'), "not allowed"),
    "lambda": (last('a = "(lambda: 1)()"'), "not allowed"),
    "format": (last("a = \"f'{rate}'\""), "not allowed"),
    "giant exponent": (last('a = "9**9**9*rate"'), "powers"),
    "giant factorial of powers": (last('a = "((2**64)**64)**64*rate"'), "finite"),
    "tower of powers": (last(f'a = "{"(" * 40}9{"**64)" * 40}*rate"'), "finite"),
    "tower in an equation": (
        GRID.replace("a*x - x**3", f"a*x - x*{'(' * 40}9{'**64)' * 40}"),
        "finite",
    ),
    "giant degree": (GRID.replace("x**3", "x**999999999"), "powers"),
    "overflow": (last('a = "exp(1e6)*rate"'), "finite"),
    "deep formula": (last(f'a = "{"(" * 5000}rate{")" * 5000}"'), "Formula"),
    "deep minus": (last(f'a = "{"-" * 9000}rate"'), "nested"),
    "long formula": (last(f'a = "{"1+" * 20000}rate"'), "characters"),
    "unknown name": (last('a = "rat"'), "Did you mean 'rate'"),
    "deep array": (last(f"a = {'[' * 100_000}{']' * 100_000}"), "nested"),
    "deep table": (last(f"a = {'{a=' * 5000}1{'}' * 5000}"), "nested"),
    "not a number": (last("a = nan"), "finite"),
    "infinite": (last("a = inf"), "finite"),
    "giant number": (last(f"a = {'9' * 400}"), "number"),
    "more digits than Python reads": (last(f"a = {'9' * 10_000}"), "TOML"),
    "wrong type": (last("a = 1979-05-27"), "number"),
    "truth": (GRID.replace("[0.5, 1]", "[true]"), "must be numbers"),
    "nan on the axis": (GRID.replace("[0.5, 1]", "[nan]"), "finite"),
    "empty axis": (GRID.replace("[0.5, 1]", "[]"), "1 to"),
    "unused name": (GRID.replace("rate = [0.5, 1]", "rate = [1]\nrat = [1]"), "no formula"),
    "giant range": (GRID.replace("points = 3", "points = 10000000000000"), "whole number"),
    "giant grid": (
        GRID.replace("[0.5, 1]", "{ from = 0, to = 1, points = 90000 }").replace(
            "points = 3", "points = 90000"
        ),
        "points; 1 to",
    ),
    "giant output": (GRID.replace("points = 6", "points = 1000000000000"), "whole number"),
    "logarithm of zero": (GRID.replace("from = 1e-10", "from = 0"), "positive"),
    "path in a name": (GRID.replace("rate = [0.5, 1]", '"../../rate" = [1]'), "is no name"),
    "path as output": (GRID.replace("record =", 'out = "../../x"\nrecord ='), "Unknown key"),
    "private place": (GRID.replace('"solve.relative"', '"solve.__class__"'), "__class__"),
    "place in a number": (GRID.replace('"solve.relative"', '"time.relative"'), "no place"),
    "unknown record": (GRID.replace('"final"', '"finale"'), "Did you mean 'final'"),
    "unknown kind": (GRID.replace("record =", 'kind = "solv"\nrecord ='), "Did you mean 'solve'"),
    "misplaced option": (GRID.replace("record =", "lr = 0.1\nrecord ="), "does not go with"),
    "grid of numbers": (GRID.split("[sweep.grid]")[0] + "grid = 3", "must be a table"),
    "list of numbers": (GRID.split("[sweep.grid]")[0] + "list = [1, 2]", "must be a table"),
    "neither": (GRID.split("[sweep.grid]")[0], "either a grid or a list"),
    "same run twice": (GRID.replace("[0.5, 1]", "[1, 1]"), "the same"),
    "training of equations": (
        GRID.replace("record =", 'kind = "simulate"\nrecord =').replace(', "trajectory"', ""),
        "Only a model",
    ),
    "no TOML": ("x = = 1", "not TOML"),
    "no sweep": (GRID.split("[sweep]")[0], "no [sweep]"),
}


@pytest.mark.parametrize(("text", "reason"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_end_in_one_line_and_exit_2(text, reason, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, text)
    before = set(tmp_path.rglob("*"))
    assert main(["sweep", "s.toml", "--workers", "1"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert len(err.splitlines()) == 1
    assert len(err) < 600
    assert reason in err
    assert "Traceback" not in err
    assert set(tmp_path.rglob("*")) == before, "nothing was written"


def test_the_command_writes_resumes_and_reports(tmp_path, capsys):
    path = written(tmp_path, GRID)
    assert main(["sweep", str(path), "--workers", "1", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["runs"], answer["done"]) == (6, 6)
    assert answer["store"] == str(tmp_path / "s.sweep")
    assert main(["sweep", str(path), "--workers", "1"]) == 2
    assert "holds a sweep already" in capsys.readouterr().err
    assert main(["sweep", str(path), "--workers", "1", "--resume"]) == 0
    assert "6 done" in capsys.readouterr().out
    assert main(["solve", str(path)]) == 0, "the first point"
    assert "6 times from 0 to 5" in capsys.readouterr().out


def test_failed_runs_are_exit_3_and_named(tmp_path, capsys):
    text = GRID.replace('"a*x - x**3"', '"a*x**2"').replace("[0.5, 1]", "[0.5, 100]")
    path = written(tmp_path, text)
    assert main(["sweep", str(path), "--workers", "1"]) == 3
    err = capsys.readouterr().err.splitlines()
    assert "3 runs failed; the first, rate = 100" in err[-1]
    assert "SolveError" in err[-1]
    assert sweep.load(tmp_path / "s.sweep").status.count("done") == 3


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--dask", "localhost"], "takes an address"),
        (["--dask", "tcp://127.0.0.1:9", "--threads"], "exclude"),
        (["--workers", "0"], "at least 1"),
        (["--out", "no/such/folder/s"], "does not exist"),
        (["--out", "s.toml"], "would replace"),
    ],
)
def test_wrong_options(arguments, reason, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, GRID)
    assert main(["sweep", "s.toml", *arguments]) == 2
    err = capsys.readouterr().err
    assert reason in err
    assert len(err.splitlines()) == 1
    assert (tmp_path / "s.toml").read_text() == GRID
