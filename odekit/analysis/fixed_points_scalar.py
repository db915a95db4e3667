"""All real fixed points of a small polynomial field, or as many as a search finds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.analysis.budget import Budget, BudgetSpent
from odekit.analysis.expressions import polynomial_atoms
from odekit.analysis.fixed_point_set import FixedManifold, FixedPoint, FixedPointSet
from odekit.analysis.groebner import (
    dimension,
    groebner_basis,
    is_unit_ideal,
    remainder,
    standard_monomials,
)
from odekit.analysis.newton import multistart_roots
from odekit.analysis.real_roots import coefficient_bits, real_solutions
from odekit.analysis.scalar_system import ScalarSystem

__all__ = ["FEW_STATES", "fixed_points_scalar", "rate_functions", "search"]

MOST_TERMS = 20_000
LARGEST_FACTORED = 60
MOST_BRANCHES = 2000
FEW_STATES = 14
MOST_FACTORED_BITS = 240


def fixed_points_scalar(system: ScalarSystem, seconds: float, seed: int = 0) -> FixedPointSet:
    """Find the fixed points of a field in component form (see `fixed_points`)."""
    budget = Budget(seconds)
    own = set(system.states)
    parameters = sorted({s for r in system.rates for s in r.free_symbols} - own, key=str)
    if parameters:
        from odekit.analysis.fixed_points_symbolic import fixed_points_symbolic

        return fixed_points_symbolic(system, parameters, budget)
    _, opaque = polynomial_atoms(system.rates)
    if any(atom.free_symbols & own for atom in opaque):
        return _numeric(system, 0.5 * seconds, seed, "the field is not polynomial in the states")
    if opaque:
        return _numeric(system, 0.5 * seconds, seed, "the field has irrational coefficients")
    if len(system.states) > FEW_STATES and not _local_equations(system):
        reason = f"{len(system.states)} states are too many for the exact computation"
        return _numeric(system, 0.5 * seconds, seed, reason)
    try:
        return _algebraic(system, budget)
    except BudgetSpent as spent:
        reason = str(spent) or f"the exact computation did not end within {seconds:g} s"
        return _numeric(system, 0.3 * seconds, seed, reason)


def _linear(system: ScalarSystem) -> bool:
    """Whether each equation holds few states, as in independent blocks."""
    own = set(system.states)
    return all(len(r.free_symbols & own) <= 4 for r in system.rates)


def _local_equations(system: ScalarSystem) -> bool:
    """Whether each equation holds few states, as in independent blocks."""
    own = set(system.states)
    return all(len(r.free_symbols & own) <= 4 for r in system.rates)


def _algebraic(system: ScalarSystem, budget: Budget) -> FixedPointSet:
    found = _solved(system, budget.part(0.8))
    kept, excluded = _filtered(system, found.points)
    notes = [found.note] if found.note else []
    if excluded:
        notes.append(
            f"solved with the assumptions on the states removed; {len(excluded)} real solution(s) "
            "that they rule out are in .excluded"
        )
    return replace(found, points=tuple(kept), excluded=tuple(excluded), note="; ".join(notes))


def _solved(system: ScalarSystem, exact_budget: Budget) -> FixedPointSet:
    """All real solutions, whatever the states' symbols assume."""
    ring, numerators, denominators = _polynomials(system, exact_budget)
    numerators = _linearly_independent([n for n in numerators if n], exact_budget)
    blocks = _blocks(numerators, len(system.states))
    if len(blocks) > 1 and not denominators:
        parts = []
        for variables in blocks:
            inside = [p for p in numerators if _variables(p) & variables]
            states = tuple(system.states[i] for i in sorted(variables))
            rates = tuple(p.as_expr(*system.states) for p in inside)
            parts.append(
                (states, _solved(replace(system, states=states, rates=rates), exact_budget))
            )
        return _product(system, parts, exact_budget)
    leaves = _split([n for n in numerators if n], ring, exact_budget)
    count = len(system.states)
    found: dict[tuple[float, ...], tuple[tuple[sp.Expr, ...], int]] = {}
    manifolds: list[list[Any]] = []
    certified = True
    for leaf in leaves:
        if not leaf or dimension(leaf, count) > 0:
            manifolds.append(leaf)
            continue
        solutions = real_solutions(leaf, exact_budget)
        certified = certified and solutions.counted == len(solutions.points)
        for coordinates, multiplicity in zip(solutions.points, solutions.multiplicity, strict=True):
            key = tuple(round(float(c), 12) for c in coordinates)
            found.setdefault(key, (coordinates, multiplicity))
    method = ["Groebner bases split by factors, real roots isolated exactly"]
    multiplicities = _multiplicities(numerators, manifolds, exact_budget)
    if multiplicities is not None:
        certified = certified and len(multiplicities) == len(found)
        method.append(f"number certified by Hermite's quadratic form ({len(multiplicities)})")
    else:
        method.append("number of each part certified by Hermite's quadratic form")
    isolated = [
        (coordinates, (multiplicities or {}).get(key, multiplicity))
        for key, (coordinates, multiplicity) in sorted(found.items())
        if not any(_on(leaf, coordinates) for leaf in manifolds)
        and all(_value(d, coordinates) != 0 for d in denominators)
    ]
    notes: list[str] = []
    if len(isolated) < len(found):
        notes.append("solutions on a manifold of fixed points or at a pole were left out")
    continua = []
    for leaf in manifolds:
        manifold, sure = _manifold(system, leaf, ring, exact_budget)
        if manifold is not None:
            continua.append(manifold)
        if not sure:
            certified = False
            notes.append("the real part of a positive-dimensional component is not fully resolved")
    points = [_point(system, coordinates, multiplicity) for coordinates, multiplicity in isolated]
    return FixedPointSet(
        tuple(points), certified, "; ".join(method), tuple(continua), (), "; ".join(notes)
    )


