"""Quadratic conserved quantities of a tensor field, for all sizes at once.

Candidates are products of two states in which each matched pair of slots is contracted or kept
equal and the rest is split, for instance ``v[h] v[g]`` and ``sum_ab U[h,a,b] U[g,a,b]``. Their time
derivatives in canonical form make an exact linear system over the rationals.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import sympy as sp

from odekit.analysis.conserved_scalar import conserved_scalar
from odekit.analysis.invariants import Invariant, Invariants, Symmetry
from odekit.analysis.scalar_system import read_system
from odekit.analysis.tensor_system import flatten, random_values, unflatten
from odekit.errors import InputError, OdekitError
from odekit.tensor import Tensor, TensorExpr, einsum, weight

__all__ = ["conserved_tensor", "quadratic_families"]

MOST_CANDIDATES = 20_000
MOST_CHECKED_STATES = 30
MOST_COMPONENTS = 3000


def conserved_tensor(field: Any, degree: int) -> Invariants:
    """Conserved quantities of a tensor field (see `conserved`)."""
    if not field.size_symbols:
        return _at_concrete_sizes(field, degree)
    if degree != 2:
        raise InputError(
            f"At symbolic sizes the search is for quadratics, got degree={degree}; "
            "use field.components(...) for other degrees."
        )
    rates = {state: field.rates[state].expand() for state in field.states}
    found = quadratic_families(field)
    items = tuple(_invariant(field, expression, rates) for expression in found)
    note = (
        "contractions of pairs of states with slots contracted, kept equal or split; not in it: "
        "parameters inside the form, coefficients that depend on sizes"
    )
    return Invariants(items, "class", f"{note}; {_confirm(field, items)}")


@lru_cache(maxsize=32)
def quadratic_families(field: Any) -> tuple[TensorExpr, ...]:
    """Independent conserved contractions of pairs of states, from most to least indices."""
    rates = {state: field.rates[state].expand() for state in field.states}
    groups: dict[tuple[sp.Expr, ...], list[_Candidate]] = {}
    for candidate in _candidates(field):
        groups.setdefault(candidate.expression.shape, []).append(candidate)
    found: list[TensorExpr] = []
    for shape in sorted(groups, key=lambda s: (-len(s), str(s))):
        basis = _null_space(groups[shape], rates, field)
        implied = [e for earlier in found for e in _consequences(earlier, shape)]
        for expression in basis:
            if _outside(expression, implied):
                found.append(expression)
                implied.extend(_consequences(expression, shape))
    return tuple(found)


def _at_concrete_sizes(field: Any, degree: int) -> Invariants:
    """All of the degree in components; for many states the tensor families instead."""
    count = sum(int(np.prod([int(n) for n in s.shape], dtype=int)) for s in field.states)
    if degree != 2 or count * (count + 3) // 2 <= MOST_COMPONENTS:
        return conserved_scalar(read_system(field.components()), degree)
    rates = {state: field.rates[state].expand() for state in field.states}
    items = tuple(_invariant(field, e, rates) for e in quadratic_families(field))
    note = (
        f"{count} states are too many for the complete list in components; contractions of pairs "
        "of states were searched instead"
    )
    return Invariants(items, "class", note)


@dataclass(frozen=True)
class _Candidate:
    """A product of two states: its expression and the letters of its slots."""

    expression: TensorExpr
    left: Tensor
    right: Tensor
    subscripts: tuple[str, str, str]


def _matchings(left: Tensor, right: Tensor) -> Iterator[dict[int, int]]:
    """Partial one-to-one maps from slots of the left to slots of the right of equal size."""

    def extend(slot: int, taken: frozenset[int]) -> Iterator[dict[int, int]]:
        if slot == left.rank:
            yield {}
            return
        yield from extend(slot + 1, taken)
        for other in range(right.rank):
            if other not in taken and left.shape[slot] == right.shape[other]:
                for rest in extend(slot + 1, taken | {other}):
                    yield {slot: other, **rest}

    yield from extend(0, frozenset())


def _candidates(field: Any) -> Iterator[_Candidate]:
    seen: set[TensorExpr] = set()
    for left, right in itertools.combinations_with_replacement(field.states, 2):
        for matching in _matchings(left, right):
            for equal in itertools.product((False, True), repeat=len(matching)):
                for candidate in _arranged(left, right, matching, equal):
                    if candidate.expression not in seen:
                        seen.add(candidate.expression)
                        if len(seen) > MOST_CANDIDATES:
                            raise InputError(
                                f"More than {MOST_CANDIDATES} candidate quadratics; give the field "
                                "fewer states, or distinct sizes to axes that differ."
                            )
                        yield candidate


def _arranged(
    left: Tensor, right: Tensor, matching: dict[int, int], equal: Sequence[bool]
) -> Iterator[_Candidate]:
    """The candidate with its free indices in every order that keeps sizes sorted."""
    letters = iter(string.ascii_letters)
    first = [next(letters) for _ in range(left.rank)]
    second = [next(letters) for _ in range(right.rank)]
    free: list[tuple[sp.Expr, str]] = []
    for (slot, other), keep in zip(matching.items(), equal, strict=True):
        second[other] = first[slot]
        if keep:
            free.append((left.shape[slot], first[slot]))
    free += [(left.shape[s], first[s]) for s in range(left.rank) if s not in matching]
    inside = set(matching.values())
    free += [(right.shape[s], second[s]) for s in range(right.rank) if s not in inside]
    free.sort(key=lambda pair: (str(pair[0]), pair[1]))
    blocks = [list(g) for _, g in itertools.groupby(free, key=lambda pair: pair[0])]
    for orders in itertools.product(*(itertools.permutations(b) for b in blocks)):
        output = "".join(letter for block in orders for _, letter in block)
        spec = ("".join(first), "".join(second), output)
        yield _Candidate(einsum(f"{spec[0]},{spec[1]}->{spec[2]}", left, right), left, right, spec)


def _scale(field: Any, candidate: _Candidate) -> sp.Expr:
    """With rates of its own a state enters its quadratics times its time scale."""
    scales = dict(field.time_scale)
    if len(set(scales.values())) <= 1 or candidate.left is not candidate.right:
        return sp.Integer(1)
    return scales[candidate.left]


def _derivative(candidate: _Candidate, rates: dict[Tensor, TensorExpr]) -> TensorExpr:
    first, second, output = candidate.subscripts
    spec = f"{first},{second}->{output}"
    return einsum(spec, rates[candidate.left], candidate.right) + einsum(
        spec, candidate.left, rates[candidate.right]
    )


def _null_space(
    candidates: Sequence[_Candidate], rates: dict[Tensor, TensorExpr], field: Any
) -> list[TensorExpr]:
    columns = []
    expressions = []
    for candidate in candidates:
        scale = _scale(field, candidate)
        expressions.append(candidate.expression * scale)
        columns.append((_derivative(candidate, rates) * scale).terms)
    # A term that occurs in one candidate only rules that candidate out; most go this way.
    alive = set(range(len(columns)))
    holders: dict[Any, set[int]] = {}
    for k, terms in enumerate(columns):
        for term in terms:
            holders.setdefault(term, set()).add(k)
    pending = [term for term, inside in holders.items() if len(inside) == 1]
    while pending:
        inside = holders[pending.pop()]
        if len(inside) != 1:
            continue
        k = next(iter(inside))
        alive.discard(k)
        for term in columns[k]:
            holders[term].discard(k)
            if len(holders[term]) == 1:
                pending.append(term)
    kept = sorted(alive)
    rows = sorted({t for k in kept for t in columns[k]}, key=str)
    matrix = [[columns[k].get(t, Fraction(0)) for k in kept] for t in rows]
    return [
        _combined([(c, expressions[kept[i]]) for i, c in enumerate(v) if c])
        for v in _rational_null_space(matrix, len(kept))
    ]


def _combined(parts: Sequence[tuple[Fraction, TensorExpr]]) -> TensorExpr:
    scale = int(np.lcm.reduce([c.denominator for c, _ in parts]))
    scale *= 1 if parts[0][0] > 0 else -1
    total = parts[0][1] * (parts[0][0] * scale)
    for c, expression in parts[1:]:
        total = total + expression * (c * scale)
    return total


def _rational_null_space(matrix: list[list[Fraction]], columns: int) -> list[list[Fraction]]:
    """Basis of the right null space over the rationals."""
    work = [list(row) for row in matrix]
    pivots: list[int] = []
    for column in range(columns):
        rank = len(pivots)
        pivot = next((r for r in range(rank, len(work)) if work[r][column]), None)
        if pivot is None:
            continue
        work[rank], work[pivot] = work[pivot], work[rank]
        head = work[rank][column]
        work[rank] = [x / head for x in work[rank]]
        for r, row in enumerate(work):
            if r != rank and row[column]:
                factor = row[column]
                work[r] = [x - factor * y for x, y in zip(row, work[rank], strict=True)]
        pivots.append(column)
    basis = []
    for free in (c for c in range(columns) if c not in pivots):
        vector = [Fraction(0)] * columns
        vector[free] = Fraction(1)
        for r, column in enumerate(pivots):
            vector[column] = -work[r][free]
        basis.append(vector)
    return basis


def _consequences(found: TensorExpr, shape: tuple[sp.Expr, ...]) -> list[TensorExpr]:
    """What an invariant family implies at another shape: indices set equal, summed, permuted."""
    reached: dict[TensorExpr, None] = {found: None}
    pending = [found]
    while pending:
        expression = pending.pop()
        for i, j in itertools.combinations(range(expression.rank), 2):
            if expression.shape[i] != expression.shape[j]:
                continue
            names = list(string.ascii_letters[: expression.rank])
            names[j] = names[i]
            rest = [n for k, n in enumerate(names) if k not in (i, j)]
            equal = [n for k, n in enumerate(names) if k != j]
            for output in (rest, equal):
                smaller = einsum(f"{''.join(names)}->{''.join(output)}", expression)
                if not smaller.is_zero and smaller not in reached:
                    reached[smaller] = None
                    pending.append(smaller)
        for i in range(expression.rank):
            names = list(string.ascii_letters[: expression.rank])
            summed = einsum(f"{''.join(names)}->{''.join(names[:i] + names[i + 1 :])}", expression)
            if not summed.is_zero and summed not in reached:
                reached[summed] = None
                pending.append(summed)
    result: dict[TensorExpr, None] = {}
    for expression in reached:
        if sorted(map(str, expression.shape)) != sorted(map(str, shape)):
            continue
        for axes in itertools.permutations(range(expression.rank)):
            if tuple(expression.shape[a] for a in axes) == shape:
                result[expression.transpose(axes)] = None
    return list(result)


def _outside(expression: TensorExpr, span: Sequence[TensorExpr]) -> bool:
    """Whether an expression is no rational combination of others."""
    if not span:
        return True
    rows = sorted({t for e in (*span, expression) for t in e.terms}, key=str)
    matrix = [[e.terms.get(t, Fraction(0)) for e in (*span, expression)] for t in rows]
    return all(v[-1] == 0 for v in _rational_null_space(matrix, len(span) + 1))


def _invariant(field: Any, expression: TensorExpr, rates: dict[Tensor, TensorExpr]) -> Invariant:
    if field.loss is None or not field.time_scale:
        return Invariant(expression, 2)
    taken = {t.name for t in (*field.states, *field.parameters)}
    taken |= {str(s) for s in (*field.size_symbols, *field.symbols)}
    name = next(n for n in ("S", "X", "Y", "S_1", "S_2") if n not in taken)
    tensor = weight(name, expression.shape)
    letters = string.ascii_letters[: expression.rank]
    paired = einsum(f"{letters},{letters}->", tensor, expression)
    generator = {
        state: paired.diff(state) * (sp.Rational(1, 2) / field.time_scale[state])
        for state in field.states
    }
    change: TensorExpr | None = None
    for state, moved in generator.items():
        axes = string.ascii_letters[: state.rank]
        part = einsum(f"{axes},{axes}->", rates[state] * field.time_scale[state], moved)
        change = part if change is None else change + part
    infinitesimal = change is not None and change.is_zero
    moving = [s.name for s, e in generator.items() if not e.is_zero]
    words = (
        f"linear group on {', '.join(moving)} with generator "
        + ", ".join(f"delta {s.name} = {e}" for s, e in generator.items() if not e.is_zero)
        + f", for any {name}"
    )
    finite = infinitesimal and _finite(field, generator, tensor)
    return Invariant(expression, 2, generator, Symmetry(words, generator, infinitesimal, finite))


def _small_sizes(field: Any) -> dict[str, int]:
    return {str(s): 2 for s in field.size_symbols}


def _finite(field: Any, generator: dict[Tensor, TensorExpr], tensor: Tensor) -> bool:
    """Compare the loss before and after a finite step of the group, at small sizes."""
    from scipy.linalg import expm

    sizes = _small_sizes(field)
    rng = np.random.default_rng(13)
    state, parameters = random_values(field, sizes, rng)
    shape = tuple(int(sp.sympify(n).subs({s: 2 for s in field.size_symbols})) for n in tensor.shape)
    direction = rng.normal(size=shape)
    flat = flatten(field, state)

    def moved(vector: Any) -> Any:
        values = {
            **parameters,
            **unflatten(field, vector, sizes),
            tensor.name: direction,
            **{n: v for n, v in sizes.items()},
        }
        return np.concatenate(
            [
                np.broadcast_to(
                    generator[s].evaluate(values) if not generator[s].is_zero else 0.0,
                    state[s.name].shape,
                ).ravel()
                for s in field.states
            ]
        )

    matrix = np.stack([moved(unit) for unit in np.eye(flat.size)], axis=1)
    matrix /= max(1.0, float(np.abs(matrix).max()))
    before = field.loss_value(state, parameters)
    after = field.loss_value(unflatten(field, expm(0.4 * matrix) @ flat, sizes), parameters)
    # Rounding of a polynomial loss of moderate values: far below 1e-9 of them.
    return bool(abs(after - before) <= 1e-9 * (1 + abs(before) + abs(after)))


def _confirm(field: Any, items: Sequence[Invariant]) -> str:
    """Compare the number of scalar quantities with the complete list at a small size."""
    sizes = _small_sizes(field)
    numbers = {s: 2 for s in field.size_symbols}
    count = sum(
        int(np.prod([int(sp.sympify(n).subs(numbers)) for n in s.shape], dtype=int))
        for s in field.states
    )
    if count > MOST_CHECKED_STATES:
        return f"not confirmed in components ({count} states at size 2)"
    # Scalars such as time scales get numbers: only the count is compared.
    rng = np.random.default_rng(3)
    point = {s: int(rng.integers(2, 50)) for s in field.symbols if s not in field.size_symbols}
    try:
        # Without its loss the field is read from its rates, which spares differentiating again.
        bare = replace(field, loss=None, time_scale={})
        components = bare.components({str(s): v for s, v in point.items()}, **sizes)
        full = conserved_scalar(read_system(components), 2)
    except OdekitError as reason:
        return f"not confirmed in components ({reason})"
    from odekit.field.components import component_array

    arrays: dict[Tensor, Any] = {}
    for state in field.states:
        shape, symbols = components.state_groups[state.name]
        array = np.empty(len(symbols), dtype=object)
        array[:] = symbols
        arrays[state] = array.reshape(shape)
    entries: list[sp.Expr] = []
    for item in items:
        entries += list(np.ravel(component_array(item.expression, arrays, {**numbers, **point})))
    polys = [sp.Poly(e, *components.states) for e in entries if sp.expand(e) != 0]
    rows = sorted({m for p in polys for m in p.monoms()})
    matrix = [[float(p.coeff_monomial(m)) for m in rows] for p in polys]
    rank = int(np.linalg.matrix_rank(np.array(matrix))) if polys else 0
    if rank == len(full):
        return f"confirmed in components at size 2: {rank} scalar quantities, all of degree 2"
    return (
        f"in components at size 2 there are {len(full)} scalar quantities, {rank} of them from "
        "these families"
    )
