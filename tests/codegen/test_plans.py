"""The plan: what is hoisted, what is shared, and how much work is left."""

from __future__ import annotations

import numpy as np
import pytest
import sympy as sp

import odekit as ok
from odekit.codegen.contraction import Contractor, recognise
from odekit.codegen.program import Program, plan_field
from odekit.codegen.staged import count_work


def plan(model: str, **sizes: int) -> Program:
    flow = getattr(ok.models, model)().flow
    return plan_field(flow, {s: sizes[str(s)] for s in flow.size_symbols})


def test_two_matrices_are_hoisted_from_the_attention_flows() -> None:
    for program in (plan("attention_merged", D=5, H=3), plan("attention_separate", D=5, H=3, R=1)):
        matrices = [place for place, _ in program.prepare if place.shape == (5, 5)]
        assert len(matrices) == 2  # Lambda^2 and Lambda ((1 + 1/N) Lambda + tr(Lambda)/N)


def test_the_right_hand_side_takes_the_work_of_hand_written_code() -> None:
    d, h, r = 16, 8, 2
    program = plan("attention_separate", D=d, H=h, R=r)
    # A from v K and Q; A B, then Lambda; G Q; G^T K: five matrix products, two of D^3.
    products = 3 * h * r * d**2 + 2 * d**3
    # v K; v times both results; the sum for dv; Lambda^2; one transposed copy of G.
    elementwise = 4 * h * r * d + 2 * d**2
    assert count_work(program.rhs) == products + elementwise


def test_the_jacobian_costs_a_few_operations_an_entry() -> None:
    for d in (8, 32):
        program = plan("attention_separate", D=d, H=4, R=1)
        n = 4 * (1 + 2 * d)
        upper = n * n  # blocks on the diagonal are filled whole
        assert count_work(program.jacobian) < 2 * upper + 12 * d**3
    merged = plan("attention_merged", D=16, H=2)
    assert count_work(merged.jacobian) < 2 * (2 * 257) ** 2


def test_equal_contractions_are_recognised_in_any_order() -> None:
    D = ok.dims("D")
    s = ok.parameter("S", (D, D), symmetric=True)
    a = ok.weight("A", (D, D))
    one = recognise([(a, (0, -1)), (s, (-1, 1))], [0, 1])
    other = recognise([(s, (5, -7)), (a, (2, -7))], [2, 5])
    assert one.key == other.key
    assert (one.legs, other.legs) == ((0, 1), (2, 5))
    transposed = recognise([(s, (1, -1)), (a, (-1, 0))], [0, 1])
    assert transposed.key != one.key


def test_terms_of_many_factors_go_through_opt_einsum() -> None:
    D = ok.dims("D")
    a = ok.weight("A", (D, D))
    tensors = [ok.weight(f"B{k}", (D, D)) for k in range(9)]
    letters = "abcdefghij"
    spec = ",".join(letters[k : k + 2] for k in range(9))
    expression = ok.einsum(f"{spec},ja->", *tensors, a)
    contractor = Contractor(lambda size: 4)
    (planned,) = contractor.plan([expression])
    assert planned.expand(contractor.made.values()) == expression
    assert all(len(body.definition.terms) == 1 for body in contractor.made.values())
    assert max(len(t.factors) for t in planned.terms) == 2


def test_plans_do_not_depend_on_the_run() -> None:
    sizes = {"D": 3, "H": 2, "R": 1}
    one, other = (
        ok.compile(ok.models.attention_separate().flow, sizes, effort="quick") for _ in range(2)
    )
    assert one is not other
    assert one.source == other.source
    assert one.key == other.key


def test_a_thousand_modes_are_two_loops() -> None:
    count = 40
    p, q, s = (sp.symbols(f"{name}0:{count}") for name in "pqs")
    total = sp.Add(*s)
    rates = {}
    for own, partner in ((p, q), (q, p)):
        for k in range(count):
            rates[own[k]] = s[k] ** 2 * partner[k] * (1 - p[k] * q[k] * (1 + total / s[k]))
    compiled = ok.compile(ok.vector_field(rates, s), effort="quick")
    body = compiled.source.split("def rhs")[1]
    assert body.count("for k in range(40)") == 2
    assert len(body.splitlines()) < 20
    assert compiled.pattern is not None and compiled.pattern[0].size == 4 * count
    rng = np.random.default_rng(1)
    y, values = rng.random(2 * count), rng.random(count) + 0.5
    packed = compiled.layout.pack_parameters({f"s{k}": values[k] for k in range(count)})
    rate = np.empty_like(y)
    compiled.rhs(0.0, y, packed, rate)
    a, b = y[:count], y[count:]
    common = values**2 * (1 - a * b * (1 + values.sum() / values))
    np.testing.assert_allclose(rate, np.concatenate([common * b, common * a]), rtol=1e-12)
    jacobian = np.full((2 * count, 2 * count), np.nan)
    compiled.jacobian(0.0, y, packed, jacobian)
    outside = jacobian.copy()
    outside[compiled.pattern] = 0.0
    assert not outside.any()
    assert compiled.jacobian_values is not None
    entries = np.full(compiled.pattern[0].size, np.nan)
    compiled.jacobian_values(0.0, y, packed, entries)
    np.testing.assert_array_equal(entries, jacobian[compiled.pattern])
    k = 7
    slope = values[k] ** 2 * (1 - 2 * a[k] * b[k] * (1 + values.sum() / values[k]))
    assert jacobian[k, count + k] == pytest.approx(slope, rel=1e-12)
