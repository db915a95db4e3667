"""Fixed points of a small polynomial field whose parameters stay symbols."""

from __future__ import annotations

from collections.abc import Sequence

import sympy as sp

from odekit.analysis.budget import Budget, BudgetSpent
from odekit.analysis.fixed_point_set import FixedManifold, FixedPoint, FixedPointSet
from odekit.analysis.groebner import groebner_basis, is_unit_ideal
from odekit.analysis.scalar_system import ScalarSystem

__all__ = ["fixed_points_symbolic"]


def fixed_points_symbolic(
    system: ScalarSystem, parameters: Sequence[sp.Symbol], budget: Budget
) -> FixedPointSet:
    """Solve branch by branch for generic parameters, each branch a triangle of equations."""
    neutral = {s: sp.Dummy(s.name) for s in system.states}
    unknowns = [neutral[s] for s in system.states]
    numerators = [sp.fraction(sp.together(rate))[0].xreplace(neutral) for rate in system.rates]
    notes = ["for generic values of " + ", ".join(map(str, parameters))]
    solved: list[dict[sp.Symbol, sp.Expr]] = []
    manifolds: list[FixedManifold] = []
    complete = True
    try:
        for branch in _branches(numerators, unknowns, budget):
            done, sure = _triangle(branch, unknowns, {}, budget)
            complete = complete and sure
            solved.extend(done)
    except (BudgetSpent, sp.PolynomialError, NotImplementedError) as reason:
        complete = False
        notes.append(
            f"partial: {str(reason) or 'the time budget ran out'}; give values= for the parameters"
        )
    points: list[FixedPoint] = []
    excluded: list[FixedPoint] = []
    seen: set[tuple[sp.Expr, ...]] = set()
    undecided = 0
    back = {v: k for k, v in neutral.items()}
    for solution in solved:
        free = [u for u in unknowns if u not in solution]
        named = {back[u]: sp.simplify(value.xreplace(back)) for u, value in solution.items()}
        if free:
            equations = tuple(s - value for s, value in named.items())
            words = "manifold of dimension " + str(len(free))
            if not any(set(m.equations) == set(equations) for m in manifolds):
                manifolds.append(FixedManifold(equations, len(free), None, words))
            continue
        key = tuple(named[s] for s in system.states)
        if key in seen:
            continue
        seen.add(key)
        real = [value.is_real for value in key]
        if any(r is False for r in real):
            continue
        if any(r is None for r in real):
            undecided += 1
        point = FixedPoint({}, dict(zip(system.states, key, strict=True)))
        barred = any(
            (s.is_positive and value.is_positive is False)
            or (s.is_negative and value.is_negative is False)
            or (s.is_nonnegative and value.is_negative)
            or (s.is_nonzero and value.is_zero)
            for s, value in point.exact.items()  # type: ignore[union-attr]
        )
        (excluded if barred else points).append(point)
    if undecided:
        complete = False
        notes.append(
            f"{undecided} point(s) may be complex: declare the parameters' signs or give values="
        )
    if excluded:
        notes.append("solutions that the states' assumptions rule out are in .excluded")
    return FixedPointSet(
        tuple(points),
        complete,
        "factors and triangular equations over the parameters",
        tuple(manifolds),
        tuple(excluded),
        "; ".join(notes),
    )


def _branches(
    equations: Sequence[sp.Expr], unknowns: Sequence[sp.Symbol], budget: Budget
) -> list[list[sp.Expr]]:
    """Systems without a factor left to split, together equivalent to the equations."""
    leaves: list[list[sp.Expr]] = []
    stack: list[list[sp.Expr]] = [[e for e in equations if sp.expand(e) != 0]]
    while stack:
        budget.check()
        current = stack.pop()
        split = None
        for place, equation in enumerate(current):
            factors = [f for f, _ in sp.factor_list(equation)[1] if f.free_symbols & set(unknowns)]
            if len(factors) != 1 or sp.expand(factors[0] - equation) != 0:
                split = (place, factors)
                break
        if split is None:
            basis = _basis(current, unknowns, budget)
            if basis is None:
                continue
            if any(
                len([f for f in sp.factor_list(g)[1] if f[0].free_symbols & set(unknowns)]) > 1
                for g in basis
            ):
                stack.append(basis)
            else:
                leaves.append(basis)
            continue
        place, factors = split
        if not factors:
            continue
        rest = current[:place] + current[place + 1 :]
        stack.extend([[factor, *(r for r in rest if r != factor)] for factor in factors])
    return leaves


def _basis(
    equations: Sequence[sp.Expr], unknowns: Sequence[sp.Symbol], budget: Budget
) -> list[sp.Expr] | None:
    """Lexicographic Groebner basis over the rational functions of the parameters."""
    if not equations:
        return []
    parameters = sorted({s for e in equations for s in e.free_symbols} - set(unknowns), key=str)
    domain = sp.QQ.frac_field(*parameters) if parameters else sp.QQ
    ring = sp.ring(list(unknowns), domain, sp.lex)[0]
    polynomials = [
        ring.from_dict({m: domain.from_sympy(c) for m, c in sp.Poly(e, *unknowns).terms()})
        for e in equations
    ]
    basis = groebner_basis(polynomials, budget)
    if is_unit_ideal(basis):
        return None
    return [sp.numer(sp.together(g.as_expr())) for g in basis]


def _triangle(
    basis: Sequence[sp.Expr],
    unknowns: Sequence[sp.Symbol],
    known: dict[sp.Symbol, sp.Expr],
    budget: Budget,
) -> tuple[list[dict[sp.Symbol, sp.Expr]], bool]:
    """Solve from the last unknown up; whether every equation was solved."""
    budget.check()
    equations = [e for e in (sp.simplify(b.xreplace(known)) for b in basis) if e != 0]
    if any(not e.free_symbols & set(unknowns) for e in equations):
        return [], True
    if not equations:
        return [dict(known)], True
    for unknown in reversed(unknowns):
        lone = [e for e in equations if e.free_symbols & set(unknowns) == {unknown}]
        if lone:
            equation = min(lone, key=lambda e: sp.degree(e, unknown))
            roots = sp.roots(sp.Poly(equation, unknown))
            sure = sum(roots.values()) == sp.degree(equation, unknown)
            solutions: list[dict[sp.Symbol, sp.Expr]] = []
            for root in roots:
                more, fine = _triangle(basis, unknowns, {**known, unknown: root}, budget)
                solutions.extend(more)
                sure = sure and fine
            return solutions, sure
    for equation in equations:
        for unknown in unknowns:
            poly = sp.Poly(equation, unknown) if equation.has(unknown) else None
            if poly is not None and poly.degree() == 1:
                value = sp.cancel(-poly.coeff_monomial(1) / poly.coeff_monomial(unknown))
                more, fine = _triangle(
                    [b for b in basis], unknowns, {**known, unknown: value}, budget
                )
                return more, fine
    return [], False
