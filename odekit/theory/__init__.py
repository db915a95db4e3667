"""Closed results that are not differential equations.

Plateau levels of linear attention, sharp asymptotics of in-context learning, and the measures
(effective rank, subspace distance) that are taken along training.
"""

from odekit.theory.plateaus import plateau_losses

__all__ = ["plateau_losses"]
