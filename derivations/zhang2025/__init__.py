"""Training dynamics of in-context learning in linear attention (Zhang et al., ICML 2025).

arXiv:2501.16265. The derivation reads in the order loss, merged, linear_networks, separate,
plateaus, lazy (`steps.STEPS`); the figures are fig1, fig3, fig4, fig6 and pcr, and,
beyond the main ones, fig5 (softmax), icl_iwl (mixtures of tasks) and training (SGD over the flows).
The table of statements is in derivations/README.md.
"""

from odekit.reproduce import Target

TARGETS = tuple(
    Target(f"zhang2025/{figure}", title, f"{__name__}.{figure}", main=True)
    for figure, title in (
        ("fig1", "Merged keys and queries: one abrupt drop"),
        ("fig3", "Separate keys and queries: from saddle to saddle"),
        ("fig4", "Rank of keys and queries: which plateaus are long"),
        ("fig6", "Scale of the start: from plateaus to exponential decay"),
        ("pcr", "Principal component regression in context"),
    )
) + (
    Target("zhang2025/fig5", "Softmax attention: one drop and several", f"{__name__}.fig5"),
    Target("zhang2025/icl-iwl", "In-context and in-weight sequences", f"{__name__}.icl_iwl"),
    Target("zhang2025/training", "Mini-batch training over the flows", f"{__name__}.training"),
)
