"""A field as lists of array statements: what is computed, in which order, and where it is kept."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import sympy as sp

from odekit.codegen.clusters import Hoister
from odekit.codegen.contraction import Contractor
from odekit.codegen.memory import choose_axis_orders
from odekit.codegen.pattern import Sparsity, jacobian_pattern
from odekit.codegen.place import Place
from odekit.errors import CompileError
from odekit.field.tensor_field import TensorField
from odekit.tensor import Tensor, TensorExpr
from odekit.tensor.coefficient import Monomial

__all__ = ["Place", "Product", "Program", "Statement", "plan_field"]


@dataclass(frozen=True)
class Product:
    """A number times entries of arrays; indices that the target lacks are summed."""

    number: float
    factors: tuple[tuple[Place, tuple[int, ...]], ...]

    @property
    def indices(self) -> frozenset[int]:
        """Every index that occurs."""
        return frozenset(i for _, ii in self.factors for i in ii)


@dataclass(frozen=True)
class Statement:
    """``target[indices] = sum of products``, or ``+=``; an index that occurs twice: a diagonal."""

    target: Place
    indices: tuple[int, ...]
    products: tuple[Product, ...]
    accumulate: bool = False
    comment: str = ""

    @property
    def sizes(self) -> dict[int, int]:
        """Number of values of each index."""
        pairs = [(self.target, self.indices), *(f for p in self.products for f in p.factors)]
        return {i: n for place, ii in pairs for i, n in zip(ii, place.shape, strict=True)}


@dataclass(frozen=True)
class Program:
    """A tensor field, planned.

    Parameters
    ----------
    states, parameters : tuple of (name, shape)
        The flat arrays' order.
    prepare : tuple of (Place, TensorExpr)
        What depends on parameters alone, in order.
    rhs, loss, jacobian : list of Statement
    scratch : int
        Length of the tail of ``p``.
    mirrored : bool
        Whether ``jacobian`` fills the blocks on and above the diagonal only.
    pattern : (rows, columns) or None
        Entries of the Jacobian that can differ from zero; None for dense.
    values : tuple of Statement or None
        The entries of the pattern alone, in its order.
    """

    states: tuple[tuple[str, tuple[int, ...]], ...]
    parameters: tuple[tuple[str, tuple[int, ...]], ...]
    places: Mapping[Any, Place]
    prepare: tuple[tuple[Place, TensorExpr], ...]
    rhs: tuple[Statement, ...]
    loss: tuple[Statement, ...] | None
    jacobian: tuple[Statement, ...]
    scratch: int
    mirrored: bool = False
    pattern: tuple[list[int], list[int]] | None = None
    values: tuple[Statement, ...] | None = None
    sizes: Mapping[sp.Symbol, int] = field(default_factory=dict)


APART = 1000
"""More than the indices of any term."""

LEAST = 20**3
"""Multiplications from which BLAS beats loops (measured: even at 16, twice as fast at 32)."""

LINE = 8
"""Numbers in a cache line."""


def aligned(offset: int, count: int) -> int:
    """Begin an array of a line or more at a line's start, where vectors load in one go."""
    return offset if count < LINE else -(-offset // LINE) * LINE


COPY = "a transposed copy"


def _swapped(
    tensor: Tensor, place: Place, own: tuple[int, ...], target: Place, indices: tuple[int, ...]
) -> tuple[int, ...]:
    """Exchange slots of a symmetric tensor so that it is read along its rows."""
    if not indices or not tensor.symmetric_groups:
        return own
    last = min(zip(target.strides, indices, strict=True), key=lambda pair: pair[0])[1]
    if own.count(last) != 1:
        return own
    slot = own.index(last)
    for group in tensor.symmetric_groups:
        if slot in group:
            best = min(group, key=lambda k: place.strides[k])
            swapped = list(own)
            swapped[slot], swapped[best] = own[best], own[slot]
            return tuple(swapped)
    return own


def plan_field(
    tensor_field: TensorField, sizes: Mapping[sp.Symbol, int], effort: str = "quick"
) -> Program:
    """Plan a tensor field for given sizes.

    Parameters
    ----------
    tensor_field : TensorField
    sizes : mapping
        Size symbol -> int; every size of a state or a parameter.
    effort : {"full", "quick"}
        With "full", large products go to BLAS, which reads matrices either way.

    Returns
    -------
    Program
    """
    return _Planner(tensor_field, sizes, effort).program()


class _Planner:
    def __init__(
        self, tensor_field: TensorField, sizes: Mapping[sp.Symbol, int], effort: str
    ) -> None:
        self.field = tensor_field
        self.sizes = dict(sizes)
        self.most_copied = LEAST if effort == "full" else math.inf
        self._moves: dict[Tensor, bool] = {}
        self.hoister = Hoister(self.moves, self.known)
        self.bodies: dict[Tensor, TensorExpr] = {}
        self.places: dict[Any, Place] = {}

    # -- facts ----------------------------------------------------------------------------------

    def moves(self, tensor: Tensor) -> bool:
        """Whether a tensor depends on the states."""
        if tensor not in self._moves:
            body = tensor.definition
            self._moves[tensor] = tensor in self.field.states or (
                body is not None and any(self.moves(t) for t in body.tensors())
            )
        return self._moves[tensor]

    def known(self, monomial: Monomial) -> bool:
        """Whether a coefficient is a number once sizes are."""
        return all(atom.free_symbols <= set(self.sizes) for atom, _ in monomial)

    def size(self, expression: sp.Expr) -> int:
        """A size as a number."""
        return int(expression.subs(self.sizes)) if expression.free_symbols else int(expression)

    def shape(self, expressions: Iterable[sp.Expr]) -> tuple[int, ...]:
        """A shape in numbers."""
        return tuple(self.size(e) for e in expressions)

    def number(self, monomial: Monomial, number: Fraction) -> float:
        """A coefficient as a number, exact up to one rounding where it is rational."""
        exact, factor = number, 1.0
        for atom, exponent in monomial:
            value = sp.sympify(atom).subs(self.sizes)
            if value.is_Rational and exponent.denominator == 1:
                exact *= Fraction(int(value.p), int(value.q)) ** int(exponent)
            else:
                factor *= float(value) ** float(exponent)
        return float(exact) * factor

    # -- planning -------------------------------------------------------------------------------

    def program(self) -> Program:
        """Plan every function and lay out memory."""
        tensor_field = self.field
        states = tuple((s.name, self.shape(s.shape)) for s in tensor_field.states)
        parameters = tuple((t.name, self.shape(t.shape)) for t in tensor_field.parameters)
        run_time = [s for s in tensor_field.symbols if s not in self.sizes]
        parameters += tuple((str(s), ()) for s in run_time)
        self._place_inputs(run_time)
        free = sum(math.prod(shape) for _, shape in parameters)
        first = free

        moving = [(t, b) for t, b in tensor_field.definitions if self.moves(t)]
        definitions = dict(moving)
        rates = {s: tensor_field.rates[s] for s in tensor_field.states}
        planned = self._plan([*definitions.values(), *rates.values()])
        main = dict(zip((*definitions, *rates), planned, strict=True))
        loss = None
        if tensor_field.loss is not None:
            inner = [t for t in definitions if t in tensor_field.loss.tensors(deep=True)]
            *bodies, total = self._plan([*(definitions[t] for t in inner), tensor_field.loss])
            loss = (dict(zip(inner, bodies, strict=True)), total)
        blocks = self._jacobian_blocks()
        (*bodies,) = self._plan([*definitions.values(), *blocks.values()])
        jacobian_definitions = dict(zip(definitions, bodies, strict=False))
        jacobian_blocks = dict(zip(blocks, bodies[len(definitions) :], strict=True))

        prepare, free = self._place_hoisted(free)
        out = 0
        targets: list[tuple[Place, TensorExpr]] = []
        for state in rates:
            shape = self.shape(state.shape)
            targets.append((Place.contiguous(f"d{state.name}", "out", out, shape), main[state]))
            out += math.prod(shape)
        inner_bodies = {t: main[t] for t in definitions}
        rhs, end = self._statements(targets, inner_bodies, free)
        loss_statements = None
        if loss is not None:
            spot = Place("loss", "p", free, (), ())
            loss_statements, loss_end = self._statements([(spot, loss[1])], loss[0], free + 1)
            end = max(end, loss_end)
        block_targets = self._block_places(jacobian_blocks, out)
        jacobian, jacobian_end = self._statements(block_targets, jacobian_definitions, free)
        sparsity = jacobian_pattern(block_targets, out)
        values, values_end = self._values(sparsity, jacobian_blocks, jacobian_definitions, free)
        end = max(end, jacobian_end, values_end)
        return Program(
            states,
            parameters,
            self.places,
            prepare,
            tuple(rhs),
            None if loss_statements is None else tuple(loss_statements),
            tuple(jacobian),
            end - first,
            len(jacobian_blocks) < len(rates) ** 2,
            None if sparsity is None else (sparsity.rows, sparsity.columns),
            values,
            self.sizes,
        )

    def _values(
        self,
        sparsity: Sparsity | None,
        blocks: Mapping[tuple[Tensor, Tensor], TensorExpr],
        definitions: Mapping[Tensor, TensorExpr],
        free: int,
    ) -> tuple[tuple[Statement, ...] | None, int]:
        """Statements for the entries of a sparse Jacobian alone, if they can be packed."""
        if sparsity is None or sparsity.packed is None:
            return None, free
        targets = [
            (place, body)
            for place, body in zip(sparsity.packed, blocks.values(), strict=True)
            if place is not None
        ]
        statements, free = self._statements(targets, definitions, free, sparse=True)
        for source, target, count in sparsity.mirrored:
            product = Product(1.0, ((Place.contiguous("", "out", source, (count,)), (0,)),))
            place = Place.contiguous("the mirrored block", "out", target, (count,))
            statements.append(Statement(place, (0,), (product,), False, place.name))
        return tuple(statements), free

    def _plan(self, expressions: list[TensorExpr]) -> list[TensorExpr]:
        """Hoist and contract, and prove that nothing was changed by it."""
        hoisted = [self.hoister.hoist(e) for e in expressions]
        contractor = Contractor(self.size)
        planned = contractor.plan(hoisted)
        constants = set(self.hoister.hoisted.values())
        pieces = set(contractor.made.values())
        for given, middle, final in zip(expressions, hoisted, planned, strict=True):
            if final.expand(pieces) != middle or middle.expand(constants) != given:
                raise CompileError(f"The plan of {given} does not multiply out to it.")
        return planned

    def _jacobian_blocks(self) -> dict[tuple[Tensor, Tensor], TensorExpr]:
        blocks = {}
        for row, state in enumerate(self.field.states):
            for column, other in enumerate(self.field.states):
                if not (self.field.uniform and column < row):
                    blocks[state, other] = self.field.rates[state].diff(other)
        return blocks

    # -- memory ---------------------------------------------------------------------------------

    def _place_inputs(self, run_time: list[sp.Symbol]) -> None:
        offset = 0
        for state in self.field.states:
            shape = self.shape(state.shape)
            self.places[state] = Place.contiguous(state.name, "y", offset, shape)
            offset += math.prod(shape)
        offset = 0
        for tensor in self.field.parameters:
            shape = self.shape(tensor.shape)
            self.places[tensor] = Place.contiguous(tensor.name, "p", offset, shape)
            offset += math.prod(shape)
        for symbol in run_time:
            self.places[symbol] = Place(str(symbol), "p", offset, (), ())
            offset += 1

    def _place_hoisted(self, free: int) -> tuple[tuple[tuple[Place, TensorExpr], ...], int]:
        """Everything that depends on parameters alone, each after what it needs."""
        done: list[tuple[Place, TensorExpr]] = []

        def visit(tensor: Tensor) -> None:
            nonlocal free
            if tensor in self.places or tensor.definition is None or self.moves(tensor):
                return
            for inner in tensor.definition.tensors():
                visit(inner)
            shape = self.shape(tensor.shape)
            free = aligned(free, math.prod(shape))
            self.places[tensor] = Place.contiguous(tensor.name, "p", free, shape)
            free += math.prod(shape)
            done.append((self.places[tensor], tensor.definition))

        for tensor in self.hoister.hoisted.values():
            visit(tensor)
        for definition, _ in self.field.definitions:
            visit(definition)
        return tuple(done), free

    def _statements(
        self,
        targets: list[tuple[Place, TensorExpr]],
        definitions: Mapping[Tensor, TensorExpr],
        free: int,
        sparse: bool = False,
    ) -> tuple[list[Statement], int]:
        """Statements for targets, preceded by the intermediates that they need.

        ``sparse`` targets have room for the entries of their one pattern of deltas only.
        """
        order: list[tuple[Tensor | Place, TensorExpr]] = []
        seen: set[Tensor] = set()

        def visit(body: TensorExpr) -> None:
            for tensor in body.tensors():
                if tensor in self.places or tensor in seen or tensor.kind == "identity":
                    continue
                seen.add(tensor)
                own = definitions.get(tensor, tensor.definition)
                assert own is not None
                visit(own)
                order.append((tensor, own))

        for target, body in targets:
            visit(body)
            order.append((target, body))
        axes = choose_axis_orders(order, self.places, self.shape)
        places: dict[Tensor, Place] = {}
        out: list[Statement] = []
        for owner, body in order:
            if isinstance(owner, Tensor):
                shape = self.shape(owner.shape)
                free = aligned(free, math.prod(shape))
                places[owner] = Place.permuted(owner.name, "p", free, shape, axes[owner])
                free += math.prod(shape)
            where = places[owner] if isinstance(owner, Tensor) else owner
            packed = sparse and not isinstance(owner, Tensor)
            for statement in self._write(where, body, {**self.places, **places}, packed):
                copies, statement, free = self._with_copies(statement, free, out)
                out += [*copies, statement]
        return out, free

    def _with_copies(
        self, statement: Statement, free: int, before: list[Statement]
    ) -> tuple[list[Statement], Statement, int]:
        """Transpose what is read across its rows often enough for a copy to pay."""
        if not statement.indices:
            return [], statement, free
        last = min(
            zip(statement.target.strides, statement.indices, strict=True), key=lambda p: p[0]
        )[1]
        sizes = statement.sizes
        made = {c.products[0].factors[0][0]: c.target for c in before if c.comment == COPY}
        copies: list[Statement] = []
        products = []
        for product in statement.products:
            volume = math.prod(sizes[i] for i in product.indices | set(statement.indices))
            factors = []
            for place, ii in product.factors:
                count = math.prod(place.shape)
                across = ii.count(last) == 1 and place.strides[ii.index(last)] != 1
                if (
                    across
                    and sizes[last] > 3
                    and 4 * count <= volume < self.most_copied
                    and not product.indices <= set(statement.indices)
                    and len(set(ii)) == len(ii)
                ):
                    slot = ii.index(last)
                    order = (*(k for k in range(len(ii)) if k != slot), slot)
                    copy = made.get(place)
                    if copy is None or copy.strides[slot] != 1:
                        free = aligned(free, count)
                        copy = Place.permuted(f"{place.name}'", "p", free, place.shape, order)
                        free += count
                        made[place] = copy
                        own = tuple(range(len(ii)))
                        copies.append(
                            Statement(copy, own, (Product(1.0, ((place, own),)),), False, COPY)
                        )
                    place = copy
                factors.append((place, ii))
            products.append(Product(product.number, tuple(factors)))
        changed = dataclasses.replace(statement, products=tuple(products))
        return copies, changed, free

    def _write(
        self, target: Place, body: TensorExpr, places: Mapping[Any, Place], packed: bool
    ) -> list[Statement]:
        """The statements that fill one array: one for each pattern of deltas."""
        patterns: dict[tuple[int, ...], list[Product]] = {}
        for count, ((given, monomial), number) in enumerate(body.terms.items(), 1):
            indices = list(range(body.rank))
            # Terms name their summed indices alike, of whatever size: keep them apart.
            factors = [
                (t, tuple(i if i < body.rank else i + APART * count for i in ii)) for t, ii in given
            ]
            for tensor, ii in factors:
                if tensor.kind == "identity":
                    low, high = sorted(indices[i] for i in ii)
                    indices = [low if i == high else i for i in indices]
            product = Product(
                self.number(monomial, number),
                tuple(
                    (places[t], _swapped(t, places[t], ii, target, tuple(indices)))
                    for t, ii in factors
                    if t.kind != "identity"
                ),
            )
            patterns.setdefault(tuple(indices), []).append(product)
        comment = f"{target.name} = {body}"
        if packed:
            ((own, products),) = patterns.items()
            return [Statement(target, own, tuple(products), False, comment)]
        plain = tuple(range(body.rank))
        out = [Statement(target, plain, tuple(patterns.pop(plain, ())), False, comment)]
        out += [
            Statement(target, indices, tuple(products), True)
            for indices, products in sorted(patterns.items())
        ]
        return out

    def _block_places(
        self, blocks: Mapping[tuple[Tensor, Tensor], TensorExpr], n: int
    ) -> list[tuple[Place, TensorExpr]]:
        return [(self._block(row, column, n), body) for (row, column), body in blocks.items()]

    def _block(self, row: Tensor, column: Tensor, n: int) -> Place:
        up, across = self.places[row], self.places[column]
        return Place(
            f"d d{row.name} / d {column.name}",
            "J",
            up.offset * n + across.offset,
            up.shape + across.shape,
            tuple(n * s for s in up.strides) + across.strides,
        )
