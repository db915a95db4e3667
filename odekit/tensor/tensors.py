"""Named tensors: sizes, parameters, weights, definitions, eigenvectors and the identity."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import sympy as sp

from odekit.errors import InputError
from odekit.tensor.arithmetic import Arithmetic

if TYPE_CHECKING:
    from odekit.tensor.expression import TensorExpr

Kind = Literal["parameter", "weight", "gaussian", "definition", "eigenvector", "identity"]

_counter = itertools.count()


def read_size(value: Any, what: str) -> sp.Expr:
    """Read one size: a positive integer, or a SymPy expression for one."""
    try:
        if isinstance(value, bool):
            raise TypeError
        size = sp.sympify(value, strict=True)
    except (sp.SympifyError, TypeError):
        raise InputError(
            f"{what} is {value!r}; give a positive integer or a symbol made by ok.dims"
        ) from None
    if size.is_number and not (size.is_integer and size.is_positive):
        raise InputError(f"{what} is {size}; a size is a positive integer")
    return sp.Integer(size) if size.is_number else size


def read_shape(shape: Any, name: str) -> tuple[sp.Expr, ...]:
    """Read the shape of the tensor called ``name``."""
    if isinstance(shape, int | sp.Expr):
        shape = (shape,)
    if not isinstance(shape, Iterable):
        raise InputError(f"the shape of {name} is {shape!r}; give a tuple of sizes such as (N, D)")
    return tuple(read_size(s, f"axis {i} of {name}") for i, s in enumerate(shape))


class Tensor(Arithmetic):
    """A named tensor, told apart by identity and not by its name.

    Parameters
    ----------
    name : str
        Shown in equations and used as the key for numbers.
    shape : tuple
        Sizes, integers or SymPy symbols.
    kind : str
        What it stands for.
    symmetric : bool or iterable of groups of axes
        Groups of axes under whose exchange the tensor does not change.

    Notes
    -----
    Tensors take part in ``+``, ``-``, ``*`` with scalars, ``/`` by scalars, ``@`` (rank at most 2)
    and `odekit.einsum`; the result is a `TensorExpr`.
    """

    def __init__(
        self,
        name: str,
        shape: Any,
        kind: Kind,
        symmetric: bool | Iterable[Iterable[int]] = False,
    ) -> None:
        if not isinstance(name, str) or not name or name != name.strip():
            raise InputError(f"tensor name {name!r} is not a word; give a name such as 'U'")
        self.name = name
        self.shape = read_shape(shape, name)
        self.kind: Kind = kind
        self.uid = next(_counter)
        self.order = (name, self.uid)
        self.slot_classes = self._classes(symmetric)
        self.symmetric_groups = tuple(
            group
            for c in sorted(set(self.slot_classes))
            if len(group := tuple(i for i, k in enumerate(self.slot_classes) if k == c)) > 1
        )
        self.definition: TensorExpr | None = None
        # Set where the tensor serves as a covariance; numbers are then checked for positivity.
        self.semidefinite = False

    def _classes(self, symmetric: bool | Iterable[Iterable[int]]) -> tuple[int, ...]:
        rank = len(self.shape)
        if symmetric is False:
            return tuple(range(rank))
        groups = [tuple(range(rank))] if symmetric is True else [tuple(g) for g in symmetric]
        classes = list(range(rank))
        for group in groups:
            if any(not 0 <= axis < rank for axis in group):
                raise InputError(f"{self.name} has {rank} axes; symmetric names {group}")
            if len({self.shape[axis] for axis in group}) > 1:
                raise InputError(
                    f"{self.name} of shape {self.shape} cannot be symmetric in axes {group}: "
                    "their sizes differ"
                )
            for axis in group:
                classes[axis] = min(group)
        return tuple(classes)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def as_expression(self) -> TensorExpr:
        """The expression that is this tensor alone."""
        from odekit.tensor.expression import TensorExpr

        return TensorExpr.of_tensor(self)

    def __repr__(self) -> str:
        return f"{self.kind} {self.name}{tuple(str(s) for s in self.shape)}".replace("'", "")

    def _repr_latex_(self) -> str:
        return self.as_expression()._repr_latex_()


class Eigenvector(Tensor):
    """Unit eigenvectors of a symmetric parameter; the last axis is the vector's.

    See `eigenvector`.
    """

    def __init__(self, name: str, of: Tensor, value: sp.Expr | Tensor, count: Any) -> None:
        shape = (of.shape[0],) if count is None else (count, of.shape[0])
        super().__init__(name, shape, "eigenvector")
        self.of = of
        self.value = value


def dims(names: str) -> Any:
    """Make positive integer symbols for sizes.

    Parameters
    ----------
    names : str
        Names separated by spaces or commas, as in ``"N D H"``.

    Returns
    -------
    sympy.Symbol or tuple of sympy.Symbol
        One symbol for one name.
    """
    if not isinstance(names, str) or not names.strip():
        raise InputError(f"dims takes names in one string such as 'N D H', got {names!r}")
    return sp.symbols(names, positive=True, integer=True)


def parameter(
    name: str, shape: Any = (), symmetric: bool | Iterable[Iterable[int]] = False
) -> Tensor:
    """Declare a known tensor, bound to numbers later.

    Parameters
    ----------
    name : str
        Its name.
    shape : tuple, optional
        Sizes; ``()`` is a scalar.
    symmetric : bool or groups of axes, optional
        Declared symmetry, used when terms are collected and checked when numbers come.
    """
    return Tensor(name, shape, "parameter", symmetric)


def weight(name: str, shape: Any = ()) -> Tensor:
    """Declare a trained tensor: a state of the gradient flow."""
    return Tensor(name, shape, "weight")


_identities: dict[sp.Expr, Tensor] = {}


def identity(size: Any) -> Tensor:
    """The identity matrix of a size, as a tensor of shape (size, size)."""
    key = read_size(size, "size of the identity")
    if key not in _identities:
        _identities[key] = Tensor("I", (key, key), "identity", symmetric=True)
    return _identities[key]


def define(name: str, expression: TensorExpr) -> Tensor:
    """Name an intermediate: it is shown under its name, computed once, never multiplied out.

    Parameters
    ----------
    name : str
        Its name.
    expression : TensorExpr
        What it stands for.
    """
    from odekit.tensor.expression import as_expression

    body = as_expression(expression)
    tensor = Tensor(name, body.shape, "definition", symmetric=_symmetries(body))
    tensor.definition = body
    return tensor


def _symmetries(body: TensorExpr) -> bool:
    """Whether a matrix expression equals its own transpose."""
    return body.rank == 2 and body.shape[0] == body.shape[1] and body == body.transpose((1, 0))


def eigenvector(name: str, of: Tensor, value: Any = None, count: Any = None) -> Eigenvector:
    """Declare a unit eigenvector of a symmetric parameter, or ``count`` orthonormal ones.

    Parameters
    ----------
    name : str
        Its name.
    of : Tensor
        A symmetric parameter of shape (D, D).
    value : sympy.Expr or Tensor
        The eigenvalue: a SymPy symbol, or for ``count`` vectors a rank-one parameter of that size.
    count : size, optional
        Number of vectors; the shape is then (count, D) and the last axis is the vector's.

    Notes
    -----
    Different eigenvectors of the same parameter are orthogonal.
    """
    if not isinstance(of, Tensor) or of.rank != 2 or not of.symmetric_groups:
        raise InputError("eigenvector needs of= a symmetric parameter of shape (D, D)")
    if count is None:
        if value is None or isinstance(value, str):
            value = sp.Symbol(value or f"lambda_{name}", positive=True)
        value = sp.sympify(value)
    elif value is None:
        value = parameter(f"lambda_{name}", (count,))
    elif not isinstance(value, Tensor) or value.rank != 1:
        raise InputError(f"eigenvectors {name}: value must be a parameter of shape ({count},)")
    return Eigenvector(name, of, value, count)
