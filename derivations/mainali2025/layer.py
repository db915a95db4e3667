r"""From the raw layer to its modes: what is invariant, and what the mode equations are.

Each function proves its statement for symbolic d and N with the engine and returns the identities
as ``{what: difference}``; every difference is zero.
"""

from __future__ import annotations

from typing import Any, Literal

import odekit as ok

Law = Literal["iid", "diagonal", "scalar"]
LAWS: tuple[Law, ...] = ("iid", "diagonal", "scalar")
"""Laws of the task matrix: iid entries, diagonal in the eigenbasis, a multiple of the identity."""


def named(flow: Any, name: str) -> Any:
    """A state, parameter or intermediate of a flow by name."""
    tensors = (*flow.states, *flow.parameters, *(t for t, _ in flow.definitions))
    return next(t for t in tensors if t.name == name)


def zero_blocks(law: Law) -> dict[str, Any]:
    """p1 and q2 have zero expected gradient where both are zero (the zero-gradient statement).

    The error is odd in the task and what p1 and q2 add is even, so the product averages to zero
    under every law that is symmetric under ``W -> -W``.
    """
    flow = ok.models.linear_transformer(tasks=law, blocks="all").flow
    p1, q2 = named(flow, "p1"), named(flow, "q2")
    blank = {p1: 0 * p1, q2: 0 * q2}
    return {
        f"d{name}/dt at p1 = q2 = 0": _whole(flow, named(flow, name)).substitute(blank)
        for name in ("p1", "q2")
    }


def _whole(flow: Any, state: Any) -> Any:
    """The rate of a state with its cotangents multiplied out."""
    return flow.rates[state].expand()


def diagonal_modes(law: Law) -> dict[str, Any]:
    """With p2 and q1 diagonal in the eigenbasis, tasks of the diagonal or scalar law.

    The diagonal is kept, and its rates are those of `mode_equations.layer_rates`.
    """
    N, d, m = ok.dims("N d m")
    flow = ok.models.linear_transformer(tasks="scalar").flow
    L, p2, q1 = (named(flow, n) for n in ("Lambda", "p2", "q1"))
    E, p, q = ok.eigenvector("E", of=L, count=m), ok.parameter("p", (m,)), ok.parameter("q", (m,))
    s = E.value
    spread = "a,ai,aj->ij"
    on_diagonal = {p2: ok.einsum(spread, p, E, E), q1: ok.einsum(spread, q, E, E)}
    P = ok.einsum("a,a,a->", s, p, p)
    Q = ok.einsum("a,a,a,a->", s, s, q, q)
    dp = (
        ok.einsum("a,a,a->a", s, s, q)
        - (1 + 1 / N) * ok.einsum("a,a,a,a,a,a->a", s, s, s, p, q, q)
        - ok.einsum(",a,a->a", Q, s, p) / N
    )
    dq = (
        ok.einsum("a,a,a->a", s, s, p)
        - (1 + 1 / N) * ok.einsum("a,a,a,a,a,a->a", s, s, s, q, p, p)
        - ok.einsum(",a,a,a->a", P, s, s, q) / N
    )
    if law == "diagonal":
        return _diagonal_law()
    return {
        "dp2/dt": _whole(flow, p2).substitute(on_diagonal) - ok.einsum(spread, dp, E, E),
        "dq1/dt": _whole(flow, q1).substitute(on_diagonal) - ok.einsum(spread, dq, E, E),
    }


def _diagonal_law() -> dict[str, Any]:
    """Diagonal tasks: written in the eigenbasis, where Lambda is diagonal with entries s."""
    N, D = ok.dims("N D")
    flow = ok.models.linear_transformer(tasks="diagonal").flow
    L, p2, q1 = (named(flow, n) for n in ("Lambda", "p2", "q1"))
    s, p, q = (ok.parameter(n, (D,)) for n in ("s", "p", "q"))
    eye = ok.identity(D)
    on_diagonal = {t: ok.einsum("a,ab->ab", v, eye) for t, v in ((L, s), (p2, p), (q1, q))}
    Q = ok.einsum("a,a,a,a->", s, s, q, q)
    P = ok.einsum("a,a,a->", s, p, p)
    dp = (
        ok.einsum("a,a,a->a", s, s, q)
        - (1 + 1 / N) * ok.einsum("a,a,a,a,a,a->a", s, s, s, p, q, q)
        - ok.einsum(",a,a->a", Q, s, p) / N
    )
    dq = (
        ok.einsum("a,a,a->a", s, s, p)
        - (1 + 1 / N) * ok.einsum("a,a,a,a,a,a->a", s, s, s, q, p, p)
        - ok.einsum(",a,a,a->a", P, s, s, q) / N
    )
    return {
        "dp2/dt": _whole(flow, p2).substitute(on_diagonal) - ok.einsum("a,ab->ab", dp, eye),
        "dq1/dt": _whole(flow, q1).substitute(on_diagonal) - ok.einsum("a,ab->ab", dq, eye),
    }


