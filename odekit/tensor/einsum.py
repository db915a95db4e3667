"""Contraction by NumPy's einsum notation, and the matrix product."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import sympy as sp

from odekit.errors import InputError
from odekit.tensor.canonical import Factor
from odekit.tensor.coefficient import ONE, Monomial, multiply
from odekit.tensor.expression import TensorExpr, _show, as_expression, shift_dummies

_PATTERN = re.compile(r"^[A-Za-z,]*->[A-Za-z]*$")


def einsum(subscripts: str, *operands: Any) -> TensorExpr:
    """Contract tensors, as `numpy.einsum` does, exactly and with symbolic sizes.

    Parameters
    ----------
    subscripts : str
        For example ``"h,a,hab,b->"``; the output after ``->`` is required, and a letter may occur
        any number of times among the operands.
    *operands : Tensor, TensorExpr or scalar
        One for each comma-separated group of letters.

    Returns
    -------
    TensorExpr
        Collected and in canonical form.

    Raises
    ------
    InputError
        If the subscripts do not fit the operands, naming the letter and both sizes.
    """
    if not isinstance(subscripts, str):
        raise InputError(f"einsum takes its subscripts first, as in 'ij,j->i'; got {subscripts!r}")
    spec = subscripts.replace(" ", "")
    if not _PATTERN.match(spec):
        raise InputError(f"einsum subscripts {subscripts!r} are not of the form 'ij,j->i'")
    inputs, output = spec.split("->")
    groups = inputs.split(",")
    if len(groups) != len(operands):
        raise InputError(
            f"einsum {subscripts!r} names {len(groups)} operands but {len(operands)} were given"
        )
    expressions = [_operand(o, subscripts) for o in operands]
    sizes = _sizes(subscripts, groups, expressions, operands)
    if len(set(output)) != len(output):
        raise InputError(f"einsum {subscripts!r}: an output letter is repeated")
    for letter in output:
        if letter not in sizes:
            raise InputError(f"einsum {subscripts!r}: output letter {letter!r} is in no operand")
    names = {letter: k for k, letter in enumerate(output)}
    summed = [letter for letter in sizes if letter not in names]
    names.update({letter: -1 - k for k, letter in enumerate(summed)})
    loops = {names[letter]: sizes[letter] for letter in summed}
    return TensorExpr.collect(
        tuple(sizes[letter] for letter in output), _products(groups, expressions, names, loops)
    )


def _operand(value: Any, subscripts: str) -> TensorExpr:
    try:
        return as_expression(value)
    except InputError as error:
        raise InputError(f"einsum {subscripts!r}: {error}") from None


def _sizes(
    subscripts: str, groups: list[str], expressions: list[TensorExpr], operands: tuple[Any, ...]
) -> dict[str, sp.Expr]:
    sizes: dict[str, sp.Expr] = {}
    for group, expression, operand in zip(groups, expressions, operands, strict=True):
        name = getattr(operand, "name", "an operand")
        if len(group) != expression.rank:
            raise InputError(
                f"einsum {subscripts!r}: {name} has shape {_show(expression.shape)} "
                f"but {group!r} names {len(group)} axes"
            )
        for letter, size in zip(group, expression.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise InputError(
                    f"einsum {subscripts!r}: letter {letter!r} is {sizes[letter]} in one operand "
                    f"and {size} in {name}"
                )
    return sizes


def _products(
    groups: list[str],
    expressions: list[TensorExpr],
    names: dict[str, int],
    loops: dict[int, sp.Expr],
) -> Iterator[tuple[list[Factor], Monomial, Fraction, dict[int, sp.Expr]]]:
    parts = []
    for k, (group, expression) in enumerate(zip(groups, expressions, strict=True)):
        axes = [names[letter] for letter in group]
        parts.append(
            [
                (
                    [
                        (t, tuple(axes[i] if i >= 0 else i for i in ii))
                        for t, ii in shift_dummies(factors, 1000 * (k + 1))
                    ],
                    monomial,
                    number,
                )
                for factors, monomial, number in expression.raw()
            ]
        )
    for choice in product(*parts):
        factors: list[Factor] = []
        monomial: Monomial = ONE
        number = Fraction(1)
        for own, own_monomial, own_number in choice:
            factors += own
            monomial = multiply(monomial, own_monomial)
            number *= own_number
        yield factors, monomial, number, dict(loops)


def matrix_product(left: Any, right: Any) -> TensorExpr:
    """``left @ right`` for vectors and matrices."""
    a, b = as_expression(left), as_expression(right)
    if a.rank not in (1, 2) or b.rank not in (1, 2):
        raise InputError(
            f"@ takes vectors and matrices, not shapes {_show(a.shape)} and {_show(b.shape)}; "
            "use ok.einsum"
        )
    first, second = "ij"[-a.rank :], "jk"[: b.rank]
    return einsum(f"{first},{second}->{(first + second).replace('j', '')}", a, b)
