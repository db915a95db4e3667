"""Exact learning dynamics of in-context learning in linear transformers (Mainali & Teixeira 2025).

arXiv:2504.12916. Read in the order layer, mode_equations; the figures are modes, loss,
conservation and context_length, and, for nonlinear networks, emergence and grokking, of which
README.md says what they show. The table of statements is in derivations/README.md.
"""

from odekit.reproduce import Target

TARGETS = tuple(
    Target(f"mainali2025/{name.replace('_', '-')}", title, f"{__name__}.{name}")
    for name, title in (
        ("modes", "Modes of the p, q transformer: published equations, expected flow and SGD"),
        ("loss", "Plateaus and cliffs, and the law of the tasks"),
        ("conservation", "What is conserved, and what it does to the time course"),
        ("context_length", "Context length: where the fixed point lies"),
        ("emergence", "Emergence of in-context recall in a two-layer attention-only network"),
        ("grokking", "Grokking of modular addition, with controls"),
    )
)
