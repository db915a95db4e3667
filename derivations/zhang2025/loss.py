r"""From the task to the loss and its gradient flow (statements 1 to 3).

A sequence is ``x_1, y_1, ..., x_N, y_N, x_q`` with ``x ~ N(0, Lambda)``, ``y_n = w . x_n`` and a
fresh task ``w ~ N(0, I)``. Linear attention sees the context through ``beta = sum_n y_n x_n / N``
and predicts ``beta^T A x_q``; what the two parametrizations change is how ``A`` is made of weights.
"""

from __future__ import annotations

from typing import Any

import odekit as ok

from .statement import Statement, body, identical, named


def loss_in(A: Any, covariance: Any, context: Any) -> Any:
    """``tr L - 2 tr(L A L) + (1 + 1/N) tr(L^2 A L A^T) + tr(L)/N tr(L A L A^T)``, by hand."""
    trace = ok.einsum("ii->", covariance)
    learned = ok.einsum("ij,jk,ki->", covariance, A, covariance)
    quadratic = ok.einsum("ij,jk,kl,il->", covariance, A, covariance, A)
    squared = ok.einsum("ij,jk,kl,lm,im->", covariance, covariance, A, covariance, A)
    return trace - 2 * learned + (1 + 1 / context) * squared + trace * quadratic / context


def second_moment(covariance: Any, context: Any) -> Any:
    """``B = E[S^2] = L ((1 + 1/N) L + (tr L / N) I)``, by hand; ``S = sum_n x_n x_n^T / N``."""
    square = ok.einsum("ij,jk->ik", covariance, covariance)
    return (1 + 1 / context) * square + ok.einsum("ii,jk->jk", covariance, covariance) / context


def models() -> dict[str, Any]:
    """Both parametrizations, for symbolic D, N, H and R."""
    return {
        "merged": ok.models.attention_merged(),
        "separate": ok.models.attention_separate(),
    }


def expected_loss() -> Statement:
    """1. Both parametrizations have one and the same expected loss, a quadratic function of A."""
    N = ok.dims("N")
    checks = []
    for name, model in models().items():
        loss = model.loss.expression
        A, covariance = (named(model.flow, tensor) for tensor in ("A", "Lambda"))
        checks.append(identical(f"{name}: loss in A", loss, loss_in(A, covariance, N)))
    merged: Any = ok.models.attention_merged()
    v, U = merged.weights
    made = ok.einsum("h,hij->ij", v, U)
    checks.append(identical("merged: A = sum_h v_h U_h", body(merged.flow, "A"), made))
    separate: Any = ok.models.attention_separate()
    v, K, Q = separate.weights
    made = ok.einsum("h,hri,hrj->ij", v, K, Q)
    checks.append(identical("separate: A = sum_h v_h sum_r k q^T", body(separate.flow, "A"), made))
    return Statement(
        "1",
        "With A = sum_h v_h U_h (merged) or A = sum_h v_h sum_r k_hr q_hr^T (separate), the "
        "expected loss is the same function of A for every D, N, H and R.",
        (
            r"\mathcal{L}(A) = \operatorname{tr}\Lambda - 2\operatorname{tr}(\Lambda A\Lambda)"
            r" + \left(1+\tfrac1N\right)\operatorname{tr}(\Lambda^2 A\Lambda A^\top)"
            r" + \tfrac{\operatorname{tr}\Lambda}{N}\operatorname{tr}(\Lambda A\Lambda A^\top)",
        ),
        ("x and w are Gaussian; other tokens change the fourth moments in B",),
        checks=tuple(checks),
        derived=(merged.flow.loss_latex(), separate.flow.loss_latex()),
    )


