"""Generated modules on disk: written once, checked, and never half there.

A module is compiled in a folder of its own beside the cache and moved into place whole, so a
process that is killed or races another leaves nothing that could be mistaken for a result.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import json
import os
import platform
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from odekit.codegen.folder import cache_root, distrust, warn_cache

__all__ = ["environment", "load_module", "read_record", "start_numba", "write_record"]

SEAL = "seal.json"
ABANDONED = 86400.0
"""Seconds after which the folder of a compilation is taken for a killed one's."""

_lock = threading.RLock()
_loaded: dict[str, ModuleType] = {}


def start_numba() -> None:
    """Start Numba without SciPy, which it imports only to see whether BLAS is there.

    SciPy takes longer to import than a cached field takes to load and run. It is a dependency of
    ours, so the answer is known; Numba asks again where a matrix product is compiled.
    """
    probe, asked = "scipy.linalg.cython_blas", "numba.np.arraymath"
    if {"scipy.linalg", asked} & set(sys.modules) or importlib.util.find_spec("scipy") is None:
        return
    sys.modules[probe] = None  # type: ignore[assignment]
    try:
        module: Any = importlib.import_module(asked)
        if hasattr(module, "_HAVE_BLAS"):
            module._HAVE_BLAS = True
    finally:
        del sys.modules[probe]


@functools.cache
def environment() -> str:
    """Everything but the source that machine code depends on."""
    import llvmlite
    import llvmlite.binding as llvm
    import numba
    import numpy
    from numba.core import config

    from odekit import __version__

    features = llvm.get_host_cpu_features().flatten()
    parts = {
        "odekit": __version__,
        "python": platform.python_version() + sys.implementation.name,
        "numpy": numpy.__version__,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "machine": platform.platform(),
        "cpu": llvm.get_host_cpu_name(),
        "features": features,
        "options": [
            str(getattr(config, name, ""))
            for name in ("CPU_NAME", "CPU_FEATURES", "OPT", "BOUNDSCHECK", "DISABLE_JIT")
        ],
    }
    return json.dumps(parts, sort_keys=True)


def digest(*texts: str) -> str:
    """Hash texts."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def load_module(source: str) -> tuple[ModuleType, bool]:
    """Import generated source, compiled now or taken from the cache.

    Parameters
    ----------
    source : str
        A module of Numba functions with eager signatures.

    Returns
    -------
    module
    from_cache : bool
        Whether its machine code came from the disk or from this process.

    Warns
    -----
    CacheWarning
        When the cache is damaged or cannot be used; the module is then compiled anew.
    """
    key = digest(source, environment())[:32]
    with _lock:
        if key in _loaded:
            return _loaded[key], True
        module, from_cache = _obtain(source, key)
        _loaded[key] = module
        return module, from_cache


def _obtain(source: str, key: str) -> tuple[ModuleType, bool]:
    root = cache_root()
    if root is None:
        return _uncached(source, key), False
    entry = root / "modules" / key
    if entry.exists():
        problem = _damage(entry, source, key)
        if not problem:
            try:
                return _load_entry(entry, key), True
            except Exception as error:  # whatever a foreign pickle may raise
                problem = f"{entry} does not load ({type(error).__name__}: {error})"
        warn_cache(f"{problem}; it is compiled again")
        shutil.rmtree(entry, ignore_errors=True)
    try:
        partial = _make_partial(root)
    except OSError as error:
        warn_cache(f"cannot write to {root} ({error.strerror or error})")
        return _uncached(source, key), False
    try:
        module = _write_and_import(partial, source, key)
        _publish(partial, entry)
    except OSError as error:
        warn_cache(f"cannot write to {root} ({error.strerror or error})")
        return _uncached(source, key), False
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return module, False


def _name(key: str) -> str:
    return f"odekit_{key[:16]}"


def _write_and_import(folder: Path, source: str, key: str) -> ModuleType:
    (folder / f"{_name(key)}.py").write_text(source, encoding="utf-8")
    return _import(folder, key)


def _import(folder: Path, key: str) -> ModuleType:
    start_numba()
    name = _name(key)
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Numba looks it up when it loads machine code
    try:
        with _cache_beside_source():
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextlib.contextmanager
def _cache_beside_source() -> Iterator[None]:
    """Numba keeps machine code beside its source, where we check it, whatever the environment."""
    from numba.core import config

    names = ("CACHE_DIR", "CACHE_LOCATOR_CLASSES")
    before = {name: getattr(config, name) for name in names if hasattr(config, name)}
    for name in before:
        setattr(config, name, "")
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(config, name, value)


def _uncached(source: str, key: str) -> ModuleType:
    """Compile in a private folder that does not outlive the process's need of it."""
    with tempfile.TemporaryDirectory(prefix="odekit-") as folder:
        return _write_and_import(Path(folder), source.replace("cache=True, ", ""), key)


