"""The derivation in its order: each step is a function that returns a checked statement."""

from __future__ import annotations

from collections.abc import Callable

from . import lazy, linear_networks, loss, merged, plateaus, separate
from .statement import Statement

STEPS: tuple[Callable[[], Statement], ...] = (
    loss.expected_loss,
    loss.second_moment_of_the_context,
    loss.gradient_flow,
    merged.fixed_points,
    merged.white_closed_form,
    linear_networks.merged_is_a_two_layer_network,
    linear_networks.separate_is_convolutional,
    separate.fixed_points,
    separate.plateau_losses,
    plateaus.scalar_equation,
    plateaus.order_of_learning,
    plateaus.principal_components,
    plateaus.within_a_head,
    lazy.large_starts,
)


def derive() -> tuple[Statement, ...]:
    """Make all statements, running their checks."""
    return tuple(step() for step in STEPS)
