"""The order in which the factors of each term are multiplied, and the pieces that terms share.

A term of several factors becomes a tree of products of two. A tree's cost is the work and the size
of each piece, divided by the number of terms that use the piece: pieces that several terms need are
computed once, in whatever order of axes and factors they occur.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

import sympy as sp

from odekit.tensor import Factor, Tensor, TensorExpr, define
from odekit.tensor.coefficient import ONE, Monomial

__all__ = ["Contractor"]

EXHAUSTIVE = 8
"""Factors of a term up to which every tree is tried."""

ARRANGEMENTS = 2000
"""Orders of equal factors and symmetric slots tried to recognise a piece."""

Key = tuple[Any, ...]


@dataclass(frozen=True)
class _Piece:
    """A subset of a term's factors, contracted: what it is up to the order of its legs."""

    key: Key
    legs: tuple[int, ...]


@dataclass(eq=False)
class _Product:
    """One term of one expression."""

    owner: int
    factors: list[Factor]
    monomial: Monomial
    number: Fraction
    size: Callable[[sp.Expr], int]

    @cached_property
    def sizes(self) -> dict[int, int]:
        return {i: self.size(t.shape[slot]) for t, ii in self.factors for slot, i in enumerate(ii)}

    @cached_property
    def full(self) -> int:
        return (1 << len(self.factors)) - 1

    @cached_property
    def held(self) -> list[frozenset[int]]:
        return [frozenset(ii) for _, ii in self.factors]

    def legs(self, mask: int) -> frozenset[int]:
        """Indices of a subset that stay: free ones, and those that other factors hold."""
        inside: set[int] = set()
        outside: set[int] = set()
        for k, own in enumerate(self.held):
            (inside if mask >> k & 1 else outside).update(own)
        return frozenset(i for i in inside if i >= 0 or i in outside)

    def volume(self, indices: Iterable[int]) -> int:
        return math.prod(self.sizes[i] for i in indices)

    def connected(self, mask: int) -> bool:
        parts = [k for k in range(len(self.factors)) if mask >> k & 1]
        reached, frontier = {parts[0]}, [parts[0]]
        while frontier:
            k = frontier.pop()
            for other in parts:
                if other not in reached and self.held[k] & self.held[other]:
                    reached.add(other)
                    frontier.append(other)
        return len(reached) == len(parts)

    def subset(self, mask: int) -> list[Factor]:
        return [f for k, f in enumerate(self.factors) if mask >> k & 1]

    @cached_property
    def pieces(self) -> dict[int, _Piece]:
        """Subsets that a tree may hold: proper, of at least two factors, and connected.

        Also those that share no index with the rest: a product of three parts or more that have
        none in common is multiplied up from such.
        """
        return {
            mask: recognise(self.subset(mask), self.legs(mask))
            for mask in range(3, self.full)
            if mask.bit_count() > 1 and (self.connected(mask) or self.apart(mask))
        }

    def apart(self, mask: int) -> bool:
        """Whether a subset shares no index with the other factors."""
        inside = {i for k, own in enumerate(self.held) if mask >> k & 1 for i in own}
        return not any(own & inside for k, own in enumerate(self.held) if not mask >> k & 1)


