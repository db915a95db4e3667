"""All real solutions of a polynomial system with finitely many complex ones, certified.

The rational univariate representation (Rouillier 1999) turns the system into one polynomial, whose
real roots are isolated exactly; their number is certified by Hermite's quadratic form (the
signature of the trace form of the quotient algebra), which does not see the roots.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.analysis.budget import Budget, BudgetSpent
from odekit.analysis.groebner import remainder, standard_monomials

__all__ = ["QuotientAlgebra", "RealSolutions", "coefficient_bits", "real_solutions"]

# Larger quotient algebras have coefficients of thousands of digits, whose roots take minutes.
LARGEST_DEGREE = 24
LARGEST_STURM = 20
DIGITS = 60


@dataclass(frozen=True)
class RealSolutions:
    """Real solutions of a finite system.

    Parameters
    ----------
    points : tuple of tuple
        Coordinates: exact SymPy numbers where they are rational or quadratic, else floats of
        ``DIGITS`` digits.
    multiplicity : tuple of int
        Multiplicity of each as a complex solution.
    counted : int
        Their number by Hermite's quadratic form.
    complex_count : int
        Number of distinct complex solutions.
    """

    points: tuple[tuple[sp.Expr, ...], ...]
    multiplicity: tuple[int, ...]
    counted: int
    complex_count: int


class QuotientAlgebra:
    """Polynomials modulo an ideal of dimension zero, with multiplication by each variable."""

    def __init__(self, basis: Sequence[Any], budget: Budget) -> None:
        self.ring = basis[0].ring
        self.count = len(self.ring.gens)
        self.basis = basis
        self.budget = budget
        self.monomials = standard_monomials(basis, self.count)
        self.degree = len(self.monomials)
        if self.degree > LARGEST_DEGREE:
            raise BudgetSpent(f"{self.degree} complex solutions are too many for exact work")
        place = {m: i for i, m in enumerate(self.monomials)}
        # Column k of a multiplication: the nonzero coordinates of variable * monomial k.
        self.multiplications: list[list[list[tuple[int, Any]]]] = []
        for generator in self.ring.gens:
            columns = []
            for monomial in self.monomials:
                image = remainder(
                    self.ring.from_dict({monomial: self.ring.domain.one}) * generator,
                    basis,
                    budget,
                )
                columns.append([(place[m], c) for m, c in image.items()])
            self.multiplications.append(columns)
        self.products = self._products(place)
        zero = self.ring.domain.zero
        self._traces: list[Any] = [
            sum((row[k][k] for k in range(self.degree)), zero) for row in self.products
        ]

    def _products(self, place: dict[tuple[int, ...], int]) -> list[list[list[Any]]]:
        """Coordinates of every product of two standard monomials."""
        zero, one = self.ring.domain.zero, self.ring.domain.one
        table: list[list[list[Any]]] = []
        for a, monomial in enumerate(self.monomials):
            if a == 0:
                unit = [
                    [one if i == k else zero for i in range(self.degree)]
                    for k in range(self.degree)
                ]
                table.append(unit)
                continue
            variable = next(v for v, e in enumerate(monomial) if e)
            parent = tuple(e - (v == variable) for v, e in enumerate(monomial))
            below = table[place[parent]]
            table.append(
                [
                    table[k][a] if k < a else self.times(below[k], variable)
                    for k in range(self.degree)
                ]
            )
        return table

    def times(self, vector: list[Any], variable: int) -> list[Any]:
        """Multiply an element by a variable."""
        zero = self.ring.domain.zero
        result = [zero] * self.degree
        for c, column in zip(vector, self.multiplications[variable], strict=True):
            if c:
                for i, value in column:
                    result[i] = result[i] + c * value
        self.budget.check()
        return result

    def combination(self, vector: list[Any], weights: Sequence[int]) -> list[Any]:
        """Multiply an element by a linear form in the variables."""
        result = [self.ring.domain.zero] * self.degree
        for variable, w in enumerate(weights):
            if w:
                image = self.times(vector, variable)
                result = [r + w * x for r, x in zip(result, image, strict=True)]
        return result

    def one(self) -> list[Any]:
        """The element one."""
        vector = [self.ring.domain.zero] * self.degree
        vector[0] = self.ring.domain.one
        return vector

    def trace(self, vector: list[Any]) -> Any:
        """Trace of the multiplication by an element."""
        return sum(
            (c * t for c, t in zip(vector, self._traces, strict=True)), self.ring.domain.zero
        )

    def paired_traces(self, factor: list[Any]) -> list[Any]:
        """Trace of each standard monomial times an element."""
        zero = self.ring.domain.zero
        result = []
        for row in self.products:
            self.budget.check()
            total = zero
            for c, product in zip(factor, row, strict=True):
                if c:
                    total = total + c * self.trace(product)
            result.append(total)
        return result

    def hermite(self) -> tuple[int, int]:
        """Rank and signature of the trace form: distinct complex and distinct real solutions."""
        form: list[list[Any]] = []
        for a, row in enumerate(self.products):
            self.budget.check()
            form.append([form[b][a] if b < a else self.trace(row[b]) for b in range(self.degree)])
        return _inertia(form, self.budget)


def _inertia(form: list[list[Any]], budget: Budget) -> tuple[int, int]:
    """Rank and signature of a symmetric rational matrix, by exact congruences."""
    work = [list(row) for row in form]
    rank = signature = 0
    while work:
        budget.check()
        n = len(work)
        pivot = next((i for i in range(n) if work[i][i]), None)
        if pivot is None:
            pair = next(((i, j) for i in range(n) for j in range(i) if work[i][j]), None)
            if pair is None:
                break
            i, j = pair
            # Adding row and column j to row and column i makes a nonzero diagonal entry.
            work[i] = [x + y for x, y in zip(work[i], work[j], strict=True)]
            for row in work:
                row[i] = row[i] + row[j]
            pivot = i
        value = work[pivot][pivot]
        rank += 1
        signature += 1 if value > 0 else -1
        line = work[pivot]
        work = [
            [work[a][b] - work[a][pivot] * line[b] / value for b in range(n) if b != pivot]
            for a in range(n)
            if a != pivot
        ]
    return rank, signature


def real_solutions(basis: Sequence[Any], budget: Budget) -> RealSolutions:
    """All real solutions of a Groebner basis of dimension zero.

    Raises
    ------
    BudgetSpent
        When the time is up or the quotient algebra is too large.
    """
    algebra = QuotientAlgebra(basis, budget)
    rank, signature = algebra.hermite()
    weights, representation = _separating(algebra, rank)
    x = sp.Symbol("x")
    polynomial, numerators, denominator = representation
    characteristic = sp.Poly(polynomial, x, domain=sp.QQ)
    # Factors give exact coordinates where they are short; factoring long ones has no deadline.
    short = characteristic.degree() <= 24 and coefficient_bits(polynomial) <= 1500
    factors = characteristic.factor_list()[1] if short else characteristic.sqf_list()[1]
    points: list[tuple[sp.Expr, ...]] = []
    multiplicities: list[int] = []
    for factor, multiplicity in factors:
        budget.check()
        for root in _roots(factor, budget):
            points.append(_coordinates(root, factor, numerators, denominator, x))
            multiplicities.append(multiplicity)
    return RealSolutions(tuple(points), tuple(multiplicities), signature, rank)


def _separating(
    algebra: QuotientAlgebra, rank: int
) -> tuple[list[int], tuple[list[Any], list[list[Any]], list[Any]]]:
    """A linear form that takes as many values as there are solutions, and its representation."""
    tries = [[1 if i == k else 0 for i in range(algebra.count)] for k in range(algebra.count)]
    tries += [[k**i for i in range(algebra.count)] for k in range(1, 12)]
    tries += [[(k * (i + 3) ** 2) % 101 - 50 for i in range(algebra.count)] for k in range(3, 60)]
    x = sp.Symbol("x")
    for weights in tries:
        algebra.budget.check()
        powers = [algebra.one()]
        for _ in range(algebra.degree):
            powers.append(algebra.combination(powers[-1], weights))
        characteristic = _from_power_sums([algebra.trace(p) for p in powers], algebra)
        polynomial = sp.Poly(characteristic, x, domain=sp.QQ)
        square_free = polynomial.sqf_part()
        if square_free.degree() != rank:
            continue
        coefficients = [sp.QQ(c.p, c.q) for c in square_free.monic().all_coeffs()]
        one = algebra.one()
        variables = [algebra.times(one, v) for v in range(algebra.count)]
        numerators = [_numerator(algebra, powers, coefficients, v) for v in variables]
        denominator = _numerator(algebra, powers, coefficients, one)
        return weights, (characteristic, numerators, denominator)
    raise BudgetSpent


def _from_power_sums(sums: Sequence[Any], algebra: QuotientAlgebra) -> list[Any]:
    """Coefficients of the characteristic polynomial, by Newton's identities."""
    coefficients = [algebra.ring.domain.one]
    for k in range(1, algebra.degree + 1):
        total = algebra.ring.domain.zero
        for i in range(k):
            total = total + coefficients[i] * sums[k - i]
        coefficients.append(-total / k)
    return coefficients


