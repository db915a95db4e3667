"""Polynomial conserved quantities of a field in component form: all of a degree."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import sympy as sp
from numpy.typing import NDArray
from sympy.polys.matrices import DomainMatrix

from odekit.analysis import modular
from odekit.analysis.budget import Budget, BudgetSpent
from odekit.analysis.expressions import (
    GraphEvaluator,
    graph_nodes,
    polynomial_atoms,
    radical_degrees,
)
from odekit.analysis.invariants import Invariant, Invariants, Symmetry
from odekit.analysis.scalar_system import ModularSample, ScalarSystem, ring_evaluator
from odekit.errors import InputError

__all__ = ["conserved_scalar", "loss_mobilities"]

Exponents = tuple[tuple[int, int], ...]
"""A monomial: sorted pairs of a state's place and its exponent."""

MOST_CANDIDATES = 6000
PROOF_SECONDS = 20.0


def monomials(count: int, degree: int) -> list[Exponents]:
    """All monomials of exactly this degree."""
    found: list[Exponents] = []
    for places in itertools.combinations_with_replacement(range(count), degree):
        found.append(tuple((p, places.count(p)) for p in sorted(set(places))))
    return found


def time_derivatives(candidates: Sequence[Exponents], sample: ModularSample) -> NDArray[np.int64]:
    """d/dt of each monomial at each sampled point, shape (points, candidates)."""
    x, f, prime = sample.states, sample.rates, modular.PRIME
    columns = np.empty((x.shape[1], len(candidates)), dtype=np.int64)
    for k, monomial in enumerate(candidates):
        total = np.zeros(x.shape[1], dtype=np.int64)
        for place, exponent in monomial:
            part = f[place] * exponent % prime
            for other, power in monomial:
                for _ in range(power - (other == place)):
                    part = part * x[other] % prime
            total = (total + part) % prime
        columns[:, k] = total
    return columns


def conserved_scalar(
    system: ScalarSystem,
    degree: int,
    prove: Callable[[sp.Expr], bool] | None = None,
    seconds: float = PROOF_SECONDS,
) -> Invariants:
    """Find all polynomial conserved quantities up to a degree.

    Parameters
    ----------
    system : ScalarSystem
        The field.
    degree : int
        Largest degree of the ansatz.
    prove : callable, optional
        A cheaper exact proof that a quantity is conserved, tried first.
    seconds : float
        Budget of the symbolic proofs; what it does not reach is marked "modular".
    """
    count = len(system.states)
    sizes = [len(monomials(count, d)) for d in range(1, degree + 1)]
    if sum(sizes) > MOST_CANDIDATES:
        raise InputError(
            f"A degree-{degree} ansatz in {count} states has {sum(sizes)} coefficients "
            f"(at most {MOST_CANDIDATES}); lower the degree or use smaller sizes."
        )
    candidates = [m for d in range(1, degree + 1) for m in monomials(count, d)]
    # One draw of the parameters for all points finds every invariant of that draw; those that
    # survive further draws hold with coefficients free of parameters.
    fixed = ModularSample(system, len(candidates) + 12, seed=2, fixed_parameters=True)
    basis, _ = modular.null_space(time_derivatives(candidates, fixed))
    support = sorted({int(c) for c in np.flatnonzero(basis.any(axis=0))})
    chosen = [candidates[c] for c in support]
    varied = ModularSample(system, len(basis) + 12, seed=1)
    kept = modular.product(time_derivatives(chosen, varied), basis[:, support].T)
    mixing, _ = modular.null_space(kept)
    vectors = modular.rational_vectors(
        modular.reduced_rows(modular.product(mixing, basis[:, support]))
    )
    notes = [f"polynomials of degree at most {degree} in {count} states"]
    complete: Literal["degree"] | None = "degree"
    if fixed.opaque_states:
        complete = None
        notes.append("functions of the states were treated as independent of them")
    if vectors is not None and len(vectors) == len(basis):
        expressions = [_expression(system, chosen, vector) for vector in vectors]
    else:
        found = _with_parameters(system, chosen, len(basis), seconds)
        if found is None or len(found) < len(basis):
            complete = None
            notes.append("some have coefficients that depend on parameters and were not solved")
            expressions = [_expression(system, chosen, vector) for vector in vectors or ()]
        else:
            expressions = found
    expressions = _independent(system, expressions, degree)
    expressions.sort(key=lambda e: (sp.Poly(e, *system.states).total_degree(), sp.count_ops(e)))
    budget = Budget(seconds)
    proofs = _prove(system, expressions, prove, budget)
    proved = [(e, p) for e, p in zip(expressions, proofs, strict=True) if p is not None]
    mobilities = loss_mobilities(system)
    probe = _LossProbe(system) if mobilities is not None and proved else None
    items = tuple(
        _invariant(system, expression, proof, mobilities, probe) for expression, proof in proved
    )
    return Invariants(items, complete, "; ".join(notes))


