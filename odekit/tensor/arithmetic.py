"""Operators shared by tensors and expressions."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from odekit.errors import InputError

if TYPE_CHECKING:
    from odekit.tensor.expression import TensorExpr
    from odekit.tensor.tensors import Tensor


class Arithmetic:
    """Gives ``+ - * / ** @`` and ``.T`` to anything with `as_expression`."""

    # SymPy hands the operation over to an operand of higher priority; so do these operators, so
    # that a parameter times a loss is a loss.
    _op_priority = 100.0

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Take NumPy's numbers in arithmetic, and refuse its functions: no polynomials."""
        operation = _ARITHMETIC.get(ufunc.__name__)
        if operation is None or method != "__call__" or options:
            names = ", ".join(t.name for t in self.as_expression().tensors()) or "a scalar"
            raise InputError(
                f"{ufunc.__name__} of {names} is not polynomial; losses are derived for polynomials"
            )
        left, right = (v if isinstance(v, Arithmetic) else _read_number(v) for v in inputs)
        return operation(left, right)

    def as_expression(self) -> TensorExpr:
        """The value as an expression."""
        raise TypeError(f"{type(self).__name__} gives no expression")

    def _yields_to(self, other: Any) -> bool:
        return isinstance(other, Arithmetic) and other._op_priority > self._op_priority

    def __add__(self, other: Any) -> TensorExpr:
        if self._yields_to(other):
            return NotImplemented
        return self.as_expression().plus(other)

    __radd__ = __add__

    def __neg__(self) -> TensorExpr:
        return self.as_expression().times(-1)

    def __sub__(self, other: Any) -> TensorExpr:
        if self._yields_to(other):
            return NotImplemented
        return self.as_expression().plus(_negative(other))

    def __rsub__(self, other: Any) -> TensorExpr:
        return (-self).plus(other)

    def __mul__(self, other: Any) -> TensorExpr:
        if self._yields_to(other):
            return NotImplemented
        return self.as_expression().times(other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> TensorExpr:
        return self.as_expression().divided_by(other)

    def __rtruediv__(self, other: Any) -> TensorExpr:
        return self.as_expression().inverted(other)

    def diff(self, weight: Tensor) -> TensorExpr:
        """The derivative with respect to a tensor: shape ``self.shape + weight.shape``."""
        return self.as_expression().diff(weight)

    def __pow__(self, exponent: int) -> TensorExpr:
        return self.as_expression().power(exponent)

    def __matmul__(self, other: Any) -> TensorExpr:
        from odekit.tensor.einsum import matrix_product

        return matrix_product(self, other)

    @property
    def T(self) -> TensorExpr:  # noqa: N802 - the name NumPy users expect
        """The transpose: axes in reversed order."""
        expression = self.as_expression()
        return expression.transpose(tuple(reversed(range(expression.rank))))


_ARITHMETIC = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "true_divide": operator.truediv,
}


def _read_number(value: Any) -> Any:
    if np.ndim(value):
        raise InputError(
            f"an array of shape {np.shape(value)} meets a tensor; declare it with ok.parameter"
        )
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


def _negative(value: Any) -> Any:
    return -value
