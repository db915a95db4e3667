"""Claims on the layer, its loss and flow, and the linear networks it equals."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

import odekit as ok
from odekit.claims import Check, Claim, Property, Variant, agreement, identity

from . import loss, probes
from .linear_networks import as_network, cubic_features, network_flow, strided_convolution
from .probes import MODELS, NOTE, ROUNDING, Case, covariance, layers, product, sequence


def _merged() -> Any:
    return layers("merged", context=6)


def _separate() -> Any:
    return layers("separate", context=6)


def _attention(case: Case, *, query_label: float = 0.0, count: int = 0) -> tuple[float, float]:
    """The raw layer on Z = [x; y]: bottom of the last column, and its size."""
    x, w = sequence(case)
    N = len(x) - 1
    y = x @ w
    y[-1] *= query_label
    Z = np.column_stack([x, y]).T
    gram = Z @ Z.T / (N + count)
    state, D = case["state"], x.shape[1]
    total, size = 0.0, 1.0
    for h, v in enumerate(state["v"]):
        if case["kind"] == "merged":
            block = np.asarray(state["U"][h])
        else:
            # Keys and queries are (R, D + 1) matrices whose columns for the label are zero.
            block = np.asarray(state["K"][h]).T @ np.asarray(state["Q"][h])
        KQ = np.zeros((D + 1, D + 1))
        KQ[:D, :D] = block
        V = np.zeros((D + 1, D + 1))
        V[D, D] = v
        total += float((V @ gram @ KQ @ Z)[D, -1])
        size += float(np.abs(V).max() * np.abs(gram).max() * np.abs(KQ).sum() * np.abs(Z).max())
    return total, size


def _as_stated(case: Case, kind: str = "stated") -> float:
    x, w = sequence(case)
    beta = (x[:-1] @ w) @ x[:-1] / (len(x) - 1)
    A = product(case["state"])
    return float(x[-1] @ A @ beta if kind == "transposed" else beta @ A @ x[-1])


def _prediction_holds(case: Case, kind: str = "stated", **layer: Any) -> Check:
    raw, size = _attention(case, **layer)
    return agreement(
        "raw attention layer against the formula",
        raw,
        _as_stated(case, kind),
        1e-12 * size,
        ROUNDING,
    )


_PREDICTION_VARIANTS = (
    ("the query's own label kept in the sequence", {"query_label": 1.0}),
    ("averaged over N + 1 tokens instead of N", {"count": 1}),
    ("key and query exchanged (A transposed)", {"kind": "transposed"}),
)


def _prediction_claim(kind: str, cases: Any, equation: str, weights: str) -> Claim:
    return Claim(
        id=f"zhang2025.prediction-{kind}",
        source=f"{NOTE}, ATTN_{kind[0].upper()}",
        says=f"Linear attention with {weights} predicts beta^T A x_q, A made of its weights.",
        equations=(equation, r"\beta = \tfrac1N\sum_{n=1}^N y_n x_n"),
        property=Property(cases, _prediction_holds),
        assumes=(
            "the query's label is entered as zero",
            "the value matrix reads labels only, keys and queries read tokens only",
        ),
        variants=tuple(
            Variant(says, Property(cases, partial(_prediction_holds, **wrong)))
            for says, wrong in _PREDICTION_VARIANTS
        ),
        explanation=(
            "The layer is built from its whole matrices on [x; y]; its last entry is compared with "
            "the formula for random weights, tokens and tasks. The query token adds nothing to "
            "beta because its label is zero."
        ),
    )


PREDICTION_MERGED = _prediction_claim(
    "merged", _merged, r"\hat y_q = \sum_i v_i\,\beta^\top U_i x_q", "merged keys and queries"
)
PREDICTION_SEPARATE = _prediction_claim(
    "separate",
    _separate,
    r"\hat y_q = \sum_i\sum_r v_i\,\beta^\top k_{i,r}q_{i,r}^\top x_q",
    "separate rank-R keys and queries",
)


# -- loss and flow --------------------------------------------------------------------------------


def _loss_holds(case: Case, shift: int = 0, trace: float = 1.0) -> Check:
    L, N = covariance(case), int(case["N"])
    model = MODELS[case["kind"]]
    derived = model.flow.loss_value(case["state"], {"Lambda": L, "N": N})
    A = product(case["state"])
    n = N + shift
    stated = np.trace(L) - 2 * np.trace(L @ A @ L) + (1 + 1 / n) * np.trace(L @ L @ A @ L @ A.T)
    stated += trace * np.trace(L) / n * np.trace(L @ A @ L @ A.T)
    size = probes.size_of(case["state"], L)
    return agreement(
        "expected loss of the layer against the formula", derived, stated, 1e-14 * size, ROUNDING
    )


LOSS = Claim(
    id="zhang2025.loss",
    source=f"{NOTE}, the task (in-context linear regression), both parametrizations",
    says="The expected loss depends on the weights through A only, and is quadratic in it.",
    equations=(
        r"\mathcal L = \operatorname{tr}\Lambda - 2\operatorname{tr}(\Lambda A\Lambda)"
        r" + \operatorname{tr}(A^\top B A\Lambda)",
        r"B = \Lambda[(1+\tfrac1N)\Lambda + \tfrac{\operatorname{tr}\Lambda}{N}I]",
    ),
    property=Property(layers, _loss_holds),
    assumes=("x ~ N(0, Lambda), w ~ N(0, I)", "mean squared error without 1/2"),
    derivation=probes.proof(loss.expected_loss, loss.second_moment_of_the_context),
    variants=(
        Variant("N off by one", Property(layers, lambda c: _loss_holds(c, shift=1))),
        Variant("without the trace term", Property(layers, lambda c: _loss_holds(c, trace=0.0))),
    ),
    explanation=(
        "Isserlis' theorem with symbolic N, D, H and R gives the formula term by term; the two "
        "parametrizations differ only in how A is made of weights."
    ),
)


def _flow_holds(case: Case, factor: float = 1.0, shift: int = 0) -> Check:
    L, N = covariance(case), int(case["N"])
    derived = MODELS[case["kind"]].flow.evaluate(case["state"], {"Lambda": L, "N": N})
    stated = probes.rates(case["state"], L, N + shift)
    gap = max(float(np.abs(derived[n] - factor * stated[n]).max()) for n in stated)
    size = probes.size_of(case["state"], L)
    return Check("rates of all weights", gap, 1e-14 * size, ROUNDING)


FLOW = Claim(
    id="zhang2025.flow",
    source=f"{NOTE}, gradient flow of both parametrizations",
    says="Each weight is driven by G = L^2 - B A L times its partners in A.",
    equations=(
        r"\tau\dot U_h = v_h G,\quad \tau\dot v_h = \operatorname{tr}(U_h^\top G)",
        r"\tau\dot k_{hr} = v_h G q_{hr},\quad \tau\dot q_{hr} = v_h G^\top k_{hr},\quad"
        r" \tau\dot v_h = \sum_r k_{hr}^\top G q_{hr}",
        r"G = \Lambda^2 - B A\Lambda",
    ),
    property=Property(layers, _flow_holds),
    assumes=("tau d(theta)/dt = -(1/2) d(MSE)/d(theta)",),
    derivation=probes.proof(loss.gradient_flow),
    variants=(
        Variant(
            "the full gradient (twice as fast)",
            Property(layers, lambda c: _flow_holds(c, factor=2.0)),
        ),
        Variant("N off by one", Property(layers, lambda c: _flow_holds(c, shift=1))),
    ),
    explanation=(
        "The factor 1/2 is the paper's convention: with it the closed form for white tokens and "
        "the scalar equation of a plateau come out as printed; the full gradient is twice as fast."
    ),
)


# -- networks -------------------------------------------------------------------------------------


def _features(case: Case, normalised: bool = True) -> Any:
    x, w = sequence(case)
    z = cubic_features(x[None], (x @ w)[None])
    return z if normalised else z * (len(x) - 1)


def _network_holds(case: Case, order: str = "C", normalised: bool = True) -> Check:
    state = case["state"]
    v = np.asarray(state["v"])
    U = np.asarray(state["U"])
    rows = np.array([u.ravel(order) for u in U])
    got = float((_features(case, normalised) @ (v @ rows))[0])
    wanted = _as_stated(case)
    size = float(np.abs(_features(case)).sum() * np.abs(v).sum() * np.abs(U).max()) + 1
    return agreement("two-layer network against attention", got, wanted, 1e-13 * size, ROUNDING)


def _proof_of_network() -> Iterable[Check]:
    model: Any = MODELS["merged"]
    v, U = model.weights
    N = ok.dims("N")
    x, xq, w = (next(t for t in _data(model) if t.name == n) for n in ("x", "x_q", "w"))
    z = ok.einsum("d,nd,na,b->ab", w, x, x, xq) / N
    yield identity(
        "w2 . W1 z = sum_h v_h beta^T U_h x_q",
        model.prediction,
        ok.einsum("h,hab,ab->", v, U, z),
    )
    yield from probes.proof(loss.second_moment_of_the_context)()


def _data(model: Any) -> list[Any]:
    expression = model.prediction + model.target
    return [t for t in expression.tensors(deep=True) if t.kind == "gaussian"]


NETWORK_MERGED = Claim(
    id="zhang2025.network-merged",
    source=f"{NOTE}, equivalence of ATTN_M",
    says="Merged attention is the two-layer fully connected linear network w2 . W1 z on cubic z.",
    equations=(r"\hat y_q = w_2^\top W_1 z,\qquad z = \operatorname{vec}(\beta x_q^\top)",),
    property=Property(_merged, _network_holds),
    derivation=_proof_of_network,
    variants=(
        Variant("U_h flattened transposed", Property(_merged, lambda c: _network_holds(c, "F"))),
        Variant(
            "beta without the 1/N",
            Property(_merged, lambda c: _network_holds(c, normalised=False)),
        ),
    ),
    explanation=(
        "Row h of W1 is U_h flattened in the order in which z is; then both sides are one sum. "
        "Same function of the same weights means same loss and same gradient."
    ),
)


def _network_rates_hold(case: Case, factor: float = 1.0, transposed: bool = False) -> Check:
    L, N = covariance(case), int(case["N"])
    state = {n: np.asarray(x) for n, x in case["state"].items()}
    D, H = len(L), len(state["v"])
    B = probes.second_moment(L, N)
    C = factor * np.einsum("ac,bd->abcd", B, L).reshape(D * D, D * D)
    if transposed:
        C = np.einsum("ac,bd->abcd", L, B).reshape(D * D, D * D)
    moments = {"C": C, "c": (L @ L).ravel(), "y2": float(np.trace(L))}
    global _NETWORK
    if _NETWORK is None:
        _NETWORK = network_flow()
    other = _NETWORK.evaluate(as_network(state), moments)
    own = MODELS["merged"].flow.evaluate(state, {"Lambda": L, "N": N})
    gap = max(
        float(np.abs(own["v"] - other["w2"]).max()),
        float(np.abs(own["U"].reshape(H, -1) - other["W1"]).max()),
    )
    return Check(
        "gradients of attention and network", gap, 1e-14 * probes.size_of(state, L), ROUNDING
    )


_NETWORK: Any = None


NETWORK_TRAJECTORY = Claim(
    id="zhang2025.network-merged-trajectory",
    source=f"{NOTE}, figure 1 (loss of attention and network coincide)",
    says="Attention and its two-layer network have one and the same gradient flow.",
    equations=(
        r"\mathbb E[zz^\top] = B\otimes\Lambda,\quad \mathbb E[y_q z] = \operatorname{vec}\Lambda^2"
        r"\;\Rightarrow\; (\dot w_2, \dot W_1) = (\dot v, \dot U)",
    ),
    property=Property(_merged, _network_rates_hold),
    assumes=("expected loss; both start from the same weights",),
    derivation=_proof_of_network,
    variants=(
        Variant(
            "features with twice the second moment",
            Property(_merged, lambda c: _network_rates_hold(c, factor=2.0)),
        ),
        Variant(
            "second moment Lambda (x) B instead of B (x) Lambda",
            Property(_merged, lambda c: _network_rates_hold(c, transposed=True)),
        ),
    ),
    explanation=(
        "The network knows only the moments of its features. With those of z its rates equal "
        "attention's at every state, so the trajectories are the same curve."
    ),
)


def _convolution_holds(case: Case, fast: str = "beta", stride: int | None = None) -> Check:
    state = case["state"]
    D = np.asarray(state["K"]).shape[-1]
    z = _features(case).reshape(D, D)
    signal = (z.T if fast == "beta" else z).reshape(1, -1)
    got = 0.0
    for v, K, Q in zip(state["v"], state["K"], state["Q"], strict=True):
        for k, q in zip(K, Q, strict=True):
            if stride is None:
                out = strided_convolution(signal, np.asarray(k))[0]
            else:
                out = np.lib.stride_tricks.sliding_window_view(signal[0], D)[::stride][:D] @ k
            got += float(v * (out @ q))
    size = 1 + float(np.abs(z).sum()) * 8 * 2 * 3 * D
    return agreement(
        "sum of convolutional networks against attention",
        got,
        _as_stated(case),
        1e-13 * size,
        ROUNDING,
    )


def _proof_of_convolution() -> Iterable[Check]:
    model: Any = MODELS["separate"]
    v, K, Q = model.weights
    N = ok.dims("N")
    x, xq, w = (next(t for t in _data(model) if t.name == n) for n in ("x", "x_q", "w"))
    # Position b D + a of vec(beta x_q^T) is (a, b): a window of stride D is all a at one b.
    z = ok.einsum("d,nd,na,b->ba", w, x, x, xq) / N
    filtered = ok.einsum("hra,ba->hrb", K, z)
    yield identity(
        "value . query . (key * z) = prediction",
        model.prediction,
        ok.einsum("h,hrb,hrb->", v, Q, filtered),
    )


NETWORK_SEPARATE = Claim(
    id="zhang2025.network-separate",
    source=f"{NOTE}, equivalence of ATTN_S",
    says=(
        "Separate attention is the sum of H three-layer linear networks on z whose first layer is "
        "a convolution with the keys at stride D."
    ),
    equations=(
        r"\hat y_q = \sum_h v_h\sum_r q_{hr}^\top(k_{hr}\star_D z),\qquad"
        r" (k\star_D z)_b = \sum_a k_a z_{bD+a}",
    ),
    property=Property(_separate, _convolution_holds),
    assumes=("vec stacks columns (the standard one), so that beta's index is the fast one",),
    derivation=_proof_of_convolution,
    variants=(
        Variant(
            "vec stacks rows", Property(_separate, lambda c: _convolution_holds(c, fast="query"))
        ),
        Variant("stride 1", Property(_separate, lambda c: _convolution_holds(c, stride=1))),
    ),
    explanation=(
        "A window of length D at stride D covers beta x_q[b] for one b; the key sums it to "
        "(k . beta) x_q[b], the query over b, and the value weight multiplies. With vec by rows "
        "the key would meet x_q instead."
    ),
)

CLAIMS = (
    PREDICTION_MERGED,
    PREDICTION_SEPARATE,
    LOSS,
    FLOW,
    NETWORK_MERGED,
    NETWORK_TRAJECTORY,
    NETWORK_SEPARATE,
)
