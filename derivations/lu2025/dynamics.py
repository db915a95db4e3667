"""The training dynamics that ends at ridge regression.

Gradient flow of ``(d/2n) sum (y - <Gamma, H>)^2`` on a fixed pretraining set is the flow of
``1/2 Gamma.S.Gamma - v.Gamma`` with ``S = (d/n) sum vec H vec H^T``, ``v = (d/n) sum y vec H``
(`odekit.simulate.feature_statistics`). As a layer, Gamma is a product ``u N`` of a value and a
key-query matrix, and its flow is no longer linear.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import odekit as ok


def _loss(gamma: Any, size: Any) -> Any:
    second = ok.parameter("S", (size, size), symmetric=True)
    drive = ok.parameter("v", (size,))
    square = ok.einsum("a,ab,b->", gamma, second, gamma)
    return Fraction(1, 2) * square - ok.einsum("a,a->", gamma, drive)


def direct_flow() -> Any:
    """Linear flow ``dGamma/dt = v - S Gamma``, state ``Gamma (p,)``, any p."""
    size = ok.dims("p")
    return ok.gradient_flow(_loss(ok.weight("Gamma", (size,)), size))


def product_flow() -> Any:
    """Flow of ``Gamma = u N``, states ``u ()`` and ``N (p,)``; it keeps ``u^2 - |N|^2``."""
    size = ok.dims("p")
    value, matrix = ok.weight("u", ()), ok.weight("N", (size,))
    return ok.gradient_flow(_loss(ok.define("Gamma", ok.einsum(",a->a", value, matrix)), size))
