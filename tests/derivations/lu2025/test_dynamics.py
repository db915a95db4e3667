"""The flow of Gamma as a field of the public API, against its exact solution."""

from __future__ import annotations

import numpy as np
import pytest
from odekit_derivations.lu2025.dynamics import direct_flow, product_flow

import odekit as ok
from odekit.simulate import (
    draw_tasks,
    feature_statistics,
    ridge_solution,
    sample_pretraining,
)


@pytest.fixture(scope="module")
def statistics():
    data = sample_pretraining(draw_tasks(3, 4, 0), context=12, samples=15, noise=0.1, seed=1)
    return data, *feature_statistics(data)


def test_the_direct_flow_is_linear_and_solved_exactly(statistics):
    data, second, drive = statistics
    start = np.random.default_rng(2).standard_normal(20)
    values = {"S": second, "v": drive}
    rate = direct_flow().evaluate({"Gamma": start}, values)["Gamma"]
    np.testing.assert_allclose(rate, drive - second @ start, atol=1e-13 * abs(second).max())
    times = np.array([0.5, 3.0, 20.0])
    run = ok.solve(direct_flow(), {"Gamma": start}, times, values)
    exact = ok.theory.linear_flow(second, drive, times, start=start)
    # the default tolerances promise 1e-6
    np.testing.assert_allclose(run["Gamma"], exact, atol=1e-6 * abs(exact).max())
    # from zero the flow ends at the interpolant of least norm, n = 15 below d (d + 1) = 20
    end = ok.theory.linear_flow(second, drive, np.inf)[0]
    np.testing.assert_allclose(end, ridge_solution(data).ravel(), atol=1e-9 * abs(end).max())


def test_the_product_flow_is_the_chain_rule_of_the_direct_one(statistics):
    _, second, drive = statistics
    rng = np.random.default_rng(3)
    u, matrix = rng.standard_normal(), rng.standard_normal(20)
    rates = product_flow().evaluate({"u": u, "N": matrix}, {"S": second, "v": drive})
    slope = drive - second @ (u * matrix)
    np.testing.assert_allclose(rates["N"], u * slope, rtol=1e-11)
    assert rates["u"] == pytest.approx(matrix @ slope, rel=1e-11)


def test_the_product_flow_keeps_its_balance_and_reaches_the_same_end(statistics):
    data, second, drive = statistics
    found = ok.conserved(product_flow())
    # u u - N.N, up to sign
    assert len(found) == 1
    matrix = np.random.default_rng(4).standard_normal(20)
    matrix *= 1e-3 / np.linalg.norm(matrix)
    times = np.geomspace(0.1, 1e4, 30)
    run = ok.solve(
        product_flow(), {"u": np.array(1e-3), "N": matrix}, times, {"S": second, "v": drive}
    )
    kept = run["u"] ** 2 - np.sum(run["N"] ** 2, axis=1)
    assert np.abs(kept).max() < 1e-6 * np.sum(run["N"][-1] ** 2)
    # from a small start it interpolates close to the least norm: the start's part is of its size
    gamma = run["u"][-1] * run["N"][-1]
    np.testing.assert_allclose(gamma, ridge_solution(data).ravel(), atol=0.02)


def test_early_stopping_lies_between_ridges_of_strength_about_one_over_time():
    times = np.geomspace(0.05, 50, 40)
    flow = ok.theory.population_flow(5.0, 0.5, 0.5, times)
    # 1 - exp(-x) lies between x/(1 + x) and the same at twice x, for each mode
    slower = ok.theory.learning_curve(5.0, 0.5, np.inf, 0.5, 1 / times)
    faster = ok.theory.learning_curve(5.0, 0.5, np.inf, 0.5, 0.5 / times)
    assert np.all(flow.idg <= slower.idg + 1e-12)
    assert np.all(flow.idg >= faster.idg - 0.02)
