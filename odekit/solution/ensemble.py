"""Many runs of one field: the members, their stack, and quantile bands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError, unknown_name
from odekit.solution.solution import Solution
from odekit.solution.status import Status

__all__ = ["Ensemble"]


@dataclass(frozen=True, eq=False, repr=False)
class Ensemble:
    """Runs of one field from several starts or parameter sets.

    Parameters
    ----------
    members : tuple of Solution
        In the order given; failed ones are kept, with their status and partial trajectory.
    stats : mapping
        Workers, seconds, and counts of each status.
    """

    members: tuple[Solution, ...]
    stats: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.members)

    def __getitem__(self, index: int) -> Solution:
        return self.members[index]

    def __iter__(self) -> Iterator[Solution]:
        return iter(self.members)

    @property
    def statuses(self) -> tuple[Status, ...]:
        """How each member ended, (M,)."""
        return tuple(member.status for member in self.members)

    @property
    def failed(self) -> tuple[int, ...]:
        """Positions of the members that neither reached their end nor a terminal event."""
        return tuple(k for k, member in enumerate(self.members) if not member.status.ok)

    @property
    def t(self) -> NDArray[np.float64]:
        """Output times that the members share, (K,); those of the longest where some failed."""
        longest = max(self.members, key=_reached)
        times = longest.t[: _reached(longest)]
        for member in self.members:
            count = _reached(member)
            if not np.array_equal(member.t[:count], times[:count]):
                raise InputError(
                    "The members have times of their own; give output times, not an end time, "
                    "to stack them."
                )
        return times

    def stack(self, name: str) -> NDArray[np.float64]:
        """Return one state, or ``"loss"``, of all members.

        Parameters
        ----------
        name : str

        Returns
        -------
        ndarray (M, K, *shape)
            NaN after the end of a member that failed.
        """
        return self._stacked(lambda member: _named(member, name))

    def value(self, expr: Any, params: Any = None) -> NDArray[np.float64]:
        """Return any expression along all members, ``(M, K, *shape)``; see `Solution.value`."""
        return self._stacked(lambda member: member.value(expr, params))

    def quantiles(
        self, name: str = "loss", q: Sequence[float] = (0.05, 0.25, 0.5, 0.75, 0.95)
    ) -> NDArray[np.float64]:
        """Return quantile bands over the members.

        Parameters
        ----------
        name : str
            A state or ``"loss"``.
        q : sequence of float
            Between zero and one.

        Returns
        -------
        ndarray (len(q), K, *shape)
            Over the members that have the output; members that ended before it are left out of
            it (their number is in ``stats``).
        """
        levels = np.asarray(q, dtype=np.float64)
        if not bool(np.all((levels >= 0) & (levels <= 1))):
            raise InputError(f"Quantiles must lie between 0 and 1, got {list(q)}.")
        return np.asarray(np.nanquantile(self.stack(name), levels, axis=0))

    def _stacked(self, read: Callable[[Solution], NDArray[np.float64]]) -> NDArray[np.float64]:
        length = len(self.t)
        values = [read(member)[: _reached(member)] for member in self.members]
        shape = next(value.shape[1:] for value in values)
        out = np.full((len(values), length, *shape), np.nan)
        for row, value in zip(out, values, strict=True):
            row[: len(value)] = value
        return out

    def __repr__(self) -> str:
        counts = {status: self.statuses.count(status) for status in dict.fromkeys(self.statuses)}
        listed = ", ".join(f"{count} {status}" for status, count in counts.items())
        return f"Ensemble({len(self)} members: {listed})"

    def _repr_html_(self) -> str:
        counts = {status: self.statuses.count(status) for status in dict.fromkeys(self.statuses)}
        rows = [("members", str(len(self))), *((str(k), str(n)) for k, n in counts.items())]
        ends = [member.loss[-1] for member in self.members if member.loss is not None and member]
        if ends:
            rows.append(("loss at the end", f"{min(ends):.6g} to {max(ends):.6g}"))
        rows += [
            (name, f"{value:.3g}" if isinstance(value, float) else str(value))
            for name, value in self.stats.items()
            if name in ("workers", "seconds")
        ]
        cells = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td>{escape(text)}</td></tr>"
            for name, text in rows
        )
        return f"<table>{cells}</table>"


def _reached(member: Solution) -> int:
    """How many outputs a member reached; the last point of one that ended early is not one."""
    return int(member.stats.get("outputs", len(member)))


def _named(member: Solution, name: str) -> NDArray[np.float64]:
    if name == "loss":
        if member.loss is None:
            raise InputError("The field has no loss; name one of its states.")
        return member.loss
    if name not in member.states:
        raise unknown_name("state", name, [*member.states, "loss"])
    return member.states[name]
