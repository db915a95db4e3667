"""Expressions at numbers, by NumPy's einsum: the plain reference for every compiled form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import NDArray

from odekit.errors import InputError
from odekit.tensor.expression import TensorExpr
from odekit.tensor.tensors import Tensor

Array = NDArray[np.float64]


def read_array(value: Any, name: str) -> Array:
    """Read finite real numbers as float64, or say what is wrong."""
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(f"{name} is not a rectangular array: {error}") from None
    if np.iscomplexobj(array):
        raise InputError(f"{name} is complex; odekit works with real numbers")
    # float() would read "31" and b"31": text among numbers is a mistake upstream.
    text = array.dtype.kind in "SU" or (
        array.dtype.kind == "O" and any(isinstance(entry, str | bytes) for entry in array.flat)
    )
    if text:
        kind = type(value).__name__ if array.ndim == 0 else "an array of text"
        raise InputError(f"{name} is {kind}; give a number or an array")
    try:
        numbers = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} is {type(value).__name__}; give a number or an array") from None
    if not np.all(np.isfinite(numbers)):
        raise InputError(f"{name} holds NaN or infinity; give finite numbers")
    return numbers


def check_symmetry(array: Array, groups: Iterable[tuple[int, ...]], name: str) -> None:
    """Refuse an array that breaks a declared symmetry (tolerance: rounding of its own scale)."""
    scale = float(np.max(np.abs(array), initial=0.0))
    for group in groups:
        for first, second in zip(group, group[1:], strict=False):
            gap = float(np.max(np.abs(array - np.swapaxes(array, first, second)), initial=0.0))
            if gap > 1e-12 * scale:
                raise InputError(
                    f"{name} is not symmetric (largest gap {gap:.3g}); pass ({name} + {name}.T) / 2"
                )


def check_semidefinite(array: Array, name: str) -> None:
    """Refuse a covariance with a negative eigenvalue (beyond rounding); zero is legitimate."""
    eigenvalues = np.linalg.eigvalsh(array)
    if eigenvalues[0] < -1e-12 * max(float(np.max(np.abs(eigenvalues))), 1e-300):
        raise InputError(
            f"{name} is a covariance but has the negative eigenvalue {eigenvalues[0]:.6g}; "
            "give a positive semidefinite matrix"
        )


def match_sizes(
    shape: tuple[sp.Expr, ...], actual: tuple[int, ...], name: str, sizes: dict[sp.Symbol, int]
) -> None:
    """Read sizes off an array's shape into ``sizes``, or refuse a shape that does not fit."""
    if len(shape) != len(actual):
        raise InputError(f"{name} has shape {actual}; expected {len(shape)} axes {_show(shape)}")
    for size, number in zip(shape, actual, strict=True):
        if isinstance(size, sp.Symbol) and size not in sizes:
            if number < 1:
                raise InputError(f"{name} has shape {actual}; size {size} must be at least 1")
            sizes[size] = number
    for size, number in zip(shape, actual, strict=True):
        known = number_of(size, sizes)
        if known is not None and known != number:
            also = "" if size.is_number else f" with {size} = {known}"
            raise InputError(f"{name} has shape {actual}; expected {_show(shape)}{also}")


def number_of(size: sp.Expr, sizes: Mapping[sp.Symbol, Any]) -> int | None:
    """A size as a number, or None while a symbol in it is unknown."""
    # SymPy's subs is slow, and evaluation asks for sizes at every call.
    if isinstance(size, sp.Integer):
        return int(size)
    if isinstance(size, sp.Symbol):
        return int(sizes[size]) if size in sizes else None
    known = size.subs(sizes)
    return int(known) if known.is_number else None


def _show(shape: tuple[sp.Expr, ...]) -> str:
    return "(" + ", ".join(str(s) for s in shape) + ("," if len(shape) == 1 else "") + ")"


def read_scalar_symbol(symbol: sp.Symbol, value: Any) -> float:
    """Read the number for a symbol, respecting what the symbol is declared to be."""
    number = float(read_array(value, str(symbol)).reshape(-1)[0]) if np.size(value) == 1 else None
    if number is None:
        raise InputError(f"{symbol} is a number; got shape {np.shape(value)}")
    if symbol.is_positive and number <= 0:
        raise InputError(f"{symbol} is {number:g}; it must be positive")
    if symbol.is_integer and number != round(number):
        raise InputError(f"{symbol} is {number:g}; it must be an integer")
    return number