def _numerator(
    algebra: QuotientAlgebra, powers: list[list[Any]], square_free: Sequence[Any], factor: list[Any]
) -> list[Any]:
    """Coefficients (from the highest) of sum over solutions of v(z) prod_{y != z} (x - u(y))."""
    degree = len(square_free) - 1
    paired = algebra.paired_traces(factor)
    zero = algebra.ring.domain.zero
    traces = [
        sum((c * t for c, t in zip(powers[i], paired, strict=True)), zero) for i in range(degree)
    ]
    # Horner's quotients of the square-free part give the products without one root.
    result = []
    for m in range(degree):
        result.append(
            sum(
                (square_free[j] * traces[m - j] for j in range(m + 1)),
                algebra.ring.domain.zero,
            )
        )
    return result


def _roots(factor: sp.Poly, budget: Budget) -> list[sp.Expr]:
    degree = factor.degree()
    if degree <= 2:
        return [r for r in sp.roots(factor, multiple=True) if r.is_real]
    budget.check()
    if degree > LARGEST_STURM:
        # The caller compares the number with Hermite's form; Sturm's sequence would be long.
        return _approximate_real(factor)
    count = factor.count_roots()
    approximate = _approximate_real(factor)
    if len(approximate) == count:
        return approximate
    roots = []
    for (low, high), _ in factor.intervals():
        budget.check()
        low, high = factor.refine_root(low, high, eps=sp.Rational(1, 10**30))
        roots.append(sp.Float((low + high) / 2, DIGITS))
    return roots


