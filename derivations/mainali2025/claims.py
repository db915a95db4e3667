"""The numbered statements of Mainali & Teixeira 2025, as the readers' notes give them.

Each is tested from the raw layer (equation 1 and the law of the tasks), not from the reduced
equations. ``s`` is the spectrum of the token covariance, N the context length; time is in units of
``1/(eta P)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import sympy as sp
from hypothesis import strategies as st
from numpy.typing import NDArray

import odekit as ok
from odekit.claims import Assumption, Check, Claim, Property, Variant, agreement, identity
from odekit.testing import spectra

from . import layer
from .conservation import unbalanced_product
from .mode_equations import (
    half_height,
    layer_optimum,
    layer_rates,
    published_loss,
    published_product,
    stretched,
)

Array = NDArray[np.float64]
Case = Mapping[str, Any]

_NOTE = "Mainali & Teixeira 2025 (arXiv:2504.12916)"
_ROUNDING = "rounding of a sum of at most a few hundred products"


# -- cases -------------------------------------------------------------------------------------


def _numbers(least: int, greatest: int) -> st.SearchStrategy[list[float]]:
    """Three numbers between least and greatest, with two decimals."""
    entry = st.integers(100 * least, 100 * greatest).map(lambda k: k / 100)
    return st.lists(entry, min_size=3, max_size=3)


def modes_with(contexts: st.SearchStrategy[int], dim: Any = (1, 3)) -> Callable[[], Any]:
    """Spectra, contexts and modes p, q of the same dimension."""

    def cases() -> st.SearchStrategy[Case]:
        return st.fixed_dictionaries(
            {
                "s": spectra(dim=dim, condition=20.0),
                "N": contexts,
                "p": _numbers(-2, 2),
                "q": _numbers(-2, 2),
            }
        )

    return cases


_ANY = modes_with(st.integers(1, 200))
_ONE_MODE = modes_with(st.integers(1, 200), dim=1)


def _modes(case: Case) -> tuple[Array, Array, Array, int]:
    s = np.asarray(case["s"], dtype=float)
    n = len(s)
    return s, np.asarray(case["p"])[:n], np.asarray(case["q"])[:n], int(case["N"])


def _size(s: Array, p: Array, q: Array) -> float:
    """The largest sum of absolute values among the terms of the mode equations."""
    a, b = np.abs(p), np.abs(q)
    top = float(np.max(np.concatenate([a, b, [1e-3]])))
    return float(np.sum(s) + 1) ** 4 * (top + top**3)


# -- the layer against the published equations -----------------------------------------------------


def _flow_rates(case: Case, law: layer.Law = "scalar") -> tuple[Array, Array]:
    """Rates of the layer's diagonal modes, from the expected flow of the raw layer."""
    s, p, q, N = _modes(case)
    flow = _FLOWS[law]
    rates = flow.evaluate({"p2": np.diag(p), "q1": np.diag(q)}, {"Lambda": np.diag(s), "N": N})
    return np.diagonal(rates["p2"]), np.diagonal(rates["q1"])


class _Flows(dict[str, Any]):
    """The restricted flow of each law, derived at first use."""

    def __missing__(self, law: Any) -> Any:
        self[law] = ok.models.linear_transformer(tasks=law).flow
        return self[law]


_FLOWS = _Flows()


def _published(case: Case, shift: float = 0.0, factor: float = 1.0) -> tuple[Array, Array]:
    s, p, q, N = _modes(case)
    pull = s**2 * (1 - factor * p * q * stretched(s, N + shift))
    return q * pull, p * pull


def _modes_hold(case: Case, law: layer.Law = "scalar", **wrong: float) -> Check:
    left, right = _flow_rates(case, law), _published(case, **wrong)
    s, p, q, _ = _modes(case)
    gap = max(float(np.abs(a - b).max()) for a, b in zip(left, right, strict=True))
    return Check(
        "flow of the layer against the published rates", gap, 1e-13 * _size(s, p, q), _ROUNDING
    )


