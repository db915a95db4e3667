"""What the statements of the paper are made with."""

from __future__ import annotations

from typing import Any

import odekit as ok
from odekit.claims import Check, Statement
from odekit.claims import identity as identical

__all__ = ["Check", "Statement", "body", "identical", "named"]


def named(flow: Any, name: str) -> Any:
    """Return the named intermediate or parameter of a flow as a tensor."""
    tensors = (*(tensor for tensor, _ in flow.definitions), *flow.parameters)
    for tensor in tensors:
        if tensor.name == name:
            return tensor
    raise ok.InputError(f"the flow has no {name}; it has {', '.join(t.name for t in tensors)}")


def body(flow: Any, name: str) -> Any:
    """Return what a named intermediate of a flow stands for."""
    return dict(flow.definitions)[named(flow, name)]
