"""MkDocs hook: puts the targets and the recorded verdicts of a derivation into its page.

``<!-- targets: KEY -->`` becomes the table of figures, ``<!-- verdicts: KEY -->`` the statements
with their equations, verdicts and explanations, both read from the installed derivation, so that a
page cannot say other than the code. ``<!-- readme: KEY -->`` becomes what the derivation's README
reports, one level down.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

from odekit import claims, reproduce


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill the places of a page."""
    markdown = re.sub(r"<!-- targets: (\w+) -->", lambda found: _targets(found[1]), markdown)
    markdown = re.sub(r"<!-- readme: (\w+) -->", lambda found: _readme(found[1]), markdown)
    return re.sub(r"<!-- verdicts: (\w+) -->", lambda found: _verdicts(found[1]), markdown)


def _readme(paper: str) -> str:
    path = Path(__file__).parents[2] / "derivations" / paper / "README.md"
    return re.sub(r"^#", "##", path.read_text(encoding="utf-8"), flags=re.MULTILINE)


def _targets(paper: str) -> str:
    named = [t for t in reproduce.discover().values() if t.name.startswith(f"{paper}/")]
    rows = [f"| `{target.name}` | {_text(target.title)} |" for target in named]
    return "\n".join(["| target | shows |", "| --- | --- |", *rows])


def _verdicts(paper: str) -> str:
    known = claims.recorded()
    parts = []
    for claim in claims.all(paper):
        verdict = known.get(claim.id, "not recorded")
        parts += [f"### `{claim.id.partition('.')[2]}`: {verdict}", f"*{_text(claim.source)}*"]
        parts += [_text(claim.says), *(_math(each) for each in claim.equations)]
        if claim.assumes:
            parts.append("Assumes: " + _text("; ".join(claim.assumes)) + ".")
        parts += [f"Needs: {_text(need.says)}" for need in claim.needs]
        if claim.correction is not None:
            parts.append(f"Instead: {_text(claim.correction.says)}")
            parts += [_math(each) for each in claim.correction.equations]
        if claim.explanation:
            parts.append(_text(claim.explanation))
    return "\n\n".join(parts)


def _math(latex: str) -> str:
    return f'<div class="equation">{convert(latex, display="block")}</div>'


def _text(words: str) -> str:
    """Escape what Markdown or HTML would take for its own."""
    return re.sub(r"([\\`*_|\[\]])", r"\\\1", escape(" ".join(words.split()), quote=False))
