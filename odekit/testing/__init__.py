"""Property tests of a user's own theory: Hypothesis strategies and assertions."""

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