def _expression(
    system: ScalarSystem, candidates: Sequence[Exponents], vector: dict[int, Fraction]
) -> sp.Expr:
    scale = int(np.lcm.reduce([c.denominator for c in vector.values()]))
    scale *= 1 if next(iter(vector.values())) > 0 else -1
    common = int(np.gcd.reduce([int(c * scale) for c in vector.values()]))
    return sp.Add(
        *(
            sp.Rational(int(c * scale), common)
            * sp.Mul(*(system.states[i] ** e for i, e in candidates[k]))
            for k, c in vector.items()
        )
    )


def _with_parameters(
    system: ScalarSystem, candidates: Sequence[Exponents], nullity: int, seconds: float
) -> list[sp.Expr] | None:
    """Solve for coefficients that are rational functions of the parameters.

    Only parameters whose change turns the null space are kept as symbols; the states and the
    other parameters are drawn at random, one row of the linear system for each draw.
    """
    budget = Budget(seconds)
    moving = _moving_parameters(system, candidates, nullity)
    if moving is None or any(radical_degrees(system.rates).get(s) for s in system.parameters):
        return None
    domain = sp.QQ.frac_field(*moving) if moving else sp.QQ
    rng = np.random.default_rng(17)
    places = sorted({place for monomial in candidates for place, _ in monomial})
    others = [*system.states, *(s for s in system.parameters if s not in moving)]
    rows = []
    try:
        for _ in range(len(candidates) + 4):
            budget.check()
            draw = {s: sp.Integer(int(rng.integers(-9, 10)) or 11) for s in others}
            leaves = {s: domain.from_sympy(value) for s, value in draw.items()}
            leaves.update({s: domain.from_sympy(s) for s in moving})
            evaluator = GraphEvaluator(leaves, domain.from_sympy, lambda value: 1 / value)
            rates = {place: evaluator(system.rates[place]) for place in places}
            rows.append(
                [
                    sum(
                        (
                            rates[place]
                            * domain.from_sympy(
                                sp.Mul(
                                    exponent,
                                    *(
                                        draw[system.states[o]] ** (p - (o == place))
                                        for o, p in monomial
                                    ),
                                )
                            )
                            for place, exponent in monomial
                        ),
                        domain.zero,
                    )
                    for monomial in candidates
                ]
            )
        matrix = DomainMatrix(rows, (len(rows), len(candidates)), domain)
        vectors = matrix.nullspace().to_Matrix().tolist()
    except (BudgetSpent, InputError, ZeroDivisionError):
        return None
    found = []
    for vector in vectors:
        common = sp.lcm_list([sp.denom(sp.together(c)) for c in vector])
        shared = sp.gcd_list([sp.cancel(c * common) for c in vector if c != 0])
        found.append(
            sp.Add(
                *(
                    sp.cancel(c * common / shared)
                    * sp.Mul(*(system.states[i] ** e for i, e in candidates[k]))
                    for k, c in enumerate(vector)
                )
            )
        )
    return found


def _moving_parameters(
    system: ScalarSystem, candidates: Sequence[Exponents], nullity: int
) -> list[sp.Symbol] | None:
    """Parameters without which the null space would not change from draw to draw."""
    moving = []
    for symbol in system.parameters:
        varied = ModularSample(
            system, len(candidates) + 8, seed=7, fixed_parameters=True, free=(symbol,)
        )
        basis, _ = modular.null_space(time_derivatives(candidates, varied))
        if len(basis) < nullity:
            moving.append(symbol)
    return moving if len(moving) <= 6 else None


