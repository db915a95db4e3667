"""Training dynamics of in-context learning in linear attention (Zhang et al., ICML 2025).

arXiv:2501.16265. The derivation reads in the order loss, merged, linear_networks, separate,
plateaus, lazy (`steps.STEPS`); the figures are fig1, fig3, fig4, fig6 and pcr.
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
)
