"""Runs that are interrupted or killed go on to the very same end."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import odekit as ok
import odekit.simulate as sim
from odekit.errors import InputError
from odekit.simulate import loops
from odekit.solution import Status

L = np.diag([0.6, 0.4])


def layer_on_statistics():
    layer = sim.Layer("separate", "all", 3, 2, 1)
    moments = sim.sequences(40, L, 5, seed=0).statistics()
    return layer, moments, sim.initial(layer, 0.4, 0)


def network_on_samples():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((30, 2)), rng.standard_normal((30, 2))
    y0 = {"W1": 0.3 * rng.standard_normal((3, 2)), "W2": 0.3 * rng.standard_normal((2, 3))}
    return ok.models.deep_linear(), (x, y), y0


def field_on_its_population():
    model = ok.models.modes(dim=2, context=5)
    y0 = {"p": np.array([0.1, 0.2]), "q": np.array([0.2, 0.1])}
    return model, sim.Population({"s": np.array([1.0, 0.5])}), y0


def stop_after(step):
    def progress(done, loss):
        assert np.isfinite(loss)
        if done >= step:
            raise KeyboardInterrupt

    return progress


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("make", [layer_on_statistics, network_on_samples, field_on_its_population])
def test_exact_runs_go_on_to_the_same_end(make, momentum, tmp_path, monkeypatch):
    monkeypatch.setattr("odekit.simulate.full_batch._CALL_STEPS", 2 * loops.KEPT_EVERY)
    model, data, y0 = make()
    path = tmp_path / "run.npz"
    call = {"y0": y0, "lr": 0.02, "steps": 2000, "momentum": momentum}
    whole = sim.gradient_descent(model, data, **call)
    part = sim.gradient_descent(model, data, **call, checkpoint=path, progress=stop_after(1000))
    assert part.status is Status.interrupted
    assert part.t[-1] == 1024
    np.testing.assert_array_equal(part.loss, whole.loss[: part.t.size])
    rest = sim.gradient_descent(model, data, **call, checkpoint=path)
    assert rest.status is Status.success
    np.testing.assert_array_equal(rest.t, whole.t)
    np.testing.assert_array_equal(rest.loss, whole.loss)
    for name in y0:
        np.testing.assert_array_equal(rest[name], whole[name])
    for _ in range(3):  # a finished run is read, not repeated
        again = sim.gradient_descent(model, data, **call, checkpoint=path)
        assert again.status is Status.success
        np.testing.assert_array_equal(again.loss, whole.loss)
    with pytest.raises(InputError, match="belongs to a run with another configuration"):
        sim.gradient_descent(model, data, **(call | {"lr": 0.03}), checkpoint=path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InputError, match="cannot be read"):
        sim.gradient_descent(model, data, **call, checkpoint=path)


def test_other_data_do_not_go_on_from_the_checkpoint(tmp_path):
    model, (x, y), y0 = network_on_samples()
    call = {"y0": y0, "lr": 0.02, "steps": 20, "checkpoint": tmp_path / "run.npz"}
    sim.gradient_descent(model, (x, y), **call)
    with pytest.raises(InputError, match="another configuration, start or data"):
        sim.gradient_descent(model, (x, 2 * y), **call)
    with pytest.raises(InputError, match="cannot be written"):
        (tmp_path / "file").write_text("")
        sim.gradient_descent(model, (x, y), **(call | {"checkpoint": tmp_path / "file" / "run"}))


def test_progress_tells_steps_and_losses(monkeypatch):
    monkeypatch.setattr("odekit.simulate.full_batch._CALL_STEPS", loops.KEPT_EVERY)
    layer, moments, y0 = layer_on_statistics()
    told = []
    run = sim.gradient_descent(
        layer, moments, y0=y0, lr=0.02, steps=600, progress=lambda *one: told.append(one)
    )
    assert [step for step, _ in told] == [256, 512, 600]
    np.testing.assert_array_equal([loss for _, loss in told], run.loss[[256, 512, 600]])


_KILLED = """
import os, signal, sys
import numpy as np
import odekit.simulate as sim
from odekit.simulate import blocks, full_batch, loops

blocks._CHECKPOINT_SECONDS = full_batch._CHECKPOINT_SECONDS = 0.0
full_batch._CALL_STEPS = loops.KEPT_EVERY

def progress(step, loss):
    if step > 1200:
        os.kill(os.getpid(), signal.SIGKILL)

kind, path, killed = sys.argv[1:]
layer = sim.Layer("merged", "all", 3, 2)
call = {"y0": sim.initial(layer, 0.4, 0), "lr": 0.01, "steps": 2500, "checkpoint": path}
if killed == "killed":
    call["progress"] = progress
if kind == "exact":
    moments = sim.sequences(40, np.eye(2), 5, seed=0).statistics()
    run = sim.gradient_descent(layer, moments, **call)
else:
    params = {"Lambda": np.eye(2), "N": 5}
    run = sim.sgd(layer, params=params, batch=16, seed=1, attention=kind, **call)
np.savez(path + ".result.npz", loss=run.loss, u=run["u"])
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["exact", "linear", "softmax"])
def test_a_killed_process_is_taken_up_by_another(kind, tmp_path):
    """SIGKILL leaves no time for anything: the file of the last stretch must do."""

    def python(path, mode):
        arguments = [sys.executable, "-c", _KILLED, kind, str(path), mode]
        return subprocess.run(arguments, capture_output=True, text=True).returncode

    first, second = tmp_path / "a.npz", tmp_path / "b.npz"
    assert python(first, "killed") == -9
    assert [file.name for file in tmp_path.iterdir()] == ["a.npz"]
    with np.load(first) as stored:
        assert 0 < int(stored["step"]) < 1400
    assert python(first, "taken up") == 0
    assert python(second, "whole") == 0
    with (
        np.load(f"{first}.result.npz") as taken_up,
        np.load(f"{second}.result.npz") as whole,
    ):
        for name in ("loss", "u"):
            np.testing.assert_array_equal(taken_up[name], whole[name])
