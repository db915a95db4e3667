"""The README's first two shell commands are the newcomer's, and its example runs."""

import re
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE)


def test_the_first_two_commands_install_and_run():
    run, test = blocks("sh")[:2]
    for command in (run, test):
        assert command.count("\n") == 1
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install -q ")
    assert run.rstrip().endswith(".venv/bin/odekit reproduce")
    assert ".venv/bin/pytest" in test


def test_the_example_runs(capsys):
    (example,) = blocks("python")
    exec(example, {})
    assert r"\Lambda" in capsys.readouterr().out
