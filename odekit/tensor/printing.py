"""Expressions as LaTeX and as plain text."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from itertools import groupby

import sympy as sp

from odekit.tensor.chains import Link, read_chains
from odekit.tensor.coefficient import to_sympy
from odekit.tensor.expression import TensorExpr
from odekit.tensor.simplify import Term
from odekit.tensor.tensors import Tensor

FREE = "ijklmnpqrs"
SUMMED = "abcdefghopqrstuvwxyz"


def name_latex(name: str) -> str:
    """A tensor's name in LaTeX: Greek letters and subscripts as SymPy prints symbols."""
    return str(sp.latex(sp.Symbol(name)))


def index_letters(count_free: int, count_summed: int) -> list[str]:
    """Letters for the indices of a term: free ones first."""
    free = [FREE[k] if k < 4 else f"i_{{{k}}}" for k in range(count_free)]
    pool = [c for c in SUMMED if c not in FREE[:4]]
    summed = [pool[k] if k < len(pool) else f"a_{{{k}}}" for k in range(count_summed)]
    return free + summed


def ordered_terms(expression: TensorExpr) -> list[tuple[Term, Fraction]]:
    """Terms in a fixed order: fewest factors first, then by name."""
    return sorted(
        expression.terms.items(),
        key=lambda item: (
            len(item[0].factors),
            tuple((t.name, t.uid, ii) for t, ii in item[0].factors),
            str(item[0].monomial),
        ),
    )


def grouped_terms(expression: TensorExpr) -> list[tuple[Term, sp.Expr]]:
    """Terms with the coefficients of equal products added up, in a fixed order."""
    grouped: dict[Term, sp.Expr] = {}
    for term, number in ordered_terms(expression):
        key = Term(term.factors, ())
        grouped[key] = grouped.get(key, sp.Integer(0)) + to_sympy(term.monomial, number)
    return list(grouped.items())


def latex(expression: TensorExpr) -> str:
    """LaTeX: matrices, traces and vectors where they can be read, indices elsewhere."""
    if expression.is_zero:
        return "0"
    terms = grouped_terms(expression)
    matrix_like = all(read_chains(t.factors, expression.rank) is not None for t, _ in terms)
    pieces = []
    for term, coefficient in terms:
        body = (
            _chain_latex(term, expression.rank)
            if matrix_like
            else _index_latex(term, expression.rank)
        )
        pieces.append(_with_coefficient(coefficient, body))
    text = pieces[0]
    for piece in pieces[1:]:
        text += f" - {piece[1:].lstrip()}" if piece.startswith("-") else f" + {piece}"
    return text


def _with_coefficient(coefficient: sp.Expr, body: str) -> str:
    if not body:
        return str(sp.latex(sp.factor(coefficient)))
    together = sp.factor(coefficient)
    if together == 1:
        return body
    if together == -1:
        return f"- {body}"
    shown = str(sp.latex(together))
    if together.is_Add:
        shown = rf"\left({shown}\right)"
    return rf"{shown}\, {body}"


def _link_latex(link: Link) -> str:
    name = name_latex(link.tensor.name)
    symmetric = link.tensor.rank == 2 and bool(link.tensor.symmetric_groups)
    if not link.transposed or symmetric:
        return name
    return f"{{{name}}}^{{\\top}}" if "^" not in name else f"\\left({name}\\right)^{{\\top}}"


def _chain(links: Iterable[Link]) -> str:
    shown = []
    for text, run in groupby(_link_latex(link) for link in links):
        count = len(list(run))
        power = count > 1 and "^" not in text
        shown.append(f"{text}^{{{count}}}" if power else " ".join([text] * count))
    return " ".join(shown)


def _chain_latex(term: Term, rank: int) -> str:
    chains = read_chains(term.factors, rank)
    assert chains is not None
    parts = [name_latex(t.name) for t in chains.scalars]
    parts += [rf"\operatorname{{tr}}\left({_chain(links)}\right)" for links in chains.traces]
    parts += [_chain(links) for links in chains.forms]
    if len(chains.open) == 2:
        second = [Link(k.tensor, not k.transposed) for k in reversed(chains.open[1])]
        parts.append(_chain([*chains.open[0], *second]))
    else:
        parts += [_chain(links) for links in chains.open]
    return r"\, ".join(parts)


def _index_latex(term: Term, rank: int) -> str:
    used = sorted({i for _, indices in term.factors for i in indices})
    letters = index_letters(rank, max([i - rank + 1 for i in used if i >= rank], default=0))
    summed = [letters[i] for i in used if i >= rank]
    factors = []
    for tensor, indices in term.factors:
        if tensor.kind == "identity":
            factors.append(rf"\delta_{{{''.join(letters[i] for i in indices)}}}")
            continue
        subscript = "".join(letters[i] for i in indices)
        name = name_latex(tensor.name)
        if subscript:
            name = rf"\left({name}\right)" if "_" in name or "^" in name else name
            name = f"{name}_{{{subscript}}}"
        factors.append(name)
    body = r"\, ".join(factors)
    return rf"\sum_{{{','.join(summed)}}} {body}" if summed else body


def text(expression: TensorExpr) -> str:
    """Plain text with explicit indices, repeated ones summed unless free."""
    if expression.is_zero:
        return "0"
    pieces = []
    for term, coefficient in grouped_terms(expression):
        used = max((i for _, ii in term.factors for i in ii), default=-1)
        letters = index_letters(expression.rank, max(0, used + 1 - expression.rank))
        body = " ".join(_factor_text(t, [letters[i] for i in ii]) for t, ii in term.factors)
        shown = str(sp.factor(coefficient))
        if body and shown in ("1", "-1"):
            shown = shown[:-1]
            pieces.append(f"{shown}{body}")
        else:
            shown = f"({shown})" if sp.factor(coefficient).is_Add and body else shown
            pieces.append(f"{shown} {body}".strip())
    return " + ".join(pieces).replace("+ -", "- ")


def _factor_text(tensor: Tensor, letters: list[str]) -> str:
    name = "delta" if tensor.kind == "identity" else tensor.name
    return f"{name}[{','.join(letters)}]" if letters else name
