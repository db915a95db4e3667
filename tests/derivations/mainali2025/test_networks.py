"""Emergence and grokking, as drawn: the transitions, and the controls without them."""

import importlib
import io

import numpy as np
import pytest
from odekit_derivations.mainali2025 import TARGETS

import odekit as ok
from odekit.reproduce import Picture
from odekit.reproduce.files import plain
from odekit.simulate import NetworkRun

pytestmark = pytest.mark.slow


def drawn(name):
    target = next(t for t in TARGETS if t.name == f"mainali2025/{name}")
    picture = importlib.import_module(target.module).draw(quick=True, progress=lambda line: None)
    assert isinstance(picture, Picture) and picture.caption and picture.equations
    plain(picture.numbers)  # strict JSON holds it
    for ax in picture.figure.axes:
        assert ax.get_xlabel() and ax.get_ylabel()
    picture.figure.savefig(io.BytesIO(), format="svg")
    return picture.numbers


def test_recall_emerges_and_its_subspace_settles_before_its_norm():
    numbers = drawn("emergence")
    level = numbers["plateau of a predictor that knows label counts"]["cross-entropy"]
    (run,) = numbers["two layers"]
    begin, end = run["cliff: step of accuracy .55, .99"]
    assert end - begin <= 500
    assert level - 0.02 < run["plateau, median loss of steps 1000-2000"] < level + 0.1
    settled = run["stays below 0.2 from step"]["key-query 1, reference end"]
    assert settled["subspace"] < settled["norm"]
    rank = np.interp([begin - 300, end], run["t"], run["effective rank"]["key-query 1"])
    assert rank[1] < rank[0] - 2


def test_grokking_is_delayed_and_absent_in_the_controls():
    numbers = drawn("grokking")
    for run in numbers["runs"]:
        assert run["step of training .99"] <= 100
        share, ranks = run["concentration"], run["effective rank"]
        assert np.ptp(ranks) < 1.5  # the measure that says nothing
        if run["run"] in ("addition", "AdamW"):
            assert run["step of test .95"] > 4 * run["step of training .99"]
            assert run["end, new pairs"] > 0.95
            assert share[-1] > 0.6
        else:
            # At least 481 test pairs at chance 1/31: four standard deviations above are .065.
            assert max(run["test accuracy"]) < 0.07
            assert share[-1] < 0.35


def test_distance_cuts_the_reference_to_the_same_rank():
    # Only then is a subspace that has settled at distance zero.
    grokking = importlib.import_module("odekit_derivations.mainali2025.grokking")
    rng = np.random.default_rng(0)
    table = rng.standard_normal((62, 96))
    run = NetworkRun(
        t=np.array([0, 1]),
        states={"W1": np.stack([rng.standard_normal((62, 96)), table])},
        measures={},
        seconds=0.0,
        configuration={},
    )
    first, last = grokking._distance(run, -1)
    assert last < 1e-13
    baseline = ok.theory.random_subspace_distance(grokking.RANK, grokking.MODULUS)
    # One random subspace: it differs from the root mean square by about 1/sqrt(10 * 21).
    assert first == pytest.approx(baseline, abs=0.15)