def _own_rates_hold(case: Case, n_shift: int = 0, coupling: float = 1.0) -> Check:
    left = _flow_rates(case)
    s, p, q, N = _modes(case)
    full, uncoupled = layer_rates(p, q, s, N + n_shift), layer_rates(p, q, s, 1e300)
    right = [u + coupling * (f - u) for f, u in zip(full, uncoupled, strict=True)]
    gap = max(float(np.abs(a - b).max()) for a, b in zip(left, right, strict=True))
    return Check("flow of the layer against its own modes", gap, 1e-13 * _size(s, p, q), _ROUNDING)


def _proof_of_modes() -> Iterable[Check]:
    for law in ("scalar", "diagonal"):
        for what, difference in layer.diagonal_modes(law).items():
            yield identity(f"{what} on the diagonal, law {law}", difference)


# -- statements about predictions and blocks -----------------------------------------------------


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
            yield identity(f"{what}, law {law}", difference)


def _draw(case: Case, law: layer.Law, whole: bool = False) -> tuple[Any, dict[str, Any]]:
    model = ok.models.linear_transformer(tasks=law, blocks="all" if whole else "restricted")
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
    return agreement("layer output against the bilinear form", out, wanted, 1e-13 * size, _ROUNDING)


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
    return agreement("prediction against p2 W S q1 x_q", out, wanted, 1e-13 * size, _ROUNDING)


# -- fixed point, solution, times, loss ----------------------------------------------------


def _at_published_fixed_point(case: Case, law: layer.Law, shift: float = 0.0) -> Check:
    s, _, _, N = _modes(case)
    scale = 1.0 + abs(float(case["p"][0]))
    end = 1 / stretched(s, N + shift)
    if law == "iid":
        p, q = np.full(len(s), scale), end / scale
    else:
        p = scale * np.sqrt(end)
        q = end / p
    dp, dq = _flow_rates({**case, "p": p, "q": q}, law)
    if law == "iid":
        dp = dp / len(s)
    gap = max(float(np.abs(dp).max()), float(np.abs(dq).max()))
    return Check("rates where p q = 1/s_inf", gap, 1e-12 * _size(s, p, q), _ROUNDING)


def _at_own_fixed_point(case: Case, shift: int = 0, factor: float = 1.0) -> Check:
    """The closed form of the layer's own fixed point, tasks w I: both rates vanish there."""
    s, _, _, N = _modes(case)
    a = factor * layer_optimum(s, N + shift)
    # p_a^2 = a_a sqrt(s_a) t and q_a = a_a / p_a for any t > 0: the ratio that both rates demand.
    p = np.sqrt(a * np.sqrt(s))
    q = np.divide(a, p, out=np.zeros_like(a), where=p > 0)
    dp, dq = _flow_rates({**case, "p": p, "q": q})
    gap = max(float(np.abs(dp).max()), float(np.abs(dq).max()))
    return Check("rates at the layer's own fixed point", gap, 1e-12 * _size(s, p, q), _ROUNDING)


def _mode_run(case: Case, ratio: float) -> tuple[Array, Array, float, float]:
    """One mode of the layer (d = 1, where both equations agree), integrated from p0/q0 = ratio."""
    s, N, a0 = float(case["s"][0]), int(case["N"]), float(case["a0"])
    p0, q0 = np.sqrt(a0 * ratio), np.sqrt(a0 / ratio)
    end = 2.5 * float(half_height([s], N, min(a0, 1e-3))[0])
    times = np.linspace(0, end, 21)
    run = ok.solve(_MODES, {"p": [p0], "q": [q0]}, times, {"s": [s], "N": N})
    return times, run["p"][:, 0] * run["q"][:, 0], p0, q0


_MODES = ok.models.modes(dim=1).flow


def _mode_cases(ratios: st.SearchStrategy[float]) -> Callable[[], st.SearchStrategy[Case]]:
    return lambda: st.fixed_dictionaries(
        {
            "s": spectra(dim=1),
            "N": st.integers(1, 100),
            "a0": st.sampled_from([1e-2, 1e-3, 1e-4, 1e-6]),
            "ratio": ratios,
        }
    )


_BALANCED = _mode_cases(st.just(1.0))
_UNBALANCED = _mode_cases(st.sampled_from([1.0, 4.0, 0.1, 100.0]))


