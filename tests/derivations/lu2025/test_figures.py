"""The numbers drawn, in quick mode, against theory."""

from __future__ import annotations

import importlib
import io
import json

import matplotlib.pyplot as plt
import numpy as np
import pytest
from odekit_derivations.lu2025 import TARGETS

from odekit.reproduce import Picture
from odekit.theory import learning_curve


@pytest.fixture(scope="module")
def drawn():
    made = {}

    def draw(name):
        if name not in made:
            target = next(t for t in TARGETS if t.name == f"lu2025/{name}")
            made[name] = importlib.import_module(target.module).draw(True, lambda message: None)
        return made[name]

    yield draw
    plt.close("all")


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(t, id=t.name, marks=pytest.mark.slow if t.name.endswith("nonlinear") else ())
        for t in TARGETS
    ],
)
def test_target_draws_a_labelled_picture(drawn, target):
    picture = drawn(target.name.partition("/")[2])
    assert isinstance(picture, Picture)
    assert len(picture.caption) > 100
    assert picture.equations
    assert len(json.dumps(picture.numbers)) > 1000
    for ax in picture.figure.axes:
        assert ax.get_xlabel()
    assert picture.figure.axes[0].get_ylabel()
    picture.figure.savefig(io.BytesIO(), format="png")


def points_of(name, numbers):
    for curve in numbers.get("curves", []):
        yield from curve["points"]
    for panel in numbers.get("panels", []):
        for curve in panel["curves"]:
            yield from curve["points"]


@pytest.mark.parametrize("name", ["double-descent", "ridge", "context-length", "transition"])
def test_simulations_lie_on_their_equivalent(drawn, name):
    points = list(points_of(name, drawn(name).numbers))
    assert len(points) >= 6
    misses = [
        (point[error] - point[f"{error}_equivalent"]) / point[f"{error}_equivalent"]
        for point in points
        for error in ("icl", "idg")
    ]
    # at d = 12, 6 sets: what is left is of order 1/d^2, several percent below tau = 1, and noise
    assert abs(np.median(misses)) < 0.1
    assert np.max(np.abs(misses)) < 0.5


def test_double_descent_peaks_at_one(drawn):
    numbers = drawn("double-descent").numbers
    tau = np.array(numbers["tau"])
    for curve in numbers["curves"]:
        for error in ("icl", "idg"):
            assert abs(tau[np.argmax(curve[error])] - 1) < 0.02


def test_best_ridge_leaves_no_peak(drawn):
    numbers = drawn("ridge").numbers
    assert np.all(np.diff(numbers["best"]) < 0)
    for curve in numbers["curves"]:
        assert np.all(np.array(numbers["best"]) <= np.array(curve["icl"]) + 1e-12)
    for curve in numbers["over_ridge"]:
        least = learning_curve(10, np.inf, curve["tau"], 0.01, curve["best"]).icl
        assert least <= min(curve["icl"])


def test_context_length_has_an_interior_best_for_small_pools(drawn):
    last = drawn("context-length").numbers["panels"][2]["curves"]
    best = [curve["best_alpha"] for curve in last]
    # the smaller the pool, the shorter the best context; none for a rich pool
    assert best[:4] == sorted(best[:4])
    assert best[4] is None


def test_transition_of_linear_attention_and_its_absence_in_the_posterior_mean(drawn):
    numbers = drawn("transition").numbers
    kappa = np.array(numbers["kappa"])
    for curve in numbers["curves"]:
        gap = np.array(curve["population_gap"])
        assert gap[kappa < 0.5].min() > 0.4
        assert gap[kappa > 4].max() < 0.02
        for point in curve["dmmse"]:
            assert point["gap"] > 1.0


def test_stopping_early_beats_the_interpolant_and_the_solver_agrees(drawn):
    numbers = drawn("early-stopping").numbers
    for error in ("icl", "idg"):
        assert min(numbers["set"][error]) < 0.8 * numbers["set"][error][-1]
    assert numbers["solver_deviation"] < 1e-6
    assert numbers["product_drift"] < 1e-6
