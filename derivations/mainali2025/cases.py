"""What the claims share: cases to draw, and the flow of the layer under each law of the tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

import odekit as ok
from odekit.testing import spectra

from . import layer

Array = NDArray[np.float64]

Case = Mapping[str, Any]

NOTE = "Mainali & Teixeira 2025 (arXiv:2504.12916)"

ROUNDING = "rounding of a sum of at most a few hundred products"


def _numbers(least: int, greatest: int, count: int) -> st.SearchStrategy[list[float]]:
    """Numbers between least and greatest, with two decimals."""
    entry = st.integers(100 * least, 100 * greatest).map(lambda k: k / 100)
    return st.lists(entry, min_size=count, max_size=count)


def modes_with(contexts: st.SearchStrategy[int], dim: Any = (1, 3)) -> Callable[[], Any]:
    """Spectra, contexts and modes p, q of the same dimension."""

    @st.composite
    def cases(draw: st.DrawFn) -> Case:
        s = draw(spectra(dim=dim, condition=20.0))
        return {
            "s": s,
            "N": draw(contexts),
            "p": draw(_numbers(-2, 2, len(s))),
            "q": draw(_numbers(-2, 2, len(s))),
        }

    return cases


ANY = modes_with(st.integers(1, 200))

ONE_MODE = modes_with(st.integers(1, 200), dim=1)


def modes_of(case: Case) -> tuple[Array, Array, Array, int]:
    """Spectrum, p, q and context of a case, each (d,)."""
    s = np.asarray(case["s"], dtype=float)
    return s, np.asarray(case["p"]), np.asarray(case["q"]), int(case["N"])


def size_of(s: Array, p: Array, q: Array) -> float:
    """The largest sum of absolute values among the terms of the mode equations."""
    a, b = np.abs(p), np.abs(q)
    top = float(np.max(np.concatenate([a, b, [1e-3]])))
    return float(np.sum(s) + 1) ** 4 * (top + top**3)


class _Flows(dict[str, Any]):
    """The restricted flow of each law, derived at first use."""

    def __missing__(self, law: Any) -> Any:
        self[law] = ok.models.linear_transformer(tasks=law).flow
        return self[law]


FLOWS = _Flows()


def flow_rates(case: Case, law: layer.Law = "scalar") -> tuple[Array, Array]:
    """Rates of the layer's diagonal modes, from the expected flow of the raw layer."""
    s, p, q, N = modes_of(case)
    flow = FLOWS[law]
    rates = flow.evaluate({"p2": np.diag(p), "q1": np.diag(q)}, {"Lambda": np.diag(s), "N": N})
    return np.diagonal(rates["p2"]), np.diagonal(rates["q1"])