@dataclass
class Contractor:
    """Plans the products of a set of expressions.

    Parameters
    ----------
    size : callable
        The number behind a size.

    Attributes
    ----------
    made : dict
        What each piece is, up to the order of its legs, and the tensor that stands for it.
    """

    size: Callable[[sp.Expr], int]
    made: dict[Key, Tensor] = field(default_factory=dict)

    def plan(self, expressions: list[TensorExpr]) -> list[TensorExpr]:
        """Rewrite expressions as sums of products of few tensors.

        Parameters
        ----------
        expressions : list of TensorExpr

        Returns
        -------
        list of TensorExpr
            Equal to the given ones once the pieces are multiplied out. A product is of two
            factors, or of more if nothing is summed.
        """
        products = [
            _Product(owner, self._reduce(factors), monomial, number, self.size)
            for owner, expression in enumerate(expressions)
            for factors, monomial, number in expression.raw()
        ]
        trees = self._choose([p for p in products if len(p.factors) > 2])
        out: list[list[tuple[list[Factor], Monomial, Fraction, None]]] = [[] for _ in expressions]
        for product in products:
            factors = product.factors
            if product in trees:
                factors = self._build(product, trees[product])
            out[product.owner].append((factors, product.monomial, product.number, None))
        return [
            TensorExpr.collect(e.shape, terms) for e, terms in zip(expressions, out, strict=True)
        ]

    def _reduce(self, factors: list[Factor]) -> list[Factor]:
        """Sum a tensor over indices that it alone holds before it meets the others."""
        if len(factors) < 2:
            return factors
        out: list[Factor] = []
        for k, (tensor, indices) in enumerate(factors):
            outside = {i for m, (_, ii) in enumerate(factors) if m != k for i in ii}
            legs = frozenset(i for i in indices if i >= 0 or i in outside)
            if legs == set(indices):
                out.append((tensor, indices))
                continue
            piece = recognise([(tensor, indices)], legs)
            out.append((self._piece([(tensor, indices)], piece), piece.legs))
        return out

    # -- choosing -------------------------------------------------------------------------------

    def _choose(self, products: list[_Product]) -> dict[_Product, list[tuple[int, int]]]:
        """The tree of each product: pairs of subsets, the root first."""
        small = [p for p in products if len(p.factors) <= EXHAUSTIVE]
        trees = {p: _greedy_tree(p) for p in products if len(p.factors) > EXHAUSTIVE}
        sharers: dict[Key, int] = {}
        for product in small:
            for key in {piece.key for piece in product.pieces.values()}:
                sharers[key] = sharers.get(key, 0) + 1
        best: dict[_Product, list[tuple[int, int]]] = {}
        least = math.inf
        for _ in range(3):
            chosen = {p: _best_tree(p, sharers) for p in small}
            cost, sharers = _account(chosen)
            if cost < least:
                best, least = chosen, cost
        return {**best, **trees}

    # -- building -------------------------------------------------------------------------------

    def _build(self, product: _Product, tree: list[tuple[int, int]]) -> list[Factor]:
        splits = {left | right: (left, right) for left, right in tree}
        if product.full not in splits:
            return product.factors

        def factor(mask: int) -> Factor:
            if mask.bit_count() == 1:
                return product.factors[mask.bit_length() - 1]
            piece = recognise(product.subset(mask), product.legs(mask))
            if piece.key not in self.made:
                parts = [factor(part) for part in splits[mask]]
                return self._piece(parts, piece), piece.legs
            return self.made[piece.key], piece.legs

        return [factor(part) for part in splits[product.full]]

    def _piece(self, parts: list[Factor], piece: _Piece) -> Tensor:
        if piece.key not in self.made:
            fresh = {i: k for k, i in enumerate(piece.legs)}
            size = {i: t.shape[slot] for t, ii in parts for slot, i in enumerate(ii)}
            moved = [
                (t, tuple(fresh.get(i, i if i < 0 else -(10**6) - i) for i in ii))
                for t, ii in parts
            ]
            body = TensorExpr.collect(
                tuple(size[i] for i in piece.legs), [(moved, ONE, Fraction(1), None)]
            )
            self.made[piece.key] = define(f"w{len(self.made)}", body)
        return self.made[piece.key]


def recognise(factors: list[Factor], legs: Iterable[int]) -> _Piece:
    """Name a contraction independently of its indices and of the order of factors and legs.

    Parameters
    ----------
    factors : list of (Tensor, indices)
    legs : iterable of int
        Indices that are not summed.

    Returns
    -------
    _Piece
        Its key, and its legs in the order that the key implies.
    """
    kept = set(legs)
    best: Key | None = None
    names: dict[int, int] = {}
    for arrangement in itertools.islice(_arrangements(factors), ARRANGEMENTS):
        own: dict[int, int] = {}
        code = tuple(
            (t.order, tuple((own.setdefault(i, len(own)), i in kept) for i in ii))
            for t, ii in arrangement
        )
        if best is None or code < best:
            best, names = code, own
    assert best is not None
    return _Piece(best, tuple(sorted(kept, key=names.__getitem__)))


def _arrangements(factors: list[Factor]) -> Iterator[list[Factor]]:
    ordered = sorted(factors, key=lambda f: f[0].order)
    blocks = [list(group) for _, group in itertools.groupby(ordered, key=lambda f: f[0].order)]
    for choice in itertools.product(*(itertools.permutations(block) for block in blocks)):
        flat = [f for block in choice for f in block]
        for slots in itertools.product(*(_slot_orders(t, ii) for t, ii in flat)):
            yield [(t, ii) for (t, _), ii in zip(flat, slots, strict=True)]


