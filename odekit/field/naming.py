"""Naming the contractions of weights that stand between random tensors.

A predictor is a polynomial in the data whose coefficients are contractions of weights, as
``A = sum_h v_h U_h`` in linear attention. Named once, they are computed once, and the loss is a
short polynomial in them.
"""

from __future__ import annotations

from collections import OrderedDict
from fractions import Fraction

from odekit.tensor import Factor, Tensor, TensorExpr, define
from odekit.tensor.canonical import canonical_product

_NAMES = ("A", "C", "E", "F", "P", "R", "T", "W")
_known: OrderedDict[tuple[tuple[str, ...], TensorExpr], Tensor] = OrderedDict()
_KEPT = 512


def is_random(tensor: Tensor) -> bool:
    """Whether a tensor is Gaussian or defined by one."""
    if tensor.definition is not None:
        return any(t.kind == "gaussian" for t in tensor.definition.tensors(deep=True))
    return tensor.kind == "gaussian"


def name_contractions(prediction: TensorExpr) -> TensorExpr:
    """Replace each cluster of two or more weights joined by summed indices by a definition."""
    prediction = prediction.expand([t for t in prediction.tensors() if is_random(t)])
    taken = {t.name for t in prediction.tensors(deep=True)}
    products = []
    used: list[Tensor] = []
    for factors, monomial, number in prediction.raw():
        rest = [f for f in factors if is_random(f[0])]
        held = {i for _, indices in rest for i in indices}
        for cluster in _clusters([f for f in factors if not is_random(f[0])], held):
            if sum(1 for t, _ in cluster if t.kind in ("weight", "definition")) < 2:
                rest += cluster
                continue
            definition, indices = _define(cluster, held, taken, used)
            rest.append((definition, indices))
        products.append((rest, monomial, number, None))
    return TensorExpr.collect(prediction.shape, products)


def _clusters(factors: list[Factor], held: set[int]) -> list[list[Factor]]:
    """Groups of factors joined by summed indices that no random tensor holds."""
    groups: list[tuple[list[Factor], set[int]]] = []
    for factor in factors:
        inner = {i for i in factor[1] if i < 0 and i not in held}
        joined = [g for g in groups if g[1] & inner]
        merged = (
            [f for g in joined for f in g[0]] + [factor],
            inner.union(*(g[1] for g in joined)),
        )
        groups = [g for g in groups if g not in joined] + [merged]
    return [g[0] for g in groups]


def _define(
    cluster: list[Factor], held: set[int], taken: set[str], used: list[Tensor]
) -> tuple[Tensor, tuple[int, ...]]:
    outer = {i for _, indices in cluster for i in indices if i >= 0 or i in held}
    # Outer indices are made summed ones so that the same contraction gets the same definition
    # wherever it stands; its axes follow their first appearance in canonical form.
    fresh = {i: -(10**8) - k for k, i in enumerate(sorted(outer))}
    loose = [(t, tuple(fresh.get(i, i) for i in ii)) for t, ii in cluster]
    order = _outer_order(loose, set(fresh.values()))
    back = {name: index for index, name in fresh.items()}
    axes = {name: k for k, name in enumerate(order)}
    size = {i: t.shape[slot] for t, ii in loose for slot, i in enumerate(ii)}
    body = TensorExpr.collect(
        tuple(size[name] for name in order),
        [([(t, tuple(axes.get(i, i) for i in ii)) for t, ii in loose], (), Fraction(1), None)],
    )
    definition = _named(body, taken, used)
    return definition, tuple(back[name] for name in order)


def _outer_order(loose: list[Factor], outer: set[int]) -> list[int]:
    """Order of outer indices: by canonical position of the factors that hold them."""
    ranked = canonical_product(loose, 0)
    position: dict[tuple[Tensor, int], int] = {}
    for place, (tensor, indices) in enumerate(ranked):
        for slot in range(len(indices)):
            position.setdefault((tensor, slot), place * 100 + slot)
    first: dict[int, int] = {}
    for tensor, indices in loose:
        for slot, index in enumerate(indices):
            if index in outer:
                place = position[tensor, slot]
                first[index] = min(first.get(index, place), place)
    return sorted(first, key=lambda i: (first[i], -i))


def _named(body: TensorExpr, taken: set[str], used: list[Tensor]) -> Tensor:
    for definition in used:
        if definition.definition == body:
            return definition
    free = [n for n in _NAMES if n not in taken]
    name = free[0] if free else f"A_{len(used)}"
    key = ((name,), body)
    if key not in _known:
        _known[key] = define(name, body)
        while len(_known) > _KEPT:
            _known.popitem(last=False)
    _known.move_to_end(key)
    taken.add(name)
    used.append(_known[key])
    return _known[key]
