"""Silence for the warnings that our statuses replace."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["quiet"]

_lock = threading.Lock()
_depth = 0
_saved: warnings.catch_warnings[Any] | None = None


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the warnings that our statuses replace, from any number of threads at once.

    ``warnings.catch_warnings`` alone is not safe in threads: the last one out would restore the
    filters of another. Here the first one in sets the filters and the last one out restores them.
    """
    global _depth, _saved
    with _lock:
        if _depth == 0:
            _saved = warnings.catch_warnings()
            _saved.__enter__()
            warnings.filterwarnings("ignore", message="lsoda: ")
            warnings.filterwarnings("ignore", message="Diagonal number ")
            warnings.filterwarnings("ignore", message="Matrix is exactly singular")
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0 and _saved is not None:
                _saved.__exit__(None, None, None)
                _saved = None
