"""MkDocs hook: puts the targets and the recorded verdicts of a derivation into its page.

``<!-- targets: KEY -->`` becomes the table of figures, ``<!-- steps: KEY -->`` the derivation step
by step, made and checked while the page is built, ``<!-- verdicts: KEY -->`` the statements with
their equations, verdicts and explanations, all read from the installed derivation, so that a page
cannot say other than the code. ``<!-- readme: KEY -->`` becomes what the derivation's README
reports, one level down.
"""

from __future__ import annotations

import importlib
import re
from html import escape
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

from odekit import claims, reproduce


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Fill the places of a page."""
    markdown = re.sub(r"<!-- targets: (\w+) -->", lambda found: _targets(found[1]), markdown)
    markdown = re.sub(r"<!-- steps: (\w+) -->", lambda found: _steps(found[1]), markdown)
    markdown = re.sub(r"<!-- readme: (\w+) -->", lambda found: _readme(found[1]), markdown)
    return re.sub(r"<!-- verdicts: (\w+) -->", lambda found: _verdicts(found[1]), markdown)


def _readme(paper: str) -> str:
    path = Path(__file__).parents[2] / "derivations" / paper / "README.md"
    return re.sub(r"^#", "##", path.read_text(encoding="utf-8"), flags=re.MULTILINE)


def _targets(paper: str) -> str:
    named = [t for t in reproduce.discover().values() if t.name.startswith(f"{paper}/")]
    rows = [f"| `{target.name}` | {_text(target.title)} |" for target in named]
    return "\n".join(["| target | shows |", "| --- | --- |", *rows])


def _steps(paper: str) -> str:
    parts = []
    for step in importlib.import_module(f"odekit_derivations.{paper}.steps").STEPS:
        made = step()
        if not made.holds:
            raise ValueError(f"Step {made.number} of {paper} does not hold.")
        parts += [f"### {made.number}. {_text(_title(step))}", _text(made.says)]
        parts += [_math(each) for each in made.equations]
        if made.derived:
            parts += ["As odekit derives it:", *(_math(each) for each in made.derived)]
        if made.assumes:
            parts.append("Assumes: " + _text("; ".join(made.assumes)) + ".")
        if made.corrects:
            parts.append(f"*What the notes on the paper have otherwise.* {_text(made.corrects)}")
        parts.append("\n".join(f"- {_check(check)}" for check in made.checks))
    return "\n\n".join(parts)


def _title(step: Any) -> str:
    """The first line of a step's docstring, without its number and full stop."""
    first = (step.__doc__ or step.__name__).strip().splitlines()[0]
    return re.sub(r"^\d+\.\s*", "", first).rstrip(".").replace("``", "")


def _check(check: Any) -> str:
    if check.exact:
        return f"{_text(check.what)}: exactly"
    why = f", {_text(check.why)}" if check.why else ""
    return f"{_text(check.what)}: {check.deviation:.2g} where {check.bound:.2g} is allowed{why}"


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
