"""Runs on disk: one ``.npz`` of arrays with a JSON header, written atomically, read unpickled."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError
from odekit.solution.event import Event
from odekit.solution.interpolant import Interpolant
from odekit.solution.status import Status

if TYPE_CHECKING:
    from odekit.solution.solution import Solution

__all__ = ["read", "write"]

FORMAT = "odekit-solution-1"


def write(solution: Solution, path: str | PathLike[str]) -> None:
    """Write a solution to ``path``, at once or not at all."""
    arrays: dict[str, NDArray[Any]] = {"t": solution.t}
    for position, values in enumerate(solution.states.values()):
        arrays[f"state{position}"] = values
    for position, value in enumerate(solution.params.values()):
        arrays[f"param{position}"] = np.asarray(value)
    if solution.loss is not None:
        arrays["loss"] = solution.loss
    if solution.interpolant is not None:
        arrays["breaks"] = solution.interpolant.breaks
        arrays["coefficients"] = solution.interpolant.coefficients
    header: dict[str, Any] = {
        "format": FORMAT,
        "states": list(solution.states),
        "params": list(solution.params),
        "status": str(solution.status),
        "message": solution.message,
        "stats": _plain(solution.stats),
        "nested": solution.interpolant is not None and solution.interpolant.nested,
        "events": [],
    }
    for number, event in enumerate(solution.events):
        header["events"].append(
            {
                "label": event.label,
                "kind": event.kind,
                "t": event.t,
                "loss": event.loss,
                "value": event.value,
                "direction": event.direction,
                "terminal": event.terminal,
                "states": list(event.state),
            }
        )
        for position, value in enumerate(event.state.values()):
            arrays[f"event{number}_{position}"] = value
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    target = read_path(path)
    if target.is_dir():
        raise InputError(f"Cannot write {str(target)!r}: it is a folder; give a file's name.")
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".", suffix=".npz")
    except OSError as error:
        raise InputError(
            f"Cannot write {str(target)!r}: {error.strerror}; choose a folder that exists and "
            "that you may write to."
        ) from None
    try:
        with os.fdopen(handle, "wb") as stream:
            np.savez(stream, allow_pickle=False, **arrays)
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_path(path: Any) -> Path:
    """A path, or say that it is none."""
    try:
        return Path(path)
    except TypeError:
        raise InputError(f"A path must be text or a pathlib.Path, got {path!r:.60}.") from None


def read(path: str | PathLike[str]) -> Solution:
    """Read what `write` wrote."""
    from odekit.solution.solution import Solution

    path = read_path(path)
    try:
        # A stream of our own: NumPy leaves the file open when it turns out to be damaged.
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays["header"].tobytes())
        if header["format"] != FORMAT:
            raise KeyError("format")
    except FileNotFoundError:
        raise InputError(f"No solution at {os.fspath(path)!r}: no such file.") from None
    except (OSError, KeyError, ValueError, TypeError, AttributeError, zipfile.BadZipFile):
        raise InputError(
            f"{os.fspath(path)!r} is not a solution that odekit wrote, or is damaged; "
            "write it again with Solution.save."
        ) from None
    events = tuple(
        Event(
            state={
                name: arrays[f"event{number}_{position}"]
                for position, name in enumerate(entry.pop("states"))
            },
            **entry,
        )
        for number, entry in enumerate(header["events"])
    )
    interpolant = (
        Interpolant(arrays["breaks"], arrays["coefficients"], header["nested"])
        if "breaks" in arrays
        else None
    )
    return Solution(
        t=arrays["t"],
        states={name: arrays[f"state{k}"] for k, name in enumerate(header["states"])},
        loss=arrays.get("loss"),
        status=Status(header["status"]),
        message=header["message"],
        stats=header["stats"],
        events=events,
        params={name: arrays[f"param{k}"] for k, name in enumerate(header["params"])},
        interpolant=interpolant,
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
