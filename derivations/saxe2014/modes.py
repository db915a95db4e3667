r"""From the expected loss of a deep linear network to its modes, for every depth and width.

The network ``W_n ... W_1 x`` regresses ``T x``; the inputs are Gaussian with covariance Lambda, and
``2 dW/dt = - d(MSE)/dW``. The paper has inputs of unit covariance; here the teacher's right
singular vectors are eigenvectors of Lambda, of eigenvalues ``lambda_a``. Each function returns the
checks that were just made.
"""

from __future__ import annotations

from typing import Any

import sympy as sp

import odekit as ok
from odekit.claims import Check, identity

DEPTHS = (2, 3, 4)


def named(flow: Any, name: str) -> Any:
    """A state or parameter of a flow by name."""
    return next(t for t in (*flow.states, *flow.parameters) if t.name == name)


def aligned(depth: int, modes: Any = None, balanced: bool = False) -> tuple[Any, dict[str, Any]]:
    """The flow, and the ansatz in which each layer carries mode a with strength ``a_k``.

    ``W_k = sum_a a_k[a] R_k[a] R_(k-1)[a]^T`` with orthonormal ``R_k`` of each layer and the
    teacher ``T = sum_a s[a] R_n[a] R_0[a]^T``. With ``modes`` None there is one mode; with
    ``balanced`` all layers share one strength.
    """
    flow: Any = ok.models.deep_linear(depth).flow
    L = named(flow, "Lambda")
    count = {} if modes is None else {"count": modes}
    shape = () if modes is None else (modes,)
    sides = [ok.eigenvector("R0", of=L, **count)]
    for k in range(1, depth + 1):
        D = named(flow, f"W{k}").shape[0]
        # Eigenvectors of anything symmetric: orthonormal, and nothing else is known of them.
        sides.append(
            ok.eigenvector(f"R{k}", of=ok.parameter(f"P{k}", (D, D), symmetric=True), **count)
        )
    m = "" if modes is None else "m"
    spread = f"{m},{m}i,{m}j->ij"
    shared = ok.weight("a", shape)
    strengths = [shared if balanced else ok.weight(f"a{k}", shape) for k in range(1, depth + 1)]
    ansatz: dict[str, Any] = {
        f"W{k + 1}": ok.einsum(spread, strengths[k], sides[k + 1], sides[k]) for k in range(depth)
    }
    ansatz["T"] = ok.einsum(spread, ok.parameter("s", shape), sides[-1], sides[0])
    return flow, ansatz


def gradient(depth: int) -> tuple[Check, ...]:
    """``dW_k/dt = (W_n ... W_(k+1))^T (T - W_n ... W_1) Lambda (W_(k-1) ... W_1)^T``."""
    flow: Any = ok.models.deep_linear(depth).flow
    layers = [named(flow, f"W{k}") for k in range(1, depth + 1)]
    T, L = named(flow, "T"), named(flow, "Lambda")
    error = (T - _product(layers)) @ L
    checks = []
    for k, layer in enumerate(layers):
        above, below = layers[k + 1 :], layers[:k]
        rate = error
        if above:
            rate = _product(above).transpose((1, 0)) @ rate
        if below:
            rate = rate @ _product(below).transpose((1, 0))
        checks.append(identity(f"dW{k + 1}/dt, depth {depth}", flow.rates[layer], rate))
    return tuple(checks)


def _product(layers: Any) -> Any:
    whole = layers[0].as_expression()
    for layer in layers[1:]:
        whole = layer @ whole
    return whole


def balances(depth: int) -> tuple[Check, ...]:
    """``W_k W_k^T - W_(k+1)^T W_(k+1)`` is constant: found by the search, which finds no more."""
    flow: Any = ok.models.deep_linear(depth).flow
    found = [i.expression for i in ok.conserved(flow)]
    checks = [Check(f"number of families, depth {depth}", abs(len(found) - (depth - 1)))]
    for k in range(1, depth):
        lower, upper = named(flow, f"W{k}"), named(flow, f"W{k + 1}")
        balance = ok.einsum("ab,cb->ac", lower, lower) - ok.einsum("ba,bc->ac", upper, upper)
        left = min(
            len((e - sign * balance).expand().terms)
            for e in found
            for sign in (1, -1)
            if e.shape == balance.shape
        )
        checks.append(Check(f"balance of layers {k} and {k + 1}, depth {depth}", left))
    return tuple(checks)