def shared_scale() -> dict[str, Any]:
    """Independent task entries: p2 is kept a multiple of the identity, one p for all modes.

    ``dp/dt = sum_a s_a^2 q_a (1 - p q_a s_inf_a)`` and
    ``dq_a/dt = d p s_a^2 (1 - p q_a s_inf_a)`` with the published ``s_inf``, exactly, for every N:
    the fixed point (11) is right, and the modes are not decoupled.
    """
    N, D = ok.dims("N D")
    flow = ok.models.linear_transformer(tasks="iid").flow
    L, p2, q1 = (named(flow, n) for n in ("Lambda", "p2", "q1"))
    s, q, p = ok.parameter("s", (D,)), ok.parameter("q", (D,)), ok.parameter("p")
    eye = ok.identity(D)
    inside = {
        L: ok.einsum("a,ab->ab", s, eye),
        q1: ok.einsum("a,ab->ab", q, eye),
        p2: p * eye,
    }
    trace = ok.einsum("a->", s)
    pull = (
        ok.einsum("a,a->a", s, s)
        - (1 + 1 / N) * p * ok.einsum("a,a,a,a->a", s, s, s, q)
        - p * ok.einsum(",a,a,a->a", trace, s, s, q) / N
    )
    return {
        "dp2/dt": _whole(flow, p2).substitute(inside) - ok.einsum("a,a,bc->bc", q, pull, eye),
        "dq1/dt": _whole(flow, q1).substitute(inside) - D * p * ok.einsum("a,ab->ab", pull, eye),
    }


def shared_loss() -> dict[str, Any]:
    """Independent task entries, ``p2 = p I``: the loss is d times a sum over modes.

    ``d sum_a s_a (s_a s_inf_a a_a^2 - 2 s_a a_a + 1)`` with ``a_a = p q_a``, exactly, for every N:
    twice the corrected (14) for each of the d labels.
    """
    N, D = ok.dims("N D")
    model: Any = ok.models.linear_transformer(tasks="iid")
    L, p2, q1 = (named(model.flow, n) for n in ("Lambda", "p2", "q1"))
    s, q, p = ok.parameter("s", (D,)), ok.parameter("q", (D,)), ok.parameter("p")
    eye = ok.identity(D)
    inside = {
        L: ok.einsum("a,ab->ab", s, eye),
        q1: ok.einsum("a,ab->ab", q, eye),
        p2: p * eye,
    }
    trace = ok.einsum("a->", s)
    squares = ok.einsum(",,a,a,a,a->", p, p, q, q, s, s)
    stated = (
        trace
        - 2 * p * ok.einsum("a,a,a->", q, s, s)
        + (1 + 1 / N) * ok.einsum(",,a,a,a,a,a->", p, p, q, q, s, s, s)
        + trace * squares / N
    )
    found = model.loss.expression.expand().substitute(inside)
    return {"loss of the layer with p2 = p I, iid entries": found - D * stated}


def scaled_prediction() -> dict[str, Any]:
    """With ``p2 -> c p2`` and ``q1 -> b q1`` the prediction is multiplied by ``c b``."""
    model: Any = ok.models.linear_transformer(tasks="iid")
    p2, q1 = (named(model.flow, n) for n in ("p2", "q1"))
    c, b = ok.parameter("c"), ok.parameter("b")
    moved = model.prediction.substitute({p2: c * p2, q1: b * q1})
    return {"prediction at (c p2, b q1) is c b times it": moved - c * b * model.prediction}
