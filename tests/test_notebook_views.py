"""What a notebook shows where a reader would look: LaTeX for formulas, tables for results."""

import re

import numpy as np
import pytest
import sympy as sp
from latex2mathml.converter import convert

import odekit as ok
from odekit.claims import Check, Verdict

MODEL = ok.models.attention_separate(heads=1, rank=1, dim=2, context=31)
MERGED = ok.models.attention_merged().flow
x, a = sp.Symbol("x", real=True), sp.Symbol("a", positive=True)
PITCHFORK = ok.vector_field({x: a * x - x**3}, parameters=(a,), loss=x**4 / 4 - a * x**2 / 2)
Lam = MERGED.parameters[0]

LATEX = {
    "tensor": lambda: Lam,
    "expression": lambda: ok.einsum("ij,jk->ik", Lam, Lam),
    "expected loss": lambda: MODEL.loss,
    "model": lambda: MODEL,
    "tensor field": lambda: MERGED,
    "equations": lambda: MERGED.equations,
    "scalar field": lambda: PITCHFORK,
    "invariant of tensors": lambda: ok.conserved(MERGED)[0],
    "invariant of scalars": lambda: ok.conserved(MERGED.components(D=2, H=1, N=31))[0],
    "invariants": lambda: ok.conserved(MERGED),
    "no invariants": lambda: ok.conserved(PITCHFORK),
    "closed form": lambda: ok.closed_form(PITCHFORK),
    "reduction": lambda: _reduction(),
    "claim": lambda: ok.claims.get("mainali2025.eqA84"),
}


def _reduction():
    flow = ok.models.attention_separate(heads=1, rank=1).flow
    e = ok.eigenvector("e", of=flow.parameters[0], value=sp.Symbol("lambda", positive=True))
    s = ok.weight("s")
    return ok.reduce(flow, {"v": s, "K": s * e, "Q": s * e})


@pytest.mark.parametrize("name", LATEX)
def test_formulas_are_shown_as_latex(name):
    shown = LATEX[name]()._repr_latex_()
    assert shown.startswith("$")
    assert shown.endswith("$")
    body = shown.strip("$").removeprefix(r"\displaystyle").strip()
    assert body
    assert body.count("{") == body.count("}")
    assert "<math" in convert(body)


def _runs(many):
    start = {"v": [0.1], "K": np.ones((1, 1, 2)) / 9, "Q": np.ones((1, 1, 2)) / 9}
    values = {"Lambda": np.diag([0.6, 0.4])}
    if many:
        return ok.ensemble(MODEL.flow, [start, start], [0.0, 1.0], values, workers=1)
    return ok.solve(MODEL.flow, start, [0.0, 1.0], values)


def swept(rate):
    return {"y": rate}


TABLES = {
    "solution": (lambda: _runs(False), ["status", "K", "loss"]),
    "ensemble": (lambda: _runs(True), ["members", "2", "success", "loss at the end"]),
    "fixed points": (
        lambda: ok.fixed_points(PITCHFORK, {"a": 2.0}),
        ["complete", "x = 0", "x = sqrt(2)"],
    ),
    "sweep": (
        lambda: ok.sweep.grid(swept, {"rate": [1, 2, 3, 4, 5]}, title="a < b"),
        ["5 runs", "1, 2, ... 5", "a &lt; b"],
    ),
    "verdict": (
        lambda: Verdict(
            "x<y",
            "refuted",
            assumptions=("N > 1",),
            correction="2 < 3",
            evidence=(Check("1 < 2", 0.5, 1.0),),
        ),
        ["x&lt;y", "refuted", "N &gt; 1", "2 &lt; 3", "1 &lt; 2", "0.5"],
    ),
    "report": (
        lambda: ok.Report("runs", ()),
        ["runs: disagrees"],
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_results_are_shown_as_tables(name):
    make, words = TABLES[name]
    shown = make()._repr_html_()
    for word in words:
        assert word in shown
    opened = re.findall(r"<(\w+)", shown)
    assert sorted(opened) == sorted(re.findall(r"</(\w+)", shown))


def test_a_reduction_that_fails_shows_its_residual():
    flow = ok.models.attention_separate(heads=1, rank=1).flow
    e, f = (ok.eigenvector(n, of=flow.parameters[0], value=sp.Symbol(f"l_{n}")) for n in "ef")
    s = ok.weight("s")
    failed = ok.reduce(flow, {"v": s, "K": s * e, "Q": s * (e + f)})
    assert not failed.exact
    assert "residual" in str(failed)
    shown = failed._repr_latex_()
    assert shown is None or shown.startswith("$")