def mode_dynamics(depth: int) -> tuple[Check, ...]:
    """Aligned layers stay aligned: ``da_k/dt = lambda (s - prod_j a_j) prod_(j != k) a_j``."""
    flow, ansatz = aligned(depth, ok.dims("m"))
    reduction = ok.reduce(flow, ansatz)
    checks = [Check(f"aligned layers are kept, depth {depth}", 0.0 if reduction.exact else 1.0)]
    own = {str(w.name): w for w in reduction.field.states}
    strengths = [own[f"a{k}"] for k in range(1, depth + 1)]
    s = next(t for t in ansatz["T"].tensors() if t.name == "s")
    value = next(t for t in ansatz["W1"].tensors() if t.name == "R0").value
    for k, a in enumerate(strengths):
        others = [b for b in strengths if b is not a]
        factors = ",".join("m" * (len(others) + 1))
        pull = ok.einsum(f"{factors},m->m", value, *others, s) - ok.einsum(
            f"{factors},{','.join('m' * depth)}->m", value, *others, *strengths
        )
        checks.append(identity(f"da{k + 1}/dt, depth {depth}", reduction.field.rates[a], pull))
    return tuple(checks)


def balanced_mode(depth: int) -> Any:
    """The scalar field of one balanced mode, ``da/dt = lambda a^(n-1) (s - a^n)``, reduced."""
    flow, ansatz = aligned(depth, balanced=True)
    reduction = ok.reduce(flow, ansatz)
    if not reduction.exact:
        raise ok.OdekitError(f"balanced modes are not kept: {reduction}")
    return reduction.field


def published_rate(depth: int, balanced: bool = True) -> tuple[Any, Any]:
    """``u' = n lambda u^(2 - 2/n) (s - u)`` of the whole strength ``u = a^n``, and its symbol."""
    u, s, rate = sp.symbols("u s lambda", positive=True)
    return depth * rate * u ** (2 - sp.Rational(2, depth)) * (s - u), u


def balanced_dynamics(depth: int) -> tuple[Check, ...]:
    """The reduced field is the published equation of ``u = a^n``."""
    a, s, rate = sp.symbols("a s lambda_R0", positive=True)
    field = balanced_mode(depth)
    (state,) = field.states
    got = field.rates[state]
    wanted = {state: a}
    expression = sp.sympify(0)
    for factors, monomial, number in got.raw():
        term = sp.Rational(number.numerator, number.denominator)
        for tensor, _ in factors:
            term *= wanted.get(tensor, sp.Symbol(tensor.name, positive=True))
        for atom, power in monomial:
            term *= atom ** sp.Rational(power.numerator, power.denominator)
        expression += term
    published, u = published_rate(depth)
    whole = published.subs({u: a**depth, sp.Symbol("lambda", positive=True): rate})
    chain = depth * a ** (depth - 1) * expression
    return (identity(f"du/dt of u = a^n, depth {depth}", sp.powsimp(chain), sp.powsimp(whole)),)


def sigmoid(t: Any, u0: Any, s: Any, rate: Any, exp: Any = sp.exp) -> Any:
    """``u(t) = s u0 / (u0 + (s - u0) exp(-2 s lambda t))``, the strength of a balanced mode."""
    decay = exp(-2 * s * rate * t)
    return s * u0 / (u0 * (1 - decay) + s * decay)


def sigmoidal_solution() -> tuple[Check, ...]:
    """Depth 2: odekit's closed form of the reduced field, squared, is the sigmoid of the paper."""
    u, u0, s, rate, t = sp.symbols("u u0 s lambda t", positive=True)
    solved = sigmoid(t, u0, s, rate)
    field = balanced_mode(2)
    form = ok.closed_form(field)
    gap = 0.0
    for now in (0.0, 0.7, 3.0, 9.0, 100.0):
        value = form.evaluate(now, 0.03, {"s": 1.7, "lambda_R0": 0.6})["a"]
        gap = max(gap, abs(float(value) ** 2 - float(sigmoid(now, 9e-4, 1.7, 0.6))))
    return (
        identity(
            "the sigmoid solves u' = 2 lambda u (s - u)",
            sp.diff(solved, t),
            2 * rate * solved * (s - solved),
        ),
        identity("it starts at u0", solved.subs(t, 0), u0),
        Check(
            "closed form of the reduced field, exact", 0.0 if form.verification == "exact" else 1.0
        ),
        Check("closed form squared against the sigmoid", gap, 1e-13, "rounding of values near 1"),
    )


STEPS = (gradient, balances, mode_dynamics, balanced_dynamics)
"""Statements for each depth; `sigmoidal_solution` is of depth 2."""


def derive() -> tuple[Check, ...]:
    """All checks, at all depths."""
    made = [check for step in STEPS for depth in DEPTHS for check in step(depth)]
    return (*made, *sigmoidal_solution())
