"""Rewriting of a product before it is brought to canonical form: deltas and eigenvectors."""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import sympy as sp

from odekit.tensor.canonical import Factor, Factors, canonical_product
from odekit.tensor.coefficient import ONE, Monomial, multiply, polynomial
from odekit.tensor.tensors import Eigenvector, Tensor, identity


class Term(NamedTuple):
    """A product of tensors with their indices, and a monomial in sizes and scalars."""

    factors: Factors
    monomial: Monomial


def reduced_terms(
    factors: list[Factor],
    monomial: Monomial,
    rank: int,
    loops: dict[int, sp.Expr] | None = None,
) -> list[tuple[Term, Fraction]]:
    """Bring one product to canonical terms.

    Parameters
    ----------
    factors : list of (Tensor, indices)
        Free indices are 0 to rank - 1; summed ones are negative.
    monomial : Monomial
        Its coefficient but for the number.
    rank : int
        Number of free indices.
    loops : dict, optional
        Summed indices (with their sizes) that may occur in no factor: each gives its size.
    """
    present = {i for _, indices in factors for i in indices}
    closed = [size for index, size in (loops or {}).items() if index not in present]
    work = list(factors)
    changed = True
    while changed:
        changed = False
        step = _remove_identity(work, closed) or _apply_eigenvector(work)
        if step is not None:
            if step.zero:
                return []
            monomial = multiply(monomial, step.monomial)
            changed = True
    work = _merge_free(work, rank)
    product = canonical_product(work, rank)
    if not closed:
        return [(Term(product, monomial), Fraction(1))]
    return [
        (Term(product, multiply(monomial, m)), number) for m, number in polynomial(sp.Mul(*closed))
    ]


class _Step(NamedTuple):
    zero: bool
    monomial: Monomial


_DONE = _Step(False, ONE)


def _rename(work: list[Factor], old: int, new: int) -> None:
    for k, (tensor, indices) in enumerate(work):
        if old in indices:
            work[k] = (tensor, tuple(new if i == old else i for i in indices))


def _remove_identity(work: list[Factor], closed: list[sp.Expr]) -> _Step | None:
    for k, (tensor, indices) in enumerate(work):
        if tensor.kind != "identity":
            continue
        i, j = indices
        if i >= 0 and j >= 0 and i != j:
            continue
        del work[k]
        if i == j:
            if i < 0 and not any(i in other for _, other in work):
                closed.append(tensor.shape[0])
        else:
            old, new = (i, j) if i < 0 else (j, i)
            if not any(old in other or new in other for _, other in work) and new < 0:
                closed.append(tensor.shape[0])
            else:
                _rename(work, old, new)
        return _DONE
    return None


def _apply_eigenvector(work: list[Factor]) -> _Step | None:
    for k, (tensor, indices) in enumerate(work):
        if not isinstance(tensor, Eigenvector) or indices[-1] >= 0:
            continue
        dummy = indices[-1]
        places = [
            (m, s) for m, (_, own) in enumerate(work) for s, i in enumerate(own) if i == dummy
        ]
        if len(places) != 2:
            continue
        m, slot = places[0] if places[0][0] != k else places[1]
        if m == k:
            continue
        other, other_indices = work[m]
        if other is tensor.of:
            work[k] = (tensor, (*indices[:-1], other_indices[1 - slot]))
            if isinstance(tensor.value, Tensor):
                work[m] = (tensor.value, indices[:1])
                return _DONE
            del work[m]
            return _Step(False, polynomial(tensor.value)[0][0])
        if isinstance(other, Eigenvector) and other.of is tensor.of and slot == other.rank - 1:
            if other is not tensor:
                return _Step(True, ONE)
            for position in sorted((k, m), reverse=True):
                del work[position]
            if tensor.rank == 2:
                work.append((identity(tensor.shape[0]), (indices[0], other_indices[0])))
            return _DONE
    return None


def _merge_free(work: list[Factor], rank: int) -> list[Factor]:
    """Use one name for free indices that deltas hold equal, and each delta once."""
    deltas = [indices for tensor, indices in work if tensor.kind == "identity"]
    if not deltas:
        return work
    name = list(range(rank))
    for i, j in deltas:
        low, high = sorted((name[i], name[j]))
        name = [low if n == high else n for n in name]
    kept = [
        (tensor, tuple(name[i] if i >= 0 else i for i in indices))
        for tensor, indices in work
        if tensor.kind != "identity"
    ]
    size = {i: t.shape[0] for t, ij in work if t.kind == "identity" for i in ij}
    kept += [(identity(size[i]), (name[i], i)) for i in range(rank) if name[i] != i]
    return kept
