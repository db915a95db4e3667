"""Bookkeeping of training runs: what was run, with which versions, and where to go on from."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

import odekit
from odekit.errors import InputError
from odekit.simulate.layer import Floats, real_array
from odekit.solution import Solution, Status

__all__ = [
    "Checkpoint",
    "checked_progress",
    "configuration_of",
    "digest",
    "steps_to_save",
    "whole_number",
]

_REMEDIES = {
    Status.success: "All {steps} steps were done.",
    Status.nan: (
        "The loss is not a number after step {step}; the last good state is kept: lower lr or "
        "start smaller."
    ),
    Status.blow_up: (
        "The loss grew past every bound after step {step}; the last good state is kept: lower lr "
        "or start smaller."
    ),
    Status.interrupted: "Interrupted after step {step}; run again with the same checkpoint.",
}


def whole_number(value: Any, name: str, minimum: int) -> int:
    """Return the value as an int, or raise `InputError` when it is not whole or is too small."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer, float, np.floating)):
        raise InputError(f"{name} must be a whole number of at least {minimum}, got {value!r}.")
    if not np.isfinite(value) or value != int(value) or not minimum <= value < 2**53:
        raise InputError(f"{name} must be a whole number of at least {minimum}, got {value!r}.")
    return int(value)


def steps_to_save(save_at: ArrayLike | None, steps: int) -> NDArray[np.int64]:
    """Return the steps to record, in order; default about a thousand, evenly spaced."""
    if save_at is None:
        return np.unique(np.linspace(0, steps, min(steps, 1000) + 1).round().astype(np.int64))
    at = real_array(save_at, "save_at", ndim=1)
    if not at.size or (at != np.floor(at)).any() or at.min() < 0 or at.max() > steps:
        raise InputError(f"save_at must be whole step numbers from 0 to steps={steps}.")
    if (np.diff(at) <= 0).any():
        raise InputError("save_at must increase strictly; sort it and drop repeats.")
    return at.astype(np.int64)


def checked_progress(progress: Any) -> Any:
    """Return the callback, or raise `InputError` before a long run and not after its first part."""
    if progress is not None and not callable(progress):
        raise InputError(f"progress must be a function of (step, loss), got {progress!r}.")
    return progress


@cache
def _versions() -> dict[str, str]:
    versions = {
        "odekit": odekit.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
    for package in ("numpy", "numba", "llvmlite"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def configuration_of(routine: str, **settings: Any) -> dict[str, Any]:
    """Return the run's configuration with the versions of everything that shapes its numbers."""
    return {"routine": routine, **settings, "versions": dict(_versions()), "threads": 1}


def digest(*parts: Any) -> str:
    """Return a short hash of arrays and plain values, to know a run and its data again."""
    h = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            h.update(f"{part.dtype}{part.shape}".encode())
            h.update(np.ascontiguousarray(part).data)
        else:
            h.update(json.dumps(part, sort_keys=True, default=str).encode())
    return h.hexdigest()[:16]


def solution_of(
    *,
    t: NDArray[np.int64],
    states: Mapping[str, Floats],
    loss: Floats,
    status: Status,
    step: int,
    stats: Mapping[str, Any],
    params: Mapping[str, Any] | None = None,
    field: Any = None,
) -> Solution:
    """Put a training run into a `Solution`; `.t` counts steps."""
    message = _REMEDIES[status].format(step=step, steps=step)
    return Solution(
        t=t.astype(np.float64),
        states=dict(states),
        loss=loss,
        status=status,
        message=message,
        stats={**stats, "steps": step},
        params={str(k): np.asarray(v, dtype=np.float64) for k, v in (params or {}).items()},
        field=field,
    )


@dataclass(frozen=True)
class Checkpoint:
    """A file that a run writes as it goes and starts from when it is run again.

    Parameters
    ----------
    path : Path or None
        An ``.npz`` file; None keeps nothing.
    key : str
        Hash of the configuration, the start and the data: a file of another run is refused.
    """

    path: Path | None
    key: str

    @classmethod
    def at(cls, path: Any, key: str) -> Checkpoint:
        """Return the checkpoint at what a user gave as a path, or None."""
        if path is not None and not isinstance(path, (str, os.PathLike)):
            raise InputError(f"checkpoint must be a path, got {path!r}.")
        return cls(None if path is None else Path(path), key)

    def load(self) -> dict[str, NDArray[Any]] | None:
        """Return what was written, or None when there is nothing yet."""
        if self.path is None or not self.path.exists():
            return None
        try:
            # Opened here: NumPy leaves the file open when it is torn.
            with self.path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                content = {name: stored[name] for name in stored.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(
                f"The checkpoint {self.path} cannot be read ({error}); remove it to start anew."
            ) from error
        if str(content.pop("key", "")) != self.key:
            raise InputError(
                f"The checkpoint {self.path} belongs to a run with another configuration, start "
                "or data; give this run a path of its own, or remove the file."
            )
        return content

    def save(self, **content: Any) -> None:
        """Write atomically: a killed run leaves the old file or the new one, never half of one."""
        if self.path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.path.parent, suffix=".npz")
            with os.fdopen(handle, "wb") as file:
                np.savez(file, key=self.key, **content)
            os.replace(name, self.path)
        except OSError as error:
            raise InputError(f"The checkpoint {self.path} cannot be written: {error}.") from error
