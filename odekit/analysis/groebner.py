"""Groebner bases with a deadline, and the quotient algebra of a finite solution set.

Buchberger's algorithm with the criteria of Gebauer and Moeller (1988), written out so that the
budget is asked at every reduction step.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as cartesian
from typing import Any

from odekit.analysis.budget import Budget

__all__ = ["dimension", "groebner_basis", "is_unit_ideal", "remainder", "standard_monomials"]

Monomial = tuple[int, ...]


def _divides(a: Monomial, b: Monomial) -> bool:
    return all(x <= y for x, y in zip(a, b, strict=True))


def _lcm(a: Monomial, b: Monomial) -> Monomial:
    return tuple(max(x, y) for x, y in zip(a, b, strict=True))


def _coprime(a: Monomial, b: Monomial) -> bool:
    return not any(x and y for x, y in zip(a, b, strict=True))


def remainder(polynomial: Any, basis: Sequence[Any], budget: Budget) -> Any:
    """Full remainder of a polynomial on division by a list of monic ones."""
    ring = polynomial.ring
    leads = [(g.LM, g) for g in basis]
    rest = ring.zero
    work = polynomial.copy()
    while work:
        budget.check()
        lead = work.LM
        for monomial, divisor in leads:
            if _divides(monomial, lead):
                quotient = tuple(x - y for x, y in zip(lead, monomial, strict=True))
                work = work - divisor.mul_term((quotient, work[lead]))
                break
        else:
            rest[lead] = work[lead]
            del work[lead]
    return rest


def groebner_basis(polynomials: Sequence[Any], budget: Budget) -> list[Any]:
    """Reduced Groebner basis of polynomials of one ring, in the ring's order.

    Raises
    ------
    BudgetSpent
        When the time is up.
    """
    basis: list[Any] = []
    active: list[int] = []
    pairs: list[tuple[Any, int, int]] = []
    pending = sorted((p.monic() for p in polynomials if p), key=lambda p: p.ring.order(p.LM))
    if not pending:
        return []
    order = pending[0].ring.order

    def insert(new: Any) -> None:
        nonlocal active, pairs
        index = len(basis)
        basis.append(new)
        lead = new.LM
        fresh = [(_lcm(basis[i].LM, lead), i) for i in active]
        kept: list[tuple[Monomial, int]] = []
        for position, (common, i) in enumerate(fresh):
            if _coprime(basis[i].LM, lead):
                kept.append((common, i))
                continue
            rivals = [c for c, _ in kept] + [c for c, _ in fresh[position + 1 :]]
            if not any(_divides(c, common) for c in rivals):
                kept.append((common, i))
        kept = [(c, i) for c, i in kept if not _coprime(basis[i].LM, lead)]
        pairs = [
            (c, i, j)
            for c, i, j in pairs
            if not _divides(lead, c) or _lcm(basis[i].LM, lead) == c or _lcm(basis[j].LM, lead) == c
        ]
        pairs += [(c, i, index) for c, i in kept]
        active = [i for i in active if not _divides(lead, basis[i].LM)] + [index]

    def add(polynomial: Any) -> bool:
        reduced = remainder(polynomial, [basis[i] for i in active], budget)
        if reduced:
            insert(reduced.monic())
        return bool(reduced) and not any(basis[-1].LM)

    for polynomial in pending:
        if add(polynomial):
            return [polynomial.ring.one]
    while pairs:
        budget.check()
        best = min(range(len(pairs)), key=lambda k: (sum(pairs[k][0]), order(pairs[k][0])))
        common, i, j = pairs.pop(best)
        left, right = basis[i], basis[j]
        one = left.ring.domain.one
        s_polynomial = left.mul_term(
            (tuple(x - y for x, y in zip(common, left.LM, strict=True)), one)
        ) - right.mul_term((tuple(x - y for x, y in zip(common, right.LM, strict=True)), one))
        if add(s_polynomial):
            return [left.ring.one]
    minimal = [basis[i] for i in active]
    reduced = []
    for k, g in enumerate(minimal):
        tail = remainder(g - g.leading_term(), minimal[:k] + minimal[k + 1 :], budget)
        reduced.append(tail + g.leading_term())
    return sorted(reduced, key=lambda g: order(g.LM))


def is_unit_ideal(basis: Sequence[Any]) -> bool:
    """Whether the system has no solution at all, real or complex."""
    return len(basis) == 1 and not any(basis[0].LM)


def dimension(basis: Sequence[Any], count: int) -> int:
    """Dimension of the solution set: most variables of which no leading term is made."""
    supports = [frozenset(i for i, e in enumerate(g.LM) if e) for g in basis]
    best = 0

    def extend(chosen: frozenset[int], start: int) -> None:
        nonlocal best
        best = max(best, len(chosen))
        for variable in range(start, count):
            larger = chosen | {variable}
            if not any(s <= larger for s in supports):
                extend(larger, variable + 1)

    if not is_unit_ideal(basis):
        extend(frozenset(), 0)
    return best


def standard_monomials(basis: Sequence[Any], count: int) -> list[Monomial]:
    """Monomials that no leading term divides: a basis of the quotient of a finite solution set."""
    leads = [g.LM for g in basis]
    bounds = []
    for variable in range(count):
        pure = [m[variable] for m in leads if sum(m) == m[variable]]
        bounds.append(range(min(pure)))
    found = [m for m in cartesian(*bounds) if not any(_divides(lead, m) for lead in leads)]
    return sorted(found, key=lambda m: (sum(m), m))
