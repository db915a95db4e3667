import functools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import types
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from sweep_tasks import FLAG, deadly, interrupted, sums

import odekit as ok
from odekit import sweep
from odekit.errors import InputError, OdekitError
from odekit.sweep import identity
from odekit.sweep.identity import task_hash
from odekit.sweep.store import Outcome, Store


def fussy(a, b):
    if a == b:
        raise ArithmeticError("no\nsuch limit")
    return {"ratio": 1 / (a - b)}


def ragged(n):
    return {"t": np.arange(float(n)), "x_curve": np.ones((n, 2)) * n}


GRID = {"a": [1, 2, 3], "b": [10.0, 20.0]}


def test_a_grid_in_c_order(tmp_path):
    results = sweep.run(sweep.grid(sums, GRID), tmp_path / "s", workers=1)
    np.testing.assert_array_equal(results["sum"], [[11, 21], [12, 22], [13, 23]])
    assert results["row"].shape == (3, 2, 3)
    assert results["name"][2, 1] == "3-20.0"
    assert set(results.status) == {"done"}


def test_one_labelled_data_set(tmp_path):
    data = sweep.run(sweep.grid(sums, GRID), tmp_path / "s", workers=1).to_xarray()
    assert data["sum"].sel(a=2, b=20.0) == 22
    assert data["row"].dims == ("a", "b", "row_0")
    assert (data["run_status"] == "done").all()
    points = [{"a": 1, "b": 2}, {"a": 5, "b": 7}]
    rows = sweep.run(sweep.listed(sums, points), tmp_path / "l", workers=1).to_xarray()
    np.testing.assert_array_equal(rows["a"], [1, 5])
    np.testing.assert_array_equal(rows["sum"], [3, 12])


def test_curves_share_their_times_or_are_filled(tmp_path):
    results = sweep.run(sweep.grid(ragged, {"n": [2, 4]}), tmp_path / "s", workers=1)
    assert results["x_curve"].shape == (2, 4, 2)
    assert np.isnan(results["x_curve"][0, 2:]).all()
    assert results.to_xarray()["t"].dims == ("n", "t_0")
    same = sweep.run(sweep.listed(ragged, [{"n": 3}]), tmp_path / "same", workers=1).to_xarray()
    assert same["x_curve"].dims == ("run", "t", "x_0")


@pytest.mark.parametrize("executor", ["threads", "processes", "own"])
def test_every_executor_gives_the_same_bits(executor, tmp_path):
    plan = sweep.grid(sums, GRID)
    serial = sweep.run(plan, tmp_path / "serial", workers=1)
    if executor == "own":
        with ThreadPoolExecutor(2) as pool:
            other = sweep.run(plan, tmp_path / "other", executor=pool)
            assert pool.submit(int, 3).result() == 3, "it is left open"
    else:
        other = sweep.run(plan, tmp_path / "other", workers=2, executor=executor)
    for name in serial.names:
        assert serial[name].tobytes() == other[name].tobytes()


def test_failures_keep_their_reason_and_are_retried_on_request(tmp_path):
    plan = sweep.grid(fussy, {"a": [1, 2], "b": [1, 2]})
    results = sweep.run(plan, tmp_path / "s", workers=1)
    assert results.failures == {
        0: "ArithmeticError: no such limit",
        3: "ArithmeticError: no such limit",
    }
    assert np.isnan(results["ratio"][0, 0])
    counts = []
    sweep.run(plan, tmp_path / "s", workers=1, resume=True, progress=counts.append)
    assert counts == [], "failed runs are left alone"
    sweep.run(plan, tmp_path / "s", workers=1, resume=True, retry=True, progress=counts.append)
    assert (counts[-1].done, counts[-1].failed, counts[-1].total) == (2, 2, 4)
    assert counts[0].remaining is not None


def test_resume_runs_only_what_is_missing(tmp_path):
    sweep.run(sweep.grid(sums, {"a": [1, 2], "b": [10.0]}), tmp_path / "s", workers=1)
    before = dict(zip(*_finished(tmp_path / "s"), strict=True))
    wider = sweep.grid(sums, GRID)
    with pytest.raises(InputError, match="resume"):
        sweep.run(wider, tmp_path / "s", workers=1)
    results = sweep.run(wider, tmp_path / "s", workers=1, resume=True)
    assert set(results.status) == {"done"}
    after = dict(zip(*_finished(tmp_path / "s"), strict=True))
    assert len(after) == 6
    assert {key: after[key] for key in before} == before, "earlier results were not touched"


def _finished(store):
    with sqlite3.connect(store) as database:
        rows = database.execute("SELECT key, finished FROM runs ORDER BY key").fetchall()
    database.close()
    return zip(*rows, strict=True)