def _variables(polynomial: Any) -> set[int]:
    return {i for m in polynomial for i, e in enumerate(m) if e}


def _linearly_independent(polynomials: Sequence[Any], budget: Budget) -> list[Any]:
    """Drop polynomials that are combinations, with constant coefficients, of shorter ones."""
    echelon: list[tuple[Any, Any]] = []
    kept = []
    for polynomial in sorted(polynomials, key=len):
        rest = polynomial.copy()
        for lead, row in echelon:
            budget.check()
            if lead in rest:
                rest = rest - row * rest[lead]
        if rest:
            kept.append(polynomial)
            echelon.append((rest.LM, rest.monic()))
    return kept


def _blocks(polynomials: Sequence[Any], count: int) -> list[set[int]]:
    """Groups of variables that share equations."""
    groups: list[set[int]] = [{i} for i in range(count)]
    for polynomial in polynomials:
        own = _variables(polynomial)
        joined = [g for g in groups if g & own]
        if joined:
            groups = [g for g in groups if not g & own] + [set().union(*joined)]
    return sorted(groups, key=min)


def _product(
    system: ScalarSystem,
    parts: Sequence[tuple[tuple[sp.Symbol, ...], FixedPointSet]],
    budget: Budget,
) -> FixedPointSet:
    """Combine the solutions of equations that share no variable."""
    choices: list[list[FixedPoint | FixedManifold]] = [
        [*found.points, *found.manifolds] for _, found in parts
    ]
    total = int(np.prod([len(c) for c in choices], dtype=float)) if all(choices) else 0
    if total > MOST_BRANCHES:
        raise BudgetSpent
    points: list[FixedPoint] = []
    manifolds: list[FixedManifold] = []
    for chosen in itertools.product(*choices):
        budget.check()
        flat: dict[sp.Symbol, float] = {}
        exact: dict[sp.Symbol, sp.Expr] | None = {}
        equations: list[sp.Expr] = []
        size, multiplicity, residual = 0, 1, 0.0
        for (states, _), item in zip(parts, chosen, strict=True):
            sample = item.sample if isinstance(item, FixedManifold) else item
            assert sample is not None
            sub = replace(system, states=states)
            flat.update(zip(states, map(float, sub.pack(sample.values_by_name)), strict=True))
            if isinstance(item, FixedManifold):
                size += item.dimension
                equations += item.equations
                exact = None
                continue
            multiplicity *= item.multiplicity
            residual = max(residual, item.residual)
            equations += [s - (item.exact or flat)[s] for s in states]
            if exact is not None:
                exact = None if item.exact is None else {**exact, **item.exact}
        values = system.unpack([flat[s] for s in system.states])
        point = FixedPoint(values, exact, multiplicity, residual)
        if size:
            words = f"manifold of dimension {size}: " + ", ".join(f"{e} = 0" for e in equations)
            manifolds.append(FixedManifold(tuple(equations), size, point, words))
        else:
            points.append(point)
    method = dict.fromkeys(found.method for _, found in parts)
    notes = dict.fromkeys(found.note for _, found in parts if found.note)
    return FixedPointSet(
        tuple(points),
        all(found.complete for _, found in parts),
        "independent blocks; " + "; ".join(method),
        tuple(manifolds),
        (),
        "; ".join(notes),
    )


