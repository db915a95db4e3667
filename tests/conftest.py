"""Session-wide settings: one fresh cache, slow tests on request, Hypothesis without a deadline."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import hypothesis
import pytest

_CACHES = ("ODEKIT_CACHE_DIR", "NUMBA_CACHE_DIR")

# Compilation inside a test makes its first example slow, which is no fault of the test.
hypothesis.settings.register_profile(
    "odekit", deadline=None, derandomize=bool(os.environ.get("CI")), database=None
)
hypothesis.settings.load_profile("odekit")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("MPLBACKEND", "Agg")
    if hasattr(config, "workerinput"):
        return  # an xdist worker: it inherits the caches that its controller made
    # Fresh for each session: Numba does not notice an edit in a function that a cached one calls.
    # Whoever sets the variables keeps their own caches.
    made = Path(tempfile.mkdtemp(prefix="odekit-tests-"))
    for name in _CACHES:
        os.environ.setdefault(name, str(made / name.lower()))
    config.add_cleanup(lambda: shutil.rmtree(made, ignore_errors=True))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--slow") or "slow" in config.getoption("-m"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]