def _logistic_holds(case: Case, rate: float = 1.0, shift: float = 0.0) -> Check:
    times, a, _, _ = _mode_run(case, case["ratio"])
    wanted = published_product(rate * times, case["s"], case["N"] + shift, case["a0"])[:, 0]
    end = float(np.max(np.abs(wanted)))
    return agreement("a(t) integrated against (13)", a, wanted, 2e-6 * end, "the solver's 1e-6")


def _unbalanced_holds(case: Case, power: float = 1.0) -> Check:
    times, a, p0, q0 = _mode_run(case, case["ratio"])
    s, N = float(case["s"][0]), int(case["N"])
    s_inf = float(stretched([s], N)[0])
    wanted = unbalanced_product(times, s * np.sqrt(power), s_inf, p0, q0)
    end = float(np.max(np.abs(wanted)))
    return agreement("a(t) against the closed form", a, wanted, 2e-6 * end, "the solver's 1e-6")


def _conserved(case: Case, sign: float = -1.0) -> Check:
    rates = _FLOWS[case["law"]].evaluate(
        case["state"], {"Lambda": np.diag(case["s"]), "N": case["N"]}
    )
    left = float(np.sum(case["state"]["p2"] * rates["p2"]))
    right = float(np.sum(case["state"]["q1"] * rates["q1"]))
    size = sum(float(np.sum(np.abs(case["state"][n]) * np.abs(rates[n]))) for n in ("p2", "q1"))
    total = 100 * max(size, float(np.sum(case["s"]) + 1) ** 4 * 64)
    return Check("d/dt of the balance", abs(2 * (left + sign * right)), 1e-13 * total, _ROUNDING)


def _proof_of_balance() -> Iterable[Check]:
    for law in layer.LAWS:
        flow: Any = ok.models.linear_transformer(tasks=law).flow
        p2, q1 = (layer.named(flow, n) for n in ("p2", "q1"))
        change = ok.einsum("ij,ij->", p2, flow.rates[p2].expand()) - ok.einsum(
            "ij,ij->", q1, flow.rates[q1].expand()
        )
        yield identity(f"p2 . dp2/dt - q1 . dq1/dt, law {law}", change)


def _time_cases() -> st.SearchStrategy[Case]:
    return st.fixed_dictionaries(
        {
            "s": spectra(dim=1, condition=20.0),
            "N": st.integers(1, 100),
            "a0": st.sampled_from([1e-3, 1e-4, 1e-6]),
        }
    )


def _time_holds(case: Case, exponent: float, factor: float = 0.5) -> Check:
    """Time to half height against ``factor s^exponent ln(1/(s_inf a0))``."""
    s, N, a0 = float(case["s"][0]), int(case["N"]), float(case["a0"])
    s_inf = float(stretched([s], N)[0])
    estimate = factor * s**exponent * np.log(1 / (s_inf * a0))
    exact = float(half_height([s], N, a0)[0])
    # ln(x - 1) against ln x, x = 1/(s_inf a0): what the estimate leaves out.
    slack = 2 * s_inf * a0 / s**2
    return agreement(
        "estimate against the time to half height",
        estimate,
        exact,
        slack + 1e-12 * exact,
        "ln(x - 1) against ln(x)",
    )


def _loss_cases() -> st.SearchStrategy[Case]:
    return modes_with(st.integers(1, 100), dim=(1, 3))()


def _loss_holds(case: Case, kind: str) -> Check:
    """Half the loss of the published mode model on the diagonal against a form of (14)."""
    s, p, q, N = _modes(case)
    a, s_inf = p * q, stretched(s, N)
    forms = {
        "noted": 0.5 * np.sum(s * (s / s_inf * a**2 - 2 * s * a + 1)),
        "corrected": float(published_loss(a, s, N)),
        "no half": 2 * float(published_loss(a, s, N)),
        "sign": 0.5 * np.sum(s * (s * s_inf * a**2 + 2 * s * a + 1)),
    }
    flow = ok.models.modes().flow
    half = 0.5 * flow.loss_value({"p": p, "q": q}, {"s": s, "N": N})
    size = _size(s, p, q) * (1 + float(np.max(np.abs(a))))
    return agreement(
        "half the loss whose flow is (9), (10)", forms[kind], half, 1e-12 * size, _ROUNDING
    )


