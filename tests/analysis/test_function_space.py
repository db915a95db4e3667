from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import odekit as ok

N = 31


def trained(spectrum, subset):
    total = sum(spectrum)
    return {i: 1 / (spectrum[i] * (1 + (1 + total / spectrum[i]) / N)) for i in subset}


def loss_formula(spectrum, subset):
    total = sum(spectrum)
    return total - sum(spectrum[i] / (1 + (1 + total / spectrum[i]) / N) for i in subset)


@pytest.mark.parametrize("spectrum", [(0.7, 0.3), (0.5, 0.3, 0.2), (0.4, 0.3, 0.2, 0.1)])
def test_every_subset_of_eigenvectors_and_nothing_else(spectrum):
    dim = len(spectrum)
    flow = ok.models.attention_separate().flow
    found = ok.fixed_points(
        flow,
        values={"Lambda": np.diag(spectrum), "N": N},
        of="A",
        sizes={"H": dim, "R": 1},
    )
    assert found.complete
    assert len(found) == 2**dim
    wanted = [s for k in range(dim + 1) for s in itertools.combinations(range(dim), k)]
    for subset in wanted:
        diagonal = np.zeros(dim)
        for i, value in trained(spectrum, subset).items():
            diagonal[i] = value
        (match,) = [p for p in found if np.abs(p["A"] - np.diag(diagonal)).max() < 1e-10]
        assert match.loss == pytest.approx(loss_formula(spectrum, subset), abs=1e-12)
        rates = flow.evaluate(match.lift, {"Lambda": np.diag(spectrum), "N": N})
        assert max(np.abs(r).max() for r in rates.values()) < 1e-10


def test_few_heads_reach_few_directions():
    found = ok.fixed_points(
        ok.models.attention_separate().flow,
        values={"Lambda": np.diag([0.4, 0.3, 0.2, 0.1]), "N": N},
        of="A",
        sizes={"H": 2, "R": 1},
    )
    assert len(found) == 1 + 4 + 6
    assert max(np.linalg.matrix_rank(p["A"]) for p in found) == 2
    assert "rank of A at most 2" in found.note


def test_degenerate_spectrum_gives_a_continuum():
    found = ok.fixed_points(
        ok.models.attention_separate().flow,
        values={"Lambda": np.diag([0.5, 0.25, 0.25]), "N": N},
        of="A",
        sizes={"H": 3, "R": 1},
    )
    # The single eigenvalue in or out, times none or both of the pair; one of the pair is a circle.
    assert len(found) == 4
    assert [m.dimension for m in found.manifolds] == [1, 1]
    assert "degenerate" in found.note


def test_merged_has_two():
    found = ok.fixed_points(
        ok.models.attention_merged().flow,
        values={"Lambda": np.diag([0.4, 0.3, 0.3]), "N": N},
        of="A",
        sizes={"H": 2},
    )
    assert len(found) == 2
    assert found.complete
    best = trained((0.4, 0.3, 0.3), range(3))
    assert np.allclose(found[1]["A"], np.diag([best[i] for i in range(3)]), atol=1e-12)


def test_a_rotated_covariance_and_a_renamed_model(renamed_separate):
    rng = np.random.default_rng(5)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    covariance = rotation @ np.diag([0.5, 0.3, 0.2]) @ rotation.T
    covariance = (covariance + covariance.T) / 2
    flow = renamed_separate
    (name,) = [t.name for t, _ in flow.definitions if not t.name.startswith("G_")]
    found = ok.fixed_points(
        flow, values={"Sigma": covariance, "N": N}, of=name, sizes={"G": 3, "S": 1}
    )
    assert len(found) == 8
    for point in found:
        gap = covariance @ point[name] - point[name] @ covariance
        assert np.abs(gap).max() < 1e-10
        assert point.residual < 1e-10


def test_a_loss_that_does_not_close_is_searched_and_said_to_be_partial():
    model = ok.models.attention_merged()
    v = model.weights[0]
    loss = model.loss.expression if hasattr(model.loss, "expression") else model.loss
    flow = ok.gradient_flow(loss + 0.01 * ok.einsum("h,h->", v, v))
    found = ok.fixed_points(
        flow, values={"Lambda": np.diag([0.6, 0.4]), "N": N}, of="A", sizes={"H": 1}, seconds=5
    )
    assert not found.complete
    assert "partial" in found.note


@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), heads=st.integers(1, 3))
def test_random_covariances(seed, heads):
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    # Gaps of at least 0.2 keep the spectrum well away from degenerate.
    spectrum = 0.2 + 0.2 * np.cumsum(1 + rng.uniform(size=3))
    covariance = rotation @ np.diag(spectrum) @ rotation.T
    covariance = (covariance + covariance.T) / 2
    values = {"Lambda": covariance, "N": int(rng.integers(2, 100))}
    flow = ok.models.attention_separate().flow
    found = ok.fixed_points(flow, values=values, of="A", sizes={"H": heads, "R": 1})
    assert found.complete
    assert len(found) == sum([1, 3, 3, 1][: heads + 1])
    for point in found:
        rates = flow.evaluate(point.lift, values)
        assert max(np.abs(r).max() for r in rates.values()) < 1e-9
        assert flow.loss_value(point.lift, values) == pytest.approx(point.loss, rel=1e-9)
