"""Terms cut into what depends on parameters alone, computed once, and the rest.

Each term is split into clusters of parameter factors that are joined by indices no state holds.
Terms that are equal up to one cluster are summed into one hoisted tensor, so that the attention
flow ``L^2 - (1 + 1/N) L^2 A L - tr(L)/N L A L`` becomes ``c0 - c1 A L`` with two hoisted matrices.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import sympy as sp

from odekit.tensor import Factor, Tensor, TensorExpr, define
from odekit.tensor.canonical import canonical_product
from odekit.tensor.coefficient import ONE, Monomial

__all__ = ["Hoister"]

Key = tuple[Any, ...]

FREE = 1000
"""More than the free axes of any expression: summed indices are named from here."""


@dataclass
class _Term:
    """A product under rewriting: state factors, parameter clusters, scalars that ride along."""

    number: Fraction
    monomial: Monomial
    rest: list[Factor]
    clusters: list[list[Factor]]
    scalars: list[Factor] = field(default_factory=list)

    @property
    def constant(self) -> bool:
        return not self.rest


@dataclass
class Hoister:
    """Moves parameter-only work out of expressions.

    Parameters
    ----------
    moves : callable
        Whether a tensor depends on the states.
    known : callable
        Whether a coefficient's monomial is a number at compile time.

    Attributes
    ----------
    hoisted : dict of TensorExpr to Tensor
        Parameter-only expressions and the tensors that now stand for them, in order.
    """

    moves: Callable[[Tensor], bool]
    known: Callable[[Monomial], bool]
    hoisted: dict[TensorExpr, Tensor] = field(default_factory=dict)
    _placeholders: dict[tuple[sp.Expr, ...], Tensor] = field(default_factory=dict)

    def hoist(self, expression: TensorExpr) -> TensorExpr:
        """Rewrite an expression in states, hoisted tensors and bare parameters.

        Parameters
        ----------
        expression : TensorExpr

        Returns
        -------
        TensorExpr
            Equal to ``expression`` once hoisted tensors are multiplied out.
        """
        terms = [self._split(*raw) for raw in expression.raw()]
        constants = [t for t in terms if t.constant]
        moving = [t for t in terms if not t.constant]
        products = [
            (factors, monomial, number, None)
            for factors, monomial, number in (
                *self._constants(expression, constants),
                *(self._finish(t) for t in self._merge(moving)),
            )
        ]
        return TensorExpr.collect(expression.shape, products)

    # -- splitting ------------------------------------------------------------------------------

    def _split(self, factors: list[Factor], monomial: Monomial, number: Fraction) -> _Term:
        rest = [f for f in factors if self.moves(f[0])]
        fixed = [f for f in factors if not self.moves(f[0])]
        # A delta between free axes is left for the writer of loops.
        deltas = [f for f in fixed if f[0].kind == "identity"]
        if not rest and not deltas:
            return _Term(number, monomial, [], [fixed] if fixed else [])
        held = {i for _, ii in rest for i in ii}
        groups = _joined([f for f in fixed if f[0].kind != "identity"], held)
        legs = [{i for _, ii in g for i in ii if i >= 0 or i in held} for g in groups]
        clusters: list[tuple[list[Factor], set[int]]] = []
        # Joining clusters on the same legs makes nothing larger.
        for group, outer in sorted(zip(groups, legs, strict=True), key=lambda g: -len(g[1])):
            for cluster, own in clusters:
                if outer and outer <= own:
                    cluster += group
                    break
            else:
                clusters.append((list(group), outer))
        return _Term(
            number,
            monomial,
            rest + deltas,
            [c for c, outer in clusters if outer] or [[]],
            [f for c, outer in clusters if not outer for f in c],
        )

    # -- merging --------------------------------------------------------------------------------

    def _merge(self, terms: list[_Term]) -> list[_Term]:
        """Sum terms that are equal up to one cluster, largest groups first."""
        terms = list(terms)
        while True:
            groups: dict[Key, list[tuple[int, int, tuple[int, ...]]]] = {}
            for place, term in enumerate(terms):
                for which in range(len(term.clusters)):
                    key, legs = self._key(term, which)
                    groups.setdefault(key, []).append((place, which, legs))
            best: list[tuple[int, int, tuple[int, ...]]] = []
            for found in groups.values():
                once = list({place: (place, w, legs) for place, w, legs in found}.values())
                if len(once) > len(best):
                    best = once
            if len(best) < 2:
                return terms
            place, which, legs = best[0]
            first = terms[place]
            shape = _sizes(first.clusters[which], legs)
            body = TensorExpr.collect(
                shape, [_leading(terms[p], terms[p].clusters[w], own) for p, w, own in best]
            )
            merged: list[_Term] = []
            if not body.is_zero:
                number, tensor = self._named(body)
                clusters = [c for k, c in enumerate(first.clusters) if k != which]
                merged = [_Term(number, ONE, first.rest, [[(tensor, legs)], *clusters])]
            gone = {p for p, _, _ in best}
            terms = [t for p, t in enumerate(terms) if p not in gone] + merged

    def _key(self, term: _Term, which: int) -> tuple[Key, tuple[int, ...]]:
        cluster = term.clusters[which]
        others = [f for k, c in enumerate(term.clusters) if k != which for f in c]
        outside = {i for _, ii in (*term.rest, *others) for i in ii}
        legs = sorted({i for _, ii in cluster for i in ii if i >= 0 or i in outside})
        candidates = []
        for order in itertools.permutations(legs):
            shape = _sizes(cluster, order)
            if shape not in self._placeholders:
                self._placeholders[shape] = Tensor("*", shape, "parameter")
            product = canonical_product(
                [*term.rest, *others, (self._placeholders[shape], order)], FREE
            )
            candidates.append((tuple((t.order, ii) for t, ii in product), order))
        return min(candidates)

    # -- naming ---------------------------------------------------------------------------------

    def _named(self, body: TensorExpr) -> tuple[Fraction, Tensor]:
        """A tensor for a parameter-only body whose leading coefficient is taken out."""
        leading = min(
            body.terms, key=lambda t: ([(x.order, ii) for x, ii in t.factors], str(t.monomial))
        )
        number = body.terms[leading]
        scaled = body * (1 / number)
        if scaled not in self.hoisted:
            self.hoisted[scaled] = define(f"c{len(self.hoisted)}", scaled)
        return number, self.hoisted[scaled]

    def _constants(
        self, expression: TensorExpr, terms: list[_Term]
    ) -> Iterable[tuple[list[Factor], Monomial, Fraction]]:
        """All terms without a state as one hoisted tensor of the expression's shape."""
        if all(not t.clusters and self.known(t.monomial) for t in terms):
            return [([], t.monomial, t.number) for t in terms]
        rank = expression.rank
        free = tuple(range(rank))
        if len(terms) == 1 and self.known(terms[0].monomial):
            (factors,) = terms[0].clusters
            if len(factors) == 1 and not any(i < 0 for i in factors[0][1]):
                return [(factors, terms[0].monomial, terms[0].number)]
        body = TensorExpr.collect(
            expression.shape,
            [(t.clusters[0] if t.clusters else [], t.monomial, t.number, None) for t in terms],
        )
        if body.is_zero:
            return []
        number, tensor = self._named(body)
        return [([(tensor, free)], ONE, number)]

    def _finish(self, term: _Term) -> tuple[list[Factor], Monomial, Fraction]:
        """Hoist what merging left: clusters of several factors, scalars, coefficients."""
        number, monomial, factors = term.number, term.monomial, list(term.rest)
        scalars = list(term.scalars)
        loose = bool(scalars) or not self.known(monomial)
        for cluster in term.clusters:
            outside = {i for _, ii in (*term.rest, *_but(term.clusters, cluster)) for i in ii}
            legs = tuple(sorted({i for _, ii in cluster for i in ii if i >= 0 or i in outside}))
            bare = len(cluster) == 1 and set(cluster[0][1]) <= set(legs)
            if not cluster or (bare and not loose):
                factors += cluster
                continue
            riders = _Term(
                Fraction(1), monomial if loose else ONE, [], [], scalars if loose else []
            )
            if loose:
                loose, scalars, monomial = False, [], ONE
            own, tensor = self._named(
                TensorExpr.collect(_sizes(cluster, legs), [_leading(riders, cluster, legs)])
            )
            number *= own
            factors.append((tensor, legs))
        if loose:
            own, tensor = self._named(
                TensorExpr.collect((), [(scalars, monomial, Fraction(1), None)])
            )
            number *= own
            monomial = ONE
            factors.append((tensor, ()))
        return factors, monomial, number