# -- measures --------------------------------------------------------------------------------------


def _matrix_cases() -> st.SearchStrategy[Case]:
    entry = st.integers(-30, 30).map(lambda k: k / 10)
    return st.fixed_dictionaries(
        {
            "values": st.lists(st.integers(1, 100).map(lambda k: k / 10), min_size=1, max_size=4),
            "entries": st.lists(entry, min_size=9, max_size=9),
        }
    )


def _effective_rank_holds(case: Case, power: float = 1.0, base: float = math.e) -> Check:
    values = np.asarray(case["values"])
    weights = values**power / np.sum(values**power)
    entropy = -np.sum(weights * np.log(weights)) / np.log(base)
    wanted = np.exp(entropy)
    got = ok.theory.effective_rank(np.diag(values))
    return agreement(
        "effective rank of a diagonal matrix", got, wanted, 1e-12 * 16, "rounding of an SVD"
    )


def _distance_holds(case: Case, kind: str = "stated") -> Check:
    """(16) is zero for every M(t) of full rank: it sees row spaces only."""
    M = np.asarray(case["entries"]).reshape(3, 3) + 10 * np.eye(3)
    reference = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 3.0]])
    distance = float(ok.theory.subspace_distance(M[:2], reference, side="row", relative=False))
    basis = np.linalg.svd(M[:2])[2][:2]
    if kind == "squared":
        wanted = float(np.linalg.norm(reference - reference @ basis.T @ basis)) ** 2
    elif kind == "columns":
        wanted = float(np.linalg.norm(reference - basis.T @ basis @ reference))
    else:
        wanted = float(np.linalg.norm(reference - reference @ basis.T @ basis))
    return agreement("min_A |A M - M_ref|", distance, wanted, 1e-11, "rounding of an SVD")


# -- proofs in SymPy ----------------------------------------------------

_s, _S, _N, _a0, _t, _p, _q = sp.symbols("s S N a0 t p q", positive=True)


def _proof_for_one_mode() -> Iterable[Check]:
    """The coupling of `layer.diagonal_modes` is the published trace term if there is one mode."""
    coupling = _s * _p * (_s**2 * _q**2) / _N
    published = _s**2 * _p * _q**2 * _s / _N
    yield from _proof_of_modes()
    yield identity("coupling with one mode against the trace term", coupling, published)


def _logistic(t: Any) -> Any:
    decay = sp.exp(-2 * _s**2 * t)
    return _a0 / (_S * _a0 * (1 - decay) + decay)


def _proof_of_logistic() -> Iterable[Check]:
    """With p = q the product obeys a logistic equation, and (13) solves it."""
    pull = _s**2 * (1 - _S * _p * _q)
    yield identity(
        "da/dt = s^2 (p^2 + q^2)(1 - s_inf a)",
        _q * _q * pull + _p * _p * pull,
        (_p**2 + _q**2) * pull,
    )
    a = _logistic(_t)
    yield identity(
        "(13) solves da/dt = 2 s^2 a (1 - s_inf a)", a.diff(_t), 2 * _s**2 * a * (1 - _S * a)
    )
    yield identity("(13) starts at a0", a.subs(_t, 0), _a0)


def _proof_of_half_height() -> Iterable[Check]:
    """a(t) is half its end at ln(1/(s_inf a0) - 1)/(2 s^2), the estimate but for the 1."""
    x = sp.Symbol("x", positive=True)  # x = 1/(s_inf a0) - 1
    half = sp.log(x) / (2 * _s**2)
    a = _logistic(half).subs(_a0, 1 / (_S * (1 + x)))
    yield identity("a at the half height", sp.simplify(a), 1 / (2 * _S))


def _proof_of_loss() -> Iterable[Check]:
    """The flow of the corrected (14), half of it, is (9) and (10)."""
    loss = _s * (_s * _S * (_p * _q) ** 2 - 2 * _s * _p * _q + 1) / 2
    pull = _s**2 * (1 - _S * _p * _q)
    yield identity("- d(loss)/dp", -loss.diff(_p), _q * pull)
    yield identity("- d(loss)/dq", -loss.diff(_q), _p * pull)


