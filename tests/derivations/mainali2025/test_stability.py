"""The zero blocks: kept exactly, unstable at the origin, stable once the layer has learned."""

from __future__ import annotations

import numpy as np
import pytest
from odekit_derivations.mainali2025 import layer, stability

import odekit as ok

SPECTRUM = np.array([1.0, 0.5])


def test_the_linearisation_in_symbols() -> None:
    flow = ok.models.linear_transformer(tasks="scalar", blocks="all").flow
    L, p1, q2 = (layer.named(flow, n) for n in ("Lambda", "p1", "q2"))
    linear = stability.rates_beside_origin(flow)
    assert linear["p1"] == L @ q2.T @ L
    assert linear["q2"] == L @ p1.T @ L
    flow = ok.models.linear_transformer(tasks="iid", blocks="all").flow
    L, p1, q2 = (layer.named(flow, n) for n in ("Lambda", "p1", "q2"))
    linear = stability.rates_beside_origin(flow)
    assert linear["p1"] == q2 @ L @ L
    assert linear["q2"] == p1 @ L @ L


@pytest.mark.parametrize("law", layer.LAWS)
def test_unstable_at_the_origin_with_the_rate_of_the_first_mode(law) -> None:
    values = stability.spectrum_beside(law, SPECTRUM, 10, learned=False)
    # A saddle: rates in pairs, the largest s_1^2, that of p2 and q1 themselves. The central
    # difference is exact but for h^2 of the cubic terms.
    np.testing.assert_allclose(values, -values[::-1], atol=1e-7)
    assert values[-1] == pytest.approx(SPECTRUM[0] ** 2, abs=1e-7)


@pytest.mark.parametrize("law", layer.LAWS)
def test_stable_once_the_layer_has_learned(law) -> None:
    values = stability.spectrum_beside(law, SPECTRUM, 10, learned=True)
    assert values[-1] < -0.1
