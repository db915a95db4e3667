"""The published mode equations of the p, q transformer (Mainali & Teixeira 2025, equation 12)."""

from __future__ import annotations

from typing import Any

from odekit.field import ExpectedLoss, gradient_flow
from odekit.models.in_context_regression import size_or_symbol
from odekit.models.model import Model, with_constants
from odekit.tensor import einsum, parameter, weight


def modes(dim: Any = None, context: Any = None) -> Model:
    """Decoupled pairs ``tau_a dp_a/dt = q_a (1 - p_a q_a s_inf_a)`` and the same for q.

    Here ``tau_a = 1 / s_a^2`` and ``s_inf_a = (1 + 1/N) s_a + (sum_b s_b) / N``.

    Parameters
    ----------
    dim, context : int or sympy.Symbol, optional
        Number of modes d, and N; symbols by default.

    Returns
    -------
    Model
        States ``p``, ``q`` (d,); parameters ``s`` (d,), the spectrum, and ``N``.

    Notes
    -----
    Time is in units of ``1 / (eta P)``. The equations are the gradient flow of half the loss
    ``sum_a s_a (1 - 2 s_a p_a q_a + s_a s_inf_a (p_a q_a)^2)``, the loss of this model. Whether
    they are the flow of the layer they are meant for is another question: see
    `linear_transformer` and the derivation of the paper. Source: equations (9), (10), (12).
    """
    d, N = size_or_symbol(dim, "D"), size_or_symbol(context, "N")
    s = parameter("s", (d,))
    p, q = weight("p", (d,)), weight("q", (d,))
    total = einsum("a->", s)
    linear = einsum("a,a,a,a->", s, s, p, q)
    quadratic = einsum("a,a,a,a,a,a,a->", s, s, s, p, p, q, q)
    spread = einsum("a,a,a,a,a,a->", s, s, p, p, q, q) * total / N
    loss = ExpectedLoss(total - 2 * linear + quadratic * (1 + 1 / N) + spread)
    return Model(
        name="modes",
        weights=(p, q),
        prediction=None,
        target=None,
        loss=loss,
        flow=with_constants(gradient_flow(loss, weights=(p, q), time_scale=2), {"N": N, "D": d}),
        source="Mainali & Teixeira 2025, equation (12)",
        options={"dim": d, "context": N},
    )
