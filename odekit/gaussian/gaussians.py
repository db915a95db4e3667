"""Zero-mean Gaussian tensors: the same objects are averaged exactly and sampled numerically."""

from __future__ import annotations

from fractions import Fraction
from numbers import Real
from typing import Any

from odekit.errors import InputError
from odekit.tensor import Factor, Monomial, Tensor, TensorExpr, as_expression, identity

Pairing = list[tuple[list[Factor], Monomial, Fraction]]


class Gaussian(Tensor):
    """A zero-mean Gaussian tensor whose covariance is a product over its axes.

    Attributes
    ----------
    axis_covariance : tuple
        For each axis None (independent, unit variance) or a symmetric matrix expression.
    variance : TensorExpr
        A rank-zero factor of the whole covariance.
    """

    def __init__(self, name: str, shape: Any, covariance: Any) -> None:
        super().__init__(name, shape, "gaussian")
        self.variance = TensorExpr.scalar(1)
        axes: list[TensorExpr | None] = [None] * self.rank
        given = covariance if isinstance(covariance, tuple) else (covariance,)
        if isinstance(covariance, tuple) and len(given) != self.rank:
            raise InputError(
                f"{name} has {self.rank} axes but {len(given)} covariances; give one per axis"
            )
        for axis, value in zip(range(self.rank - len(given), self.rank), given, strict=True):
            if value is None:
                continue
            matrix = as_expression(value)
            if matrix.rank == 0:
                if isinstance(value, Real) and value < 0:
                    raise InputError(f"variance of {name} is {value}; it must not be negative")
                self.variance = self.variance * matrix
            elif axis >= 0:
                axes[axis] = self._read_matrix(value, matrix, axis)
        if not self.rank and as_expression(given[0]).rank:
            raise InputError(f"{name} is a scalar; its covariance must be a number")
        self.axis_covariance = tuple(axes)

    def _read_matrix(self, value: Any, matrix: TensorExpr, axis: int) -> TensorExpr | None:
        size = self.shape[axis]
        if matrix.shape != (size, size):
            raise InputError(
                f"covariance of {self.name} along axis {axis} has shape "
                f"({', '.join(map(str, matrix.shape))}); expected ({size}, {size})"
            )
        random = [t.name for t in matrix.tensors(deep=True) if t.kind in ("gaussian", "weight")]
        if random:
            raise InputError(f"covariance of {self.name} depends on {random[0]}; use parameters")
        if matrix == as_expression(identity(size)):
            return None
        if matrix != matrix.transpose((1, 0)):
            raise InputError(
                f"covariance of {self.name} is not declared symmetric; "
                "use ok.parameter(..., symmetric=True)"
            )
        if isinstance(value, Tensor):
            value.semidefinite = True
        return matrix

    def pairing(self, first: tuple[int, ...], second: tuple[int, ...]) -> Pairing:
        """The covariance of two entries as products of tensors (summed indices negative)."""
        result: Pairing = [(list(f), m, c) for f, m, c in self.variance.raw()]
        for axis, matrix in enumerate(self.axis_covariance):
            i, j = first[axis], second[axis]
            if matrix is None:
                options: Pairing = [([(identity(self.shape[axis]), (i, j))], (), Fraction(1))]
            else:
                options = [
                    (
                        [
                            (t, tuple((i, j)[k] if k >= 0 else k - _FRESH for k in indices))
                            for t, indices in factors
                        ],
                        monomial,
                        number,
                    )
                    for factors, monomial, number in matrix.raw()
                ]
            result = _combine(result, options)
        return result


_FRESH = 10**9


def _combine(left: Pairing, right: Pairing) -> Pairing:
    from odekit.tensor.coefficient import multiply

    return [(lf + rf, multiply(lm, rm), lc * rc) for lf, lm, lc in left for rf, rm, rc in right]


def gaussian(name: str, shape: Any = (), covariance: Any = 1) -> Gaussian:
    """Declare a zero-mean Gaussian tensor.

    Parameters
    ----------
    name : str
        Its name.
    shape : tuple, optional
        Sizes.
    covariance : scalar, Tensor, TensorExpr or tuple, optional
        A scalar makes every entry independent with this variance. A symmetric matrix belongs to
        the last axis, leading axes being independent copies. A tuple gives one per axis (None
        for an independent one): the covariance is their product.

    Returns
    -------
    Gaussian
        To be used like any tensor; `odekit.expectation` averages over it, `odekit.sample` draws it.

    Raises
    ------
    InputError
        If a covariance does not fit its axis, is not declared symmetric, or is random itself.
    """
    return Gaussian(name, shape, covariance)
