r"""Whether the zero blocks p1 = q2 = 0 are stable: invariant everywhere, unstable at the origin.

The blocks have no expected gradient of their own, so that p1 = q2 = 0 is kept exactly. Beside it
the linearised flow couples them as p2 and q1 are coupled: at the origin with rates up to the
square of the largest eigenvalue, as fast as the reduced model itself learns, and decaying once the
reduced model has learned. A start with p1 and q2 as large as p2 and q1 therefore leaves the
reduced model; one with exact zeros, or much smaller ones, does not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import odekit as ok

from .layer import Law, named
from .mode_equations import layer_optimum, stretched

Array = NDArray[np.float64]


def rates_beside_origin(flow: Any) -> dict[str, Any]:
    """The rates of p1 and q2 to first order at zero weights, for symbolic d and N.

    ``flow`` is that of the whole layer under some law of the tasks. Every further term has three
    weights; what is left are the bilinear terms of the loss: ``dp1/dt = Lambda q2^T Lambda`` for
    tasks w I, ``q2 Lambda^2`` for independent entries, and the same with p1 and q2 exchanged.
    """
    weights = [named(flow, n) for n in ("p1", "q2", "p2", "q1")]
    linear = {}
    for name in ("p1", "q2"):
        state = named(flow, name)
        rate = flow.rates[state].expand()
        first = 0 * state
        for w in weights:
            slope = rate.diff(w).substitute({v: 0 * v for v in weights})
            first = first + ok.einsum("ijkl,kl->ij", slope, w)
        linear[name] = first
    return linear


def spectrum_beside(law: Law, s: ArrayLike, context: int, *, learned: bool) -> Array:
    """Eigenvalues of the flow's linearisation in (p1, q2), ascending; shape (2 d^2,).

    Parameters
    ----------
    law : {"iid", "diagonal", "scalar"}
    s : array_like (d,)
        Spectrum of the token covariance.
    context : int
    learned : bool
        At the end of the restricted flow, else at zero weights.

    Notes
    -----
    Symmetric, since the flow is a gradient flow with one rate. The rates are polynomials of degree
    three in the blocks: central differences with step h are off by h^2, here 1e-8.
    """
    spectrum = np.asarray(s, dtype=np.float64)
    d = len(spectrum)
    flow: Any = ok.models.linear_transformer(tasks=law, blocks="all").flow
    base = {"p2": np.zeros((d, d)), "q1": np.zeros((d, d))}
    if learned and law == "iid":
        base = {"p2": np.eye(d), "q1": np.diag(1 / stretched(spectrum, context))}
    elif learned:
        a = layer_optimum(spectrum, context)
        p = np.sqrt(a * np.sqrt(spectrum))
        q = np.divide(a, p, out=np.zeros(d), where=p > 0)
        base = {"p2": np.diag(p), "q1": np.diag(q)}
    params = {"Lambda": np.diag(spectrum), "N": context}
    count, step = d * d, 1e-4

    def rates(blocks: Array) -> Array:
        state = {"p1": blocks[:count].reshape(d, d), "q2": blocks[count:].reshape(d, d)}
        found = flow.evaluate({**base, **state}, params)
        return np.concatenate([found["p1"].ravel(), found["q2"].ravel()])

    columns = [
        (rates(step * unit) - rates(-step * unit)) / (2 * step) for unit in np.eye(2 * count)
    ]
    matrix = np.array(columns)
    return np.asarray(np.linalg.eigvalsh((matrix + matrix.T) / 2), dtype=np.float64)