def _independent(system: ScalarSystem, expressions: list[sp.Expr], degree: int) -> list[sp.Expr]:
    """Drop polynomials in invariants of lower degree."""
    polys = sorted(
        (sp.Poly(e, *system.states) for e in expressions), key=lambda p: p.total_degree()
    )
    if not polys or polys[0].total_degree() * 2 > degree:
        return [p.as_expr() for p in polys]
    kept: list[sp.Poly] = []
    for poly in polys:
        own = poly.total_degree()
        implied = []
        for size in range(2, own + 1):
            for group in itertools.combinations_with_replacement(kept, size):
                if sum(p.total_degree() for p in group) <= own:
                    implied.append(sp.prod(group))
        basis = [*kept, *implied]
        rows = sorted({m for p in [*basis, poly] for m in p.monoms()})
        matrix = sp.Matrix([[p.coeff_monomial(m) for m in rows] for p in [*basis, poly]])
        if matrix.rank() > (matrix[:-1, :].rank() if basis else 0):
            kept.append(poly)
    return [p.as_expr() for p in kept]


def _prove(
    system: ScalarSystem,
    expressions: Sequence[sp.Expr],
    prove: Callable[[sp.Expr], bool] | None,
    budget: Budget,
) -> list[Literal["exact", "modular"] | None]:
    proofs: list[Literal["exact", "modular"] | None] = []
    evaluators: dict[bool, Any] = {}
    names = [*expressions, *system.rates]
    shared = _shared_sums(system.rates)

    def derivative(expression: sp.Expr, evaluator: Any) -> Any:
        total: Any = 0
        for state in sorted(expression.free_symbols & set(system.states), key=str):
            slope = evaluator(sp.diff(expression, state))
            total = total + slope * evaluator(system.rates[system.states.index(state)])
        return total

    for expression in expressions:
        if prove is not None and prove(expression):
            proofs.append("exact")
            continue
        try:
            # Shared sums as letters of their own come first: if that is zero, all is.
            proved = False
            for letters in (shared, set()) if shared else (set(),):
                key = bool(letters)
                if key not in evaluators:
                    evaluators[key] = ring_evaluator(names, budget, system.states, letters)[1]
                if derivative(expression, evaluators[key]) == 0:
                    proved = True
                    break
            proofs.append("exact" if proved else _reduced_proof(system, expression))
        except BudgetSpent:
            # The candidates vanished at more random points than they have coefficients.
            proofs.append("modular")
    return proofs


def _shared_sums(rates: Sequence[sp.Expr]) -> set[sp.Expr]:
    """Sums that occur in several places of the rates, such as the entries of a cotangent."""
    places: dict[sp.Expr, int] = {}
    for node in graph_nodes(rates):
        for argument in node.args:
            if argument.is_Add:
                places[argument] = places.get(argument, 0) + 1
    return {node for node, count in places.items() if count > 1}


def _reduced_proof(system: ScalarSystem, expression: sp.Expr) -> Literal["exact"] | None:
    total = sum(
        sp.diff(expression, s) * r for s, r in zip(system.states, system.rates, strict=True)
    )
    return "exact" if sp.simplify(sp.together(total)) == 0 else None


class _Dual:
    """Residues with their derivatives along every state: shape (points, 1 + states)."""

    __slots__ = ("parts",)

    def __init__(self, parts: NDArray[np.int64]) -> None:
        self.parts = parts

    def __add__(self, other: _Dual) -> _Dual:
        return _Dual((self.parts + other.parts) % modular.PRIME)

    def __mul__(self, other: _Dual) -> _Dual:
        left, right = self.parts, other.parts
        product = left[:, :1] * right % modular.PRIME
        product[:, 1:] += right[:, :1] * left[:, 1:] % modular.PRIME
        return _Dual(product % modular.PRIME)

    def inverse(self) -> _Dual:
        """The reciprocal."""
        value = modular.inverse(self.parts[:, :1])
        slope = -(value * value % modular.PRIME) * self.parts[:, 1:] % modular.PRIME
        return _Dual(np.concatenate([value, slope], axis=1))


