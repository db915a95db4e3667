"""Expected losses: exact polynomials in the weights, with the sample losses they are means of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sympy as sp

from odekit.errors import InputError
from odekit.field.naming import name_contractions
from odekit.gaussian import expectation
from odekit.tensor import Tensor, TensorExpr, as_expression, einsum, is_scalar
from odekit.tensor.arithmetic import Arithmetic
from odekit.tensor.expression import _show

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, eq=False)
class Sample:
    """One family of samples: ``scale * |target - prediction|^2`` for a draw of the data.

    Attributes
    ----------
    prediction, target : TensorExpr
        Polynomials in weights and Gaussian tensors, of one shape.
    scale : TensorExpr
        Rank zero, free of random tensors.
    """

    prediction: TensorExpr
    target: TensorExpr
    scale: TensorExpr


@dataclass(frozen=True, eq=False)
class ExpectedLoss(Arithmetic):
    """An expected loss as a function of the weights.

    Attributes
    ----------
    expression : TensorExpr
        Rank zero, in weights, parameters and named contractions of weights.
    samples : tuple of Sample
        Whose means, added up, are the data part of the loss; what `odekit.simulate.sgd` draws.
    penalty : TensorExpr
        The part that is no mean over data, such as weight decay.
    """

    expression: TensorExpr
    samples: tuple[Sample, ...] = ()
    penalty: TensorExpr = TensorExpr((), {})

    _op_priority = 200.0  # above a tensor's: what a loss is combined with becomes a loss

    def as_expression(self) -> TensorExpr:
        """The loss as an expression."""
        return self.expression

    def __add__(self, other: Any) -> ExpectedLoss:  # type: ignore[override]
        right = _as_loss(other)
        return ExpectedLoss(
            self.expression + right.expression,
            self.samples + right.samples,
            self.penalty + right.penalty,
        )

    __radd__ = __add__  # type: ignore[assignment]

    def __sub__(self, other: Any) -> ExpectedLoss:  # type: ignore[override]
        return self + (-1) * _as_loss(other)

    def __rsub__(self, other: Any) -> ExpectedLoss:  # type: ignore[override]
        return _as_loss(other) + (-1) * self

    def __neg__(self) -> ExpectedLoss:  # type: ignore[override]
        return self * (-1)

    def __mul__(self, factor: Any) -> ExpectedLoss:  # type: ignore[override]
        scale = _scale(factor)
        return ExpectedLoss(
            self.expression * scale,
            tuple(Sample(s.prediction, s.target, s.scale * scale) for s in self.samples),
            self.penalty * scale,
        )

    __rmul__ = __mul__  # type: ignore[assignment]

    def __truediv__(self, factor: Any) -> ExpectedLoss:  # type: ignore[override]
        return self * (1 / sp.sympify(factor))

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """Weights that the loss depends on, by name."""
        return tuple(t for t in self.expression.tensors(deep=True) if t.kind == "weight")

    def value(self, state: Mapping[str, Any], params: Mapping[str, Any] | None = None) -> float:
        """The loss at numbers."""
        return float(self.expression.evaluate({**state, **(params or {})}))

    def latex(self) -> str:
        """LaTeX of the loss, with its named contractions."""
        from odekit.field.display import lines_latex

        return lines_latex([("L", self.expression)], self.expression)

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.latex()}$"

    def __repr__(self) -> str:
        return f"ExpectedLoss: {self.expression}"


def _scale(value: Any) -> TensorExpr:
    factor = as_expression(value)
    if factor.rank or any(t.kind != "parameter" for t in factor.tensors(deep=True)):
        raise InputError("a loss is scaled by a number, a SymPy expression or a scalar parameter")
    return factor


def _as_loss(value: Any) -> ExpectedLoss:
    if isinstance(value, ExpectedLoss):
        return value
    if not (isinstance(value, Arithmetic) or is_scalar(value)):
        raise InputError(f"cannot add {type(value).__name__} to a loss")
    expression = as_expression(value)
    if expression.rank:
        raise InputError(
            f"a loss is a scalar; got shape {_show(expression.shape)}, contract it with ok.einsum"
        )
    random = [t.name for t in expression.tensors(deep=True) if t.kind == "gaussian"]
    if random:
        raise InputError(f"the added term depends on random {random[0]}; average it first")
    return ExpectedLoss(expression, (), expression)


def expected_loss(prediction: Any, target: Any, scale: Any = 1) -> ExpectedLoss:
    """The exact mean of ``scale * |target - prediction|^2`` over the Gaussian data.

    Parameters
    ----------
    prediction, target : TensorExpr
        Polynomials in weights and Gaussian tensors, of one shape; components are summed.
    scale : number, SymPy expression or scalar parameter, optional
        For example 1/2; the convention of the papers differs, so it is explicit.

    Returns
    -------
    ExpectedLoss
        Contractions of weights between random tensors are named (``A``) and stay so.

    Raises
    ------
    InputError
        If the shapes differ.
    """
    predicted, aimed = as_expression(prediction), as_expression(target)
    if predicted.shape != aimed.shape:
        raise InputError(
            f"prediction has shape {_show(predicted.shape)} but target {_show(aimed.shape)}"
        )
    factor = _scale(scale)
    named = name_contractions(predicted)
    axes = _LETTERS[: predicted.rank]
    pair = f"{axes},{axes}->"
    aimed = name_contractions(aimed)
    mean = (
        expectation(einsum(pair, aimed, aimed))
        - 2 * expectation(einsum(pair, aimed, named))
        + expectation(einsum(pair, named, named))
    )
    return ExpectedLoss(mean * factor, (Sample(predicted, aimed, factor),))
