"""Hand-written gradients against torch's automatic differentiation, in float64.

A check for development: torch is larger than all other test dependencies together and in no extra,
so these tests are left out where it is not installed. Finite differences check the same gradients
everywhere else in this folder.
"""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

import odekit.simulate as sim
from odekit.simulate.descent import moments_gradient

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch's own, on import
    torch = pytest.importorskip(
        "torch", reason="development-only check: torch is in no extra (pip install torch)"
    )

COVARIANCE = np.diag([0.5, 0.3, 0.2])
FAMILIES = [("merged", 1), ("separate", 2)]


def leaves(state):
    return {name: torch.tensor(value, requires_grad=True) for name, value in state.items()}


def gradients(loss, weights):
    loss.backward()
    return float(loss.detach()), {name: w.grad.numpy() for name, w in weights.items()}


def layer_loss(weights, data, attention):
    """The whole layer, computed at every token and read at the query's label."""
    x, y = torch.tensor(data.x), torch.tensor(data.y)
    z = torch.cat([x, y[:, :, None]], dim=2)
    z[:, -1, -1] = 0.0
    A = weights["A"] if "A" in weights else weights["Q"].transpose(1, 2) @ weights["K"]
    scores = torch.einsum("pnd,hde,pme->phnm", x, A, z)
    scores = torch.softmax(scores, dim=3) if attention == "softmax" else scores / (x.shape[1] - 1)
    out = torch.einsum("phnm,pme,he->pn", scores, z, weights["u"])
    return ((out[:, -1] - y[:, -1]) ** 2).mean()


@pytest.mark.parametrize("attention", ["linear", "softmax"])
@pytest.mark.parametrize(("family", "rank"), FAMILIES)
def test_gradients_of_the_whole_layer(family, rank, attention):
    layer = sim.Layer(family, "all", 4, 3, rank)
    data = sim.sequences(50, COVARIANCE, 7, seed=0)
    y0 = layer.unpack(0.5 * np.random.default_rng(1).standard_normal(layer.size))
    weights = leaves(y0)
    loss, expected = gradients(layer_loss(weights, data, attention), weights)
    step = 0.25
    run = sim.gradient_descent(
        layer, (data.x, data.y), y0=y0, lr=step, steps=1, attention=attention
    )
    assert run.loss[0] == pytest.approx(loss, rel=1e-13)
    for name, grad in expected.items():
        # A step of size 1/4 changes no bits but those of the gradient and of one rounding.
        found = (y0[name] - run[name][1]) / step
        np.testing.assert_allclose(found, grad, rtol=1e-12, atol=2e-14)


@pytest.mark.parametrize(("family", "rank"), FAMILIES)
def test_gradients_of_the_reduced_model(family, rank):
    layer = sim.Layer(family, "zero", 4, 3, rank)
    data = sim.sequences(50, COVARIANCE, 7, seed=0)
    y0 = layer.unpack(0.5 * np.random.default_rng(1).standard_normal(layer.size))
    weights = leaves(y0)
    x, y = torch.tensor(data.x), torch.tensor(data.y)
    beta = torch.einsum("pn,pnd->pd", y[:, :-1], x[:, :-1]) / 7
    U = weights["U"] if "U" in weights else weights["K"].transpose(1, 2) @ weights["Q"]
    out = torch.einsum("h,pd,hde,pe->p", weights["v"], beta, U, x[:, -1])
    loss, expected = gradients(((out - y[:, -1]) ** 2).mean(), weights)
    value, found = moments_gradient(layer, data.statistics("reduced"), layer.pack(y0))
    assert value == pytest.approx(loss, rel=1e-13)
    for name, grad in layer.unpack(found).items():
        np.testing.assert_allclose(grad, expected[name], rtol=1e-12, atol=1e-14)


def test_gradients_of_associative_recall():
    net = sim.RecallNetwork(task=sim.RecallTask(pairs=3, keys=6, labels=4), dim=8, width=5)
    tokens, answer = net.task.draw(20, np.random.default_rng(0))
    theta = net.start(1)
    w = leaves(net.unpack(theta))
    x = w["embedding"][torch.tensor(tokens)] + w["position"]
    later = torch.ones(net.task.tokens, net.task.tokens, dtype=torch.bool).triu(1)
    for k in range(1, net.layers + 1):
        scores = (x @ w[f"query{k}"]) @ (x @ w[f"key{k}"]).transpose(1, 2) / math.sqrt(net.width)
        p = torch.softmax(scores.masked_fill(later, -math.inf), dim=2)
        x = x + p @ (x @ w[f"value{k}"]) @ w[f"output{k}"]
    logits = x[:, -1] @ w["unembedding"]
    loss, expected = gradients(torch.nn.functional.cross_entropy(logits, torch.tensor(answer)), w)
    value, found = sim.recall_gradient(net, theta, tokens, answer)
    assert value == pytest.approx(loss, rel=1e-13)
    for name, grad in net.unpack(found).items():
        np.testing.assert_allclose(grad, expected[name], rtol=1e-11, atol=1e-14)


@pytest.mark.parametrize("kind", ["mse", "cross-entropy"])
def test_gradients_of_modular_addition(kind):
    modulus, width = 7, 12
    rng = np.random.default_rng(0)
    pairs = rng.integers(modulus, size=(30, 2))
    labels = pairs.sum(axis=1) % modulus
    state = sim.addition_start(modulus, width, 1)
    w = leaves(state)
    a, b = (torch.tensor(pairs[:, k]) for k in (0, 1))
    out = (w["W1"][a] + w["W1"][modulus + b]) ** 2 @ w["W2"]
    target = torch.tensor(labels)
    if kind == "mse":
        objective = ((out - torch.nn.functional.one_hot(target, modulus)) ** 2).mean()
    else:
        objective = torch.nn.functional.cross_entropy(out, target)
    loss, expected = gradients(objective, w)
    value, _, found = sim.addition_gradient(state, pairs, labels, kind)
    assert value == pytest.approx(loss, rel=1e-13)
    for name, grad in found.items():
        np.testing.assert_allclose(grad, expected[name], rtol=1e-11, atol=1e-15)
