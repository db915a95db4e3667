"""The report of ``odekit reproduce``: one HTML file that needs no network and no other file."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from odekit.reproduce.files import atomic
from odekit.reproduce.run import Outcome
from odekit.reproduce.targets import Target

__all__ = ["write_report"]

_LARGEST_SVG = (
    1_500_000  # bytes; past that the PNG is embedded, so that the page stays quick to open
)
_ROWS_SHOWN = 40

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --soft: #5b6478; --paper: #fbfbf9;
  --card: #ffffff; --line: #dfe1e6; --accent: #1f5fa8; --bad: #a8321f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8ee; --soft: #a2abbd; --paper: #14171d;
  --card: #1c2028; --line: #343a46; --accent: #7fb2ee; --bad: #f0917f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2.5rem 1.25rem 4rem; background: var(--paper);
  color: var(--ink); font: 1rem/1.55 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { font-size: 1.7rem; margin: 0 0 .25rem; } h2 { font-size: 1.25rem; margin: 0; }
p { margin: .6rem 0; } .soft { color: var(--soft); } .bad { color: var(--bad); }
a { color: var(--accent); }
section { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  margin: 1.75rem 0; padding: 1.25rem 1.5rem; }
figure { margin: 1rem 0; }
/* Figures are drawn for paper: they keep a white ground in the dark, too. */
figure img { display: block; width: 100%; height: auto; background: #fff; border-radius: .35rem; }
figcaption { margin-top: .6rem; }
.wide { overflow-x: auto; } math { font-size: 1.1rem; } .equation { margin: .8rem 0; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums;
  margin: .6rem 0; }
th, td { border-bottom: 1px solid var(--line); padding: .28rem .8rem .28rem 0; text-align: left;
  vertical-align: top; }
th { color: var(--soft); font-weight: 600; } td.number { text-align: right; }
summary { cursor: pointer; color: var(--accent); margin: .5rem 0; } pre { overflow-x: auto; }
code, pre { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .86rem; }
@media print { section { break-inside: avoid; } details { display: none; } }
"""


def write_report(
    path: Path | str,
    outcomes: Sequence[Outcome],
    earlier: Sequence[Target] = (),
) -> Path:
    """Write one self-contained HTML page about what was reproduced.

    Parameters
    ----------
    path : path
        Where to write; the targets' files are read from the same folder.
    outcomes : sequence of Outcome
        What `odekit.reproduce.run` returned; each gets a section, failures included.
    earlier : sequence of Target
        Further targets: those whose files an earlier run left in the folder get a section too.

    Returns
    -------
    Path
        The file written.
    """
    path = Path(path)
    folder = path.parent
    ran = {outcome.target.name for outcome in outcomes}
    sections = [_section(outcome, folder) for outcome in outcomes]
    kept = [t for t in earlier if t.name not in ran and (folder / f"{t.name}.json").is_file()]
    sections += [_section(Outcome(target, 0.0), folder) for target in kept]
    contents = "".join(
        f'<li><a href="#{_anchor(t)}">{escape(t.name)}</a> '
        f'<span class="soft">{escape(t.title)}</span></li>'
        for t in [*(outcome.target for outcome in outcomes), *kept]
    )
    papers = dict.fromkeys(t.paper for t in [*(o.target for o in outcomes), *kept])
    stated = "".join(_claims(paper) for paper in papers)
    if stated:
        contents += (
            '<li><a href="#claims">Claims</a> <span class="soft">what the papers state, and '
            "whether it holds</span></li>"
        )
        sections.append(f'<h2 id="claims">Claims</h2>\n{stated}')
    failures = sum(outcome.error is not None for outcome in outcomes)
    verdict = f'<p class="bad">{failures} of {len(outcomes)} failed.</p>' if failures else ""
    page = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>odekit: reproduced</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        '<h1>Reproduced with odekit</h1>\n<p class="soft">Every curve below was computed on this '
        "machine by the run that wrote this page, or an earlier one into the same folder.</p>\n"
        f"{verdict}<ul>{contents}</ul>\n" + "\n".join(sections) + "\n</body>\n</html>\n"
    )
    with atomic(path) as draft:
        draft.write_text(page, encoding="utf-8")
    return path


def _anchor(target: Target) -> str:
    return target.name.replace("/", "-")


def _section(outcome: Outcome, folder: Path) -> str:
    target = outcome.target
    head = (
        f'<section id="{_anchor(target)}">\n<h2>{escape(target.title)}</h2>\n'
        f'<p class="soft"><code>odekit reproduce {escape(target.name)}</code></p>\n'
    )
    if outcome.error is not None:
        return f'{head}<p class="bad">Failed: {escape(outcome.error)}</p>\n</section>'
    record = json.loads((folder / f"{target.name}.json").read_text(encoding="utf-8"))
    meta = record.pop("meta")
    equations = "\n".join(_equation(latex) for latex in meta["equations"])
    return (
        f"{head}<figure>\n{_image(target, folder)}\n"
        f"<figcaption>{escape(meta['caption'])}</figcaption>\n</figure>\n{equations}\n"
        f"{_numbers(record, target)}\n<p class='soft'>{escape(_provenance(meta))}</p>\n</section>"
    )