def _load_entry(entry: Path, key: str) -> ModuleType:
    if os.access(entry / "__pycache__", os.W_OK):
        return _import(entry, key)
    # Numba does not read machine code from a folder that it cannot write to.
    with tempfile.TemporaryDirectory(prefix="odekit-") as folder:
        copy = Path(folder) / "entry"
        shutil.copytree(entry, copy)
        for path in (copy, *copy.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
        return _import(copy, key)


# -- whole entries only -------------------------------------------------------------------------


def _make_partial(root: Path) -> Path:
    parent = root / "partial"
    parent.mkdir(mode=0o700, exist_ok=True)
    (root / "modules").mkdir(mode=0o700, exist_ok=True)
    for old in parent.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > ABANDONED:
                shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(dir=parent))


def _publish(partial: Path, entry: Path) -> None:
    """Seal a finished folder and move it into place; another process may have been faster."""
    for path in partial.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    seal = partial / SEAL
    seal.write_text(json.dumps(_sums(partial), sort_keys=True), encoding="utf-8")
    seal.chmod(0o600)
    try:
        partial.rename(entry)
    except OSError:
        if not (entry / SEAL).exists():
            raise


def _sums(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != SEAL
    }


def _damage(entry: Path, source: str, key: str) -> str:
    """Say what is wrong with an entry; empty if nothing is."""
    for path in (entry, *entry.rglob("*")):
        problem = distrust(path)
        if problem:
            return problem
    try:
        sealed = json.loads((entry / SEAL).read_text(encoding="utf-8"))
        same = (entry / f"{_name(key)}.py").read_text(encoding="utf-8") == source
        if not same or sealed != _sums(entry):
            return f"{entry} is damaged"
    except (OSError, ValueError):
        return f"{entry} is damaged"
    return ""


# -- records ------------------------------------------------------------------------------------


def read_record(key: str) -> dict[str, Any] | None:
    """Read what is known about a field; None if nothing is.

    Warns
    -----
    CacheWarning
        When the record is damaged; it is then removed.
    """
    root = cache_root()
    if root is None:
        return None
    path = root / "fields" / f"{key}.json"
    if not path.exists():
        return None
    problem = distrust(path)
    if not problem:
        try:
            sum_, text = path.read_text(encoding="utf-8").split("\n", 1)
            if sum_ == digest(text):
                record: dict[str, Any] = json.loads(text)
                return record
        except (OSError, ValueError):
            pass
        problem = f"{path} is damaged"
    warn_cache(f"{problem}; it is made again")
    with contextlib.suppress(OSError):
        path.unlink()
    return None


def write_record(key: str, record: dict[str, Any]) -> None:
    """Keep what is known about a field; a folder that cannot be written to is warned of later."""
    root = cache_root()
    if root is None:
        return
    folder = root / "fields"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        text = json.dumps(record)
        handle, name = tempfile.mkstemp(dir=folder, suffix=".partial")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{digest(text)}\n{text}")
        os.replace(name, folder / f"{key}.json")
    except OSError as error:
        warn_cache(f"cannot write to {folder} ({error.strerror or error})")
