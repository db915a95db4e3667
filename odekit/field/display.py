"""Equations as LaTeX and as SymPy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import sympy as sp

from odekit.tensor import Tensor, TensorExpr
from odekit.tensor.chains import read_chains
from odekit.tensor.printing import index_letters, name_latex

Lines = Mapping[str, tuple[Tensor, TensorExpr]]


class Equations(Mapping[str, TensorExpr]):
    """Right-hand sides by the name of the state; `definitions` holds the intermediates' ones."""

    def __init__(self, rates: Lines, definitions: Lines) -> None:
        self._rates = rates
        self._definitions = definitions

    def __getitem__(self, name: str) -> TensorExpr:
        return self._rates[name][1]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rates)

    def __len__(self) -> int:
        return len(self._rates)

    @property
    def definitions(self) -> dict[str, TensorExpr]:
        """Intermediates by name, in order of evaluation."""
        return {name: body for name, (_, body) in self._definitions.items()}

    def sympy(self) -> dict[str, Any]:
        """Every line as a SymPy equation, intermediates first."""
        t = sp.Symbol("t")
        lines: dict[str, Any] = {}
        for name, (tensor, body) in self._definitions.items():
            lines[name] = sp.Eq(_left_side(tensor, body), body.sympy(), evaluate=False)
        for name, (tensor, body) in self._rates.items():
            left = sp.Symbol(rf"d{_left_side(tensor, body)}/d{t}")
            lines[name] = (
                sp.Eq(left, body.sympy(), evaluate=False)
                if body.rank == 0
                else (_Rate(tensor.name, body.sympy()))
            )
        return lines

    def latex(self) -> str:
        """LaTeX in an ``aligned`` environment."""
        rows = [rf"{_left_latex(t, b)} &= {b.latex()}" for t, b in self._definitions.values()]
        rows += [
            rf"\frac{{d}}{{dt}} {_left_latex(t, b)} &= {b.latex()}" for t, b in self._rates.values()
        ]
        return _aligned(rows)

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.latex()}$"

    def __repr__(self) -> str:
        return "\n".join(f"d{name}/dt = {self[name]}" for name in self)


class _Rate(tuple[Any, ...]):
    """A rate's name with its SymPy view, printed as an equation."""

    def __new__(cls, name: str, view: Any) -> _Rate:
        return super().__new__(cls, (name, view))

    def __repr__(self) -> str:
        return f"d{self[0]}/dt = {self[1]}"


def _left_side(tensor: Tensor, body: TensorExpr) -> Any:
    if body.rank == 0:
        return sp.Symbol(tensor.name)
    if body.rank <= 2:
        return sp.MatrixSymbol(tensor.name, *(*body.shape, sp.Integer(1))[:2])
    return sp.IndexedBase(tensor.name)[sp.symbols(index_letters(body.rank, 0))]


def _left_latex(tensor: Tensor, body: TensorExpr) -> str:
    name = name_latex(tensor.name)
    chained = all(read_chains(t.factors, body.rank) is not None for t in body.terms)
    if body.rank == 0 or chained:
        return name
    name = rf"\left({name}\right)" if "_" in name or "^" in name else name
    return f"{name}_{{{''.join(index_letters(body.rank, 0))}}}"


def lines_latex(lines: Iterable[tuple[str, TensorExpr]], *expressions: TensorExpr) -> str:
    """Named lines, then the definitions that the expressions hold."""
    rows = [rf"{name} &= {body.latex()}" for name, body in lines]
    seen: dict[Tensor, None] = {}
    for expression in expressions:
        for tensor in expression.tensors(deep=True):
            if tensor.definition is not None:
                seen[tensor] = None
    rows += [
        rf"{_left_latex(t, t.definition)} &= {t.definition.latex()}"
        for t in seen
        if t.definition is not None
    ]
    return _aligned(rows)


def _aligned(rows: list[str]) -> str:
    return r"\begin{aligned}" + r" \\ ".join(rows) + r"\end{aligned}"
