"""Every Python example of the README and the documentation runs, page by page, from the top."""

import re
from pathlib import Path

import matplotlib.pyplot
import pytest

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if FENCE.search(page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an example may write files
    text = page.read_text(encoding="utf-8")
    names: dict[str, object] = {"__name__": "page"}
    for block in FENCE.finditer(text):
        # Blank lines before it, so that a traceback names the page's own line.
        above = text[: block.start(1)].count("\n")
        exec(compile("\n" * above + block[1], str(page), "exec"), names)
    matplotlib.pyplot.close("all")


def test_every_page_is_in_the_navigation():
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert pages == listed


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} -> {target}"
