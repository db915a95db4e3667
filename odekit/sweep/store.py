"""Results on disk: one SQLite file, a row a run, written in transactions.

SQLite is a documented, stable format that many programs read, and a process that is killed, or a
machine that loses power, leaves the last whole transaction. Only the coordinating process writes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import sqlite3
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError
from odekit.sweep.plan import Sweep

__all__ = ["Outcome", "Store"]

FORMAT = "odekit-sweep-3"
EVERY = 0.5
"""Seconds between transactions: what a kill may cost, against the disk's time to sync."""

SHARE, LONGEST = 0.05, 5.0
"""Where a disk is slow to sync, transactions are further apart: so that they take this share of
the time, but never further than so many seconds."""

# Results lie in the order of the runs, not of their hashes: rows of one transaction share pages.
_TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, number INTEGER, point TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'missing' CHECK (status IN ('missing', 'done', 'failed')),
    reason TEXT NOT NULL DEFAULT '', seconds REAL, finished REAL
);
CREATE TABLE quantities (
    run INTEGER PRIMARY KEY REFERENCES runs(id), layout TEXT NOT NULL, data BLOB NOT NULL
);
"""


@dataclass(frozen=True)
class Outcome:
    """What became of one run.

    Attributes
    ----------
    key : str
    quantities : mapping
        Empty for a failed run.
    reason : str
        Why it failed; empty for one that did not.
    seconds : float
        Time inside its task.
    """

    key: str
    quantities: Mapping[str, NDArray[Any]]
    reason: str = ""
    seconds: float = 0.0


class Store:
    """A store of results, open; a context manager.

    Parameters
    ----------
    path : path
    create : bool
        Whether to make one where there is none.
    """

    def __init__(self, path: Path | str, *, create: bool = False) -> None:
        self.path = Path(path)
        if not self.path.exists():
            if not create:
                raise InputError(f"No sweep at {str(path)!r}: no such file.")
            if not self.path.parent.is_dir():
                raise InputError(f"Folder {str(self.path.parent)!r} does not exist; make it first.")
        try:
            self._database = sqlite3.connect(self.path, isolation_level=None, timeout=30.0)
            new = not self._database.execute("SELECT 1 FROM sqlite_master").fetchone()
            if new and create:
                with self._whole():
                    for statement in _TABLES.split(";\n"):
                        self._database.execute(statement)
                    self._say("format", FORMAT)
            found = self.about("format")
        except sqlite3.Error as error:
            raise self._damaged(error) from None
        if found != FORMAT:
            raise self._damaged(f"its format is {found!r}")
        self._waiting: list[Outcome] = []
        self._flushed = time.monotonic()
        self._pause = EVERY

    def plan(self, sweep: Sweep) -> None:
        """Enter the runs of a sweep; those that are there already keep their results."""
        with self._reading(), self._whole():
            self._database.execute("UPDATE runs SET number = NULL")
            self._database.executemany(
                "INSERT INTO runs (key, number, point) VALUES (?, ?, ?) ON CONFLICT (key) DO "
                "UPDATE SET number = excluded.number, point = excluded.point",
                ((r.key, k, json.dumps(dict(r.point))) for k, r in enumerate(sweep.runs)),
            )
            self._say("title", sweep.title)
            self._say("axes", json.dumps({name: list(v) for name, v in sweep.axes.items()}))

    def statuses(self) -> dict[str, str]:
        """Key -> "missing", "done" or "failed", for the runs of the plan, in order."""
        with self._reading():
            return dict(
                self._database.execute(
                    "SELECT key, status FROM runs WHERE number IS NOT NULL ORDER BY number"
                )
            )

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome; it is on disk with the first one after the pause, or at `flush`."""
        self._waiting.append(outcome)
        if time.monotonic() - self._flushed > self._pause:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting, all of it or nothing."""
        began = time.monotonic()
        if self._waiting:
            with self._reading(), self._whole():
                self._write(self._waiting)
        self._waiting.clear()
        self._flushed = time.monotonic()
        self._pause = min(max(EVERY, (self._flushed - began) / SHARE), LONGEST)

    def rows(self) -> list[tuple[str, dict[str, Any], str, str, float | None]]:
        """Key, point, status, reason and seconds of each run of the plan, in order."""
        with self._reading():
            found = self._database.execute(
                "SELECT key, point, status, reason, seconds FROM runs "
                "WHERE number IS NOT NULL ORDER BY number"
            ).fetchall()
            return [(key, json.loads(point), *rest) for key, point, *rest in found]

    def quantities(self) -> dict[str, dict[str, NDArray[Any]]]:
        """Key -> name -> array, for every run that has results."""
        with self._reading():
            found = self._database.execute(
                "SELECT key, layout, data FROM quantities JOIN runs ON run = id"
            )
            return {key: _arrays(layout, data) for key, layout, data in found}

    def about(self, name: str) -> str:
        """One of the store's own properties: format, title, axes."""
        with self._reading():
            row = self._database.execute("SELECT value FROM about WHERE name = ?", (name,))
            found = row.fetchone()
        return "" if found is None else str(found[0])

    def close(self) -> None:
        """Write what is waiting and close."""
        try:
            self.flush()
        finally:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _write(self, outcomes: list[Outcome]) -> None:
        many, now = self._database.executemany, time.time()
        many(
            "UPDATE runs SET status = ?, reason = ?, seconds = ?, finished = ? WHERE key = ?",
            (
                ("failed" if each.reason else "done", each.reason, each.seconds, now, each.key)
                for each in outcomes
            ),
        )
        # A run that is done is not run again, and one that failed left none: nothing to delete.
        many(
            "INSERT OR REPLACE INTO quantities VALUES ((SELECT id FROM runs WHERE key = ?), ?, ?)",
            ((each.key, *_bytes(each.quantities)) for each in outcomes if each.quantities),
        )

    def _say(self, name: str, value: str) -> None:
        self._database.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", (name, value))

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, ValueError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise self._damaged(error) from None

    def _damaged(self, why: Any) -> InputError:
        return InputError(
            f"{str(self.path)!r} is not a sweep that odekit wrote, or is damaged or in use "
            f"({why}); name another file."
        )