def second_moment_of_the_context() -> Statement:
    """2. The context enters through ``B = E[S^2]`` alone."""
    N, D = ok.dims("N D")
    covariance = ok.parameter("Lambda", (D, D), symmetric=True)
    x = ok.gaussian("x", (N, D), covariance=covariance)
    S = ok.einsum("na,nb->ab", x, x) / N
    mean = ok.expectation(ok.einsum("ab,bc->ac", S, S))
    xq = ok.gaussian("x_q", (D,), covariance=covariance)
    w = ok.gaussian("w", (D,), covariance=ok.identity(D))
    beta = ok.einsum("d,nd,ne->e", w, x, x) / N
    spread = ok.expectation(ok.einsum("a,b->ab", beta, beta))
    moments = ok.expectation(ok.einsum("a,b,c,d->abcd", beta, xq, beta, xq))
    B = second_moment(covariance, N)
    return Statement(
        "2",
        "The second moment of the empirical covariance is that of beta, and the cubic features "
        "beta x_q^T have second moments B (x) Lambda and target correlation Lambda^2.",
        (
            r"B = \mathbb{E}[S^2] = \Lambda\left[\left(1+\tfrac1N\right)\Lambda"
            r" + \tfrac{\operatorname{tr}\Lambda}{N} I\right]",
        ),
        checks=(
            identical("E[S^2] = B", mean, B),
            identical("E[beta beta^T] = B", spread, B),
            identical("E[z z^T] = B (x) Lambda", moments, ok.einsum("ac,bd->abcd", B, covariance)),
            identical(
                "E[y_q z] = Lambda^2",
                ok.expectation(ok.einsum("a,b,c,c->ab", beta, xq, w, xq)),
                ok.einsum("ij,jk->ik", covariance, covariance),
            ),
        ),
        derived=(r"\mathbb{E}[S^2] = " + mean.latex(),),
    )


def gradient_flow() -> Statement:
    """3. The flows: every weight is driven by ``G = L^2 - B A L`` times the other weights."""
    N = ok.dims("N")
    checks = []
    for name, model in models().items():
        flow = model.flow
        A, L = named(flow, "A"), named(flow, "Lambda")
        pull = ok.einsum("ij,jk->ik", L, L) - ok.einsum("ij,jk,kl->il", second_moment(L, N), A, L)
        checks.append(identical(f"{name}: G = L^2 - B A L", body(flow, "G_A"), pull))
        G = named(flow, "G_A")
        if name == "merged":
            v, U = model.weights
            expected = {v: ok.einsum("hij,ij->h", U, G), U: ok.einsum("h,ij->hij", v, G)}
            invariants = {"v_h^2 - |U_h|^2": (v, U)}
        else:
            v, K, Q = model.weights
            expected = {
                v: ok.einsum("hri,ij,hrj->h", K, G, Q),
                K: ok.einsum("h,ij,hrj->hri", v, G, Q),
                Q: ok.einsum("h,ji,hrj->hri", v, G, K),
            }
            invariants = {"v_h^2 - sum_r |k_hr|^2": (v, K), "|k_h|^2 - |q_h|^2": (K, Q)}
        for weight, rate in expected.items():
            checks.append(identical(f"{name}: d{weight.name}/dt", flow.rates[weight], rate))
        for what, (one, other) in invariants.items():
            change = _change_of_square(one, flow) - _change_of_square(other, flow)
            checks.append(identical(f"{name}: {what} is conserved", change))
    return Statement(
        "3",
        "In the paper's convention, tau d(theta)/dt = -(1/2) d(MSE)/d(theta), each weight moves "
        "with G = L^2 - B A L times its partners; the differences of squared norms within a head "
        "are conserved.",
        (
            r"\tau\dot U_h = v_h G,\quad \tau\dot v_h = \operatorname{tr}(U_h^\top G),\qquad"
            r" G = \Lambda^2 - B A\Lambda",
            r"\tau\dot k_{hr} = v_h G q_{hr},\quad \tau\dot q_{hr} = v_h G^\top k_{hr},\quad"
            r" \tau\dot v_h = \sum_r k_{hr}^\top G\, q_{hr}",
        ),
        ("mean squared error without 1/2, tau d(theta)/dt = -(1/2) d(MSE)/d(theta)",),
        checks=tuple(checks),
        derived=tuple(model.flow.latex() for model in models().values()),
    )


def _change_of_square(weight: Any, flow: Any) -> Any:
    """The rate of each head's squared norm of a weight along the flow."""
    axes = "hijk"[: weight.rank]
    return 2 * ok.einsum(f"{axes},{axes}->h", weight, flow.rates[weight])