def _polynomials(system: ScalarSystem, budget: Budget) -> tuple[Any, list[Any], list[Any]]:
    """The rates' numerators and denominators in one graded ring over the rationals."""
    names = [f"x{i}" for i in range(len(system.states))]
    ring = sp.ring(names, sp.QQ, sp.grevlex)[0]
    numerators, denominators = [], []
    for rate in system.rates:
        budget.check()
        top, bottom = _ratio(rate, system, ring, budget)
        numerators.append(top)
        if bottom.is_ground is False:
            denominators.append(bottom)
    return ring, numerators, denominators


def _ratio(rate: sp.Expr, system: ScalarSystem, ring: Any, budget: Budget) -> tuple[Any, Any]:
    from odekit.analysis.expressions import GraphEvaluator

    if any(p.exp.is_negative and p.base.free_symbols for p in rate.atoms(sp.Pow)):
        top, bottom = sp.fraction(sp.cancel(sp.together(rate)))
        budget.check()
    else:
        top, bottom = rate, sp.Integer(1)
    evaluator = GraphEvaluator(
        dict(zip(system.states, ring.gens, strict=True)),
        lambda number: ring(sp.QQ(int(number.p), int(number.q))),
        budget=budget,
    )
    upper, lower = evaluator(top), evaluator(bottom)
    if len(upper) > MOST_TERMS:
        raise BudgetSpent
    return upper, lower


def _factors(polynomial: Any) -> list[Any]:
    """Distinct irreducible factors over the rationals, itself when it is large."""
    # Factoring has no deadline of its own, and its cost grows steeply with the coefficients.
    if (
        len(polynomial) > LARGEST_FACTORED
        or sum(polynomial.LM) > 12
        or coefficient_bits(polynomial.values()) > MOST_FACTORED_BITS
    ):
        return [polynomial.monic()]
    return [f.monic() for f, _ in polynomial.factor_list()[1]]


def _split(polynomials: Sequence[Any], ring: Any, budget: Budget) -> list[list[Any]]:
    """Groebner bases of ideals whose solution sets make up that of the polynomials."""
    leaves: list[list[Any]] = []
    seen: set[frozenset[Any]] = set()
    stack: list[list[Any]] = [list(polynomials)]
    while stack:
        budget.check()
        current = stack.pop()
        key = frozenset(current)
        if key in seen:
            continue
        seen.add(key)
        if len(seen) > MOST_BRANCHES:
            raise BudgetSpent
        branch = _first_split(current)
        if branch is None:
            basis = groebner_basis(current, budget)
            if is_unit_ideal(basis):
                continue
            branch = _first_split(basis)
            if branch is None:
                leaves.append(basis)
                continue
            current = basis
        position, factors = branch
        others = current[:position] + current[position + 1 :]
        for factor in factors:
            reduced = [remainder(p, [factor], budget) for p in others]
            stack.append([factor, *(p.monic() for p in reduced if p)])
    return _without_redundant(leaves, budget)


def _first_split(polynomials: Sequence[Any]) -> tuple[int, list[Any]] | None:
    for place in sorted(range(len(polynomials)), key=lambda i: len(polynomials[i])):
        factors = _factors(polynomials[place])
        if len(factors) > 1 or (factors and factors[0] != polynomials[place].monic()):
            return place, factors
    return None