def _bytes(quantities: Mapping[str, NDArray[Any]]) -> tuple[str, bytes]:
    """Names, types and shapes as JSON; and the arrays one after the other, little-endian."""
    kinds, parts = [], []
    for name, value in quantities.items():
        array = np.asarray(value)
        if array.dtype.str.startswith(">"):
            array = array.astype(array.dtype.newbyteorder("<"))
        kinds.append((name, array.dtype.str, array.shape))
        parts.append(array.tobytes())
    return _layout_text(tuple(kinds)), b"".join(parts)


# The runs of a sweep mostly have one layout.
@functools.lru_cache(maxsize=256)
def _layout_text(kinds: tuple[tuple[str, str, tuple[int, ...]], ...]) -> str:
    return json.dumps(kinds)


@functools.lru_cache(maxsize=256)
def _layout(text: str) -> list[tuple[str, np.dtype[Any], tuple[int, ...], int]]:
    """Name, type, shape and first byte of each array; last, the end of all."""
    out, start = [], 0
    for name, dtype, shape in json.loads(text):
        kind, sizes = np.dtype(dtype), tuple(shape)
        if kind.kind not in "biufU" or min(sizes, default=0) < 0:
            raise ValueError(f"an array of {dtype} {shape}")
        out.append((str(name), kind, sizes, start))
        start += math.prod(sizes) * kind.itemsize
    return [*out, ("", np.dtype("u1"), (), start)]


def _arrays(layout: str, data: bytes) -> dict[str, NDArray[Any]]:
    *kinds, (_, _, _, size) = _layout(layout)
    if size != len(data):
        raise ValueError(f"{layout} in {len(data)} bytes")
    return {
        name: np.ndarray(shape, dtype, data, start).copy() for name, dtype, shape, start in kinds
    }