def loss_mobilities(system: ScalarSystem) -> list[Fraction] | None:
    """Numbers m_i, up to one common factor, with ``rate_i = -m_i dL/d(state_i)``; None if none.

    Compared at random points modulo a prime.
    """
    if system.loss is None or not system.states:
        return None
    points, count = 3, len(system.states)
    try:
        sample = ModularSample(system, points, seed=5, also=(system.loss,))
    except InputError:
        return None

    def constant(number: sp.Rational) -> _Dual:
        parts = np.zeros((points, 1 + count), dtype=np.int64)
        parts[:, 0] = modular.constant(number)
        return _Dual(parts)

    def lift(value: Any, place: int | None = None) -> _Dual:
        parts = np.zeros((points, 1 + count), dtype=np.int64)
        parts[:, 0] = value
        if place is not None:
            parts[:, 1 + place] = 1
        return _Dual(parts)

    place = {s: i for i, s in enumerate(system.states)}
    if any(a.free_symbols & set(place) for a in sample.opaque):
        return None
    leaves = {atom: lift(value, place.get(atom)) for atom, value in sample.leaves.items()}
    roots = {s: (d, lift(r)) for s, (d, r) in sample.roots.items()}
    evaluator = GraphEvaluator(leaves, constant, _Dual.inverse, None, roots)
    slopes = evaluator(system.loss).parts[:, 1:]
    rates = sample.rates.T
    ratios = -rates * modular.inverse(slopes) % modular.PRIME
    if np.any((slopes == 0) & (rates != 0)):
        return None
    moving = np.flatnonzero(slopes.any(axis=0))
    if not moving.size:
        return None
    first = np.asarray(modular.inverse(ratios[:, moving[0]]))
    relative = ratios * first[:, None] % modular.PRIME
    if np.any(relative[:, moving] != relative[0, moving]) or not relative[0, moving].all():
        return None
    found = [
        modular.rational(int(r)) if i in moving else Fraction(1) for i, r in enumerate(relative[0])
    ]
    return [m for m in found if m is not None] if all(m is not None for m in found) else None


class _LossProbe:
    """The loss as a function of numbers, to confirm finite steps of its symmetries."""

    def __init__(self, system: ScalarSystem) -> None:
        loss = sp.sympify(system.loss)
        nodes = list(graph_nodes([loss]))
        atoms, opaque = polynomial_atoms([loss])
        rng = np.random.default_rng(11)
        self._loss, self._states = loss, system.states
        self._points = rng.normal(size=(2, len(system.states)))
        own = set(system.states)
        others = sorted((atoms | opaque) - own, key=str)
        self._others = dict(zip(others, rng.uniform(0.5, 2.0, size=len(others)), strict=True))
        for node in nodes:
            if node.is_Pow and node.base in self._others and not node.exp.is_Integer:
                self._others[node] = self._others[node.base] ** float(node.exp)

    def _at(self, theta: NDArray[np.float64]) -> float:
        leaves = {**self._others, **dict(zip(self._states, theta.tolist(), strict=True))}
        evaluator = GraphEvaluator(leaves, float, lambda value: 1.0 / value)
        return float(evaluator(self._loss))

    def unchanged(self, generator: sp.Matrix) -> bool:
        """Compare the loss before and after finite steps of the group, at random points."""
        from scipy.linalg import expm

        matrix = np.array(generator.tolist(), dtype=float)
        matrix /= max(1.0, float(np.abs(matrix).max()))
        for step, theta in zip((0.3, -0.7), self._points, strict=True):
            before = self._at(theta)
            after = self._at(expm(step * matrix) @ theta)
            # Rounding of a polynomial loss of moderate values: far below 1e-9 of them.
            if abs(after - before) > 1e-9 * (1 + abs(before) + abs(after)):
                return False
        return True


def _invariant(
    system: ScalarSystem,
    expression: sp.Expr,
    proof: Literal["exact", "modular"],
    mobilities: list[Fraction] | None,
    probe: _LossProbe | None,
) -> Invariant:
    poly = sp.Poly(expression, *system.states)
    degree = int(poly.total_degree())
    if degree != 2 or not poly.is_homogeneous or mobilities is None or probe is None:
        return Invariant(expression, degree, None, None, proof)
    form = sp.zeros(len(system.states))
    for exponents, value in poly.terms():
        i, *rest = [k for k, e in enumerate(exponents) for _ in range(e)]
        form[i, rest[0]] += value / 2
        form[rest[0], i] += value / 2
    generator = sp.diag(*(sp.Rational(m.numerator, m.denominator) for m in mobilities)) * form
    if generator.free_symbols:
        return Invariant(expression, degree, generator, None, proof)
    words = (
        "scaling of the states that leaves the loss unchanged"
        if generator.is_diagonal()
        else "hyperbolic mixing of the states that leaves the loss unchanged"
    )
    symmetry = Symmetry(words, generator, proof == "exact", probe.unchanged(generator))
    return Invariant(expression, degree, generator, symmetry, proof)