def _slot_orders(tensor: Tensor, indices: tuple[int, ...]) -> list[tuple[int, ...]]:
    orders = [indices]
    for group in tensor.symmetric_groups:
        found = []
        for order in orders:
            for permuted in itertools.permutations([order[s] for s in group]):
                changed = list(order)
                for slot, index in zip(group, permuted, strict=True):
                    changed[slot] = index
                found.append(tuple(changed))
        orders = list(dict.fromkeys(found))
    return orders


def _best_tree(product: _Product, sharers: dict[Key, int]) -> list[tuple[int, int]]:
    """Dynamic programming over subsets; the empty tree multiplies all factors at once."""
    count = len(product.factors)
    cost: dict[int, float] = {1 << k: 0.0 for k in range(count)}
    split: dict[int, tuple[int, int]] = {}
    masks = sorted((*product.pieces, product.full), key=lambda m: (m.bit_count(), m))
    for mask in masks:
        low = mask & -mask
        size = product.volume(product.legs(mask))
        best = math.inf
        sub = (mask - 1) & mask
        while sub:
            other = mask ^ sub
            if sub & low and sub in cost and other in cost:
                work = product.volume(product.legs(sub) | product.legs(other))
                share = 1 if mask == product.full else max(1, sharers[product.pieces[mask].key])
                total = cost[sub] + cost[other] + (work + size) / share
                if total < best:
                    best, split[mask] = total, (sub, other)
            sub = (sub - 1) & mask
        if best < math.inf:
            cost[mask] = best
    everything = frozenset().union(*product.held)
    if all(i >= 0 for i in everything):
        at_once = product.volume(everything) * count / 2
        if at_once <= cost.get(product.full, math.inf):
            return []
    return _tree(split, product.full)


def _tree(split: dict[int, tuple[int, int]], root: int) -> list[tuple[int, int]]:
    if root.bit_count() < 2:
        return []
    left, right = split[root]
    return [(left, right), *_tree(split, left), *_tree(split, right)]


def _account(
    chosen: dict[_Product, list[tuple[int, int]]],
) -> tuple[float, dict[Key, int]]:
    """What the chosen trees cost with each piece paid once, and how many terms use each piece."""
    total = 0.0
    used: dict[Key, int] = {}
    potential: dict[Key, int] = {}
    for product, tree in chosen.items():
        for piece in product.pieces.values():
            potential[piece.key] = 0
        keys = set()
        for left, right in tree:
            mask = left | right
            own = product.volume(product.legs(left) | product.legs(right))
            own += product.volume(product.legs(mask))
            if mask == product.full:
                total += own
                continue
            key = product.pieces[mask].key
            if key not in used and key not in keys:
                total += own
            keys.add(key)
        for key in keys:
            used[key] = used.get(key, 0) + 1
        if not tree:
            total += product.volume(frozenset().union(*product.held)) * len(product.factors) / 2
    return total, {**potential, **used}


def _greedy_tree(product: _Product) -> list[tuple[int, int]]:
    """opt_einsum's order, for terms of many factors."""
    import opt_einsum

    names: dict[int, str] = {}
    for own in product.held:
        for i in sorted(own):
            names.setdefault(i, opt_einsum.get_symbol(len(names)))
    spec = ",".join("".join(names[i] for i in ii) for _, ii in product.factors)
    output = "".join(names[i] for i in sorted(product.legs(product.full)))
    shapes = [tuple(product.sizes[i] for i in ii) for _, ii in product.factors]
    path, _ = opt_einsum.contract_path(f"{spec}->{output}", *shapes, shapes=True, optimize="auto")
    masks = [1 << k for k in range(len(product.factors))]
    tree: list[tuple[int, int]] = []
    for step in path:
        parts = [masks[k] for k in step]
        for k in sorted(step, reverse=True):
            del masks[k]
        while len(parts) > 1:
            left, right = parts.pop(0), parts.pop(0)
            tree.append((left, right))
            parts.insert(0, left | right)
        masks.append(parts[0])
    return tree[::-1]
