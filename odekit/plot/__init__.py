"""Pictures of runs: loss curves with predicted plateaus, weights, modes, agreement."""

from odekit.plot.curves import band, loss_curve, on_common_times, plateau_lines
from odekit.plot.derivatives import sensitivities
from odekit.plot.look import PALETTE, WIDTHS, finish, panels, sequence, style
from odekit.plot.measured import agreement, power_law
from odekit.plot.run import solution
from odekit.plot.weights import modes, value_weights

__all__ = [
    "PALETTE",
    "WIDTHS",
    "agreement",
    "band",
    "finish",
    "loss_curve",
    "modes",
    "on_common_times",
    "panels",
    "plateau_lines",
    "power_law",
    "sensitivities",
    "sequence",
    "solution",
    "style",
    "value_weights",
]
