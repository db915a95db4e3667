"""Tensor expressions in index notation with symbolic sizes."""

from odekit.tensor.canonical import Factor
from odekit.tensor.coefficient import Monomial, is_scalar
from odekit.tensor.derivative import partial_derivative
from odekit.tensor.einsum import einsum
from odekit.tensor.expression import TensorExpr, as_expression
from odekit.tensor.simplify import Term
from odekit.tensor.tangent import tangent
from odekit.tensor.tensors import (
    Eigenvector,
    Tensor,
    define,
    dims,
    eigenvector,
    identity,
    parameter,
    weight,
)

__all__ = [
    "Eigenvector",
    "Factor",
    "Monomial",
    "Tensor",
    "TensorExpr",
    "Term",
    "as_expression",
    "define",
    "dims",
    "eigenvector",
    "einsum",
    "identity",
    "is_scalar",
    "parameter",
    "partial_derivative",
    "tangent",
    "weight",
]