# -- proofs in SymPy ------------------------------------------------------------

_OWN_MODES = Claim(
    id="mainali2025.eq9-corrected",
    source=f"{_NOTE}, corrected (9), (10)",
    says="The layer's diagonal modes, tasks w I or diag(w): a finite context couples them.",
    equations=(
        r"\dot p_\alpha = s_\alpha^2 q_\alpha - (1+\tfrac1N)s_\alpha^3 p_\alpha q_\alpha^2"
        r" - \tfrac{s_\alpha p_\alpha}{N}\sum_\beta s_\beta^2 q_\beta^2",
        r"\dot q_\alpha = s_\alpha^2 p_\alpha - (1+\tfrac1N)s_\alpha^3 q_\alpha p_\alpha^2"
        r" - \tfrac{s_\alpha^2 q_\alpha}{N}\sum_\beta s_\beta p_\beta^2",
    ),
    property=Property(_ANY, _own_rates_hold),
    derivation=_proof_of_modes,
    variants=(
        Variant("N off by one", Property(_ANY, lambda c: _own_rates_hold(c, n_shift=1))),
        Variant(
            "coupling twice as strong", Property(_ANY, lambda c: _own_rates_hold(c, coupling=2))
        ),
    ),
)

_RUN_EQ9 = """\
import numpy as np, odekit as ok
s, N = np.array([1.0, 0.5]), 2
flow = ok.models.linear_transformer(tasks="scalar").flow
rates = flow.evaluate({"p2": np.eye(2), "q1": np.eye(2)}, {"Lambda": np.diag(s), "N": N})
s_inf = (1 + 1 / N) * s + s.sum() / N
print(np.diag(rates["p2"]), s**2 * (1 - s_inf))
"""

_RUN_EQ13 = """\
import numpy as np
from scipy.integrate import solve_ivp
s, N, p0, q0 = 1.0, 1, 0.2, 0.05
s_inf = s * (1 + 2 / N)
flow = lambda t, y: s**2 * y[::-1] * (1 - s_inf * y[0] * y[1])
p, q = solve_ivp(flow, (0, 1), [p0, q0], rtol=1e-10, atol=1e-12).y[:, -1]
a0, end = p0 * q0, 1 / s_inf
print(p * q, end * a0 / (a0 + (end - a0) * np.exp(-2 * s**2)))
"""

_RUN_TIME = """\
import numpy as np
for s in (1.0, 2.0):  # the stronger mode is the faster one: a time must fall with s
    print(s, 0.5 * s**2 * np.log(1e3 / s), np.log(1e3 / s) / (2 * s**2))
"""

_RUN_EQ14 = """\
import numpy as np, odekit as ok
s, N, p, q = 1.0, 1, 0.5, 0.5
half = 0.5 * ok.models.modes().flow.loss_value({"p": [p], "q": [q]}, {"s": [s], "N": N})
a, s_inf = p * q, s * (1 + 2 / N)
for coefficient in (1 / s_inf, s_inf):  # as noted, and as it must be
    print(half, 0.5 * s * (s * coefficient * a**2 - 2 * s * a + 1))
"""

