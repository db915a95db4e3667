"""Sums of index contractions with exact coefficients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import sympy as sp

from odekit.errors import InputError
from odekit.tensor.arithmetic import Arithmetic
from odekit.tensor.canonical import Factor
from odekit.tensor.coefficient import ONE, Monomial, is_scalar, multiply, polynomial
from odekit.tensor.simplify import Term, reduced_terms
from odekit.tensor.tensors import Tensor


class TensorExpr(Arithmetic):
    """A tensor-valued polynomial: a sum of contractions, collected and in canonical form.

    Attributes
    ----------
    shape : tuple of sympy.Expr
        Sizes of the free axes.
    terms : Mapping[Term, Fraction]
        Each term's product of tensors and monomial in the sizes, with its rational number. In a
        term, indices 0 to ``rank - 1`` are the free axes, larger ones are summed; an index may
        occur any number of times, and a free one that occurs nowhere broadcasts.

    Notes
    -----
    Two expressions are equal (``==``) exactly if they are the same polynomial: terms are canonical
    under renaming of summed indices and the tensors' declared symmetries. Definitions are opaque;
    `expand` multiplies them out.
    """

    __slots__ = ("_hash", "_terms", "shape")

    def __init__(self, shape: tuple[sp.Expr, ...], terms: Mapping[Term, Fraction]) -> None:
        self.shape = shape
        self._terms = {t: c for t, c in terms.items() if c != 0}
        self._hash: int | None = None

    # -- making ---------------------------------------------------------------------------------

    @classmethod
    def of_tensor(cls, tensor: Tensor) -> TensorExpr:
        """The expression that is one tensor."""
        indices = tuple(range(tensor.rank))
        return cls.collect(tensor.shape, [([(tensor, indices)], ONE, Fraction(1), None)])

    @classmethod
    def scalar(cls, value: Any) -> TensorExpr:
        """A rank-zero expression from a number or a SymPy expression."""
        return cls((), {Term((), m): c for m, c in polynomial(value)})

    @classmethod
    def zero(cls, shape: tuple[sp.Expr, ...]) -> TensorExpr:
        """Zero of a shape."""
        return cls(shape, {})

    @classmethod
    def collect(
        cls,
        shape: tuple[sp.Expr, ...],
        products: Iterable[tuple[list[Factor], Monomial, Fraction, dict[int, sp.Expr] | None]],
    ) -> TensorExpr:
        """Sum raw products (free indices from 0, summed ones negative) into canonical terms."""
        rank = len(shape)
        total: dict[Term, Fraction] = {}
        for factors, monomial, number, loops in products:
            for term, factor in reduced_terms(factors, monomial, rank, loops):
                total[term] = total.get(term, Fraction(0)) + number * factor
        return cls(shape, total)

    # -- reading --------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def terms(self) -> Mapping[Term, Fraction]:
        """Terms and their numbers, read only."""
        return MappingProxyType(self._terms)

    def __iter__(self) -> Iterator[Any]:
        raise TypeError("a TensorExpr is not iterable; read .terms")

    def as_expression(self) -> TensorExpr:
        """Itself."""
        return self

    def raw(self) -> Iterator[tuple[list[Factor], Monomial, Fraction]]:
        """Terms with summed indices made negative, ready to be combined."""
        rank = self.rank
        for (factors, monomial), number in self._terms.items():
            yield (
                [(t, tuple(i if i < rank else rank - 1 - i for i in ii)) for t, ii in factors],
                monomial,
                number,
            )

    def tensors(self, deep: bool = False) -> tuple[Tensor, ...]:
        """Tensors that occur, sorted by name; ``deep`` looks inside definitions as well."""
        found: dict[Tensor, None] = {}
        pending = [self]
        while pending:
            for factors, _ in pending.pop()._terms:
                for tensor, _ in factors:
                    if tensor not in found:
                        found[tensor] = None
                        if deep and tensor.definition is not None:
                            pending.append(tensor.definition)
        return tuple(sorted(found, key=lambda t: t.order))

    def symbols(self, deep: bool = False) -> tuple[sp.Symbol, ...]:
        """SymPy symbols in the coefficients, sorted by name."""
        found = {s for _, m in self._terms for atom, _ in m for s in atom.free_symbols}
        if deep:
            for tensor in self.tensors(deep=True):
                if tensor.definition is not None:
                    found |= set(tensor.definition.symbols())
        return tuple(sorted(found, key=str))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Tensor) or is_scalar(other):
            other = as_expression(other)
        if not isinstance(other, TensorExpr):
            return NotImplemented
        return self.shape == other.shape and self._terms == other._terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash((self.shape, frozenset(self._terms.items())))
        return self._hash

    def __bool__(self) -> bool:
        raise TypeError("the truth value of a TensorExpr is ambiguous; compare with == or .is_zero")

    @property
    def is_zero(self) -> bool:
        """Whether it has no terms."""
        return not self._terms

    # -- arithmetic -----------------------------------------------------------------------------

    def plus(self, other: Any) -> TensorExpr:
        """Add an expression of the same shape, or to a rank-zero one a scalar."""
        if not isinstance(other, TensorExpr):
            if not (isinstance(other, Arithmetic) or is_scalar(other)):
                return NotImplemented
            other = as_expression(other)
        if other.is_zero and not other.shape:
            return self
        if self.is_zero and not self.shape:
            return other
        if self.shape != other.shape:
            raise InputError(
                f"cannot add shapes {_show(self.shape)} and {_show(other.shape)}; "
                "bring both to one shape with ok.einsum"
            )
        total = dict(self._terms)
        for term, number in other._terms.items():
            total[term] = total.get(term, Fraction(0)) + number
        return TensorExpr(self.shape, total)

    def times(self, other: Any) -> TensorExpr:
        """Multiply by a scalar: a number, a SymPy expression or a rank-zero expression."""
        if isinstance(other, Arithmetic):
            right = other.as_expression()
            if self.rank and right.rank:
                raise InputError(
                    f"cannot multiply shapes {_show(self.shape)} and {_show(right.shape)} with *; "
                    "say which axes meet with ok.einsum"
                )
            return _outer(self, right)
        if not is_scalar(other):
            return NotImplemented
        total: dict[Term, Fraction] = {}
        for monomial, factor in polynomial(other):
            for term, number in self._terms.items():
                key = Term(term.factors, multiply(term.monomial, monomial))
                total[key] = total.get(key, Fraction(0)) + number * factor
        return TensorExpr(self.shape, total)

    def divided_by(self, other: Any) -> TensorExpr:
        """Divide by a scalar that holds no tensor."""
        if isinstance(other, Arithmetic):
            return other.as_expression().inverted(self)
        if not is_scalar(other):
            return NotImplemented
        divisor = (
            sp.nsimplify(other, rational=True) if isinstance(other, float) else sp.sympify(other)
        )
        if divisor == 0:
            raise InputError("division of an expression by zero")
        return self.times(1 / divisor)

    def inverted(self, numerator: Any) -> TensorExpr:
        """Refuse to divide by tensors, unless they cancel to a scalar coefficient."""
        if not self.shape and all(not term.factors for term in self._terms):
            from odekit.tensor.coefficient import to_sympy

            value = sp.Add(*(to_sympy(t.monomial, c) for t, c in self._terms.items()))
            return as_expression(numerator).divided_by(value)
        names = ", ".join(t.name for t in self.tensors())
        raise InputError(
            f"division by {names} is not polynomial; only scalars such as N can be divided by"
        )

    def power(self, exponent: int) -> TensorExpr:
        """A non-negative integer power of a rank-zero expression."""
        if not isinstance(exponent, int) or exponent < 0:
            names = ", ".join(t.name for t in self.tensors()) or "the expression"
            raise InputError(
                f"{names} to the power {exponent} is not polynomial; "
                "use a non-negative integer exponent"
            )
        if self.rank:
            raise InputError(
                f"powers are for scalars, not shape {_show(self.shape)}; use ok.einsum"
            )
        result = TensorExpr.scalar(1)
        for _ in range(exponent):
            result = _outer(result, self)
        return result

    def transpose(self, axes: tuple[int, ...]) -> TensorExpr:
        """Permute the axes, as NumPy does."""
        if sorted(axes) != list(range(self.rank)):
            raise InputError(f"axes {axes} do not permute shape {_show(self.shape)}")
        place = {old: new for new, old in enumerate(axes)}
        shape = tuple(self.shape[a] for a in axes)
        return TensorExpr.collect(
            shape,
            (
                ([(t, tuple(place.get(i, i) for i in ii)) for t, ii in factors], m, c, None)
                for factors, m, c in self.raw()
            ),
        )

    # -- operations kept in files of their own ---------------------------------------------------

    def diff(self, weight: Tensor) -> TensorExpr:
        """The derivative with respect to a tensor: shape ``self.shape + weight.shape``."""
        from odekit.tensor.derivative import derivative
        from odekit.tensor.tensors import Tensor

        asked: Any = weight
        if not isinstance(asked, Tensor):
            raise InputError(f"diff takes a tensor such as a weight, got {asked!r:.60}")
        return derivative(self, weight)

    def expand(self, only: Iterable[Tensor] | None = None) -> TensorExpr:
        """Multiply out definitions (all, or those named)."""
        from odekit.tensor.substitution import expand

        return expand(self, only)

    def substitute(self, replacements: Mapping[Tensor, Any]) -> TensorExpr:
        """Put expressions in the place of tensors."""
        from odekit.tensor.substitution import substitute

        return substitute(self, replacements)

    def evaluate(self, values: Mapping[str, Any], batched: Iterable[str] = ()) -> Any:
        """Evaluate at numbers: see `odekit.tensor.evaluation.evaluate`."""
        from odekit.tensor.evaluation import evaluate

        return evaluate(self, values, batched)

    def sympy(self) -> Any:
        """View as a SymPy expression."""
        from odekit.tensor.sympy_view import to_sympy_view

        return to_sympy_view(self)

    def _sympy_(self) -> Any:
        return self.sympy()

    def latex(self) -> str:
        """View as LaTeX."""
        from odekit.tensor.printing import latex

        return latex(self)

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.latex()}$"

    def __str__(self) -> str:
        from odekit.tensor.printing import text

        return text(self)

    def __repr__(self) -> str:
        return f"TensorExpr{_show(self.shape)}: {self}"


def as_expression(value: Any) -> TensorExpr:
    """Read a tensor, an expression or a scalar as an expression."""
    if isinstance(value, Arithmetic):
        return value.as_expression()
    if is_scalar(value):
        return TensorExpr.scalar(value)
    raise InputError(
        f"expected a tensor, an expression or a scalar, got {type(value).__name__}: {value!r:.60}"
    )


def _outer(left: TensorExpr, right: TensorExpr) -> TensorExpr:
    """The product of two expressions of which one has rank zero."""
    shape = left.shape + right.shape

    def products() -> Iterator[tuple[list[Factor], Monomial, Fraction, None]]:
        rights = [(shift_dummies(f, 1_000_000), m, c) for f, m, c in right.raw()]
        for left_factors, left_monomial, left_number in left.raw():
            for factors, monomial, number in rights:
                yield (
                    left_factors + factors,
                    multiply(left_monomial, monomial),
                    left_number * number,
                    None,
                )

    return TensorExpr.collect(shape, products())


def shift_dummies(factors: list[Factor], by: int) -> list[Factor]:
    """Rename summed (negative) indices out of the way."""
    return [(t, tuple(i if i >= 0 else i - by for i in ii)) for t, ii in factors]


def _show(shape: tuple[sp.Expr, ...]) -> str:
    return "(" + ", ".join(str(s) for s in shape) + ("," if len(shape) == 1 else "") + ")"