def _joined(factors: list[Factor], held: set[int]) -> list[list[Factor]]:
    """Group factors that share a summed index which ``held`` does not contain."""
    groups: list[tuple[list[Factor], set[int]]] = []
    for factor in factors:
        inner = {i for i in factor[1] if i < 0 and i not in held}
        near = [g for g in groups if g[1] & inner]
        merged = ([f for g in near for f in g[0]] + [factor], inner.union(*(g[1] for g in near)))
        groups = [g for g in groups if g not in near] + [merged]
    return [g[0] for g in groups]


def _but(clusters: list[list[Factor]], own: list[Factor]) -> list[Factor]:
    return [f for c in clusters if c is not own for f in c]


def _sizes(factors: list[Factor], legs: tuple[int, ...]) -> tuple[sp.Expr, ...]:
    size = {i: t.shape[slot] for t, ii in factors for slot, i in enumerate(ii)}
    return tuple(size[i] for i in legs)


def _leading(
    term: _Term, cluster: list[Factor], legs: tuple[int, ...]
) -> tuple[list[Factor], Monomial, Fraction, None]:
    """A cluster with its riders, its legs made the free axes."""
    fresh = {i: k for k, i in enumerate(legs)}
    moved = [
        (t, tuple(fresh.get(i, i if i < 0 else -(10**6) - i) for i in ii))
        for t, ii in (*cluster, *term.scalars)
    ]
    return moved, term.monomial, term.number, None
