"""The statements of the notes on Mainali & Teixeira 2025, each put to the test.

Each is tested from the raw layer (equation 1 and the law of the tasks), not from the reduced
equations. ``s`` is the spectrum of the token covariance, N the context length; time is in units of
``1/(eta P)``. By subject: `stated_layer`, `stated_modes`, `stated_growth`,
`stated_course`, `stated_losses`, `stated_measures`.
"""

from __future__ import annotations

from odekit.claims import Claim

from . import (
    stated_course,
    stated_growth,
    stated_layer,
    stated_losses,
    stated_measures,
    stated_modes,
)

CLAIMS: tuple[Claim, ...] = (
    *stated_layer.CLAIMS,
    *stated_modes.CLAIMS,
    *stated_growth.CLAIMS,
    *stated_course.CLAIMS,
    *stated_losses.CLAIMS,
    *stated_measures.CLAIMS,
)