def test_a_run_that_kills_its_process_fails_alone(tmp_path, monkeypatch):
    monkeypatch.setenv(FLAG, "1")
    plan = sweep.grid(deadly, {"a": range(6)})
    results = sweep.run(plan, tmp_path / "s", workers=2)
    assert results.failures == {3: "the worker process died"}
    monkeypatch.delenv(FLAG)
    results = sweep.run(plan, tmp_path / "s", workers=1, resume=True, retry=True)
    np.testing.assert_array_equal(results["square"], np.arange(6) ** 2)


def scaled(a):
    return {"y": FACTOR * a}


FACTOR = 2.0


def test_the_key_is_all_that_determines_a_run(monkeypatch):
    def key(task=scaled, **more):
        return sweep.listed(task, [{"a": 1}], **more).runs[0].key

    first = key()
    assert first == key()
    assert first != sweep.listed(scaled, [{"a": 2}]).runs[0].key
    assert key(sums, arguments={"b": np.ones(2)}) != key(sums, arguments={"b": np.zeros(2)})
    field = ok.models.plateau().flow
    other = ok.models.modes(dim=2).flow
    assert key(sums, arguments={"b": field}) != key(sums, arguments={"b": other})
    assert key(sums, arguments={"b": field}) == key(sums, arguments={"b": ok.models.plateau().flow})
    code = "FACTOR = {}\ndef scaled(a):\n    return {{'y': FACTOR * a}}\n"
    tasks = []
    for factor in (2.0, 3.0):
        names = {"__name__": "made"}
        exec(code.format(factor), names)
        tasks.append(names["scaled"])
    assert key(tasks[0]) != key(tasks[1]), "a global that the task uses has another value"


@functools.cache
def remembered(a):
    return FACTOR * a


def uses_what_it_remembers(a):
    return {"y": remembered(a)}


def test_a_function_that_remembers_counts_by_what_it_wraps(monkeypatch):
    first = sweep.grid(uses_what_it_remembers, {"a": [1]}).runs[0].key
    task_hash.cache_clear()
    monkeypatch.setitem(globals(), "FACTOR", 3.0)
    assert sweep.grid(uses_what_it_remembers, {"a": [1]}).runs[0].key != first
    task_hash.cache_clear()


def test_a_package_installed_for_editing_counts_by_its_source(monkeypatch):
    records = {"numpy": None, "sympy": '{"dir_info": {"editable": true}, "url": "file:///x"}'}
    found = {
        name: types.SimpleNamespace(read_text=lambda _, n=name: records[n]) for name in records
    }
    monkeypatch.setattr(identity, "metadata", found.__getitem__)
    release = identity._release.__wrapped__
    assert release("numpy.linalg").startswith("numpy ")
    assert release("sympy.core") == ""
    assert release("made_up") == ""


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: sweep.grid(sums, {}), "at least one axis"),
        (lambda: sweep.grid(sums, {"a": []}), "no values"),
        (lambda: sweep.grid(sums, {"a": [float("nan")]}), "finite"),
        (lambda: sweep.grid(sums, {"a": [[1]]}), "numbers or text"),
        (lambda: sweep.grid(sums, {"a": range(2000), "b": range(2000)}), "at most"),
        (lambda: sweep.listed(sums, []), "empty"),
        (lambda: sweep.listed(sums, [{"a": 1}, {"a": 1}]), "the same"),
        (lambda: sweep.grid(sums, {"a": [1]}, arguments={"a": 2}), "both"),
        (lambda: sweep.grid(sums, {"a": [1]}, arguments={"b": object()}), "cannot be hashed"),
    ],
)
def test_wrong_plans_are_refused(make, reason):
    with pytest.raises(InputError, match=reason):
        make()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"workers": 0}, "at least 1"),
        ({"workers": "two"}, "whole number"),
        ({"executor": "thread"}, "Did you mean 'threads'"),
        ({"executor": 3}, "Executor"),
    ],
)
def test_wrong_executors_are_refused(options, reason, tmp_path):
    with pytest.raises(InputError, match=reason):
        sweep.run(sweep.grid(sums, GRID), tmp_path / "s", **options)


def test_a_task_that_cannot_travel_is_refused_before_anything_runs(tmp_path):
    plan = sweep.grid(lambda a, b: {"x": a}, GRID)
    with pytest.raises(InputError, match="top level"):
        sweep.run(plan, tmp_path / "s", workers=2, executor="processes")


def answers(a):
    return 42


def test_a_result_that_is_no_result_is_a_failure(tmp_path):
    results = sweep.run(sweep.grid(answers, {"a": [1]}), tmp_path / "s", workers=1)
    assert "names and numbers, not int" in results.failures[0]


@pytest.mark.parametrize("content", [b"not a database", b"SQLite format 3\0" + b"\xff" * 200])
def test_a_damaged_store_is_one_line(content, tmp_path):
    (tmp_path / "s").write_bytes(content)
    for action in (
        lambda: sweep.load(tmp_path / "s"),
        lambda: sweep.run(sweep.grid(sums, GRID), tmp_path / "s", workers=1, resume=True),
    ):
        with pytest.raises(InputError, match="not a sweep that odekit wrote"):
            action()
    assert (tmp_path / "s").read_bytes() == content


