"""The statements of the notes on Zhang et al. 2025, each put to the test.

By subject: `stated_networks` (layer, loss, linear networks), `stated_merged`, `stated_separate`,
`stated_plateaus` and `stated_starts`. derivations/README.md maps each sentence to its claim.
"""

from __future__ import annotations

from odekit.claims import Claim

from . import stated_merged, stated_networks, stated_plateaus, stated_separate, stated_starts

CLAIMS: tuple[Claim, ...] = (
    *stated_networks.CLAIMS,
    *stated_merged.CLAIMS,
    *stated_separate.CLAIMS,
    *stated_plateaus.CLAIMS,
    *stated_starts.CLAIMS,
)
