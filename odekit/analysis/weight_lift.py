"""Weights that make a given value of an intermediate, and the ranks that they can make."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.tensor import Tensor

__all__ = ["WeightLift", "rank_bound"]


def rank_bound(tensor: Tensor, numbers: Mapping[sp.Symbol, int]) -> int | None:
    """Largest rank of a matrix that is a product of factors: the cheapest cut between its axes."""
    assert tensor.definition is not None
    ((factors, _),) = tensor.definition.terms
    best: int | None = None
    for sides in itertools.product((0, 1), repeat=len(factors)):
        if any(
            (0 in indices and side != 0) or (1 in indices and side != 1)
            for (_, indices), side in zip(factors, sides, strict=True)
        ):
            continue
        cut = 1
        seen: dict[int, set[int]] = {}
        size: dict[int, sp.Expr] = {}
        for (factor, indices), side in zip(factors, sides, strict=True):
            for slot, index in enumerate(indices):
                if index >= tensor.rank:
                    seen.setdefault(index, set()).add(side)
                    size[index] = factor.shape[slot]
        for index, touched in seen.items():
            if len(touched) == 2:
                number = sp.sympify(size[index]).subs(numbers)
                if not number.is_Integer:
                    return None
                cut *= int(number)
        best = cut if best is None else min(best, cut)
    return best


class WeightLift:
    """Finds weights whose product is a given value of the intermediate.

    Parameters
    ----------
    field : TensorField
        The field of the weights.
    tensor : Tensor
        The intermediate, defined as one product of all states.
    numbers : mapping
        Numbers of sizes and scalars.
    """

    def __init__(self, field: Any, tensor: Tensor, numbers: Mapping[sp.Symbol, Any]) -> None:
        self.field, self.tensor, self.numbers = field, tensor, numbers

    def _size(self, size: sp.Expr) -> int:
        return int(sp.sympify(size).subs(self.numbers))

    def solve(self, value: NDArray[np.float64]) -> dict[str, NDArray[np.float64]] | None:
        """Weights of least norm in each factor whose product is the value, by alternation."""
        if not self.sizes_known():
            return None
        if not value.any():
            return {t.name: np.zeros(self._shape_of(t)) for t in self.field.states}
        for state in (self._aligned_start(value), self._random_start()):
            found = self._alternate(state, value)
            if found is not None:
                return self._balanced(found)
        return None

    def sizes_known(self) -> bool:
        """Whether every size of the weights has a number."""
        return all(
            sp.sympify(s).subs(self.numbers).is_Integer for t in self.field.states for s in t.shape
        )

    def _shape_of(self, tensor: Tensor) -> tuple[int, ...]:
        return tuple(self._size(s) for s in tensor.shape)

    def _random_start(self) -> dict[str, NDArray[np.float64]]:
        rng = np.random.default_rng(0)
        return {t.name: rng.uniform(0.5, 1.5, size=self._shape_of(t)) for t in self.field.states}

    def _aligned_start(self, value: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """One singular vector to each place of the first axis's owner, the rest zero."""
        assert self.tensor.definition is not None
        ((factors, _),) = self.tensor.definition.terms
        if self.tensor.rank != 2:
            return self._random_start()
        left, singular, _ = np.linalg.svd(value)
        rank = int(np.sum(singular > 1e-12 * singular[0]))
        state = {t.name: np.ones(self._shape_of(t)) for t in self.field.states}
        owner, indices = next((t, ii) for t, ii in factors if 0 in ii)
        slot = indices.index(0)
        if 1 in indices:
            return self._random_start()
        rest = [s for s in range(owner.rank) if s != slot]
        places = list(itertools.product(*(range(state[owner.name].shape[s]) for s in rest)))
        filled = np.zeros_like(np.moveaxis(state[owner.name], slot, -1))
        used: dict[int, set[int]] = {}
        for vector, place in zip(left.T[:rank], places, strict=False):
            filled[place] = vector
            for s, position in zip(rest, place, strict=True):
                used.setdefault(indices[s], set()).add(position)
        state[owner.name] = np.moveaxis(filled, -1, slot)
        for tensor, own in factors:
            for s, index in enumerate(own):
                if tensor is not owner and index in used:
                    unused = [k for k in range(state[tensor.name].shape[s]) if k not in used[index]]
                    np.moveaxis(state[tensor.name], s, 0)[unused] = 0.0
        return state

    def _alternate(
        self, state: dict[str, NDArray[np.float64]], value: NDArray[np.float64]
    ) -> dict[str, NDArray[np.float64]] | None:
        """Solve for one factor of least norm at a time, starting from the last axis's owner."""
        assert self.tensor.definition is not None
        body = self.tensor.definition
        ((factors, _),) = body.terms
        owners = [t for t, ii in factors if any(i < self.tensor.rank for i in ii)]
        numbers = {str(s): float(v) for s, v in self.numbers.items()}
        scale = 1 + float(np.abs(value).max())
        for sweep in range(60):
            for owner in reversed(owners):
                slope = body.diff(owner).evaluate({**numbers, **state})
                matrix = np.asarray(slope).reshape(value.size, -1)
                solved = np.linalg.lstsq(matrix, value.ravel(), rcond=1e-10)[0]
                state[owner.name] = solved.reshape(state[owner.name].shape)
            gap = np.abs(body.evaluate({**numbers, **state}) - value).max()
            if gap < 1e-14 * scale or (sweep > 3 and gap < 1e-12 * scale):
                break
        return state if gap < 1e-10 * scale else None

    def _balanced(self, state: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        """Give all factors the same norm in each slice of an index that all of them have."""
        assert self.tensor.definition is not None
        ((factors, _),) = self.tensor.definition.terms
        shared = set.intersection(*(set(ii) for _, ii in factors)) - set(range(self.tensor.rank))
        for index in sorted(shared)[:1]:
            views = [np.moveaxis(state[t.name], ii.index(index), 0) for t, ii in factors]
            for k in range(views[0].shape[0]):
                norms = [float(np.linalg.norm(view[k])) for view in views]
                mean = float(np.prod(norms)) ** (1.0 / len(norms))
                for view, norm in zip(views, norms, strict=True):
                    view[k] = view[k] * (mean / norm) if mean > 0 else 0.0
        return state