_EQ9 = Claim(
    id="mainali2025.eq9",
    source=f"{_NOTE}, equations (9), (10) and (12)",
    says=(
        "After diagonalisation the modes are decoupled: "
        "dp_a/dt = s_a^2 q_a (1 - p_a q_a s_inf_a), and the same with p and q exchanged."
    ),
    equations=(
        r"\dot{\bar p}_2 = -\eta P S^2(\bar p_2 \bar q_1^2 s^\infty(S) - \bar q_1)",
        r"s^\infty(S) = \tfrac{N+1}{N}S + \tfrac{\operatorname{tr}S}{N}I",
    ),
    property=Property(_ANY, _modes_hold),
    assumes=("p2 and q1 are diagonal in the eigenbasis", "tasks are a multiple of the identity"),
    needs=(
        Assumption(
            "a single mode, d = 1 (for d > 1 the equations are the limit of long contexts, "
            "approached as 1/N)",
            Property(_ONE_MODE, _modes_hold),
            _proof_for_one_mode,
        ),
    ),
    correction=_OWN_MODES,
    variants=(
        Variant("N off by one", Property(_ONE_MODE, lambda c: _modes_hold(c, shift=1.0))),
        Variant(
            "a factor 2 in front of p q s_inf",
            Property(_ONE_MODE, lambda c: _modes_hold(c, factor=2.0)),
        ),
    ),
    explanation=(
        "The trace in s_inf belongs to an average over independent task entries, while the "
        "decoupled left side belongs to tasks that commute with the covariance. No law of the "
        "tasks gives both for d > 1 and finite N: for tasks w I or diag(w) the trace term couples "
        "all modes, and for independent entries s_inf is right but one p is shared by all modes."
    ),
    run=_RUN_EQ9,
)

_EQ11_OWN = Claim(
    id="mainali2025.eq11-corrected",
    source=f"{_NOTE}, corrected (11)",
    says="For tasks w I the layer rests at a_a = (1 - kappa/(N sqrt(s_a)))/((1 + 1/N) s_a).",
    equations=(
        r"a_\alpha = \frac{1 - \kappa/(N\sqrt{s_\alpha})}{(1+\frac1N)s_\alpha},\qquad"
        r"\kappa = \frac{\sum_\beta\sqrt{s_\beta}}{1+(1+m)/N}",
    ),
    property=Property(_ANY, _at_own_fixed_point),
    variants=(
        Variant("N off by one", Property(_ANY, lambda c: _at_own_fixed_point(c, shift=1))),
        Variant("half the product", Property(_ANY, lambda c: _at_own_fixed_point(c, factor=0.5))),
    ),
)

_EQ13_UNBALANCED = Claim(
    id="mainali2025.eq13-unbalanced",
    source=f"{_NOTE}, (13) without the balance",
    says="From any start the mode's product follows the closed form with K = (p0^2 - q0^2)^2.",
    equations=(r"\dot a = s^2\sqrt{K + 4a^2}\,(1 - s^\infty a)",),
    property=Property(_UNBALANCED, _unbalanced_holds, examples=20),
    variants=(
        Variant("twice as fast", Property(_UNBALANCED, lambda c: _unbalanced_holds(c, 2.0), 10)),
        Variant("half as fast", Property(_UNBALANCED, lambda c: _unbalanced_holds(c, 0.5), 10)),
    ),
)

_EQ14_CORRECTED = Claim(
    id="mainali2025.eq14-corrected",
    source=f"{_NOTE}, corrected (14)",
    says="Half the loss is 1/2 sum s (s s_inf a^2 - 2 s a + 1).",
    equations=(
        r"\mathcal L = \tfrac12\sum_\alpha s_\alpha(s_\alpha s^\infty_\alpha a_\alpha^2"
        r" - 2s_\alpha a_\alpha + 1)",
    ),
    property=Property(_loss_cases, lambda c: _loss_holds(c, "corrected")),
    derivation=_proof_of_loss,
    variants=(
        Variant("without the half", Property(_loss_cases, lambda c: _loss_holds(c, "no half"))),
        Variant("sign of the linear term", Property(_loss_cases, lambda c: _loss_holds(c, "sign"))),
    ),
)

_TIME_CORRECTED = Claim(
    id="mainali2025.convergence-time-corrected",
    source=f"{_NOTE}, corrected estimate",
    says="A balanced mode is at half its end after about ln(1/(s_inf a0)) / (2 eta P s^2).",
    equations=(
        r"t^*_\alpha \approx \frac{1}{2\eta P s_\alpha^2}\log\frac{1}{s^\infty_\alpha a_0}",
    ),
    property=Property(_time_cases, lambda c: _time_holds(c, -2.0)),
    derivation=_proof_of_half_height,
    variants=(
        Variant("without the 1/2", Property(_time_cases, lambda c: _time_holds(c, -2.0, 1.0))),
        Variant("1/s instead of 1/s^2", Property(_time_cases, lambda c: _time_holds(c, -1.0))),
    ),
)

