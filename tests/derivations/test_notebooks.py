"""Each paper's notebook, and the pages of the guide, open by jupytext, and their cells run."""

import ast
import importlib
from pathlib import Path

import jupytext
import matplotlib.pyplot
import pytest

from odekit.claims import Statement

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "derivations").glob("*/notebook.py"))
PAPERS = [path.parent.name for path in NOTEBOOKS]
SLOW = ("zhang2025",)  # some twenty seconds of searches and runs


def run(notebook):
    """Run all cells in one namespace, as a kernel does: what each one's last line shows."""
    names, shown = {"__name__": "__main__"}, []
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        tree = ast.parse(cell.source)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
    matplotlib.pyplot.close("all")
    return shown


def test_every_paper_has_one():
    assert set(PAPERS) == {"zhang2025", "mainali2025", "lu2025", "saxe2014"}


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.slow] if path.parent.name in SLOW else [])
        for path in NOTEBOOKS
    ],
    ids=lambda path: path.parent.name,
)
def test_a_paper_opens_as_a_notebook_and_shows_every_step(path, tmp_path):
    written = tmp_path / "notebook.ipynb"
    jupytext.write(jupytext.read(path), written)
    notebook = jupytext.read(written)
    kinds = [cell.cell_type for cell in notebook.cells]
    assert kinds[0] == "markdown"
    shown = run(notebook)
    made = [each for each in shown if isinstance(each, Statement)]
    steps = importlib.import_module(f"odekit_derivations.{path.parent.name}.steps").STEPS
    assert [each.number for each in made] == [str(k + 1) for k in range(len(steps))]
    for statement in made:
        assert statement.holds, statement.checks
        text = statement._repr_markdown_()
        assert statement.says in text
        assert "FAILS" not in text
        assert text.count("$$") == 2 * (len(statement.equations) + len(statement.derived))
    assert len(shown) > len(made), "the last cell shows a picture or a formula"


@pytest.mark.parametrize("paper", [paper for paper in PAPERS if paper not in SLOW])
def test_steps_show_formulas_of_odekit_s_own(paper):
    steps = importlib.import_module(f"odekit_derivations.{paper}.steps").STEPS
    made = [step() for step in steps]
    assert all(statement.holds for statement in made)
    assert sum(bool(statement.derived) for statement in made) >= len(made) / 2


@pytest.mark.parametrize("page", ["model.md", "questions.md"])
def test_pages_of_the_guide_open_as_notebooks(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = jupytext.read(ROOT / "docs" / page)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(code) >= 4
    run(notebook)
