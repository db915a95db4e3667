"""Short models of other problems, each written in a few lines, with what odekit finds out of them.

Read `low_rank` (matrix factorisation and low-rank adaptation), `autoencoder`, `tasks` (attention
on noisy labels, general tasks and mixtures of tasks) and `two_layer` (correlated rows, weight
decay, layers with rates of their own). Each has its model first, then its checked statements
(``derive``) and its figure (``draw``). `phase_diagram` sweeps the published models instead.
"""

from odekit.reproduce import Target

TARGETS = tuple(
    Target(f"examples/{name.replace('_', '-')}", title, f"{__name__}.{name}")
    for name, title in (
        ("low_rank", "Low-rank adaptation and matrix factorisation"),
        ("autoencoder", "A linear autoencoder learns principal components one by one"),
        ("tasks", "In-context regression: label noise, task covariance, mixed tasks"),
        ("two_layer", "Two layers: correlated rows, weight decay, own rates"),
        ("phase_diagram", "Phase diagrams: how long plateaus last, and how many there are"),
    )
)