def test_a_store_with_arrays_of_the_wrong_size(tmp_path):
    sweep.run(sweep.grid(sums, GRID), tmp_path / "s", workers=1)
    with sqlite3.connect(tmp_path / "s") as database:
        layout = '[["row", "<f8", [1000000000]]]'
        database.execute("UPDATE quantities SET layout = ?", (layout,))
    database.close()
    with pytest.raises(InputError, match="damaged"):
        sweep.load(tmp_path / "s")


def test_a_slow_disk_gets_fewer_transactions(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("odekit.sweep.store.time.monotonic", lambda: now[0])
    plan = sweep.grid(sums, {"a": range(40), "b": [0]})
    with Store(tmp_path / "s", create=True) as store:
        store.plan(plan)
        write, written = store._write, []

        def slowly(outcomes):
            now[0] += 0.1  # seconds for a transaction
            written.append(now[0])
            write(outcomes)

        store._write = slowly
        for run in plan.runs:
            now[0] += 0.25
            store.add(Outcome(run.key, {"x": np.ones(2)}))
        # The first after half a second; then so that 0.1 s is a twentieth of the time between.
        assert np.diff(written) == pytest.approx(2.1, abs=0.26)
    assert sweep.load(tmp_path / "s").status.count("done") == 40


def test_a_kept_store_lies_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ODEKIT_CACHE_DIR", str(tmp_path))
    place = sweep.kept("map-1")
    assert place.parent.is_dir()
    assert tmp_path in place.parents
    assert sweep.kept("map-1") == place
    for name in ("../up", "a/b", "", "x" * 200, 3):
        with pytest.raises(InputError, match="kept sweep"):
            sweep.kept(name)
    monkeypatch.setenv("ODEKIT_CACHE", "off")
    elsewhere = sweep.kept("map-1")
    assert elsewhere.parent.is_dir()
    assert tmp_path not in elsewhere.parents
    elsewhere.parent.rmdir()


def test_no_store_no_results(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        sweep.load(tmp_path / "s")
    with pytest.raises(InputError, match="does not exist"):
        sweep.run(sweep.grid(sums, GRID), tmp_path / "no" / "s")


def test_a_broken_executor_ends_with_what_to_do(tmp_path):
    pool = ThreadPoolExecutor(1)

    def submit(*_):
        raise BrokenExecutor("gone")

    pool.submit = submit
    with pytest.raises(OdekitError, match="resume"):
        sweep.run(sweep.grid(sums, GRID), tmp_path / "s", executor=pool)
    pool.shutdown()


KILLED = """
import sys, time
import numpy as np
from odekit import sweep

def slow(a):
    time.sleep(0.02)
    return {"x": np.sqrt(np.arange(4.0) + a)}

if __name__ == "__main__":
    plan = sweep.grid(slow, {"a": range(200)})
    results = sweep.run(plan, sys.argv[1], workers=2, executor=sys.argv[2], resume=True)
    print(results.status.count("done"), results["x"].tobytes().hex())
"""


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_a_killed_sweep_goes_on_where_it_was(executor, tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    command = [sys.executable, str(script), str(tmp_path / "s"), executor]
    first = subprocess.Popen(command, start_new_session=True)
    assert _wait_for(lambda: _count(tmp_path / "s") >= 20, 60)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    kept = _count(tmp_path / "s")
    assert 20 <= kept < 200
    second = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    expected = np.sqrt(np.arange(4.0) + np.arange(200)[:, None])
    assert second.stdout.split() == ["200", expected.tobytes().hex()]


def _count(store: Path) -> int:
    """Results on disk, read beside the process that writes them."""
    if not store.exists():
        return 0
    database = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        query = "SELECT count(*) FROM runs WHERE status = 'done'"
        return int(database.execute(query).fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # not yet there, or being written
    finally:
        database.close()


def _wait_for(condition, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def test_an_interrupt_keeps_what_was_done(tmp_path):
    def stop(progress):
        if progress.done == 3:
            raise KeyboardInterrupt

    plan = sweep.grid(sums, GRID)
    with pytest.raises(KeyboardInterrupt):
        sweep.run(plan, tmp_path / "s", workers=1, progress=stop)
    assert sweep.load(tmp_path / "s").status.count("done") == 3
    assert threading.active_count() < 20
    assert json.loads(json.dumps(sweep.load(tmp_path / "s").points[0])) == {"a": 1, "b": 10.0}


def test_an_interrupted_run_ends_the_sweep_and_stays_missing(tmp_path, monkeypatch):
    plan = sweep.grid(interrupted, {"a": [1, 2, 3]})
    monkeypatch.setenv(FLAG, "1")
    with pytest.raises(KeyboardInterrupt):
        sweep.run(plan, tmp_path / "s", workers=1)
    monkeypatch.delenv(FLAG)
    results = sweep.run(plan, tmp_path / "s", workers=1, resume=True)
    assert list(results.to_xarray()["square"].values) == [1, 4, 9]
