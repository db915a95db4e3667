"""Rules of the house that no linter knows."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DERIVATIONS = sorted((ROOT / "derivations").rglob("*.py"))
PUBLIC = {"odekit", "odekit.reproduce"} | {
    f"odekit.{room}"
    for room in ("claims", "models", "plot", "simulate", "sweep", "testing", "theory")
}
VAGUE = {"utils", "util", "helpers", "helper", "common", "core", "base", "misc"}


def imported(path: Path) -> dict[str, set[str]]:
    """Modules that a file imports, each with the names taken from it."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.setdefault(alias.name, set())
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.setdefault(node.module or "", set()).update(alias.name for alias in node.names)
    return found


@pytest.mark.parametrize("path", DERIVATIONS, ids=lambda path: str(path.relative_to(ROOT)))
def test_derivations_use_the_public_names_only(path):
    for module, names in imported(path).items():
        if module.partition(".")[0] == "odekit":
            assert module in PUBLIC, f"{module} is not public"
            assert not [name for name in names if name.startswith("_")]


def test_odekit_never_names_a_derivation():
    for path in (ROOT / "odekit").rglob("*.py"):
        assert not [name for name in imported(path) if name.startswith("odekit_derivations")]


def test_no_file_has_a_name_that_says_nothing():
    for folder in ("odekit", "derivations", "tests", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            assert path.stem.removeprefix("_").removeprefix("test_") not in VAGUE, path
