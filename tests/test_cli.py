import contextlib
import json
import math

import pytest
from typer.main import get_command

import odekit as ok
from odekit.cli import app, main

pytestmark = pytest.mark.usefixtures("doe2030")


def fails_in_one_line(capsys, arguments, code, reason):
    """Assert on exit code and on a single line of explanation, without a traceback."""
    assert main(arguments) == code
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith("odekit: warning:")]
    assert len(lines) == 1, err
    assert reason in lines[0]
    assert "Traceback" not in err
    assert out == ""


def test_help_names_the_commands(capsys):
    assert main(["--help"]) == 0
    assert "reproduce" in capsys.readouterr().out
    assert main([]) == 0
    assert "reproduce" in capsys.readouterr().out


COMMANDS = ("reproduce", "derive", "solve", "simulate", "sweep", "claims", "cache")


def examples(command):
    text = get_command(app).commands[command].epilog
    return [line for line in text.split("\n\n") if line.startswith("odekit ")]


def test_these_are_the_commands():
    assert set(get_command(app).commands) == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_ends_with_examples_that_parse(command, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "200")
    assert main([command, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    given = examples(command)
    assert given
    monkeypatch.chdir(tmp_path)
    for example in given:
        assert example in shown
        name, *arguments = example.split()[1:]
        assert name == command
        context = get_command(app).commands[command].make_context(command, arguments)
        assert context.params


@pytest.mark.slow
@pytest.mark.parametrize("command", ["derive", "solve", "simulate", "claims", "cache"])
def test_examples_of_the_help_run(command, tmp_path, monkeypatch):
    monkeypatch.setenv("ODEKIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    for example in examples(command):
        if ".toml" not in example:
            assert main(example.split()[1:]) == 0


def test_no_word_of_the_help_is_lost_as_markup(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for command in COMMANDS:
        assert main([command, "--help"]) == 0
        shown = " ".join(capsys.readouterr().out.split())
        for parameter in get_command(app).commands[command].params:
            assert " ".join((parameter.help or "").split()) in shown


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("odekit rep", "reproduce"),
        ("odekit reproduce doe2030/go", "doe2030/good"),
        ("odekit derive attention_m", "attention_merged"),
        ("odekit solve --heads 2 mod", "modes"),
    ],
)
def test_shells_complete_commands_and_names(typed, expected, monkeypatch, capsys):
    monkeypatch.setenv("_ODEKIT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    with contextlib.suppress(SystemExit):
        main([])
    assert expected in capsys.readouterr().out.split()


def test_reproduce_writes_files_and_json(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["reproduce", "doe2030/good", "--quick", "--json", "--out", str(out)]) == 0
    stdout, stderr = capsys.readouterr()
    answer = json.loads(stdout)
    assert answer["report"] == str(out / "report.html")
    assert answer["targets"][0]["error"] is None
    for suffix in ("png", "svg", "json"):
        assert (out / "doe2030" / f"good.{suffix}").is_file()
    assert "doe2030/good: integrates" in stderr


def test_reproduce_lists_targets(capsys):
    assert main(["reproduce", "--list", "--json"]) == 0
    names = [target["name"] for target in json.loads(capsys.readouterr().out)]
    assert "doe2030/good" in names
    assert main(["reproduce", "--list"]) == 0
    assert "doe2030/good" in capsys.readouterr().out


def test_a_broken_derivation_is_a_warning_on_stderr(capsys):
    assert main(["reproduce", "--list"]) == 0
    assert "odekit: warning: Derivation 'broken2031'" in capsys.readouterr().err


def test_claims_of_a_broken_derivation_are_left_out(capsys):
    assert main(["claims", "mainali2025.eq8", "--quick"]) == 0
    out, err = capsys.readouterr()
    assert "mainali2025.eq8" in out
    assert "odekit: warning: doe2031 is left out: ModuleNotFoundError" in err
    assert "Traceback" not in err


def test_a_failed_target_is_exit_3(tmp_path, capsys):
    assert main(["reproduce", "doe2030/raises", "--out", str(tmp_path)]) == 3
    err = capsys.readouterr().err
    assert "doe2030/raises failed: ArithmeticError: no such limit" in err
    assert "Traceback" not in err
    assert "1 of 1 failed" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["reproduce", "doe2030/god"], "Did you mean 'doe2030/good'?"),
        (["reproduce", "doe2030/good", "--workers", "0"], "workers must be at least 1"),
        (["reproduce", "--quik"], "No such option"),
        (["reproduce", "doe2030/good", "--workers", "two"], "--workers"),
        (["reproduc"], "No such command"),
    ],
)
def test_bad_input_is_exit_2_and_one_line(arguments, reason, capsys):
    fails_in_one_line(capsys, arguments, 2, reason)