class Bindings:
    """Numbers for tensors, sizes and scalar symbols, read from names.

    Parameters
    ----------
    tensors : iterable of Tensor
        Tensors that need an array (definitions and identities do not).
    symbols : iterable of sympy.Symbol
        Symbols that need a number; sizes are read off the arrays where they can be.
    values : Mapping[str, Any]
        Numbers by name.
    batched : iterable of str
        Names whose arrays carry one leading batch axis.
    """

    def __init__(
        self,
        tensors: Iterable[Tensor],
        symbols: Iterable[sp.Symbol],
        values: Mapping[str, Any],
        batched: Iterable[str] = (),
    ) -> None:
        self.arrays: dict[Tensor, Array] = {}
        self.sizes: dict[sp.Symbol, Any] = {}
        self.batched = set(batched)
        self.batch: int | None = None
        needed = [t for t in tensors if t.definition is None and t.kind != "identity"]
        symbols = list(symbols)
        for tensor in needed:
            if tensor.name not in values:
                names = sorted({t.name for t in needed} | {str(s) for s in symbols})
                raise InputError(f"no value for {tensor.name}; needed: {', '.join(names)}")
            array = read_array(values[tensor.name], tensor.name)
            shape = array.shape
            if tensor.name in self.batched:
                self.batch, shape = shape[0], shape[1:]
            match_sizes(tensor.shape, shape, tensor.name, self.sizes)
            if tensor.name not in self.batched:
                check_symmetry(array, tensor.symmetric_groups, tensor.name)
            self.arrays[tensor] = array
        free = {s for t in needed for size in t.shape for s in size.free_symbols}
        for symbol in sorted(free | set(symbols), key=str):
            if str(symbol) in values:
                number = read_scalar_symbol(symbol, values[str(symbol)])
                if symbol in self.sizes and self.sizes[symbol] != number:
                    raise InputError(
                        f"{symbol} is {number:g} but the arrays say {self.sizes[symbol]}"
                    )
                self.sizes[symbol] = number
            elif symbol not in self.sizes and symbol in symbols:
                raise InputError(f"no value for {symbol}; pass it by name")

    def size(self, expression: sp.Expr) -> int:
        """A size as a number."""
        number = number_of(expression, self.sizes)
        if number is None:
            raise InputError(f"no value for size {expression}; pass it by name")
        return number

    def coefficient(self, monomial: Any, number: Any) -> float:
        """A coefficient as a number."""
        value = float(number)
        for atom, exponent in monomial:
            known = isinstance(atom, sp.Symbol)
            base = float(self.sizes[atom]) if known else float(atom.subs(self.sizes))
            value *= base ** float(exponent) if exponent.denominator != 1 else base ** int(exponent)
        return value

    def array(self, tensor: Tensor) -> Array:
        """The array of a tensor; a definition is evaluated once and kept."""
        if tensor not in self.arrays:
            if tensor.kind == "identity":
                return np.eye(self.size(tensor.shape[0]))
            assert tensor.definition is not None
            self.arrays[tensor] = self.evaluate(tensor.definition)
        return self.arrays[tensor]

    def is_batched(self, tensor: Tensor) -> bool:
        """Whether the tensor's array has a batch axis."""
        if tensor.definition is not None:
            return any(self.is_batched(t) for t in tensor.definition.tensors())
        return tensor.name in self.batched and tensor.kind != "identity"

    def evaluate(self, expression: TensorExpr) -> Array:
        """The value, of shape ``(batch, *shape)`` if anything in it is batched."""
        shape = tuple(self.size(s) for s in expression.shape)
        in_batch = any(self.is_batched(t) for t in expression.tensors())
        total = np.zeros((self.batch, *shape) if in_batch and self.batch is not None else shape)
        for (factors, monomial), number in expression.terms.items():
            total += self._term(factors, shape, in_batch) * self.coefficient(monomial, number)
        return total

    def _term(self, factors: Any, shape: tuple[int, ...], in_batch: bool) -> Any:
        if not factors:
            return 1.0
        names: dict[int, int] = {}
        operands: list[Any] = []
        any_batched = False
        for tensor, indices in factors:
            own = [1 + names.setdefault(i, len(names)) for i in indices]
            if self.is_batched(tensor):
                own, any_batched = [0, *own], True
            operands += [self.array(tensor), own]
        present = [i for i in range(len(shape)) if i in names]
        out = ([0] if any_batched else []) + [1 + names[i] for i in present]
        value = _einsum(operands, out)
        lead = (value.shape[0],) if any_batched else ((1,) if in_batch else ())
        return value.reshape(lead + tuple(shape[i] if i in names else 1 for i in range(len(shape))))


_paths: dict[Any, Any] = {}


def _einsum(operands: list[Any], out: list[int]) -> Any:
    """NumPy's einsum with its contraction path kept: to find one costs more than to use it."""
    if len(operands) <= 4:
        return np.einsum(*operands, out)
    key = (
        tuple(a.shape for a in operands[::2]),
        tuple(tuple(i) for i in operands[1::2]),
        tuple(out),
    )
    if key not in _paths:
        if len(_paths) > 4096:
            _paths.clear()
        _paths[key] = np.einsum_path(*operands, out, optimize="greedy")[0]
    return np.einsum(*operands, out, optimize=_paths[key])


def evaluate(
    expression: TensorExpr, values: Mapping[str, Any], batched: Iterable[str] = ()
) -> Array:
    """Evaluate an expression at numbers.

    Parameters
    ----------
    expression : TensorExpr
        What to evaluate; definitions inside are evaluated on the way.
    values : Mapping[str, array_like]
        Numbers by the names of tensors and symbols; sizes are read off the arrays.
    batched : iterable of str, optional
        Names whose arrays carry one leading batch axis.

    Returns
    -------
    ndarray
        Of the expression's shape, after a batch axis if anything in it is batched.
    """
    tensors = expression.tensors(deep=True)
    # Sizes that only a delta or a broadcast axis holds are told by no array.
    sizes = {s for t in tensors if t.kind == "identity" for s in t.shape[0].free_symbols}
    sizes |= {s for size in expression.shape for s in size.free_symbols}
    told = {s for t in tensors if t.kind != "identity" for n in t.shape for s in n.free_symbols}
    symbols = {*expression.symbols(deep=True), *(sizes - told)}
    bindings = Bindings(tensors, sorted(symbols, key=str), values, batched)
    return bindings.evaluate(expression)
