"""Claims on the layer: its prediction, its empty blocks, its conserved balance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

import odekit as ok
from odekit.claims import Check, Claim, Property, Variant, agreement, identity
from odekit.testing import spectra

from . import layer
from .cases import (
    FLOWS,
    NOTE,
    ROUNDING,
    Case,
)

Array = NDArray[np.float64]


def _states(names: tuple[str, ...]) -> st.SearchStrategy[Any]:
    entry = st.integers(-20, 20).map(lambda k: k / 10)
    matrix = st.lists(entry, min_size=4, max_size=4).map(lambda e: np.array(e).reshape(2, 2))
    return st.fixed_dictionaries({name: matrix for name in names})


def _blocks_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries(
        {
            "s": spectra(dim=2, condition=20.0),
            "N": st.integers(1, 50),
            "state": _states(("p2", "q1")),
            "law": st.sampled_from(layer.LAWS),
        }
    )


_WHOLE: dict[str, Any] = {}


def _zero_gradient(case: Case, offset: float = 0.0) -> Check:
    law = case["law"]
    if law not in _WHOLE:
        _WHOLE[law] = ok.models.linear_transformer(tasks=law, blocks="all").flow
    blank = offset * np.eye(2)
    rates = _WHOLE[law].evaluate(
        {**case["state"], "p1": blank, "q2": blank},
        {"Lambda": np.diag(case["s"]), "N": case["N"]},
    )
    gap = max(float(np.abs(rates[n]).max()) for n in ("p1", "q2"))
    # Every term carries p1 or q2 as a factor, so that nothing is left to round.
    return Check("rates of p1 and q2", gap, 1e-300 if offset == 0 else 1e-12, "exact zero")


def _proof_of_zero_gradient() -> Iterable[Check]:
    for law in layer.LAWS:
        for what, difference in layer.zero_blocks(law).items():
            yield identity(f"{what} vanishes, law {law}", difference)


@lru_cache(maxsize=8)
def _model(law: layer.Law, whole: bool) -> Any:
    return ok.models.linear_transformer(tasks=law, blocks="all" if whole else "restricted")


def _draw(case: Case, law: layer.Law, whole: bool = False) -> tuple[Any, dict[str, Any]]:
    model = _model(law, whole)
    assert model.prediction is not None and model.target is not None
    random: list[Any] = [
        t for t in (model.prediction + model.target).tensors(deep=True) if t.kind == "gaussian"
    ]
    params = {"Lambda": np.diag(case["s"]), "N": case["N"], "D": 2}
    return model, {**params, **ok.sample(random, params, seed=int(case["seed"]))}


def _sample_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries(
        {
            "s": spectra(dim=2, condition=20.0),
            "N": st.integers(1, 6),
            "state": _states(("p1", "p2", "q1", "q2")),
            "seed": st.integers(0, 10_000),
        }
    )


def _embedding(draw: Mapping[str, Any]) -> tuple[Array, Array]:
    """Z of equation (4), tokens above labels, and the task."""
    task = draw["W"]
    tokens = np.vstack([draw["x"], draw["x_q"]]).T
    labels = task @ tokens
    labels[:, -1] = 0.0
    return np.vstack([tokens, labels]), task


def _layer_output(case: Case, *, keep_query: bool = True) -> Check:
    """The bottom of the last column of equation (1) against equation (6)."""
    model, draw = _draw(case, "iid", whole=True)
    Z, _ = _embedding(draw)
    d, N = 2, int(case["N"])
    state = {k: np.asarray(v) for k, v in case["state"].items()}
    value, query = np.zeros((2 * d, 2 * d)), np.zeros((2 * d, 2 * d))
    value[d:, :d], value[d:, d:] = state["p1"], state["p2"]
    query[:d, :d], query[d:, :d] = state["q1"], state["q2"]
    gram = Z @ Z.T / N
    if not keep_query:
        gram = Z[:, :-1] @ Z[:, :-1].T / N
    out = (Z + value @ gram @ query @ Z)[d:, -1]
    wanted = model.prediction.evaluate({**draw, **state})
    size = 1 + float(np.abs(Z).max()) ** 3 * 64 * float(
        np.max([np.abs(v).max() for v in state.values()]) ** 2
    )
    return agreement("layer output against the bilinear form", out, wanted, 1e-13 * size, ROUNDING)


def _restricted_output(case: Case, *, transpose: bool = False) -> Check:
    """Equation (8): with p1 = q2 = 0 the prediction is p2 W S q1 x_q."""
    model, draw = _draw(case, "iid", whole=True)
    Z, task = _embedding(draw)
    d, N = 2, int(case["N"])
    state = {k: np.asarray(v) for k, v in case["state"].items()}
    state["p1"], state["q2"] = 0 * state["p1"], 0 * state["q2"]
    S = Z[:d, :-1] @ Z[:d, :-1].T / N
    used = task.T if transpose else task
    out = state["p2"] @ used @ S @ state["q1"] @ Z[:d, -1]
    wanted = model.prediction.evaluate({**draw, **state})
    size = 1 + float(np.abs(Z).max()) ** 3 * 64 * float(np.abs(task).max()) * float(
        np.max([np.abs(v).max() for v in state.values()]) ** 2
    )
    return agreement("prediction against p2 W S q1 x_q", out, wanted, 1e-13 * size, ROUNDING)


def _conserved(case: Case, sign: float = -1.0) -> Check:
    rates = FLOWS[case["law"]].evaluate(
        case["state"], {"Lambda": np.diag(case["s"]), "N": case["N"]}
    )
    left = float(np.sum(case["state"]["p2"] * rates["p2"]))
    right = float(np.sum(case["state"]["q1"] * rates["q1"]))
    size = sum(float(np.sum(np.abs(case["state"][n]) * np.abs(rates[n]))) for n in ("p2", "q1"))
    total = 100 * max(size, float(np.sum(case["s"]) + 1) ** 4 * 64)
    return Check("d/dt of the balance", abs(2 * (left + sign * right)), 1e-13 * total, ROUNDING)


def _proof_of_balance() -> Iterable[Check]:
    for law in layer.LAWS:
        flow: Any = ok.models.linear_transformer(tasks=law).flow
        p2, q1 = (layer.named(flow, n) for n in ("p2", "q1"))
        change = ok.einsum("ij,ij->", p2, flow.rates[p2].expand()) - ok.einsum(
            "ij,ij->", q1, flow.rates[q1].expand()
        )
        yield identity(f"p2 . dp2/dt - q1 . dq1/dt = 0, law {law}", change)
    for what, difference in layer.scaled_prediction().items():
        yield identity(f"{what}; the loss is kept for c b = 1", difference)


EQ6 = Claim(
    id="mainali2025.eq6",
    source=f"{NOTE}, equations (1), (4) and (6)",
    says="The label rows of the last column are the bilinear form of (p1, p2) and (q1; q2).",
    equations=(r"\hat y = (p^\top \hat\Gamma q)\,x_q",),
    property=Property(_sample_cases, _layer_output),
    assumes=("the query's label is zero", "Gamma holds the query token"),
    variants=(
        Variant(
            "without the query token in Gamma",
            Property(_sample_cases, lambda c: _layer_output(c, keep_query=False)),
        ),
        Variant(
            "the restricted form (8) with W transposed",
            Property(_sample_cases, lambda c: _restricted_output(c, transpose=True)),
        ),
    ),
    explanation=(
        "The layer is built from its whole matrices on Z (tokens above labels) and its output "
        "at the query compared with the bilinear form, for random blocks, tokens and tasks. "
        "Rows of labels see p1 and p2 only, the query (label zero) sees the columns q1 and q2 "
        "only."
    ),
)

EQ8 = Claim(
    id="mainali2025.eq8",
    source=f"{NOTE}, equation (8)",
    says="With p1 = q2 = 0 the prediction is exactly p2 W S q1 x_q, S the context covariance.",
    equations=(r"\hat y_\mu = p_2 W^\mu \hat\Sigma_x q_1 x_q",),
    property=Property(_sample_cases, _restricted_output),
    assumes=("p1 = q2 = 0",),
    variants=(
        Variant(
            "W transposed",
            Property(_sample_cases, lambda c: _restricted_output(c, transpose=True)),
        ),
        Variant(
            "query left out of the whole form",
            Property(_sample_cases, lambda c: _layer_output(c, keep_query=False)),
        ),
    ),
    explanation=(
        "The second moment of Z has W S in its lower left block, and the query adds nothing "
        "to it because its label is zero: that is why it holds exactly, where the notes have "
        "an approximate sign."
    ),
)

ZERO_GRADIENT = Claim(
    id="mainali2025.zero-gradient",
    source=f"{NOTE}, section 2.2",
    says="If p1 and q2 start at zero, their expected gradient is zero for all time.",
    equations=(r"p_1 = q_2 = 0 \Rightarrow \dot p_1 = \dot q_2 = 0",),
    property=Property(_blocks_cases, _zero_gradient),
    assumes=("the law of the tasks is symmetric under W -> -W", "expected loss"),
    derivation=_proof_of_zero_gradient,
    variants=(
        Variant("p1 = q2 = 0.1 I", Property(_blocks_cases, lambda c: _zero_gradient(c, 0.1))),
        Variant("p1 = q2 = -I", Property(_blocks_cases, lambda c: _zero_gradient(c, -1.0))),
    ),
    explanation=(
        "The error is odd in the task and what p1 or q2 adds is even. On a finite training set "
        "odd moments of the tasks are of order P^(-1/2), and the blocks leak."
    ),
)

EQA84 = Claim(
    id="mainali2025.eqA84",
    source=f"{NOTE}, equation (A84)",
    says="|p2|_F^2 - |q1|_F^2 is conserved.",
    equations=(r"\mathcal C = \lVert \bar p_2\rVert_F^2 - \lVert \bar q_1\rVert_F^2",),
    property=Property(_blocks_cases, _conserved),
    assumes=("p1 = q2 = 0", "one learning rate for both"),
    derivation=_proof_of_balance,
    variants=(
        Variant("a plus sign", Property(_blocks_cases, lambda c: _conserved(c, 1.0))),
        Variant("twice the second norm", Property(_blocks_cases, lambda c: _conserved(c, -2.0))),
    ),
    explanation=(
        "It comes from the scaling p2 -> c p2, q1 -> q1/c of the loss, under every law of the "
        "tasks, for matrices that need not be diagonal."
    ),
)

CLAIMS = (EQ6, EQ8, ZERO_GRADIENT, EQA84)
