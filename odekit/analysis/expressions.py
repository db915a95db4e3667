"""Evaluate SymPy expressions in any ring, along their graph and without expanding them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from math import lcm
from typing import Any

import sympy as sp

from odekit.analysis.budget import Budget
from odekit.errors import InputError

__all__ = [
    "GraphEvaluator",
    "exact_number",
    "exact_numbers",
    "graph_nodes",
    "polynomial_atoms",
    "radical_degrees",
]


def exact_number(value: Any) -> sp.Rational:
    """Read a number exactly: a float stands for its shortest decimal, so 0.4 is 2/5."""
    if isinstance(value, sp.Rational):
        return value
    if isinstance(value, sp.Float):
        return sp.Rational(str(value))
    if isinstance(value, sp.Expr):
        return value
    number = float(value)
    if number != number or abs(number) == float("inf"):
        raise InputError(f"A value is {number}; give finite numbers.")
    return sp.Integer(int(value)) if number == int(value) else sp.Rational(repr(number))


def graph_nodes(
    expressions: Iterable[sp.Expr], letters: Collection[sp.Expr] = frozenset()
) -> Iterator[sp.Expr]:
    """Every sub-expression once, however often it is shared, not looking inside ``letters``.

    SymPy's own traversals walk the tree, which for sums of nested products is many times larger.
    """
    seen: set[sp.Expr] = set()
    pending = list(expressions)
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            if node not in letters:
                pending.extend(node.args)
            yield node


def exact_numbers(expressions: Iterable[sp.Expr]) -> tuple[sp.Expr, ...]:
    """Write every float inside expressions as the decimal fraction that it shows."""
    given = tuple(expressions)
    floats = {n for n in graph_nodes(given) if n.is_Float}
    table = {f: sp.Rational(str(f)) for f in floats}
    return tuple(e.xreplace(table) for e in given) if table else given


def polynomial_atoms(
    expressions: Iterable[sp.Expr], letters: Collection[sp.Expr] = frozenset()
) -> tuple[set[sp.Symbol], set[sp.Expr]]:
    """Collect what a polynomial reading treats as variables.

    Parameters
    ----------
    expressions : iterable of Expr
        What is read.
    letters : collection of Expr
        Sub-expressions to be taken as variables although they could be read.

    Returns
    -------
    symbols : set of Symbol
    opaque : set of Expr
        Sub-expressions that are no rational function of their parts: ``exp(x)``, ``x**a``,
        ``sqrt(x + 1)``.
    """
    symbols: set[sp.Symbol] = set()
    opaque: set[sp.Expr] = set()
    seen: set[sp.Expr] = set()
    pending = list(expressions)
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.is_Symbol:
            symbols.add(node)
        elif node in letters:
            opaque.add(node)
        elif node.is_Add or node.is_Mul:
            pending.extend(node.args)
        elif node.is_Rational or node.is_Float:
            continue
        elif node.is_Pow and node.exp.is_Integer:
            pending.append(node.base)
        elif node.is_Pow and node.exp.is_Rational and node.base.is_Symbol:
            symbols.add(node.base)
        else:
            opaque.add(node)
    return symbols, opaque


def radical_degrees(expressions: Iterable[sp.Expr]) -> dict[sp.Symbol, int]:
    """For each symbol under a root, the degree d such that its powers are powers of s^(1/d)."""
    degrees: dict[sp.Symbol, int] = {}
    for node in graph_nodes(expressions):
        if not node.is_Pow or not node.base.is_Symbol:
            continue
        if node.exp.is_Rational and not node.exp.is_Integer:
            degrees[node.base] = lcm(degrees.get(node.base, 1), int(node.exp.q))
    return degrees


class GraphEvaluator:
    """Evaluates expressions in one ring, each shared sub-expression once.

    Parameters
    ----------
    leaves : mapping
        Value of each symbol and opaque sub-expression; for a symbol under a root of degree d,
        the value of ``s**(1/d)`` goes into ``roots``.
    constant : callable
        Turns a SymPy rational into a ring element.
    inverse : callable, optional
        The ring's inverse, for negative powers.
    reduce : callable, optional
        Applied after each operation (the remainder modulo a prime).
    roots : mapping, optional
        Symbol -> (degree, value of the root).
    budget : Budget, optional
        Asked at each operation.
    """

    def __init__(
        self,
        leaves: Mapping[sp.Expr, Any],
        constant: Callable[[sp.Rational], Any],
        inverse: Callable[[Any], Any] | None = None,
        reduce: Callable[[Any], Any] | None = None,
        roots: Mapping[sp.Symbol, tuple[int, Any]] | None = None,
        budget: Budget | None = None,
    ) -> None:
        self._memo: dict[sp.Expr, Any] = dict(leaves)
        self._constant = constant
        self._inverse = inverse
        self._reduce = reduce or (lambda value: value)
        self._roots = dict(roots or {})
        self._budget = budget

    def __call__(self, expression: sp.Expr) -> Any:
        """Evaluate one expression."""
        stack = [expression]
        memo = self._memo
        while stack:
            node = stack[-1]
            if node in memo:
                stack.pop()
                continue
            if self._budget is not None:
                self._budget.check()
            if node.is_Rational:
                memo[node] = self._constant(node)
            elif node.is_Float:
                memo[node] = self._constant(sp.Rational(str(node)))
            elif node.is_Add or node.is_Mul:
                missing = [a for a in node.args if a not in memo]
                if missing:
                    stack.extend(missing)
                    continue
                memo[node] = self._combine(node)
            elif node.is_Pow and node.exp.is_Integer:
                if node.base not in memo:
                    stack.append(node.base)
                    continue
                memo[node] = self._power(memo[node.base], int(node.exp))
            elif node.is_Pow and node.exp.is_Rational and node.base in self._roots:
                degree, root = self._roots[node.base]
                memo[node] = self._power(root, int(node.exp * degree))
            else:
                raise InputError(
                    f"{node} is not polynomial in the states; bring the field to a polynomial form"
                )
        return memo[expression]

    def _combine(self, node: sp.Expr) -> Any:
        memo, reduce = self._memo, self._reduce
        first, *rest = node.args
        value = memo[first]
        for argument in rest:
            other = memo[argument]
            value = reduce(value + other) if node.is_Add else reduce(value * other)
            if self._budget is not None:
                self._budget.check()
        return value

    def _power(self, base: Any, exponent: int) -> Any:
        if exponent < 0:
            if self._inverse is None:
                raise InputError("A negative power of a state; multiply the equations out.")
            base, exponent = self._inverse(base), -exponent
        result = None
        while exponent:
            if exponent & 1:
                result = base if result is None else self._reduce(result * base)
            exponent >>= 1
            if exponent:
                base = self._reduce(base * base)
        return self._constant(sp.Integer(1)) if result is None else result
