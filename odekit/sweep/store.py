"""Results on disk: one SQLite file, a row a run, written in transactions.

SQLite is a documented, stable format that many programs read, and a process that is killed, or a
machine that loses power, leaves the last whole transaction. Only the coordinating process writes.
"""

from __future__ import annotations

import contextlib
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

FORMAT = "odekit-sweep-1"
EVERY = 0.5
"""Seconds between transactions: what a kill may cost, against the disk's time to sync."""

_TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE runs (
    key TEXT PRIMARY KEY, number INTEGER, point TEXT NOT NULL,
    status TEXT NOT NULL DEFAULT 'missing' CHECK (status IN ('missing', 'done', 'failed')),
    reason TEXT NOT NULL DEFAULT '', seconds REAL, finished REAL
);
CREATE TABLE quantities (
    key TEXT NOT NULL REFERENCES runs(key), name TEXT NOT NULL, dtype TEXT NOT NULL,
    shape TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (key, name)
) WITHOUT ROWID;
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
        """Keep an outcome; it is on disk within `EVERY` seconds of the next one, or at `flush`."""
        self._waiting.append(outcome)
        if time.monotonic() - self._flushed > EVERY:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting, all of it or nothing."""
        if self._waiting:
            with self._reading(), self._whole():
                self._write(self._waiting)
        self._waiting.clear()
        self._flushed = time.monotonic()

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
        out: dict[str, dict[str, NDArray[Any]]] = {}
        with self._reading():
            for key, name, dtype, shape, data in self._database.execute(
                "SELECT key, name, dtype, shape, data FROM quantities"
            ):
                out.setdefault(key, {})[name] = _array(dtype, shape, data)
        return out

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
        many("DELETE FROM quantities WHERE key = ?", ((each.key,) for each in outcomes))
        many(
            "INSERT INTO quantities VALUES (?, ?, ?, ?, ?)",
            (
                (each.key, name, *_bytes(value))
                for each in outcomes
                for name, value in each.quantities.items()
            ),
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


def _bytes(value: Any) -> tuple[str, str, bytes]:
    array = np.asarray(value)
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    # The shape before that: a contiguous number has an axis.
    return little.dtype.str, json.dumps(array.shape), little.tobytes()


def _array(dtype: str, shape: str, data: bytes) -> NDArray[Any]:
    kind = np.dtype(dtype)
    sizes = tuple(json.loads(shape))
    if kind.kind not in "biufU" or math.prod(sizes) * kind.itemsize != len(data):
        raise ValueError(f"an array of {dtype} {shape} in {len(data)} bytes")
    return np.frombuffer(data, dtype=kind).reshape(sizes).copy()
