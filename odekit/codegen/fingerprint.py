"""A content hash of a vector field, cheap enough to ask the cache before anything is planned."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odekit.codegen.store import digest, environment

__all__ = ["fingerprint"]


def fingerprint(field: Any, sizes: Mapping[str, int], effort: str) -> str:
    """Hash a field, its sizes, the effort, and the versions that turn them into machine code.

    Parameters
    ----------
    field : TensorField or ScalarField
    sizes : mapping
        Every size that is fixed at compile time.
    effort : str

    Returns
    -------
    str
        Equal for equal fields in different processes.
    """
    content = _tensor_content(field) if hasattr(field, "definitions") else _scalar_content(field)
    text = json.dumps([content, sorted(sizes.items()), effort], default=str)
    return digest(text, environment(), _own_source())[:32]


@functools.cache
def _own_source() -> str:
    """The planner itself: another planner writes other code."""
    own = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        own.update(path.read_bytes())
    return own.hexdigest()


def _tensor_content(field: Any) -> list[Any]:
    numbers: dict[Any, int] = {}
    described: list[Any] = []

    def number(tensor: Any) -> int:
        if tensor not in numbers:
            numbers[tensor] = len(numbers)
            described.append(
                [
                    tensor.name,
                    [str(s) for s in tensor.shape],
                    tensor.kind,
                    tensor.symmetric_groups,
                    tensor.semidefinite,
                ]
            )
        return numbers[tensor]

    def expression(body: Any) -> list[Any]:
        return [
            [
                [[number(t), ii] for t, ii in factors],
                [[str(a), str(e)] for a, e in monomial],
                str(c),
            ]
            for (factors, monomial), c in body.terms.items()
        ]

    return [
        "tensor",
        [number(s) for s in field.states],
        [number(t) for t in field.parameters],
        [[str(s), bool(s.is_positive), bool(s.is_integer)] for s in field.symbols],
        [[number(t), expression(b)] for t, b in field.definitions],
        [expression(field.rates[s]) for s in field.states],
        None if field.loss is None else expression(field.loss),
        field.uniform,
        sorted(field.constants.items()),
        described,
    ]


def _scalar_content(field: Any) -> list[Any]:
    def groups(named: Mapping[str, Any]) -> list[Any]:
        return [
            [name, shape, [str(s) for s in symbols]] for name, (shape, symbols) in named.items()
        ]

    nodes: dict[Any, int] = {}
    described: list[Any] = []

    def number(expression: Any) -> int:
        """Number distinct parts, so that what expressions share is read once."""
        if expression not in nodes:
            if expression.args:
                own = [type(expression).__name__, [number(a) for a in expression.args]]
                # An undefined function bears its name.
                content: Any = [*own, str(getattr(expression, "name", ""))]
            else:
                content = [type(expression).__name__, str(expression)]
            nodes[expression] = len(described)
            described.append(content)
        return nodes[expression]

    return [
        "scalar",
        groups(field.state_groups),
        groups(field.parameter_groups),
        [str(s) for s in field.states],
        [number(e) for e in field.rates],
        None if field.loss is None else number(field.loss),
        field.uniform,
        described,
    ]
