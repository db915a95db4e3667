"""A sweep on a real Dask cluster on loopback: a worker is killed, then the sweep itself."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from odekit import sweep
from odekit.errors import InputError
from odekit.problem import read_sweep

FILE = """
time = 40.0
points = 20
[equations]
x = "a*x - x**3 + 0.1*y"
y = "-y + 0.3*sin(x)"
[parameters]
a = "rate"
[start]
x = "scale"
y = 0.5
[sweep]
record = ["loss", "final", "trajectory"]
[sweep.grid]
rate = { from = 0.1, to = 2.0, points = 40 }
scale = { from = 1e-6, to = 1.0, points = 50, spacing = "log" }
"""

PROGRAM = [sys.executable, "-c", "import sys\nfrom odekit.cli import main\nsys.exit(main())"]


def start(*arguments: str, folder: Path) -> subprocess.Popen[bytes]:
    log = (folder / f"{arguments[0]}-{time.monotonic_ns()}.log").open("wb")
    with log:
        return subprocess.Popen(
            [sys.executable, "-m", "distributed.cli.dask_" + arguments[0], *arguments[1:]],
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )


def wait_for(condition, seconds: float):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError(f"nothing after {seconds} s")


def end(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def count(store: Path) -> int:
    if not store.exists():
        return 0
    database = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    try:
        return int(
            database.execute("SELECT count(*) FROM runs WHERE status = 'done'").fetchone()[0]
        )
    except sqlite3.OperationalError:
        return 0  # not yet made, or being written
    finally:
        database.close()


@pytest.fixture
def cluster(tmp_path):
    """A scheduler and two workers in processes of their own."""
    folder = tmp_path / "dask"
    folder.mkdir()
    options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard")
    scheduler = start("scheduler", *options, folder=folder)
    processes = [scheduler]
    try:

        def address() -> str | None:
            logs = [log.read_text() for log in folder.glob("scheduler-*.log")]
            found = re.search(r"Scheduler at:\s+(tcp://[\d.:]+)", "".join(logs))
            return found[1] if found else None

        where = wait_for(address, 60)
        limits = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0")
        workers = [start("worker", where, *limits, folder=folder) for _ in range(2)]
        processes += workers
        from distributed import Client

        with Client(where, timeout=30, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
        yield where, workers
    finally:
        end(*reversed(processes))


@pytest.mark.slow
def test_a_killed_worker_and_a_killed_sweep_lose_nothing(cluster, tmp_path):
    address, workers = cluster
    file = tmp_path / "grid.toml"
    file.write_text(FILE)
    serial = sweep.run(read_sweep(file), tmp_path / "serial", workers=1)
    total = len(serial)
    store = tmp_path / "dask.sweep"
    command = [*PROGRAM, "sweep", str(file), "--dask", address, "--out", str(store)]

    first = subprocess.Popen(command, start_new_session=True)
    try:
        wait_for(lambda: count(store) > 0, 120)
        end(workers[0])
        killed_at = count(store)
        wait_for(lambda: count(store) > killed_at, 120)
    finally:
        end(first)
    kept = count(store)
    assert 0 < killed_at < kept < total, "both kills were in mid-sweep"

    subprocess.run([*command, "--resume"], check=True, timeout=300)
    results = sweep.load(store)
    assert results.keys == serial.keys
    assert len(set(results.keys)) == total
    assert set(results.status) == {"done"}
    assert results.names == serial.names
    for name in serial.names:
        assert results[name].tobytes() == serial[name].tobytes()
    database = sqlite3.connect(store)
    assert database.execute("SELECT count(*) FROM runs").fetchone() == (total,)
    database.close()


def noted(a):
    return {"y": np.sqrt(a)}


@pytest.mark.slow
def test_a_client_of_the_users_own(cluster, tmp_path):
    from distributed import Client

    plan = sweep.grid(noted, {"a": [1.0, 4.0]})
    with Client(cluster[0], timeout=30, set_as_default=False) as client:
        import cloudpickle

        cloudpickle.register_pickle_by_value(sys.modules[noted.__module__])
        results = sweep.run(plan, tmp_path / "s", executor=client)
        np.testing.assert_array_equal(results["y"], [1.0, 2.0])
        assert client.status == "running"


def test_no_scheduler_at_the_address(tmp_path, monkeypatch):
    monkeypatch.setattr("odekit.sweep.crew.CONNECT", 0.5)
    with pytest.raises(InputError, match="No Dask scheduler answers"):
        sweep.run(sweep.grid(noted, {"a": [1.0]}), tmp_path / "s", executor="tcp://127.0.0.1:9")
