import json

import pytest

from odekit.cli import main

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
