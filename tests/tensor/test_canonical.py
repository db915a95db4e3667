"""Canonical form against an independent oracle: contraction of random integers modulo a prime."""

from __future__ import annotations

import itertools
import random

import pytest
import sympy as sp

import odekit as ok
from odekit.tensor.canonical import Factor, canonical_product
from odekit.tensor.tensors import Tensor

PRIME = 2_147_483_647
SIZE = 3


def tensors() -> list[Tensor]:
    D = sp.Integer(SIZE)
    return [
        ok.parameter("S", (D, D), symmetric=True),
        ok.weight("M", (D, D)),
        ok.weight("T", (D, D, D)),
        ok.parameter("P", (D, D, D), symmetric=[(1, 2)]),
        ok.weight("v", (D,)),
    ]


def entries(tensor: Tensor, rng: random.Random) -> dict[tuple[int, ...], int]:
    values: dict[tuple[int, ...], int] = {}
    for position in itertools.product(range(SIZE), repeat=tensor.rank):
        key = list(position)
        for group in tensor.symmetric_groups:
            for slot, value in zip(group, sorted(position[s] for s in group), strict=True):
                key[slot] = value
        values[position] = values.setdefault(tuple(key), rng.randrange(PRIME))
    return values


def contraction(factors: list[Factor], values: dict[Tensor, dict[tuple[int, ...], int]]) -> int:
    dummies = sorted({i for _, indices in factors for i in indices})
    total = 0
    for assignment in itertools.product(range(SIZE), repeat=len(dummies)):
        at = dict(zip(dummies, assignment, strict=True))
        product = 1
        for tensor, indices in factors:
            product = product * values[tensor][tuple(at[i] for i in indices)] % PRIME
        total = (total + product) % PRIME
    return total


def random_product(pool: list[Tensor], rng: random.Random) -> list[Factor]:
    chosen = [rng.choice(pool) for _ in range(rng.randint(1, 4))]
    names = [-1 - k for k in range(rng.randint(1, 4))]
    return [(t, tuple(rng.choice(names) for _ in range(t.rank))) for t in chosen]


def renamed(factors: list[Factor], rng: random.Random) -> list[Factor]:
    """The same product in other words: dummies renamed, symmetric slots and factors shuffled."""
    dummies = sorted({i for _, indices in factors for i in indices})
    names = dict(zip(dummies, rng.sample(range(-99, -1), len(dummies)), strict=True))
    result = []
    for tensor, indices in factors:
        own = [names[i] for i in indices]
        for group in tensor.symmetric_groups:
            mixed = [own[s] for s in group]
            rng.shuffle(mixed)
            for slot, index in zip(group, mixed, strict=True):
                own[slot] = index
        result.append((tensor, tuple(own)))
    rng.shuffle(result)
    return result


def test_equal_forms_are_equal_contractions_and_the_reverse() -> None:
    rng = random.Random(7)
    pool = tensors()
    values = {t: entries(t, rng) for t in pool}
    by_form: dict[object, int] = {}
    by_value: dict[int, object] = {}
    for _ in range(400):
        product = random_product(pool, rng)
        form = canonical_product(product, 0)
        number = contraction(product, values)
        assert canonical_product(renamed(product, rng), 0) == form
        # Different polynomials agree at random values modulo the prime with probability 1e-8.
        assert by_form.setdefault(form, number) == number
        assert by_value.setdefault(number, form) == form


@pytest.mark.parametrize("length", [2, 3, 6, 9])
def test_cycles_are_one_form_whatever_the_start(length: int) -> None:
    M = ok.weight("M", (sp.Integer(4), sp.Integer(4)))
    rng = random.Random(length)
    cycle: list[Factor] = [(M, (-1 - k, -1 - (k + 1) % length)) for k in range(length)]
    reverse: list[Factor] = [(M, (i[1], i[0])) for _, i in cycle]
    assert canonical_product(renamed(cycle, rng), 0) == canonical_product(cycle, 0)
    # The trace of a power of the transpose is the same number.
    assert canonical_product(reverse, 0) == canonical_product(cycle, 0)


def test_two_regular_graphs_that_refinement_cannot_tell_apart() -> None:
    S = ok.parameter("S", (sp.Integer(3), sp.Integer(3)), symmetric=True)
    six = [(S, (-1 - k, -1 - (k + 1) % 6)) for k in range(6)]
    two = [(S, (-1 - k - 3 * j, -1 - (k + 1) % 3 - 3 * j)) for j in range(2) for k in range(3)]
    assert canonical_product(six, 0) != canonical_product(two, 0)


def test_tensors_are_told_apart_by_identity() -> None:
    D = ok.dims("D")
    first, second = ok.weight("W", (D, D)), ok.weight("W", (D, D))
    assert ok.einsum("ii->", first) != ok.einsum("ii->", second)
