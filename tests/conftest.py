"""Session-wide settings: one fresh cache, slow tests on request, Hypothesis without a deadline."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

# Before NumPy is imported: on shared cores BLAS threads make small products many times slower.
for _name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

_CACHES = ("ODEKIT_CACHE_DIR", "NUMBA_CACHE_DIR")

# Compilation inside a test makes its first example slow, which is no fault of the test.
hypothesis.settings.register_profile(
    "own tests", deadline=None, derandomize=bool(os.environ.get("CI")), database=None
)
hypothesis.settings.load_profile("own tests")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("MPLBACKEND", "Agg")
    # A session started in the background inherits an ignored Ctrl-C; tests send themselves one.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
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


_DRAWING = """
import os, sys
from matplotlib.figure import Figure
from odekit.reproduce import Picture

def draw(quick, progress):
    progress("integrates")
    {before}
    figure = Figure()
    figure.subplots().plot([0, 1, 2], [1, 0.5, 0.25])
    numbers = {{"end": 0.25, "quick": quick, "process": os.getpid(),
               "rows": [{{"level": 1, "measured": 0.5}}, {{"level": 2, "measured": 0.25}}],
               "curve": [1, 0.5, 0.25]}}
    return Picture(figure, numbers, "A curve < that falls.", (r"\\dot{{x}} = -x",))
"""


@pytest.fixture
def doe2030(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A published derivation that only this test sees: figures that draw, fail, and die."""
    site = tmp_path / "site"
    behaviours = {
        "good": "",
        "also-good": "",
        "raises": "raise ArithmeticError('no such\\nlimit')",
        "dies": "os._exit(9)",
        "answers": "return 42",
    }
    targets = []
    for name, before in behaviours.items():
        module = name.replace("-", "_")
        place = site / "doe2030" / f"{module}.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(_DRAWING.format(before=before))
        targets.append(f"Target('doe2030/{name}', 'Figure {name}', 'doe2030.{module}')")
    (site / "doe2030" / "__init__.py").write_text(
        f"from odekit.reproduce import Target\nTARGETS = ({', '.join(targets)},)\n"
    )
    record = site / "doe2030-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: doe2030\nVersion: 1.0\n")
    (record / "entry_points.txt").write_text(
        "[odekit.derivations]\ndoe2030 = doe2030:TARGETS\nbroken2031 = doe2031:TARGETS\n"
    )
    monkeypatch.syspath_prepend(site)
    yield site
    for name in [name for name in sys.modules if name.partition(".")[0] == "doe2030"]:
        del sys.modules[name]