def _without_redundant(leaves: list[list[Any]], budget: Budget) -> list[list[Any]]:
    """Drop components whose solutions lie in another: the other's equations vanish on them."""
    kept: list[list[Any]] = []
    for i, leaf in enumerate(leaves):
        inside = False
        for j, other in enumerate(leaves):
            if i == j:
                continue
            if all(not remainder(g, leaf, budget) for g in other):
                equal = all(not remainder(g, other, budget) for g in leaf)
                if not equal or j < i:
                    inside = True
                    break
        if not inside:
            kept.append(leaf)
    return kept


def _multiplicities(
    numerators: Sequence[Any], manifolds: Sequence[Any], budget: Budget
) -> dict[tuple[float, ...], int] | None:
    """Real solutions of the unsplit system with their multiplicities, when that is cheap.

    An independent count: splitting by factors plays no part in it.
    """
    if manifolds:
        return None
    try:
        part = budget.part(0.4)
        basis = groebner_basis([n for n in numerators if n], part)
        if is_unit_ideal(basis):
            return {}
        if len(standard_monomials(basis, len(basis[0].ring.gens))) > 24:
            return None
        whole = real_solutions(basis, part)
    except BudgetSpent:
        return None
    if whole.counted != len(whole.points):
        return None
    return {
        tuple(round(float(c), 12) for c in coordinates): multiplicity
        for coordinates, multiplicity in zip(whole.points, whole.multiplicity, strict=True)
    }


def _value(polynomial: Any, coordinates: Sequence[sp.Expr]) -> sp.Expr:
    expression = polynomial.as_expr(*coordinates)
    if expression.is_Rational:
        return expression
    number = sp.Float(expression.evalf(40))
    return sp.Integer(0) if abs(number) < sp.Float(10) ** -20 else number


def _on(leaf: Sequence[Any], coordinates: Sequence[sp.Expr]) -> bool:
    return all(_value(g, coordinates) == 0 for g in leaf)


def _point(system: ScalarSystem, coordinates: Sequence[sp.Expr], multiplicity: int) -> FixedPoint:
    values = system.unpack([float(c) for c in coordinates])
    exact = None
    if not any(c.has(sp.Float) for c in coordinates):
        exact = dict(zip(system.states, coordinates, strict=True))
    at = dict(zip(system.states, coordinates, strict=True))
    residual = max((abs(float(r.subs(at).evalf(30))) for r in system.rates), default=0.0)
    return FixedPoint(values, exact, multiplicity, residual)


def _filtered(
    system: ScalarSystem, points: Sequence[FixedPoint]
) -> tuple[list[FixedPoint], list[FixedPoint]]:
    """Sort out the points that contradict the assumptions on the states' symbols."""
    kept: list[FixedPoint] = []
    excluded: list[FixedPoint] = []
    for point in points:
        flat = [float(x) for x in system.pack(point.values_by_name)]
        bad = any(
            (s.is_positive and x <= 0)
            or (s.is_negative and x >= 0)
            or (s.is_nonnegative and x < 0)
            or (s.is_nonpositive and x > 0)
            or (s.is_nonzero and x == 0)
            for s, x in zip(system.states, flat, strict=True)
        )
        (excluded if bad else kept).append(point)
    return kept, excluded