CLAIMS: tuple[Claim, ...] = (
    Claim(
        id="mainali2025.eq6",
        source=f"{_NOTE}, equations (1), (4) and (6)",
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
    ),
    Claim(
        id="mainali2025.eq8",
        source=f"{_NOTE}, equation (8)",
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
    ),
    Claim(
        id="mainali2025.zero-gradient",
        source=f"{_NOTE}, section 2.2",
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
    ),
    _EQ9,
    Claim(
        id="mainali2025.eq11",
        source=f"{_NOTE}, equation (11)",
        says="The flow rests where p2 q1 = 1/s_inf.",
        equations=(r"\bar p_2(\infty)\bar q_1(\infty) = [s^\infty(S)]^{-1}",),
        property=Property(_ANY, lambda c: _at_published_fixed_point(c, "scalar")),
        assumes=("tasks are a multiple of the identity",),
        needs=(
            Assumption(
                "a single mode, d = 1",
                Property(_ONE_MODE, lambda c: _at_published_fixed_point(c, "scalar")),
                _proof_for_one_mode,
            ),
        ),
        correction=_EQ11_OWN,
        variants=(
            Variant(
                "N off by one",
                Property(_ONE_MODE, lambda c: _at_published_fixed_point(c, "scalar", 1.0)),
            ),
            Variant(
                "N off by minus one half",
                Property(_ONE_MODE, lambda c: _at_published_fixed_point(c, "scalar", -0.5)),
            ),
        ),
        explanation=(
            "For tasks w I the fixed point differs at order 1/N, and below a critical context "
            "length the weak modes are not learned at all."
        ),
        run=_RUN_EQ9,
    ),
    Claim(
        id="mainali2025.eq11-iid",
        source=f"{_NOTE}, equation (11), read for independent task entries",
        says="With p2 a multiple of the identity the flow rests where p2 q1 = 1/s_inf.",
        equations=(r"\bar p_2(\infty)\bar q_1(\infty) = [s^\infty(S)]^{-1}",),
        property=Property(_ANY, lambda c: _at_published_fixed_point(c, "iid")),
        assumes=("task entries are independent", "p2 is a multiple of the identity"),
        derivation=lambda: [
            identity(f"{what}, iid entries", difference)
            for what, difference in layer.shared_scale().items()
        ],
        variants=(
            Variant(
                "N off by one", Property(_ANY, lambda c: _at_published_fixed_point(c, "iid", 1.0))
            ),
            Variant(
                "N off by minus one half",
                Property(_ANY, lambda c: _at_published_fixed_point(c, "iid", -0.5)),
            ),
        ),
    ),
    Claim(
        id="mainali2025.eqA84",
        source=f"{_NOTE}, equation (A84)",
        says="|p2|_F^2 - |q1|_F^2 is conserved.",
        equations=(r"\mathcal C = \lVert \bar p_2\rVert_F^2 - \lVert \bar q_1\rVert_F^2",),
        property=Property(_blocks_cases, _conserved),
        assumes=("p1 = q2 = 0", "one learning rate for both"),
        derivation=_proof_of_balance,
        variants=(
            Variant("a plus sign", Property(_blocks_cases, lambda c: _conserved(c, 1.0))),
            Variant(
                "twice the second norm", Property(_blocks_cases, lambda c: _conserved(c, -2.0))
            ),
        ),
        explanation=(
            "It comes from the scaling p2 -> c p2, q1 -> q1/c of the loss, under every law of the "
            "tasks, for matrices that need not be diagonal."
        ),
    ),
    Claim(
        id="mainali2025.eq13",
        source=f"{_NOTE}, equation (13)",
        says="The product a = p q of a mode is logistic with time constant tau/2.",
        equations=(
            r"a(t) = a_\infty \frac{a_0}{a_0 + (a_\infty - a_0)e^{-2t/\tau}}",
            r"\tau_\alpha = (\eta P s_\alpha^2)^{-1}",
        ),
        property=Property(_UNBALANCED, _logistic_holds, examples=20),
        assumes=("the mode equations (12)",),
        needs=(
            Assumption(
                "balanced start, p0 = q0",
                Property(_BALANCED, _logistic_holds, 20),
                _proof_of_logistic,
            ),
        ),
        correction=_EQ13_UNBALANCED,
        variants=(
            Variant("rate 1/tau", Property(_BALANCED, lambda c: _logistic_holds(c, rate=0.5), 10)),
            Variant(
                "N off by one", Property(_BALANCED, lambda c: _logistic_holds(c, shift=1.0), 10)
            ),
        ),
        explanation="tau da/dt = (p^2 + q^2)(1 - s_inf a), and p^2 + q^2 = 2 a only if p = q.",
        run=_RUN_EQ13,
    ),
    _EQ13_UNBALANCED,
    Claim(
        id="mainali2025.convergence-time",
        source=f"{_NOTE}, section 4.4",
        says="The convergence time is about 1/2 eta P s^2 log(1/(s_inf eps)).",
        equations=(
            r"t^*_\alpha \approx \tfrac12 \eta P s_\alpha^2 \log\frac{1}{s^\infty_\alpha\epsilon}",
        ),
        property=Property(_time_cases, lambda c: _time_holds(c, 2.0)),
        correction=_TIME_CORRECTED,
        variants=(
            Variant("without the 1/2", Property(_time_cases, lambda c: _time_holds(c, 2.0, 1.0))),
            Variant("s instead of s^2", Property(_time_cases, lambda c: _time_holds(c, 1.0))),
        ),
        explanation="As noted the strong modes would be the slow ones: eta P s^2 is a rate.",
        run=_RUN_TIME,
    ),
    Claim(
        id="mainali2025.eq14",
        source=f"{_NOTE}, equation (14)",
        says="Half the loss is 1/2 sum s (s a_inf a^2 - 2 s a + 1).",
        equations=(
            r"\mathcal L = \tfrac12\sum_\alpha s_\alpha(s_\alpha a^\infty_\alpha a_\alpha^2"
            r" - 2s_\alpha a_\alpha + 1)",
        ),
        property=Property(_loss_cases, lambda c: _loss_holds(c, "noted")),
        correction=_EQ14_CORRECTED,
        variants=(
            Variant("without the half", Property(_loss_cases, lambda c: _loss_holds(c, "no half"))),
            Variant(
                "sign of the linear term", Property(_loss_cases, lambda c: _loss_holds(c, "sign"))
            ),
        ),
        explanation=(
            "The coefficient of a^2 is s_inf = 1/a_inf; with a_inf the fixed point (11) would "
            "not be the minimum."
        ),
        run=_RUN_EQ14,
    ),
    Claim(
        id="mainali2025.eq15",
        source=f"{_NOTE}, equation (15)",
        says="Effective rank is the exponential of the normalised singular values' entropy.",
        equations=(r"\operatorname{EffRank} = \exp(-\sum_i \sigma_i \log\sigma_i)",),
        property=Property(_matrix_cases, _effective_rank_holds),
        variants=(
            Variant(
                "squared singular values",
                Property(_matrix_cases, lambda c: _effective_rank_holds(c, 2.0)),
            ),
            Variant(
                "entropy in bits",
                Property(_matrix_cases, lambda c: _effective_rank_holds(c, base=2.0)),
            ),
        ),
    ),
    Claim(
        id="mainali2025.eq16",
        source=f"{_NOTE}, equation (16)",
        says="Subspace distance min_A |A M(t) - M_ref| is what the rows of M(t) leave of M_ref.",
        equations=(
            r"\min_A \lVert A M(t) - M(\infty)\rVert = \lVert M(\infty)(I - \Pi_t)\rVert_F",
        ),
        property=Property(_matrix_cases, _distance_holds),
        variants=(
            Variant("squared", Property(_matrix_cases, lambda c: _distance_holds(c, "squared"))),
            Variant(
                "column spaces", Property(_matrix_cases, lambda c: _distance_holds(c, "columns"))
            ),
        ),
        explanation=(
            "It sees row spaces only: zero for every M(t) of full column rank, and zero at the end "
            "by construction, so that it needs a rank, a side and a named reference."
        ),
    ),
)
