"""Where each named state and parameter sits in the flat arrays of a compiled field."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odekit.errors import InputError, unknown_name

__all__ = ["Layout"]

Shape = tuple[int, ...]
Entries = tuple[tuple[str, Shape], ...]

SYMMETRY_TOLERANCE = 1e-12
"""Relative asymmetry, or relative negative eigenvalue, that rounding alone may leave."""


@dataclass(frozen=True)
class Layout:
    """Order and shapes of a field's states and parameters in flat float64 arrays.

    Parameters
    ----------
    states : tuple of (name, shape)
        States in the order of the flat state ``y (n,)``; each is raveled in C order.
    parameters : tuple of (name, shape)
        Parameters in the order of the flat array ``p``; sizes and scalars have shape ``()``.
    scratch : int
        Length of the tail of ``p`` that the right-hand side writes its intermediates to.
    symmetric : tuple of str
        Parameters that must be symmetric matrices.
    covariances : tuple of str
        Parameters that must be symmetric positive semidefinite matrices.
    positive : tuple of str
        Parameters whose entries must all be above zero (sizes, context lengths).
    symmetries : tuple of (name, groups of axes)
        Parameters of any rank that do not change when axes of a group are exchanged.
    integers : tuple of str
        Parameters that must be whole numbers.
    constants : tuple of (name, number)
        Sizes fixed in the code: the same number is accepted among the parameters, others are not.
    prepare : callable, optional
        ``prepare(p)`` fills the part of the tail that depends on the parameters alone.
    """

    states: Entries
    parameters: Entries = ()
    scratch: int = 0
    symmetric: tuple[str, ...] = ()
    covariances: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()
    symmetries: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = ()
    integers: tuple[str, ...] = ()
    constants: tuple[tuple[str, int], ...] = ()
    prepare: Callable[[NDArray[np.float64]], None] | None = field(
        default=None, compare=False, repr=False
    )

    @cached_property
    def size(self) -> int:
        """Length ``n`` of the flat state."""
        return _total(self.states)

    @cached_property
    def parameter_size(self) -> int:
        """Length of the flat parameters without the scratch tail."""
        return _total(self.parameters)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Where each state sits in the flat state."""
        return _slices(self.states)

    @cached_property
    def parameter_slices(self) -> dict[str, slice]:
        """Where each parameter sits in the flat parameters."""
        return _slices(self.parameters)

    def pack(self, state: Mapping[str, Any]) -> NDArray[np.float64]:
        """Flatten named states.

        Parameters
        ----------
        state : mapping
            State name -> array of the state's shape; real and finite.

        Returns
        -------
        ndarray (n,)
            Freshly allocated.

        Raises
        ------
        InputError
            For a missing or unknown name, a wrong shape, and entries that are complex, NaN or
            infinite.
        """
        out = np.empty(self.size)
        _fill(out, "state", self.states, self.slices, state)
        return out

    def unpack(self, y: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Name the parts of flat states.

        Parameters
        ----------
        y : ndarray (..., n)
            One flat state or a stack of them.

        Returns
        -------
        dict
            State name -> array ``(..., *shape)``; views of ``y`` where NumPy can make them.
        """
        if y.shape[-1] != self.size:
            raise InputError(
                f"The flat state has length {y.shape[-1]}, but this field's states take "
                f"{self.size}: {_listed(self.states)}."
            )
        shapes = dict(self.states)
        return {
            name: y[..., where].reshape(y.shape[:-1] + shapes[name])
            for name, where in self.slices.items()
        }

    def pack_parameters(self, params: Mapping[str, Any] | None = None) -> NDArray[np.float64]:
        """Flatten named parameters and append the scratch tail.

        Parameters
        ----------
        params : mapping, optional
            Parameter name -> number or array of the parameter's shape; real and finite.

        Returns
        -------
        ndarray (parameter_size + scratch,)
            Freshly allocated, the tail zero. The right-hand side writes to the tail: give each
            thread a copy of its own.

        Raises
        ------
        InputError
            As for `pack`, and for a matrix that is not symmetric or not positive semidefinite
            where it must be, and for a size that is not positive.
        """
        out = _aligned_zeros(self.parameter_size + self.scratch)
        values = _fill(out, "parameter", self.parameters, self.parameter_slices, self._open(params))
        # Checks and preparation take longer than a small solve: those of the last call hold for
        # equal parameters.
        content = out[: self.parameter_size].tobytes()
        last, ready = self._packed.get("last", (None, out))
        if content == last:
            out[:] = ready
            return out
        groups = {name: ((0, 1),) for name in (*self.symmetric, *self.covariances)}
        for name, own in {**groups, **dict(self.symmetries)}.items():
            _check_symmetric(name, values[name], own)
        for name in self.integers:
            if not bool(np.all(values[name] == np.round(values[name]))):
                raise InputError(
                    f"Parameter {name!r} must be an integer, got {float(values[name]):g}."
                )
        for name in self.covariances:
            _check_semidefinite(name, values[name])
        for name in self.positive:
            if not bool(np.all(values[name] > 0)):
                raise InputError(
                    f"Parameter {name!r} must be positive, got {float(np.min(values[name])):g}; "
                    "give a size of at least one."
                )
        if self.prepare is not None:
            try:
                with np.errstate(all="ignore"):
                    self.prepare(out)
            except (ArithmeticError, ValueError) as error:
                raise InputError(
                    f"The parameters give a coefficient that is no number ({error}); "
                    f"check {_listed(self.parameters)}."
                ) from None
        self._packed["last"] = content, out.copy()
        return out

    @cached_property
    def _packed(self) -> dict[str, tuple[bytes | None, NDArray[np.float64]]]:
        """The parameters packed last, by their bytes."""
        return {}

    def _open(self, params: Mapping[str, Any] | None) -> Mapping[str, Any]:
        """Parameters without the sizes that are fixed in the code."""
        fixed = dict(self.constants)
        if not isinstance(params, Mapping) or not fixed:
            return {} if params is None else params
        kept = {}
        for name, value in params.items():
            own = str(getattr(name, "name", name))
            if own not in fixed:
                kept[name] = value
            elif np.shape(value) != () or value != fixed[own]:
                raise InputError(
                    f"{own} is fixed at {fixed[own]} in this field, not {value}; leave it out or "
                    "compile the field for other sizes."
                )
        return kept

    def unpack_parameters(self, p: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
        """Name the parts of flat parameters, the scratch tail left out.

        Parameters
        ----------
        p : ndarray (>= parameter_size,)

        Returns
        -------
        dict
            Parameter name -> copy of its values in its shape.
        """
        shapes = dict(self.parameters)
        return {
            name: p[where].reshape(shapes[name]).copy()
            for name, where in self.parameter_slices.items()
        }


def _aligned_zeros(count: int) -> NDArray[np.float64]:
    """Zeros that begin at a cache line, 64 bytes."""
    room = np.zeros(count + 8)
    skip = -(room.ctypes.data // 8) % 8
    return room[skip : skip + count]


def _total(entries: Entries) -> int:
    return sum(math.prod(shape) for _, shape in entries)


def _slices(entries: Entries) -> dict[str, slice]:
    out: dict[str, slice] = {}
    start = 0
    for name, shape in entries:
        stop = start + math.prod(shape)
        out[name] = slice(start, stop)
        start = stop
    return out


def _listed(entries: Entries) -> str:
    return ", ".join(f"{name} {shape}" if shape else name for name, shape in entries) or "none"


def _fill(
    out: NDArray[np.float64],
    kind: str,
    entries: Entries,
    slices: Mapping[str, slice],
    values: Mapping[str, Any],
) -> dict[str, NDArray[np.float64]]:
    if not isinstance(values, Mapping):
        raise InputError(
            f"The {kind}s must be a mapping from name to array, got "
            f"{type(values).__name__}; names: {_listed(entries)}."
        )
    given = {str(getattr(name, "name", name)): value for name, value in values.items()}
    known = [name for name, _ in entries]
    for name in given:
        if name not in known:
            raise unknown_name(kind, name, known)
    missing = [name for name in known if name not in given]
    if missing:
        raise InputError(
            f"Missing {kind} {', '.join(map(repr, missing))}; give all of: {_listed(entries)}."
        )
    checked: dict[str, NDArray[np.float64]] = {}
    for (name, shape), where in zip(entries, slices.values(), strict=True):
        array = _real(kind, name, given[name])
        if array.shape != shape:
            raise InputError(
                f"{kind.capitalize()} {name!r} has shape {array.shape}, expected {shape}; "
                "reshape it or compile the field for other sizes."
            )
        checked[name] = array
        out[where] = array.reshape(-1)
    return checked


def _real(kind: str, name: str, value: Any) -> NDArray[np.float64]:
    try:
        array = np.asarray(value)
        if array.dtype.kind == "O":  # SymPy numbers, fractions
            array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{kind.capitalize()} {name!r} is not an array of numbers that float64 holds (got "
            f"{type(value).__name__}); give numbers."
        ) from None
    if array.dtype.kind not in "biuf":
        raise InputError(
            f"{kind.capitalize()} {name!r} has entries of type {array.dtype}, expected real "
            "numbers; take the real part or convert to float."
        )
    array = array.astype(np.float64)
    if not bool(np.isfinite(array).all()):
        raise InputError(
            f"{kind.capitalize()} {name!r} holds NaN or infinity; every entry must be finite."
        )
    return array


def _check_symmetric(
    name: str, array: NDArray[np.float64], groups: tuple[tuple[int, ...], ...]
) -> None:
    scale = float(np.max(np.abs(array), initial=0.0))
    for group in groups:
        for first, second in zip(group, group[1:], strict=False):
            gap = float(np.max(np.abs(array - np.swapaxes(array, first, second)), initial=0.0))
            if gap > SYMMETRY_TOLERANCE * scale:
                raise InputError(
                    f"Parameter {name!r} is not symmetric (largest gap {gap:.3g}); "
                    f"pass ({name} + {name}.T) / 2."
                )


def _check_semidefinite(name: str, matrix: NDArray[np.float64]) -> None:
    values = np.linalg.eigvalsh(matrix)
    if values.size and values[0] < -SYMMETRY_TOLERANCE * max(abs(values[0]), abs(values[-1])):
        raise InputError(
            f"Parameter {name!r} must be a covariance (positive semidefinite), got an "
            f"eigenvalue of {values[0]:.3g}; check its sign and entries."
        )
