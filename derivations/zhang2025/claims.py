"""The statements of the notes on Zhang et al. 2025, each put to the test.

By subject: `stated_networks` (layer, loss, linear networks), `stated_merged` and `stated_course`
(merged keys and queries: fixed points, time course), `stated_separate` and `stated_saddles`
(separate ones: fixed points, losses and stability there), `stated_plateaus` (the path),
`stated_ranks`, `stated_components` (principal component regression), `stated_softmax` and
`stated_starts`. derivations/README.md maps each sentence to its claim.
"""

from __future__ import annotations

from odekit.claims import Claim

from . import (
    stated_components,
    stated_course,
    stated_merged,
    stated_networks,
    stated_plateaus,
    stated_ranks,
    stated_saddles,
    stated_separate,
    stated_softmax,
    stated_starts,
)

CLAIMS: tuple[Claim, ...] = (
    *stated_networks.CLAIMS,
    *stated_merged.CLAIMS,
    *stated_course.CLAIMS,
    *stated_separate.CLAIMS,
    *stated_saddles.CLAIMS,
    *stated_plateaus.CLAIMS,
    *stated_ranks.CLAIMS,
    *stated_components.CLAIMS,
    *stated_softmax.CLAIMS,
    *stated_starts.CLAIMS,
)
