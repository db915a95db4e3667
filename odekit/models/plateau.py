"""The scalar equation of one head at a plateau (Zhang et al. 2025, section 4)."""

from __future__ import annotations

import sympy as sp

from odekit.field import vector_field
from odekit.models.model import Model


def plateau() -> Model:
    """One head learning one eigenvector: ``dv/dt = lambda^2 v^2 - lambda^3 c v^5``.

    Here ``c = 1 + (1 + trace / lambda) / N``; key and query are ``v`` times the eigenvector.

    Returns
    -------
    Model
        State ``v``; parameters ``lambda`` (the next eigenvalue), ``trace`` (of the covariance)
        and ``N``.

    Notes
    -----
    Time in units of tau. The loss is the part that this head changes,
    ``-2 lambda^2 v^3 + lambda^3 c v^6``. Source: Zhang et al. 2025 (arXiv:2501.16265), the scalar
    reduction at plateau m.
    """
    v = sp.Symbol("v", real=True)
    lam, trace, N = sp.symbols("lambda trace N", positive=True)
    c = 1 + (1 + trace / lam) / N
    return Model(
        name="plateau",
        weights=(),
        prediction=None,
        target=None,
        loss=None,
        flow=vector_field(
            {v: lam**2 * v**2 - lam**3 * c * v**5},
            parameters=(lam, trace, N),
            loss=-2 * lam**2 * v**3 + lam**3 * c * v**6,
        ),
        source="Zhang et al. 2025, scalar reduction at a plateau",
    )