def _image(target: Target, folder: Path) -> str:
    picture, kind = folder / f"{target.name}.svg", "image/svg+xml"
    if picture.stat().st_size > _LARGEST_SVG:
        picture, kind = folder / f"{target.name}.png", "image/png"
    data = base64.b64encode(picture.read_bytes()).decode("ascii")
    return f'<img alt="{escape(target.title)}" src="data:{kind};base64,{data}">'


def _equation(latex: str) -> str:
    from latex2mathml.converter import convert

    try:
        shown = convert(latex, display="block")
    except Exception:  # the converter knows a part of LaTeX and raises errors of many kinds
        shown = f"<code>{escape(latex)}</code>"
    return f'<div class="equation wide">{shown}</div>'


def _claims(paper: str) -> str:
    """Return a paper's statements with the verdicts recorded for them; nothing is recomputed."""
    try:
        # Imported here: claims draw on Hypothesis, which no figure needs.
        from odekit.claims import all_claims, recorded

        claims, known = all_claims(paper), recorded()
    except Exception as error:  # another's package: whatever it raises must not lose the report
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return f'<p class="bad">Claims could not be loaded: {escape(reason)}</p>'
    if not claims:
        return ""
    rows = "\n".join(_claim(claim, known.get(claim.id, "not recorded")) for claim in claims)
    return (
        f'<section id="claims-{escape(paper)}">\n<h2>{escape(paper)}: claims</h2>\n'
        '<p class="soft">Verdicts as recorded; '
        f"<code>odekit claims {escape(paper)}</code> computes them anew.</p>\n{rows}\n</section>"
    )


def _claim(claim: Any, status: str) -> str:
    parts = [_equation(latex) for latex in claim.equations]
    if claim.symbols:
        letters = "".join(f"<li>{escape(line)}</li>" for line in claim.symbols)
        parts.append(f'<ul class="soft">{letters}</ul>')
    if claim.assumes:
        parts.append(f"<p>Assumes: {escape('; '.join(claim.assumes))}.</p>")
    if status == "needs assumption":
        tried = "".join(f"<li>{escape(need.says)}</li>" for need in claim.needs)
        parts.append(f"<p>Assumptions tried, the weakest first:</p><ul>{tried}</ul>")
    if claim.correction is not None:
        parts.append(f"<p>Instead: {escape(claim.correction.says)}</p>")
        parts += [_equation(latex) for latex in claim.correction.equations]
    if claim.explanation:
        parts.append(f"<p>{escape(claim.explanation)}</p>")
    wrong = "; ".join(variant.says for variant in claim.variants)
    if wrong:
        parts.append(f'<p class="soft">Wrong forms that its test refutes: {escape(wrong)}.</p>')
    if claim.run:
        parts.append(f"<pre>{escape(claim.run)}</pre>")
    return (
        f'<details id="{escape(claim.id)}"><summary><code>{escape(claim.id)}</code> '
        f"<b>{escape(status)}</b></summary>\n<p>{escape(claim.says)} "
        f'<span class="soft">({escape(claim.source)})</span></p>\n{"".join(parts)}</details>'
    )


def _provenance(meta: Mapping[str, Any]) -> str:
    libraries = ", ".join(f"{name} {number}" for name, number in meta["versions"].items())
    length = "quick run" if meta["quick"] else "full run"
    return f"{length}, {meta['seconds']:.1f} s on {meta['machine']}; {libraries}"


def _numbers(record: Mapping[str, Any], target: Target) -> str:
    """Scalars in one table, lists of records in tables of their own, other arrays by size."""
    scalars = {name: value for name, value in record.items() if not isinstance(value, list | dict)}
    tables = {name: value for name, value in record.items() if _is_table(value)}
    others = {n: v for n, v in record.items() if n not in scalars and n not in tables}
    parts = []
    if scalars:
        rows = [{"name": name, "value": value} for name, value in scalars.items()]
        parts.append(_table(rows))
    for name, rows in tables.items():
        shown = _table(rows[:_ROWS_SHOWN])
        more = f"<p class='soft'>The first {_ROWS_SHOWN} of {len(rows)} rows.</p>"
        parts.append(
            f"<details><summary>{escape(name)}</summary>{shown}"
            f"{more if len(rows) > _ROWS_SHOWN else ''}</details>"
        )
    if others:
        listed = "; ".join(f"{name} ({_size(value)})" for name, value in others.items())
        where = f"{target.name}.json"
        parts.append(f"<p class='soft'>In {escape(where)}, too: {escape(listed)}.</p>")
    return "\n".join(parts)


def _is_table(value: Any) -> bool:
    """Tell whether a value is a list of flat records with the same fields."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(row, dict) and row.keys() == value[0].keys() for row in value)
        and not any(isinstance(cell, list | dict) for row in value for cell in row.values())
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"<th>{escape(str(name))}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(_cell(value) for value in row.values()) + "</tr>" for row in rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f'<td class="number">{value:.6g}</td>'
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td class="number">{value}</td>'
    return f"<td>{escape('' if value is None else str(value))}</td>"


def _size(value: Any) -> str:
    if isinstance(value, dict):
        return f"{len(value)} entries"
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return " x ".join(map(str, shape)) + " values"
