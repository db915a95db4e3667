"""Linear algebra modulo a prime, and the way back to rational numbers."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

import numpy as np
import sympy as sp
from numpy.typing import NDArray

__all__ = [
    "PRIME",
    "constant",
    "inverse",
    "null_space",
    "product",
    "rational",
    "rational_vectors",
    "reduced_rows",
]

# The largest prime below 2^26: a product of two residues is exact in float64, whose vectorised
# arithmetic makes elimination several times faster than the remainder of 64-bit integers.
PRIME = 67_108_859

Residues = NDArray[np.int64]


def constant(number: sp.Rational) -> int:
    """The residue of a rational number."""
    return int(number.p) * pow(int(number.q), -1, PRIME) % PRIME


def inverse(value: Residues | int) -> Residues | int:
    """The inverse modulo the prime, entry by entry (a zero gives zero)."""
    if isinstance(value, int):
        return pow(value, PRIME - 2, PRIME)
    result = np.ones_like(value)
    base, exponent = value % PRIME, PRIME - 2
    while exponent:
        if exponent & 1:
            result = result * base % PRIME
        base = base * base % PRIME
        exponent >>= 1
    return result


def _remainder(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The residue of exact integers of at most 2^53 held as floats, in place."""
    quotient = values * (1.0 / PRIME)
    np.floor(quotient, out=quotient)
    quotient *= PRIME
    values -= quotient
    # The quotient may be off by one either way.
    values += PRIME * (values < 0)
    values -= PRIME * (values >= PRIME)
    return values


def null_space(matrix: Residues) -> tuple[Residues, list[int]]:
    """Basis of the right null space, one row a vector, with a one at its free column.

    Parameters
    ----------
    matrix : ndarray of int64, shape (rows, columns)
        Residues.

    Returns
    -------
    basis : ndarray, shape (nullity, columns)
    free : list of int
        The free column of each basis vector.
    """
    work = np.asarray(matrix % PRIME, dtype=np.float64)
    rows, columns = work.shape
    pivots: list[int] = []
    row = 0
    for column in range(columns):
        if row == rows:
            break
        candidates = np.flatnonzero(work[row:, column])
        if not candidates.size:
            continue
        best = row + int(candidates[0])
        if best != row:
            work[[row, best]] = work[[best, row]]
        scale = pow(int(work[row, column]), PRIME - 2, PRIME)
        work[row, column:] = _remainder(work[row, column:] * float(scale))
        below = row + 1 + np.flatnonzero(work[row + 1 :, column])
        if below.size:
            part = work[below, column:]
            part -= part[:, :1] * work[row, column:]
            work[below, column:] = _remainder(part)
        pivots.append(column)
        row += 1
    work = work.astype(np.int64)
    taken = set(pivots)
    free = [c for c in range(columns) if c not in taken]
    basis = np.zeros((len(free), columns), dtype=np.int64)
    for k, column in enumerate(free):
        basis[k, column] = 1
    # Back substitution for all free columns at once.
    for position in range(len(pivots) - 1, -1, -1):
        column = pivots[position]
        line = work[position, column + 1 :]
        support = np.flatnonzero(line)
        total = np.zeros(len(free), dtype=np.int64)
        for c in support:
            total = (total + line[c] * basis[:, column + 1 + c]) % PRIME
        basis[:, column] = -total % PRIME
    return basis, free


def rational(residue: int) -> Fraction | None:
    """The fraction of small numerator and denominator with this residue, if there is one."""
    bound = isqrt(PRIME // 2)
    r0, r1, s0, s1 = PRIME, residue % PRIME, 0, 1
    while r1 > bound:
        quotient = r0 // r1
        r0, r1, s0, s1 = r1, r0 - quotient * r1, s1, s0 - quotient * s1
    if s1 == 0 or abs(s1) > bound:
        return None
    return Fraction(r1, s1) if s1 > 0 else Fraction(-r1, -s1)


def product(left: Residues, right: Residues) -> Residues:
    """The matrix product modulo the prime."""
    total = np.zeros((left.shape[0], right.shape[1]), dtype=np.int64)
    for k in range(left.shape[1]):
        total = (total + left[:, k, None] * right[None, k]) % PRIME
    return total


def reduced_rows(matrix: Residues) -> Residues:
    """Reduced row echelon form, zero rows dropped: a basis of the row space with few entries."""
    work = matrix % PRIME
    row = 0
    for column in range(work.shape[1]):
        if row == work.shape[0]:
            break
        nonzero = row + np.flatnonzero(work[row:, column])
        if not nonzero.size:
            continue
        work[[row, nonzero[0]]] = work[[nonzero[0], row]]
        work[row] = work[row] * pow(int(work[row, column]), PRIME - 2, PRIME) % PRIME
        others = np.flatnonzero(work[:, column])
        others = others[others != row]
        work[others] = (work[others] - work[others, column][:, None] * work[row]) % PRIME
        row += 1
    return work[:row]


def rational_vectors(basis: Residues) -> list[dict[int, Fraction]] | None:
    """The rows with rational entries, or None where an entry is no small fraction.

    The answer holds modulo the prime; the caller proves it.
    """
    vectors: list[dict[int, Fraction]] = []
    for row in basis:
        vector: dict[int, Fraction] = {}
        for column in np.flatnonzero(row):
            value = rational(int(row[column]))
            if value is None or max(abs(value.numerator), value.denominator) > 10_000:
                return None
            vector[int(column)] = value
        vectors.append(vector)
    return vectors
