"""Exact solutions to the nonlinear dynamics of learning in deep linear networks (Saxe et al. 2014).

arXiv:1312.6120. `modes` derives the dynamics of the modes from the expected loss, for every depth;
the figure is `learning`.
"""

from odekit.reproduce import Target

TARGETS = (
    Target(
        "saxe2014/learning",
        "Deep linear networks: modes, depth, and what is conserved",
        f"{__name__}.learning",
    ),
)
