"""Fixed points of a tensor field as values of a named intermediate (function space).

When the loss depends on the weights only through ``A``, and ``A`` is a product of weights, the rate
of each weight X, contracted with X over the slots that are summed in ``A``, is the cotangent G of A
times A itself: G and A are joined over the axes that X does not own. At a fixed point all these
products vanish: polynomial equations in A alone. With H R < D the rank of A is bounded; what solves
the equations within the bound is lifted back to weights.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.analysis.budget import Budget
from odekit.analysis.expressions import exact_number
from odekit.analysis.fixed_point_set import FixedManifold, FixedPoint, FixedPointSet
from odekit.analysis.fixed_points_scalar import fixed_points_scalar
from odekit.analysis.scalar_system import ScalarSystem
from odekit.analysis.tensor_system import component_system, read_sizes, split_values
from odekit.analysis.weight_lift import WeightLift, rank_bound
from odekit.errors import InputError, unknown_name
from odekit.field.components import check_values, component_array
from odekit.tensor import Tensor, TensorExpr, einsum, identity, parameter, partial_derivative

__all__ = ["fixed_points_of"]

DEGENERATE = 1e-9


def fixed_points_of(
    field: Any,
    of: str,
    values: Mapping[Any, Any],
    sizes: Mapping[Any, int],
    seconds: float,
    seed: int,
) -> FixedPointSet:
    """Values of the intermediate called ``of`` at the fixed points (see `fixed_points`)."""
    named = split_values(field, values)
    held = {t.name: t for t, _ in field.definitions}
    if of not in held:
        raise unknown_name("intermediate", of, held)
    tensor = held[of]
    known = {str(getattr(k, "name", k)): int(v) for k, v in sizes.items()}
    equations = closed_equations(field, tensor)
    if equations is None:
        return _from_weights(field, tensor, named, known, seconds, seed)
    problem = _FunctionSpace(field, tensor, equations, named, known)
    return problem.solve(seconds, seed)


def closed_equations(field: Any, tensor: Tensor) -> list[TensorExpr] | None:
    """Equations in A alone that hold at every fixed point; None where they do not close."""
    body = tensor.definition
    if field.loss is None or not field.time_scale or body is None or len(body.terms) != 1:
        return None
    inside = field.loss.tensors()
    if any(s in inside for s in field.states):
        return None
    if [t for t in inside if t.definition is not None] != [tensor]:
        return None
    ((factors, _),) = body.terms
    if sorted(t.name for t, _ in factors) != sorted(s.name for s in field.states):
        return None
    if any(t not in field.states for t, _ in factors):
        return None
    free = [i for _, indices in factors for i in indices if i < tensor.rank]
    if sorted(free) != list(range(tensor.rank)):
        return None
    cotangent = partial_derivative(field.loss, tensor)
    equations = []
    for _, indices in factors:
        own = [i for i in indices if i < tensor.rank]
        first = list(string.ascii_lowercase[: tensor.rank])
        second = list(first)
        for k, axis in enumerate(own):
            second[axis] = string.ascii_uppercase[k]
        output = [first[a] for a in own] + [second[a] for a in own]
        equations.append(
            einsum(f"{''.join(first)},{''.join(second)}->{''.join(output)}", cotangent, tensor)
        )
    return equations


class _FunctionSpace:
    """The equations in A at given parameters."""

    def __init__(
        self,
        field: Any,
        tensor: Tensor,
        equations: Sequence[TensorExpr],
        values: Mapping[str, Any],
        sizes: Mapping[str, int],
    ) -> None:
        self.field, self.tensor, self.equations = field, tensor, equations
        self.values = dict(values)
        check_values(field, self.values)
        self.numbers = self._numbers(sizes)
        self.shape = tuple(self._size(s) for s in tensor.shape)
        self.weights = WeightLift(field, tensor, self.numbers)
        self.arrays: dict[Tensor, Any] = {}
        for p in self._parameters():
            if p.name not in self.values:
                raise InputError(f"No value for parameter {p.name}; pass it in values=.")
            self.arrays[p] = np.asarray(self.values[p.name], dtype=float)
        self.covariance = self._equivariant()

    def _numbers(self, sizes: Mapping[str, int]) -> dict[sp.Symbol, Any]:
        numbers: dict[sp.Symbol, Any] = {}
        everything = {**self.values, **sizes}
        names = {str(s): s for s in (*self.field.size_symbols, *self.field.symbols)}
        for name, symbol in names.items():
            if name in everything:
                numbers[symbol] = exact_number(everything[name])
        for p in self.field.parameters:
            if p.name in self.values:
                for symbol, actual in zip(p.shape, np.shape(self.values[p.name]), strict=True):
                    if isinstance(symbol, sp.Symbol):
                        numbers[symbol] = sp.Integer(actual)
        for name in self.values:
            if name not in names and name not in {p.name for p in self.field.parameters}:
                raise unknown_name("parameter", name, self.field.parameter_names)
        for name in sizes:
            if name not in names:
                raise unknown_name("size", name, sorted(names))
        return numbers

    def _size(self, size: sp.Expr) -> int:
        number = sp.sympify(size).subs(self.numbers)
        if not number.is_Integer:
            raise InputError(f"size {size} is unknown; pass sizes={{'{size}': ...}}")
        return int(number)

    def _parameters(self) -> list[Tensor]:
        found = {t for e in (*self.equations, self.field.loss) for t in e.tensors()}
        return [t for t in found if t.kind not in ("identity", "definition")]

    def _equivariant(self) -> Tensor | None:
        """The one matrix parameter whose eigenbasis may be taken as the axes, if there is one."""
        if self.tensor.rank != 2 or self.shape[0] != self.shape[1]:
            return None
        matrices = [p for p in self.arrays if p.rank]
        if len(matrices) != 1 or matrices[0].rank != 2 or not matrices[0].symmetric_groups:
            return None
        if matrices[0].shape != self.tensor.shape:
            return None
        for expression in self.equations:
            for factors, _ in expression.terms:
                count: dict[int, int] = {i: 1 for i in range(expression.rank)}
                for _, indices in factors:
                    for i in indices:
                        count[i] = count.get(i, 0) + 1
                if any(c != 2 for c in count.values()):
                    return None
        return matrices[0]

    def _components(self, arrays: Mapping[Tensor, Any], unknowns: Any) -> list[sp.Expr]:
        exact: dict[Tensor, Any] = {self.tensor: unknowns}
        for p, array in arrays.items():
            entries = np.empty(array.shape, dtype=object)
            for position in np.ndindex(*array.shape):
                entries[position] = exact_number(array[position])
            exact[p] = entries
        for size in {
            t.shape[0] for e in self.equations for t in e.tensors() if t.kind == "identity"
        }:
            exact[identity(size)] = np.array(sp.eye(self._size(size)).tolist(), dtype=object)
        found: list[sp.Expr] = []
        for equation in self.equations:
            found += [
                sp.expand(e) for e in np.ravel(component_array(equation, exact, self.numbers))
            ]
        return [e for e in dict.fromkeys(found) if e != 0]

    def solve(self, seconds: float, seed: int) -> FixedPointSet:
        """All solutions, those beyond the rank bound left out, each lifted to weights."""
        unknowns = np.empty(self.shape, dtype=object)
        for position in np.ndindex(*self.shape):
            name = "_".join(["a", *map(str, position)])
            unknowns[position] = sp.Symbol(name, real=True)
        if self.covariance is None:
            return self._direct(unknowns, seconds, seed)
        eigenvalues, vectors = np.linalg.eigh(self.arrays[self.covariance])
        eigenvalues, vectors = eigenvalues[::-1], vectors[:, ::-1]
        clusters = _clusters(eigenvalues)
        level = {i: c for c, members in enumerate(clusters) for i in members}
        exact = [exact_number(float(np.mean(eigenvalues[clusters[level[i]]]))) for i in level]
        given = self.arrays[self.covariance]
        if np.array_equal(given, np.diag(np.diag(given))):
            # A diagonal parameter keeps its numbers as they were written.
            written = sorted((exact_number(x) for x in np.diag(given)), reverse=True)
            exact = [written[clusters[level[i]][0]] for i in level]
        diagonal = np.array(
            [[exact[i] if i == j else 0 for j in level] for i in level], dtype=object
        )
        equations = self._components({**self.arrays, self.covariance: diagonal}, unknowns)
        relations = linear_relations(equations, list(unknowns.ravel()))
        if not _block_symmetric(relations, unknowns, level):
            return self._direct(unknowns, seconds, seed)
        off = {unknowns[i, j]: sp.Integer(0) for i in level for j in level if i != j}
        states = tuple(unknowns[i, i] for i in level)
        rates = tuple(e for e in dict.fromkeys(sp.expand(e.xreplace(off)) for e in equations) if e)
        inner = fixed_points_scalar(ScalarSystem(states, rates, (), None, False, {}), seconds, seed)
        return self._assemble(inner, exact, clusters, vectors)

    def _assemble(
        self,
        inner: FixedPointSet,
        exact: Sequence[sp.Rational],
        clusters: Sequence[list[int]],
        vectors: NDArray[np.float64],
    ) -> FixedPointSet:
        bound = rank_bound(self.tensor, self.numbers)
        size = len(exact)
        points: list[FixedPoint] = []
        manifolds: dict[tuple[Any, ...], FixedManifold] = {}
        out_of_reach = 0
        unlifted = 0
        for found in inner:
            entries = np.array([float(v) for v in found.values()])
            learned = [i for i in range(size) if entries[i] != 0.0]
            if bound is not None and len(learned) > bound:
                out_of_reach += 1
                continue
            dimension, key, words = _orbit(entries, exact, clusters)
            value = (vectors * entries) @ vectors.T
            note = (
                "no eigenvector learned"
                if not learned
                else "learned eigenvalues " + ", ".join(f"{float(exact[i]):.12g}" for i in learned)
            )
            if dimension and key in manifolds:
                continue
            point = self._lifted(value, note)
            if point.lift is None and self.weights.sizes_known():
                unlifted += 1
            if dimension:
                manifolds[key] = FixedManifold((), dimension, point, words)
            else:
                points.append(point)
        points.sort(
            key=lambda p: (np.linalg.matrix_rank(p[self.tensor.name], tol=1e-12), p.loss or 0)
        )
        notes = [inner.note] if inner.note else []
        if out_of_reach:
            notes.append(
                f"{out_of_reach} solutions need more than {bound} directions, which the weights "
                f"cannot form (rank of {self.tensor.name} at most {bound})"
            )
        if bound is None and not self.weights.sizes_known():
            notes.append("sizes of the weights not given: every rank taken as reachable")
        if unlifted:
            notes.append(f"{unlifted} of them found no lift to weights")
        if manifolds:
            notes.append("the spectrum is degenerate: a continuum of fixed points, see .manifolds")
        method = (
            f"equations closed in {self.tensor.name}, linear relations, eigenbasis of "
            f"{self.covariance.name if self.covariance else '-'}; {inner.method}"
        )
        return FixedPointSet(
            tuple(points),
            inner.complete and not unlifted,
            method,
            tuple(manifolds.values()),
            (),
            "; ".join(notes),
        )

    def _direct(self, unknowns: Any, seconds: float, seed: int) -> FixedPointSet:
        equations = self._components(self.arrays, unknowns)
        flat = list(unknowns.ravel())
        relations = linear_relations(equations, flat)
        left = [u for u in flat if u not in relations]
        reduced = [sp.expand(e.subs(relations)) for e in equations]
        rates = tuple(e for e in dict.fromkeys(reduced) if e != 0)
        system = ScalarSystem(tuple(left), rates, (), None, False, {})
        inner = fixed_points_scalar(system, seconds, seed)
        bound = rank_bound(self.tensor, self.numbers) if self.tensor.rank == 2 else None
        points = []
        dropped = 0
        for found in inner:
            at = {u: float(found[u.name]) for u in left}
            value = np.array(
                [at[u] if u in at else float(relations[u].subs(at)) for u in flat]
            ).reshape(self.shape)
            if bound is not None and np.linalg.matrix_rank(value, tol=1e-9) > bound:
                dropped += 1
                continue
            points.append(self._lifted(value, ""))
        note = inner.note
        if dropped:
            note = f"{note}; {dropped} solutions exceed the rank {bound} of the weights".lstrip(
                "; "
            )
        manifolds = tuple(
            FixedManifold(m.equations, m.dimension, None, m.description) for m in inner.manifolds
        )
        return FixedPointSet(
            tuple(points),
            inner.complete,
            f"equations closed in {self.tensor.name}; {inner.method}",
            manifolds,
            (),
            note,
        )

    def _lifted(self, value: NDArray[np.float64], note: str) -> FixedPoint:
        loss = self._loss(value)
        lift = self.weights.solve(value)
        residual = 0.0
        if lift is not None:
            rates = self.field.evaluate(lift, self._evaluation_parameters())
            residual = max(float(np.abs(r).max(initial=0.0)) for r in rates.values())
            if residual > 1e-9 * (1 + float(np.abs(value).max(initial=0.0))):
                lift, residual = None, 0.0
        return FixedPoint({self.tensor.name: value}, None, 1, residual, note, lift, loss)

    def _evaluation_parameters(self) -> dict[str, Any]:
        told = {str(s) for s in self.field.size_symbols}
        return {n: v for n, v in self.values.items() if n not in told}

    def _loss(self, value: NDArray[np.float64]) -> float:
        stand_in = parameter(self.tensor.name, self.tensor.shape)
        loss = self.field.loss.substitute({self.tensor: stand_in})
        numbers = {str(s): float(v) for s, v in self.numbers.items()}
        return float(loss.evaluate({**numbers, **self.values, self.tensor.name: value}))


def _clusters(eigenvalues: NDArray[np.float64]) -> list[list[int]]:
    """Groups of eigenvalues that are equal up to rounding, in the order given."""
    groups: list[list[int]] = [[0]]
    scale = float(np.abs(eigenvalues).max())
    for i in range(1, eigenvalues.size):
        if abs(eigenvalues[i] - eigenvalues[groups[-1][0]]) <= DEGENERATE * scale:
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _orbit(
    entries: NDArray[np.float64], exact: Sequence[sp.Rational], clusters: Sequence[list[int]]
) -> tuple[int, tuple[Any, ...], str]:
    """Dimension of the set of matrices that rotations inside eigenspaces make of a diagonal one."""
    dimension = 0
    key: list[Any] = []
    words = []
    for members in clusters:
        here = sorted(round(float(entries[i]), 10) for i in members)
        counts = [here.count(v) for v in sorted(set(here))]
        m = len(members)
        dimension += m * (m - 1) // 2 - sum(c * (c - 1) // 2 for c in counts)
        key.append(tuple(here))
        learned = sum(1 for v in here if v != 0.0)
        if m > 1 and learned > 0:
            words.append(
                f"any {learned} of the {m} directions of eigenvalue {float(exact[members[0]]):.12g}"
            )
        elif learned:
            words.append(f"eigenvalue {float(exact[members[0]]):.12g}")
    text = f"continuum of dimension {dimension}: learned " + ("; ".join(words) or "nothing")
    return dimension, tuple(key), text


def linear_relations(
    equations: Sequence[sp.Expr], unknowns: Sequence[sp.Symbol]
) -> dict[sp.Symbol, sp.Expr]:
    """Unknowns that the equations fix linearly, by eliminating the monomials of higher degree."""
    relations: dict[sp.Symbol, sp.Expr] = {}
    ring = sp.ring([u.name for u in unknowns], sp.QQ, sp.grevlex)[0]
    place = {u: i for i, u in enumerate(unknowns)}
    polynomials = [ring.from_expr(_renamed(e)) for e in equations]
    while True:
        rows = [dict(p) for p in polynomials if p]
        monomials = sorted({m for r in rows for m in r}, key=lambda m: (-sum(m), m))
        fresh = []
        while rows:
            lead = None
            for r in rows:
                top = min(r, key=lambda m: (-sum(m), m))
                if lead is None or (-sum(top), top) < lead[0]:
                    lead = ((-sum(top), top), r, top)
            assert lead is not None
            _, pivot, top = lead
            rows.remove(pivot)
            if sum(top) <= 1:
                fresh.append((pivot, top))
            rest = []
            for r in rows:
                if top in r:
                    factor = r[top] / pivot[top]
                    r = {m: r.get(m, 0) - factor * pivot.get(m, 0) for m in {*r, *pivot}}
                    r = {m: c for m, c in r.items() if c}
                if r:
                    rest.append(r)
            rows = rest
        if not fresh or not monomials:
            break
        table = []
        for pivot, top in fresh:
            if sum(top) == 0:
                return relations
            solved = ring.from_dict({m: -c / pivot[top] for m, c in pivot.items() if m != top})
            table.append((top.index(1), solved))
        for variable, solved in table:
            gen = ring.gens[variable]
            polynomials = [p.compose(gen, solved) if p else p for p in polynomials]
            polynomials = [p for p in polynomials if p]
            relations[unknowns[variable]] = solved.as_expr(*unknowns)
    # Later relations may hold symbols that earlier ones solved for, and the other way round.
    for _ in range(len(relations)):
        relations = {u: sp.expand(e.xreplace(relations)) for u, e in relations.items()}
        if not any(e.free_symbols & set(relations) for e in relations.values()):
            break
    return {u: e for u, e in relations.items() if u in place}


def _renamed(expression: sp.Expr) -> sp.Expr:
    return expression.xreplace({s: sp.Symbol(s.name) for s in expression.free_symbols})


def _block_symmetric(
    relations: Mapping[sp.Symbol, sp.Expr], unknowns: Any, level: Mapping[int, int]
) -> bool:
    """Whether the relations make A symmetric and zero between different eigenspaces."""

    def value(i: int, j: int) -> sp.Expr:
        return relations.get(unknowns[i, j], unknowns[i, j])

    for i in level:
        for j in level:
            if i == j:
                continue
            if level[i] != level[j]:
                if value(i, j) != 0:
                    return False
            elif sp.expand(value(i, j) - value(j, i)) != 0:
                return False
    return True


def _from_weights(
    field: Any,
    tensor: Tensor,
    values: Mapping[str, Any],
    sizes: Mapping[str, int],
    seconds: float,
    seed: int,
) -> FixedPointSet:
    """Search in the weights and report the distinct values of the intermediate."""
    from odekit.analysis.fixed_points_scalar import rate_functions
    from odekit.analysis.newton import multistart_roots

    budget = Budget(seconds)
    read_sizes(field, values, sizes)
    system = component_system(field, values, sizes)
    rates, slopes = rate_functions(system)
    starts = 80
    roots = multistart_roots(rates, slopes, len(system.states), starts, budget, seed)
    told = {str(s) for s in field.size_symbols}
    parameters = {n: v for n, v in values.items() if n not in told}
    points: list[FixedPoint] = []
    for root in roots:
        state = system.unpack(root)
        value = np.asarray(field.bind(state, parameters).array(tensor))
        if all(np.abs(value - p[tensor.name]).max() > 1e-6 for p in points):
            points.append(FixedPoint({tensor.name: value}, None, 1, 0.0, "", state))
    note = (
        f"partial: the equations do not close in {tensor.name}; searched in the weights by "
        f"least-squares Newton from {starts} starts, others may exist"
    )
    return FixedPointSet(tuple(points), False, "multistart least-squares Newton", (), (), note)
