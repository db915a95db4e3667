"""Options of a run, as small values: tolerance, limits, what to save."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.codegen.layout import Layout
from odekit.errors import InputError, unknown_name

__all__ = ["Limits", "Save", "Tolerance"]

SMALLEST_RELATIVE = 1e-14

LOOSEST_DEFAULT = 1e-8

SHARE = 1e-8
"""Absolute over relative tolerance times initial scale. With 1, Robertson's third species (1e-11
of the scale at the first output) is off by its own size and Van der Pol's slow velocity by 2e-6;
with 1e-8 both are below 1e-7, for 10 to 20 % more steps on the saddle problems."""


LARGEST = 10**18
"""Whole numbers up to here fit what counts in compiled loops."""


def _check_numbers(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        optional = options.__class__.__dataclass_fields__[name].default is None  # type: ignore[attr-defined]
        if value is None and optional:
            continue
        if isinstance(value, int) and abs(value) > LARGEST:
            raise InputError(
                f"{type(options).__name__}({name}=...) must lie below {LARGEST:.0e} in size."
            )
        if not isinstance(value, bool) and isinstance(value, Real):
            continue
        raise InputError(f"{type(options).__name__}({name}=...) must be a number, got {value!r}.")


def _check_flags(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not (value is None or isinstance(value, bool | np.bool_)):
            raise InputError(
                f"{type(options).__name__}({name}=...) must be True or False, got {value!r}."
            )


@dataclass(frozen=True)
class Tolerance:
    """Bound on the error of each step: ``absolute + relative * |y|`` for every entry.

    It bounds the error of one step, not of the run: saddles amplify errors. The defaults are
    chosen so that the achieved relative error stays below 1e-6 on the reference problems;
    ``verify=True`` measures it for the run at hand.

    Parameters
    ----------
    relative : float, optional
        Between 1e-14 and 1. Default: the method's own (see ``stats["relative_tolerance"]``); for
        initial scales below 1e-8 looser, up to 1e-8 at 1e-10, because a plateau lasts one over
        the scale and the rounding of the right-hand side adds up along it.
    absolute : float or mapping, optional
        In units of the states; a mapping gives state name -> number or array. Default:
        ``relative`` times 1e-8 of the smallest nonzero rms over the initial states, so that a
        plateau left from a tiny start is resolved, and so are entries that start at zero and
        matter while they are small; a state that starts at exactly zero takes the same scale,
        and when all start at zero the scale is one.
    floor : float
        Smallest default of ``absolute``: entries far below it count as zero.
    verify : bool
        Run once more at a hundredth of the tolerance and report the achieved error in
        ``stats["verification"]``. Costs more than the run itself.
    """

    relative: float | None = None
    absolute: float | Mapping[str, Any] | None = None
    floor: float = 1e-30
    verify: bool = False

    def __post_init__(self) -> None:
        _check_numbers(self, "relative", "floor")
        if not isinstance(self.absolute, Mapping):
            _check_numbers(self, "absolute")
        _check_flags(self, "verify")
        if self.relative is not None and not SMALLEST_RELATIVE <= self.relative < 1:
            raise InputError(
                f"The relative tolerance must lie between {SMALLEST_RELATIVE:g} and 1, got "
                f"{self.relative!r}."
            )
        if isinstance(self.absolute, (int, float)) and not 0 < self.absolute < math.inf:
            raise InputError(f"The absolute tolerance must be positive, got {self.absolute!r}.")
        if not 0 < self.floor < math.inf:
            raise InputError(
                f"The floor of the absolute tolerance must be positive, got {self.floor!r}."
            )

    def relative_for(self, layout: Layout, y0: NDArray[np.float64], default: float) -> float:
        """Return the relative tolerance of a run.

        Parameters
        ----------
        layout : Layout
        y0 : ndarray (n,)
        default : float
            The method's own.

        Returns
        -------
        float
        """
        if self.relative is not None:
            return self.relative
        noise = 0.005 * float(np.finfo(np.float64).eps) / initial_scale(layout, y0)
        return max(default, min(noise, LOOSEST_DEFAULT))

    def absolute_for(
        self, layout: Layout, y0: NDArray[np.float64], relative: float
    ) -> NDArray[np.float64]:
        """Return the absolute tolerance of each entry.

        Parameters
        ----------
        layout : Layout
        y0 : ndarray (n,)
        relative : float
            The relative tolerance of the run.

        Returns
        -------
        ndarray (n,)
        """
        if self.absolute is not None and not isinstance(self.absolute, Mapping):
            return np.full(layout.size, float(self.absolute))
        default = max(relative * SHARE * initial_scale(layout, y0), self.floor)
        out = np.full(layout.size, default)
        if isinstance(self.absolute, Mapping):
            for name, value in self.absolute.items():
                if name not in layout.slices:
                    raise unknown_name("state", name, layout.slices)
                values = np.asarray(value, dtype=np.float64)
                shape = dict(layout.states)[name]
                if values.shape not in ((), shape):
                    raise InputError(
                        f"The absolute tolerance of {name!r} has shape {values.shape}, expected a "
                        f"number or {shape}."
                    )
                if not bool(np.all((values > 0) & np.isfinite(values))):
                    raise InputError(f"The absolute tolerance of {name!r} must be positive.")
                out[layout.slices[name]] = np.broadcast_to(values, shape).reshape(-1)
        return out


def initial_scale(layout: Layout, y0: NDArray[np.float64]) -> float:
    """Smallest nonzero root mean square over the initial states; one when all are zero."""
    sizes = [_rms(y0[where]) for where in layout.slices.values()]
    return min((size for size in sizes if size > 0), default=1.0)


def _rms(values: NDArray[np.float64]) -> float:
    total = float(np.dot(values, values))
    if not 1e-200 < total < 1e200:  # the squares may underflow or overflow
        peak = float(np.max(np.abs(values), initial=0.0))
        return peak * _rms(values / peak) if peak > 0 else 0.0
    return math.sqrt(total / len(values))


@dataclass(frozen=True)
class Limits:
    """What a run may use before it ends with a status of its own.

    Parameters
    ----------
    steps : int
        Most steps of the method.
    seconds : float, optional
        Most wall-clock time; None for no limit.
    blow_up : float
        Largest size of the state before the run counts as blown up.
    """

    steps: int = 1_000_000
    seconds: float | None = None
    blow_up: float = 1e100

    def __post_init__(self) -> None:
        _check_numbers(self, "steps", "seconds", "blow_up")
        if not (self.steps >= 1 and self.steps == int(min(self.steps, LARGEST))):
            raise InputError(
                f"Limits(steps=...) must be a whole number of at least 1, got {self.steps!r}."
            )
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"Limits(seconds=...) must be positive, got {self.seconds!r}.")
        if not 0 < self.blow_up <= 1e150:
            raise InputError(
                f"Limits(blow_up=...) must lie between 0 and 1e150, got {self.blow_up!r}."
            )


@dataclass(frozen=True)
class Save:
    """What a run stores.

    Parameters
    ----------
    dense : bool, optional
        Keep the method's own interpolant, so that ``sol.at(t)`` takes any time. Default: only
        when the run was given an end time instead of output times.
    points : int
        When given an end time: most accepted steps to store as outputs; beyond it every second
        one is dropped.
    memory : float
        Most bytes for the interpolant; a run that needs more goes on without it and says so in
        ``stats["notes"]``.
    """

    dense: bool | None = None
    points: int = 20_000
    memory: float = 256e6

    def __post_init__(self) -> None:
        _check_numbers(self, "points", "memory")
        _check_flags(self, "dense")
        if not self.points >= 2:
            raise InputError(f"Save(points=...) must be at least 2, got {self.points!r}.")
        if not self.memory > 0:
            raise InputError(f"Save(memory=...) must be positive, got {self.memory!r}.")