def test_an_output_folder_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    arguments = ["reproduce", "doe2030/good", "--out", str(tmp_path / "file" / "out")]
    fails_in_one_line(capsys, arguments, 2, "cannot be written")


SIZES = ["--heads", "2", "--rank", "1", "--dim", "2", "--context", "31"]
SOLVE = ["solve", "attention_separate", *SIZES, "--time", "2"]
LAMBDA = ["--spectrum", ".6,.4"]


def test_derive_prints_text_latex_and_json(capsys):
    assert main(["derive", "attention_merged"]) == 0
    assert "dv/dt" in capsys.readouterr().out
    assert main(["derive", "attention_merged", "--latex"]) == 0
    assert r"\frac{d}{dt} v_{i}" in capsys.readouterr().out
    assert main(["derive", "attention_merged", "--json", "--heads", "3"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["equations"].keys() == {"v", "U"}
    assert "Zhang" in answer["source"]


@pytest.mark.parametrize("model", ok.models.REGISTRY)
def test_derive_every_published_model(model, capsys):
    assert main(["derive", model, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["equations"]


def test_set_reaches_every_option_of_a_model(capsys):
    options = ["--set", "depth=3", "--set", "widths=2,3,3,1"]
    assert main(["derive", "deep_linear", *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["equations"].keys() == {"W1", "W2", "W3"}
    assert main(["derive", "linear_transformer", "--set", "tasks=scalar"]) == 0


def test_solve_a_model(tmp_path, capsys):
    path = tmp_path / "run.npz"
    assert main([*SOLVE, *LAMBDA, "--init", ".1", "--json", "--out", str(path)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "success"
    assert answer["t"][-1] == 2.0
    assert answer["loss"][-1] < answer["loss"][0]
    assert [len(head) for head in answer["final"]["K"]] == [1, 1]
    saved = ok.Solution.load(path)
    assert saved["v"][-1].tolist() == answer["final"]["v"]


def test_solve_a_file_with_options_over_it(tmp_path, capsys):
    path = tmp_path / "decay.toml"
    path.write_text(
        'time = 1\n[equations]\nx = "-a*x"\n[parameters]\na = 1\n[start]\nx = 2\n'
        "[solve]\nrelative = 1e-10\n"
    )
    assert main(["solve", str(path), "--time", "2", "--points", "3", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["t"] == [0, 1, 2]
    # Decay damps errors: what is left is of the order of the step's tolerance, with room for each.
    assert answer["final"]["x"] == pytest.approx(2 * math.exp(-2), rel=1e-8)


def test_a_blow_up_is_exit_3_and_one_line(tmp_path, capsys):
    path = tmp_path / "blow-up.toml"
    path.write_text('time = 2\n[equations]\nx = "x**2"\n[start]\nx = 1\n')
    fails_in_one_line(capsys, ["solve", str(path)], 3, "t = ")


def test_simulate_a_model(capsys):
    arguments = ["simulate", "attention_separate", *SIZES, *LAMBDA, "--init", ".3", "--json"]
    assert main([*arguments, "--steps", "100"]) == 0
    exact = json.loads(capsys.readouterr().out)
    assert exact["loss"][-1] < exact["loss"][0]
    assert main([*arguments, "--steps", "10", "--batch", "4", "--seed", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["t"][-1] == 10


def test_simulate_goes_on_from_a_checkpoint(capsys, tmp_path):
    kept = tmp_path / "run.npz"
    arguments = ["simulate", "attention_separate", *SIZES, *LAMBDA, "--init", ".3", "--json"]
    arguments += ["--steps", "100", "--checkpoint", str(kept)]
    assert main(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    assert kept.exists()
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["loss"] == first["loss"]
    fails_in_one_line(capsys, [*arguments, "--lr", ".01"], 2, "another configuration")
    missing = [*arguments[:-1], str(tmp_path / "no" / "run.npz")]
    fails_in_one_line(capsys, missing, 2, "does not exist")


def test_cache_is_shown_and_cleared(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("ODEKIT_CACHE_DIR", str(tmp_path))
    assert main([*SOLVE, *LAMBDA, "--json"]) == 0
    capsys.readouterr()
    assert main(["cache", "--json"]) == 0
    info = json.loads(capsys.readouterr().out)
    assert info["path"].startswith(str(tmp_path))
    assert info["fields"] == 1
    assert main(["cache", "clear"]) == 0
    assert "cleared" in capsys.readouterr().out
    assert main(["cache", "info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bytes"] == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["cache", "claer"], "Did you mean 'clear'?"),
        (["derive", "attention_merge"], "Did you mean 'attention_merged'?"),
        (["derive", "attention_merged", "--rank", "2"], "'rank'"),
        (["derive", "attention_merged", "--dim", "0"], "positive"),
        (["derive", "attention_merged", "--set", "dim"], "NAME=VALUE"),
        (["derive", "deep_linear", "--set", "depht=3"], "Did you mean 'depth'?"),
        (["derive", "linear_transformer", "--set", "tasks=odd"], "odd"),
        (["derive", "attention_merged", "--context", "-1"], "positive"),
        (["derive", "attention_merged", "--dim", "two"], "--dim"),
        ([*SOLVE, "--spectrum", ".6,.3,.1"], "Lambda"),
        ([*SOLVE, "--spectrum", ".6,nan"], "finite"),
        ([*SOLVE, "--spectrum", ".6,-.4"], "Lambda"),
        ([*SOLVE, "--spectrum", ".6,1j"], ".6,1j"),
        ([*SOLVE], "Lambda"),
        ([*SOLVE, *LAMBDA, "--method", "LSODE"], "Did you mean 'LSODA'?"),
        ([*SOLVE, *LAMBDA, "--init", "nan"], "scale"),
        ([*SOLVE, *LAMBDA, "--points", "1"], "points"),
        ([*SOLVE, *LAMBDA, "--time", "-1"], "time"),
        ([*SOLVE, *LAMBDA, "--out", "nowhere/run.npz"], "nowhere"),
        (["solve", "attention_separate", *LAMBDA, "--time", "2"], "every size"),
        (["solve", "attention_separate", *SIZES, *LAMBDA], "needs its time"),
        (["solve", "nowhere.toml"], "nowhere.toml"),
        (["simulate", "attention_separate", *SIZES, *LAMBDA, "--steps", "-1"], "steps"),
        (["simulate", "attention_separate", *SIZES, *LAMBDA, "--lr", "nan"], "lr"),
        (["simulate", "attention_separate", *SIZES, *LAMBDA, "--batch", "0"], "batch"),
    ],
)
def test_bad_numbers_and_names_are_exit_2_and_one_line(
    arguments, reason, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    fails_in_one_line(capsys, arguments, 2, reason)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == ok.__version__


@pytest.mark.parametrize("command", ["solve", "simulate"])
@pytest.mark.parametrize(("name", "words"), [("zzz", "Known:"), ("modess", "Did you mean 'modes'")])
def test_a_source_that_is_neither_file_nor_model(command, name, words, capsys):
    assert main([command, name]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert message.count("\n") == 1
