"""The cache on the disk: what it saves, and what it survives."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp

import odekit as ok
from odekit.codegen import CompiledField, cache_info, clear_cache, load, recall, save, store
from odekit.errors import CacheWarning

needs_modes = pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows has no file modes")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of this test's own, and a process that has loaded nothing yet."""
    path = tmp_path / "cache"
    monkeypatch.setenv("ODEKIT_CACHE_DIR", str(path))
    monkeypatch.delenv("ODEKIT_CACHE", raising=False)
    monkeypatch.setattr(store, "_loaded", {})
    yield path / "v1"
    for directory, names, _ in os.walk(path):
        for name in names:
            os.chmod(Path(directory) / name, 0o700)


def field(rate: float = 3.0) -> Any:
    """A new field each time: what this process knows about another does not count."""
    x, k = sp.symbols("x k")
    return ok.vector_field({x: -sp.Float(rate) * k * x}, (k,))


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_loaded", {})


def slope(compiled: CompiledField) -> float:
    out = np.empty(1)
    compiled.rhs(0.0, np.ones(1), compiled.layout.pack_parameters({"k": 2.0}), out)
    return float(out[0])


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "modules").iterdir())


def test_the_second_time_nothing_is_compiled(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ok.compile(field())
    assert not first.from_cache
    forget(monkeypatch)
    second = ok.compile(field())
    assert second.from_cache
    assert second.rhs is not first.rhs
    assert second.key == first.key
    assert slope(first) == slope(second) == -6.0
    assert second.compile_seconds < first.compile_seconds
    info = cache_info()
    assert (info.path, info.enabled, info.problem) == (folder, True, "")
    assert (info.fields, info.modules) == (1, 1)
    assert info.bytes > 1000
    assert clear_cache().modules == 1
    assert cache_info().modules == cache_info().bytes == 0


def test_another_number_in_the_equations_is_another_field(folder: Path) -> None:
    assert ok.compile(field(3.0)).key != ok.compile(field(4.0)).key
    assert slope(ok.compile(field(4.0))) == -8.0


def test_the_environment_variable_turns_it_off(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODEKIT_CACHE", "off")
    assert slope(ok.compile(field())) == -6.0
    assert not folder.exists()
    assert not cache_info().enabled


def test_recall_save_and_pickle(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = ok.compile(field())
    forget(monkeypatch)
    known = recall(compiled.key)
    assert known is not None and known.from_cache and slope(known) == -6.0
    assert recall("0" * 32) is None
    path = save(compiled, tmp_path / "field.json")
    assert slope(load(path)) == -6.0
    assert slope(pickle.loads(pickle.dumps(compiled))) == -6.0
    jacobian = np.empty((1, 1))
    known.jacobian(0.0, np.ones(1), known.layout.pack_parameters({"k": 2.0}), jacobian)
    assert jacobian[0, 0] == -6.0
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ok.InputError, match="not a saved compiled field"):
        load(tmp_path / "other.json")


@pytest.mark.parametrize("suffix", [".nbc", ".nbi", ".py", "seal.json"])
def test_a_truncated_file_is_noticed_and_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    ok.compile(field())
    (entry,) = entries(folder)
    (victim,) = [p for p in entry.rglob("*") if p.name.endswith(suffix)]
    victim.write_bytes(victim.read_bytes()[:-20])
    forget(monkeypatch)
    with pytest.warns(CacheWarning, match="damaged"):
        again = ok.compile(field())
    assert slope(again) == -6.0 and not again.from_cache
    forget(monkeypatch)
    assert ok.compile(field()).from_cache


def test_a_truncated_record_is_noticed_and_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok.compile(field())
    (record,) = (folder / "fields").iterdir()
    record.write_text(record.read_text()[:-20])
    with pytest.warns(CacheWarning, match="damaged"):
        assert slope(ok.compile(field())) == -6.0
    forget(monkeypatch)
    assert ok.compile(field()).from_cache


def test_what_numba_cannot_read_is_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok.compile(field())
    (entry,) = entries(folder)
    (index,) = entry.rglob("*.nbi")
    index.write_bytes(b"no pickle")
    (entry / "seal.json").write_text(json.dumps(store._sums(entry)))
    (entry / "seal.json").chmod(0o600)
    forget(monkeypatch)
    with pytest.warns(CacheWarning, match="does not load"):
        assert slope(ok.compile(field())) == -6.0


@needs_modes
def test_nothing_is_loaded_from_where_others_can_write(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok.compile(field())
    for loose in (folder, folder.parent):
        forget(monkeypatch)
        loose.chmod(0o777)
        with pytest.warns(CacheWarning, match="others can write"):
            compiled = ok.compile(field())
        assert slope(compiled) == -6.0 and not compiled.from_cache
        assert "others can write" in cache_info().problem
        loose.chmod(0o700)
    (entry,) = entries(folder)
    (code,) = entry.rglob("*.nbc")
    code.chmod(0o666)
    forget(monkeypatch)
    with pytest.warns(CacheWarning, match="others can write"):
        assert not ok.compile(field()).from_cache


@needs_modes
def test_a_read_only_folder_serves_what_it_has(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ok.compile(field())
    for path in (folder, *folder.rglob("*")):
        if path.is_dir():
            path.chmod(0o500)
    if os.getuid() == 0:
        refuse_root(folder, monkeypatch)
    forget(monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ok.compile(field()).from_cache
    with pytest.warns(CacheWarning, match="cannot write"):
        other = ok.compile(field(5.0))
    assert slope(other) == -10.0 and not other.from_cache


def refuse_root(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can write to read-only folders: answer as the system does to other users."""
    access, tempfile = os.access, store.tempfile

    def refusing(make: Any) -> Any:
        def refuse(*args: Any, **options: Any) -> Any:
            if str(folder.resolve()) in str(options.get("dir")):
                raise PermissionError(13, "Permission denied")
            return make(*args, **options)

        return refuse

    monkeypatch.setattr(os, "access", lambda p, mode: access(p, mode) and mode != os.W_OK)
    monkeypatch.setattr(tempfile, "mkdtemp", refusing(tempfile.mkdtemp))
    monkeypatch.setattr(tempfile, "mkstemp", refusing(tempfile.mkstemp))


PROGRAM = """
import sys, warnings
warnings.simplefilter("error")
import numpy as np, sympy as sp
import odekit as ok
names = sp.symbols("x0:12")
rates = {s: -s * names[k - 1] + sp.sin(s * names[k - 2]) for k, s in enumerate(names)}
print("ready", flush=True)
compiled = ok.compile(ok.vector_field(rates))
out = np.empty(12)
compiled.rhs(0.0, np.linspace(0, 1, 12), compiled.layout.pack_parameters(), out)
print(compiled.from_cache, out.sum().hex(), flush=True)
"""


def run(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "ODEKIT_CACHE_DIR": str(folder.parent)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_processes_at_once(folder: Path) -> None:
    both = [run(folder), run(folder)]
    answers = [process.communicate(timeout=300)[0].split() for process in both]
    assert all(process.returncode == 0 for process in both)
    assert answers[0][2] == answers[1][2]
    assert len(entries(folder)) == 1
    assert not list((folder / "partial").iterdir())
    third = run(folder).communicate(timeout=300)[0].split()
    assert third[1:] == ["True", answers[0][2]]


def test_a_killed_compilation_leaves_nothing_behind_that_counts(folder: Path) -> None:
    process = run(folder)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    deadline = time.monotonic() + 120
    while not list(folder.glob("partial/*/*.py")) and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not list(folder.glob("modules/*"))
    first, second = (run(folder).communicate(timeout=300)[0].split() for _ in range(2))
    assert (first[1], second[1]) == ("False", "True")
    assert first[2] == second[2]


def test_folders_of_killed_compilations_are_swept_after_a_day(folder: Path) -> None:
    ok.compile(field())
    old, young = folder / "partial" / "old", folder / "partial" / "young"
    for path, age in ((old, 2 * store.ABANDONED), (young, 10)):
        path.mkdir()
        os.utime(path, (time.time() - age, time.time() - age))
    ok.compile(field(6.0))
    assert young.exists() and not old.exists()


def test_a_known_field_needs_neither_sympy_nor_scipy(folder: Path) -> None:
    key = ok.compile(field()).key
    program = (
        "import sys; from odekit.codegen import recall; "
        f"c = recall({key!r}); "
        "print(c.from_cache, 'sympy' in sys.modules, 'scipy.linalg' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ODEKIT_CACHE_DIR": str(folder.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["True", "False", "False"]


def test_matrix_products_still_compile_after_a_start_without_scipy(folder: Path) -> None:
    key = ok.compile(field()).key
    program = (
        "import numpy as np, numba; from odekit.codegen import recall; "
        f"recall({key!r}); "
        "f = numba.njit(lambda a: np.dot(a, a)); print(f(2 * np.eye(2))[1, 1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ODEKIT_CACHE_DIR": str(folder.parent)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["4.0"]
