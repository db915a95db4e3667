"""Losses combine to losses, whichever side they stand on, and keep what they are means of."""

from __future__ import annotations

import numpy as np
import pytest

import odekit as ok
from odekit.field import ExpectedLoss

D = ok.dims("D")


def two_losses():
    W = ok.weight("W", (D,))
    made = []
    for name in ("x", "z"):
        x = ok.gaussian(name, (D,), covariance=ok.parameter(f"S_{name}", (D, D), symmetric=True))
        target = ok.einsum("d,d->", ok.parameter(f"t_{name}", (D,)), x)
        made.append(ok.expected_loss(ok.einsum("d,d->", W, x), target))
    return W, *made


@pytest.mark.parametrize("share", [ok.parameter("p"), ok.parameter("p") * 1])
def test_a_parameter_times_a_loss_is_a_loss(share):
    W, one, two = two_losses()
    decay = 0.1 * ok.einsum("d,d->", W, W)
    for mixed in (
        share * one + (1 - share) * two + decay,
        decay + one * share + two * (1 - share),
        decay - (-one * share) - (share - 1) * two,
    ):
        assert isinstance(mixed, ExpectedLoss)
        assert len(mixed.samples) == 2
        assert mixed.penalty == decay
        rng = np.random.default_rng(0)
        state = {"W": rng.standard_normal(2)}
        values = {
            "S_x": np.diag([1.0, 0.5]), "S_z": np.eye(2), "t_x": [1.0, 2.0], "t_z": [0.0, 1.0],
        }  # fmt: skip
        wanted = (
            0.3 * one.value(state, values)
            + 0.7 * two.value(state, values)
            + 0.1 * float(state["W"] @ state["W"])
        )
        assert mixed.value(state, {**values, "p": 0.3}) == pytest.approx(wanted, rel=1e-13)


def test_a_mixture_trains():
    _, one, two = two_losses()
    p = ok.parameter("p")
    params = {
        "S_x": np.diag([1.0, 0.5]), "S_z": np.eye(2), "t_x": [1.0, 2.0], "t_z": [0.0, 1.0],
        "p": 0.3,
    }  # fmt: skip
    mixed = p * one + (1 - p) * two
    y0 = {"W": np.array([0.5, -0.5])}
    run = ok.simulate.sgd(
        mixed, y0=y0, params=params, lr=0.01, steps=200, batch=4, seed=1,
        save_at=np.arange(201),
    )  # fmt: skip
    flow = ok.solve(ok.gradient_flow(mixed, time_scale=2), y0, 4.0, params)
    assert ok.simulate.compare(flow, run).passed
