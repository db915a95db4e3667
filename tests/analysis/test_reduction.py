from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

import odekit as ok

lam = sp.Symbol("lam", positive=True)


def plateau_ansatz(heads):
    flow = ok.models.attention_separate(heads=heads, rank=1).flow
    e = ok.eigenvector("e", of=flow.parameters[0], value=lam)
    s = ok.weight("s")
    return flow, e, s


def test_rank_one_separate_gives_the_plateau_equation():
    flow, e, s = plateau_ansatz(heads=1)
    reduction = ok.reduce(flow, {"v": s, "K": s * e, "Q": s * e})
    assert reduction.exact
    assert all(r.is_zero for r in reduction.residual.values())
    Lam = flow.parameters[0]
    N = next(k for k in flow.symbols if str(k) == "N")
    trace = ok.einsum("aa->", Lam)
    power = s**5
    expected = lam**2 * s**2 - lam**3 * (1 + 1 / N) * power - (lam**2 / N) * (trace * power)
    assert reduction.field.rates[s] == expected


def test_plateau_trajectories_side_by_side():
    flow, e, s = plateau_ansatz(heads=1)
    reduction = ok.reduce(flow, {"v": s, "K": s * e, "Q": s * e})
    values = {"Lambda": np.diag([0.4, 0.3]), "N": 31, "e": np.array([1.0, 0.0]), "lam": 0.4}
    lifted = reduction.lift({"s": 0.1}, values)
    assert lifted["K"].shape == (1, 1, 2)
    check = reduction.check({"s": 0.1}, 90.0, values)
    assert check.agrees
    # The run covers the whole rise, so the agreement is not that of two constants.
    assert check.full[-1].max() > 1.0
    assert reduction.leave_rate({"s": 0.1}, values).speed < 1e-15


def test_balanced_merged_gives_the_logistic_flow():
    flow = ok.models.attention_merged().flow
    H, D = flow.states[1].shape[:2]
    N = next(k for k in flow.symbols if str(k) == "N")
    u = ok.weight("u", (H,))
    ansatz = {
        "v": u,
        "U": ok.einsum("h,ab->hab", u, ok.identity(D)) / sp.sqrt(D),
        "Lambda": ok.identity(D),
    }
    reduction = ok.reduce(flow, ansatz)
    assert reduction.exact
    squared = ok.einsum("g,g,h->h", u, u, u)
    assert reduction.field.rates[u] == sp.sqrt(D) * u - squared * (1 + (1 + D) / N)
    solution = ok.closed_form(reduction.field)
    assert solution.kind == "bernoulli"
    start = np.array([0.01, 0.02])
    late = solution.evaluate(1e6, start, {"D": 4, "N": 31})["u"]
    # sigma = u.u/sqrt(D) rises to 1/c.
    assert np.sum(late**2) / 2 == pytest.approx(1 / (1 + 5 / 31), rel=1e-12)
    w2 = float(np.sum(start**2))
    half = np.log(2 / ((1 + 5 / 31) * w2) - 1) / 4
    middle = solution.evaluate(half, start, {"D": 4, "N": 31})["u"]
    assert np.sum(middle**2) / 2 == pytest.approx(0.5 / (1 + 5 / 31), rel=1e-9)


def test_two_heads_on_one_direction_are_not_one():
    flow, e, s = plateau_ansatz(heads=2)
    c = ok.parameter("c", flow.states[0].shape)
    ansatz = {
        "v": s * c,
        "K": ok.einsum("h,,d->hd", c, s, e),
        "Q": ok.einsum("h,,d->hd", c, s, e),
    }
    reduction = ok.reduce(flow, ansatz)
    assert not reduction.exact
    assert reduction.field is None
    assert any(not r.is_zero for r in reduction.residual.values())
    values = {
        "Lambda": np.diag([0.4, 0.3]),
        "N": 31,
        "e": np.array([1.0, 0.0]),
        "lam": 0.4,
        "c": np.array([1.0, 0.5]),
    }
    assert reduction.leave_rate({"s": 0.5}, values).speed > 1e-4
    with pytest.raises(ok.InputError, match="not kept"):
        reduction.check({"s": 0.5}, 1.0, values)


def test_each_head_on_its_own_eigenvector():
    flow = ok.models.attention_separate(rank=1).flow
    H = flow.states[0].shape[0]
    s = ok.weight("s", (H,))
    e = ok.eigenvector("e", of=flow.parameters[0], count=H)
    ansatz = {"v": s, "K": ok.einsum("h,hd->hd", s, e), "Q": ok.einsum("h,hd->hd", s, e)}
    reduction = ok.reduce(flow, ansatz)
    assert all(r.is_zero for r in reduction.residual.values())
    assert reduction.exact


def test_plateau_m_at_concrete_size():
    spectrum = [sp.Rational(1, 2), sp.Rational(3, 10), sp.Rational(1, 5)]
    flow = ok.models.attention_separate().flow.components(
        {"Lambda": np.diag([0.5, 0.3, 0.2]), "N": 31}, D=3, H=3, R=1
    )
    s = sp.Symbol("s")
    c = [1 + (1 + 1 / k) / 31 for k in spectrum]
    for m in range(3):
        size = [(1 / (spectrum[i] * c[i])) ** sp.Rational(1, 3) for i in range(m)]
        amplitude = [*size, s, *[sp.Integer(0)] * (2 - m)]
        rows = [[[amplitude[h] if d == h else 0 for d in range(3)]] for h in range(3)]
        reduction = ok.reduce(flow, {"v": amplitude, "K": rows, "Q": rows})
        assert reduction.exact, m
        expected = spectrum[m] ** 2 * s**2 - spectrum[m] ** 3 * c[m] * s**5
        assert sp.expand(reduction.field.rates[0] - expected) == 0


def test_scalar_ansatz_and_its_residual():
    x, y, z, a, b = sp.symbols("x y z a b")
    field = ok.vector_field({x: y * (a - x * y), y: x * (a - x * y)}, parameters=(a,))
    kept = ok.reduce(field, {x: z, y: z})
    assert kept.exact
    assert sp.expand(kept.field.rates[0] - (a * z - z**3)) == 0
    left = ok.reduce(field, {x: z, y: b * z}, parameters=(b,))
    assert not left.exact
    assert left.field is None
    assert sp.expand(left.residual["y"].subs(b, 1)) == 0
    assert left.residual["y"] != 0
    rate = left.leave_rate({"z": 1.0}, {"a": 2.0, "b": 3.0})
    # f = (3(2-3), 2-3) against the normal (-3, 1)/sqrt(10).
    assert rate.speed == pytest.approx(abs(-3 * -3 + -1) / np.sqrt(10))


def test_bad_input():
    x, y, z, w = sp.symbols("x y z w")
    field = ok.vector_field({x: -x, y: -y})
    with pytest.raises(ok.InputError, match="drop the redundant"):
        ok.reduce(field, {x: z * w, y: z * w})
    with pytest.raises(ok.InputError, match="Unknown state"):
        ok.reduce(field, {"q": z})
    with pytest.raises(ok.InputError, match="no new symbol"):
        ok.reduce(field, {x: 1, y: 2})
    flow = ok.models.attention_merged().flow
    with pytest.raises(ok.InputError, match="does not fit"):
        ok.reduce(flow, {"v": ok.weight("w", (3, 3))})
