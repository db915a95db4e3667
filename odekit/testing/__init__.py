"""Property tests of a user's own theory: Hypothesis strategies and assertions.

Names are loaded when first used: pytest imports this package for its plugin in every session, and
most sessions need none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odekit.testing.assertions import (
        assert_agrees,
        assert_conserved,
        assert_fixed_point,
        assert_gradient_flow,
        assert_invariant_manifold,
    )
    from odekit.testing.strategies import covariances, initial_states, rotations, sizes, spectra

__all__ = [
    "assert_agrees",
    "assert_conserved",
    "assert_fixed_point",
    "assert_gradient_flow",
    "assert_invariant_manifold",
    "covariances",
    "initial_states",
    "rotations",
    "sizes",
    "spectra",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'odekit.testing' has no attribute {name!r}")
    room = "assertions" if name.startswith("assert_") else "strategies"
    return getattr(importlib.import_module(f"odekit.testing.{room}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
