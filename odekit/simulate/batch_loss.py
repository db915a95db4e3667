"""The loss of a batch as a field of its own: data contracted ahead, gradients by reverse mode.

In a residual the random tensors meet the weights through few contractions of their own, such as
``beta[b, d]`` and ``x_q[b, d]`` of in-context regression: the features. They are evaluated once for
many steps. What is left is a polynomial in weights and features, whose gradient is a gradient flow
like any other; its contractions are planned once for the sizes at hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import opt_einsum

from odekit.errors import InputError
from odekit.field import gradient_flow
from odekit.field.losses import ExpectedLoss
from odekit.simulate.layer import Floats
from odekit.tensor import Tensor, TensorExpr, as_expression, define, dims, einsum, parameter
from odekit.tensor.coefficient import to_sympy
from odekit.tensor.evaluation import Bindings

__all__ = ["BatchGradient"]

_SMALL = 50_000  # products below which NumPy's plain loop is faster than the way to BLAS
_BATCH = dims("batch_size")


class BatchGradient:
    """Mean per-sample loss of a batch and its gradient.

    Parameters
    ----------
    loss : ExpectedLoss
        With samples.
    weights : sequence of Tensor
        What is trained; one that the loss does not hold has gradient zero.
    """

    def __init__(self, loss: ExpectedLoss, weights: Sequence[Tensor]) -> None:
        self.weights = tuple(weights)
        self.bodies: dict[Tensor, TensorExpr | None] = {}  # feature -> what it is of one sample
        self._lifted: dict[Tensor, Tensor] = {}
        total = as_expression(loss.penalty)
        for k, part in enumerate(loss.samples):
            residual = define(f"residual {k}", self._over_batch(part.prediction - part.target))
            axes = _letters(range(residual.rank))
            square = einsum(f"{axes},{axes}->", residual, residual)
            total = total + square * part.scale * (1 / _BATCH)
        held = {t for t in total.tensors(deep=True) if t.kind == "weight"}
        self.field = gradient_flow(total, [w for w in self.weights if w in held])
        self.random = sorted(
            {
                t
                for body in self.bodies.values()
                if body is not None
                for t in body.tensors(deep=True)
                if t.kind == "gaussian"
            },
            key=lambda t: t.order,
        )
        self._plan: _Plan | None = None

    def features(self, draws: Mapping[str, Floats], params: Mapping[str, Any]) -> dict[str, Floats]:
        """Features (count, *shape), by name, of draws (count, *shape) of the random tensors."""
        count = len(draws[self.random[0].name]) if self.random else 1
        names = [t.name for t in self.random]
        out = {}
        for feature, body in self.bodies.items():
            value = np.ones(count)
            if body is not None:
                value = body.evaluate({**params, **draws}, batched=names)
            out[feature.name] = np.ascontiguousarray(value)
        return out

    def __call__(
        self, state: Mapping[str, Floats], features: Mapping[str, Floats], params: Mapping[str, Any]
    ) -> tuple[float, dict[str, Floats]]:
        """Return the mean loss over the batch and its gradient by weight name.

        The sizes of the first call hold for all later ones.
        """
        if self._plan is None:
            count = len(next(iter(features.values())))
            self._plan = _Plan(self.field, {**params, **state, **features, str(_BATCH): count})
        value, rates = self._plan({**state, **features})
        gradient = {w.name: np.zeros_like(state[w.name]) for w in self.weights}
        for weight, rate in rates.items():
            gradient[weight.name] -= rate
        return value, gradient

    def _over_batch(self, expression: TensorExpr) -> TensorExpr:
        """The expression for each sample: a first axis for the batch."""
        total: Any = None
        for (factors, monomial), number in expression.terms.items():
            groups = [*self._moving(factors), *self._gathered(factors, expression.rank)]
            if not any(batched for _, _, batched in groups):
                groups.append((self._feature(None), (), True))
            names: dict[int, str] = {
                i: _letters([k])
                for k, i in enumerate(dict.fromkeys(i for _, ii, _ in groups for i in ii), start=1)
            }
            words = [("a" if b else "") + "".join(names[i] for i in ii) for _, ii, b in groups]
            free = "a" + "".join(names.get(i, "") for i in range(expression.rank))
            if len(free) <= expression.rank:
                raise InputError("a component that holds no tensor cannot be given a batch axis")
            term = einsum(f"{','.join(words)}->{free}", *(t for t, _, _ in groups))
            coefficient = to_sympy(monomial, number)
            total = term * coefficient if total is None else total + term * coefficient
        if total is None:
            raise InputError("a residual that is zero trains nothing")
        return as_expression(total)

    def _moving(self, factors: Iterable[Any]) -> list[tuple[Tensor, tuple[int, ...], bool]]:
        """Factors that hold weights, those that hold random tensors as well with a batch axis."""
        out = []
        for tensor, indices in factors:
            if not _holds(tensor, "weight"):
                continue
            if _holds(tensor, "gaussian"):
                if tensor not in self._lifted:
                    assert tensor.definition is not None
                    body = self._over_batch(tensor.definition)
                    self._lifted[tensor] = define(f"{tensor.name} of the batch", body)
                out.append((self._lifted[tensor], indices, True))
            else:
                out.append((tensor, indices, False))
        return out

    def _gathered(
        self, factors: Sequence[Any], rank: int
    ) -> list[tuple[Tensor, tuple[int, ...], bool]]:
        """Factors without weights, those that are contracted with each other as one feature."""
        taken = {i for t, ii in factors if _holds(t, "weight") for i in ii}
        groups: list[list[Any]] = []
        for factor in (f for f in factors if not _holds(f[0], "weight")):
            own = {i for i in factor[1] if i >= rank and i not in taken}
            joined = [g for g in groups if any(own & set(indices) for _, indices in g)]
            groups = [g for g in groups if g not in joined]
            groups.append([f for g in joined for f in g] + [factor])
        out: list[tuple[Tensor, tuple[int, ...], bool]] = []
        for group in groups:
            if not any(_holds(t, "gaussian") for t, _ in group):
                out += [(t, tuple(ii), False) for t, ii in group]
                continue
            here = dict.fromkeys(i for _, ii in group for i in ii)
            kept = tuple(i for i in here if i < rank or i in taken)
            names = {i: _letters([k]) for k, i in enumerate(here)}
            words = ",".join("".join(names[i] for i in ii) for _, ii in group)
            body = einsum(f"{words}->{''.join(names[i] for i in kept)}", *(t for t, _ in group))
            out.append((self._feature(body), kept, True))
        return out

    def _feature(self, body: TensorExpr | None) -> Tensor:
        for feature, known in self.bodies.items():
            if known is body or (known is not None and body is not None and known == body):
                return feature
        shape = () if body is None else body.shape
        feature = parameter(f"feature {len(self.bodies)}", (_BATCH, *shape))
        self.bodies[feature] = body
        return feature


def _letters(numbers: Iterable[int]) -> str:
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return "".join(alphabet[k] for k in numbers)


def _holds(tensor: Tensor, kind: str) -> bool:
    if tensor.definition is None:
        return tensor.kind == kind
    return any(t.kind == kind for t in tensor.definition.tensors(deep=True))


class _Contraction:
    """One einsum, its operands contracted two at a time in an order found once.

    opt_einsum's own executor spends some 20 us on each pair, more than most of them take.
    """

    def __init__(self, spec: str, shapes: Sequence[tuple[int, ...]]) -> None:
        _, info = opt_einsum.contract_path(spec, *shapes, shapes=True, optimize="auto")
        sizes = dict(info.size_dict)
        self.steps = []
        for positions, _, step, _, _ in info.contraction_list:
            words = step.split("->")[0].split(",")
            count = 1
            for letter in set("".join(words)):
                count *= sizes[letter]
            self.steps.append((sorted(positions, reverse=True), step, count > _SMALL))

    def __call__(self, *operands: Floats) -> Floats:
        left = list(operands)
        for positions, step, large in self.steps:
            chosen = [left.pop(k) for k in positions]
            left.append(opt_einsum.contract(step, *chosen) if large else np.einsum(step, *chosen))
        return left[0]


class _Plan:
    """The definitions, rates and loss of a field at fixed sizes, every contraction planned."""

    def __init__(self, field: Any, values: Mapping[str, Any]) -> None:
        tensors = {t for e in field.expressions for t in e.tensors()}
        symbols = {s for e in field.expressions for s in e.symbols()}
        self.bindings = Bindings(tensors, sorted(symbols, key=str), values)
        self.fixed = dict(self.bindings.arrays)
        for tensor in tensors:
            if tensor.kind == "identity":
                self.fixed[tensor] = np.eye(self.bindings.size(tensor.shape[0]))
        self.definitions = [(t, self._planned(body)) for t, body in field.definitions]
        self.rates = [(s, self._planned(rate)) for s, rate in field.rates.items()]
        self.loss = self._planned(field.loss)

    def __call__(self, values: Mapping[str, Floats]) -> tuple[float, dict[Tensor, Floats]]:
        """Return the loss and the rates at new values of the tensors that change."""
        arrays = {t: values.get(t.name, array) for t, array in self.fixed.items()}
        for tensor, terms in self.definitions:
            arrays[tensor] = _sum(terms, arrays)
        rates = {state: _sum(terms, arrays) for state, terms in self.rates}
        return float(_sum(self.loss, arrays)), rates

    def _planned(self, expression: TensorExpr) -> tuple[tuple[int, ...], list[Any]]:
        shape = tuple(self.bindings.size(s) for s in expression.shape)
        terms = []
        for (factors, monomial), number in expression.terms.items():
            scale = self.bindings.coefficient(monomial, number)
            names: dict[int, str] = {}
            for _, indices in factors:
                for i in indices:
                    names.setdefault(i, opt_einsum.get_symbol(len(names)))
            words = ["".join(names[i] for i in indices) for _, indices in factors]
            present = [i for i in range(len(shape)) if i in names]
            contract = None
            if factors:
                sizes = [tuple(self.bindings.size(s) for s in t.shape) for t, _ in factors]
                spec = f"{','.join(words)}->{''.join(names[i] for i in present)}"
                contract = _Contraction(spec, sizes)
            broadcast = tuple(shape[i] if i in names else 1 for i in range(len(shape)))
            terms.append((scale, contract, [t for t, _ in factors], broadcast))
        return shape, terms


def _sum(planned: tuple[tuple[int, ...], list[Any]], arrays: Mapping[Tensor, Floats]) -> Floats:
    shape, terms = planned
    if len(terms) == 1 and terms[0][1] is not None and terms[0][3] == shape:
        scale, contract, tensors, _ = terms[0]
        single: Floats = scale * contract(*(arrays[t] for t in tensors))
        return single
    total = np.zeros(shape)
    for scale, contract, tensors, broadcast in terms:
        if contract is None:
            total += scale
        else:
            total += scale * np.reshape(contract(*(arrays[t] for t in tensors)), broadcast)
    return total
