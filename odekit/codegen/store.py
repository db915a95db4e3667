"""Generated modules on disk."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["load_module"]


def load_module(source: str) -> Any:
    """Import generated source from a file of its own."""
    key = hashlib.sha256(source.encode()).hexdigest()[:16]
    folder = Path(tempfile.mkdtemp(prefix="odekit-"))
    path = folder / f"odekit_{key}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module