def coefficient_bits(coefficients: Iterable[Any]) -> int:
    """Bit length of the longest numerator or denominator."""
    return max(
        (max(int(c.numerator).bit_length(), int(c.denominator).bit_length()) for c in coefficients),
        default=0,
    )


def _approximate_real(factor: sp.Poly) -> list[sp.Expr]:
    """Real roots to ``DIGITS`` digits by simultaneous iteration; empty if it does not settle."""
    # SymPy's nroots picks real roots by exact tests of conjugate pairs only through their
    # imaginary parts; the caller compares their number with Sturm's count.
    try:
        found = factor.nroots(n=DIGITS, maxsteps=200)
    except (mpmath.libmp.NoConvergence, ValueError):
        return []
    return [
        sp.re(r) for r in found if abs(sp.im(r)) < sp.Float(10) ** (-DIGITS // 2) * (1 + abs(r))
    ]


def _coordinates(
    root: sp.Expr,
    factor: sp.Poly,
    numerators: Sequence[Sequence[Any]],
    denominator: Sequence[Any],
    x: sp.Symbol,
) -> tuple[sp.Expr, ...]:
    def exact(coefficients: Sequence[Any]) -> sp.Poly:
        return sp.Poly([sp.Rational(int(c.numerator), int(c.denominator)) for c in coefficients], x)

    below = exact(denominator).rem(factor)
    values = []
    for numerator in numerators:
        above = exact(numerator).rem(factor)
        if above.is_zero:
            values.append(sp.Integer(0))
            continue
        reduced = (above * sp.invert(below, factor)).rem(factor)
        value = reduced.eval(root)
        values.append(sp.radsimp(sp.expand(value)) if factor.degree() <= 2 else sp.Float(value, 40))
    return tuple(values)


def as_floats(point: Sequence[sp.Expr]) -> NDArray[np.float64]:
    """Coordinates as float64."""
    return np.array([float(c) for c in point])