def _manifold(
    system: ScalarSystem, leaf: Sequence[Any], ring: Any, budget: Budget
) -> tuple[FixedManifold | None, bool]:
    """A positive-dimensional component with a real point on it, and whether it is understood."""
    count = len(system.states)
    size = dimension(leaf, count) if leaf else count
    equations = tuple(g.as_expr(*system.states) for g in leaf)
    if not leaf:
        zero = FixedPoint(system.unpack([0.0] * count))
        return FixedManifold((), count, zero, "every state is fixed"), True
    functions = sp.lambdify([system.states], list(equations), "numpy")
    slopes = sp.lambdify(
        [system.states], [[sp.diff(e, s) for s in system.states] for e in equations], "numpy"
    )
    roots = multistart_roots(
        lambda y: np.array(functions(y), dtype=float),
        lambda y: np.array(slopes(y), dtype=float).reshape(len(equations), count),
        count,
        starts=12,
        budget=budget,
        seed=3,
        distinct=False,
    )
    for root in roots:
        jacobian = np.array(slopes(root), dtype=float).reshape(len(equations), count)
        singular = np.linalg.svd(jacobian, compute_uv=False)
        rank = int(np.sum(singular > 1e-7 * max(1.0, singular[0])))
        if rank == count - size:
            words = f"manifold of dimension {size}: " + ", ".join(f"{e} = 0" for e in equations)
            return FixedManifold(equations, size, FixedPoint(system.unpack(root)), words), True
    if roots:
        words = "component whose real points are singular"
        return FixedManifold(equations, size, FixedPoint(system.unpack(roots[0])), words), False
    return None, False


def _numeric(system: ScalarSystem, seconds: float, seed: int, reason: str) -> FixedPointSet:
    """Search from many starts; finds isolated points and samples of manifolds."""
    rates, slopes = rate_functions(system)
    # The budget starts after the functions are made, so that there is always a search.
    budget, count = Budget(seconds), len(system.states)
    searched = search(rates, slopes, count, system.unpack, budget, seed, reason)
    kept, excluded = _filtered(system, searched.points)
    return replace(searched, points=tuple(kept), excluded=tuple(excluded))


def search(
    rates: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    slopes: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    count: int,
    unpack: Callable[[NDArray[np.float64]], dict[str, Any]],
    budget: Budget,
    seed: int,
    reason: str,
) -> FixedPointSet:
    """Zeros of the rates from many starts, as a set that says it is partial.

    Parameters
    ----------
    rates, slopes : callable
        Rates (n,) and Jacobian (n, n) at a flat state.
    count : int
        Number of states n.
    unpack : callable
        Named arrays of a flat state.
    budget : Budget
        The search ends when it is spent.
    seed : int
        Seed of the starts.
    reason : str
        Why there is no exact answer.
    """
    roots = multistart_roots(rates, slopes, count, starts=60, budget=budget, seed=seed)
    points = []
    on_manifold = 0
    for root in roots:
        singular = np.linalg.svd(slopes(root), compute_uv=False)
        note = ""
        if singular[-1] < 1e-7 * max(1.0, singular[0]):
            note = "degenerate or on a manifold of fixed points"
            on_manifold += 1
        residual = float(np.max(np.abs(rates(root)), initial=0.0))
        points.append(FixedPoint(unpack(root), None, 1, residual, note))
    note = (
        f"partial: {reason}; searched by least-squares Newton from up to 60 starts, "
        "others may exist"
    )
    if on_manifold:
        note += f"; {on_manifold} of the points are degenerate or samples of a manifold"
    return FixedPointSet(tuple(points), False, "multistart least-squares Newton", (), (), note)


def rate_functions(
    system: ScalarSystem,
) -> tuple[
    Callable[[NDArray[np.float64]], NDArray[np.float64]],
    Callable[[NDArray[np.float64]], NDArray[np.float64]],
]:
    """Numeric rates and their Jacobian as functions of the flat state.

    The Jacobian is exact for few states; for many it is taken by central differences, because
    differentiating long expressions would cost more than the search.
    """
    count = len(system.states)
    rates = sp.lambdify([system.states], list(system.rates), "numpy", cse=True)
    if count > FEW_STATES:

        def differences(y: NDArray[np.float64]) -> NDArray[np.float64]:
            step = 1e-6 * (1 + float(np.abs(y).max(initial=0.0)))
            columns = [
                np.subtract(rates(y + step * unit), rates(y - step * unit)) / (2 * step)
                for unit in np.eye(count)
            ]
            return np.stack(columns, axis=1)

        return lambda y: np.array(rates(y), dtype=float), differences
    jacobian = sp.lambdify(
        [system.states],
        system.slopes(),
        "numpy",
        cse=True,
    )
    return (
        lambda y: np.array(rates(y), dtype=float),
        lambda y: np.array(jacobian(y), dtype=float).reshape(-1, count),
    )
