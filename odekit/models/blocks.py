"""How the states of a whole attention layer fall into blocks.

The layer's value row ``u_h`` and the key side carry one more entry than the token: what they hold
for the label. The reduced models keep ``u_h = (0, v_h)`` and zero on the key side.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from odekit.errors import InputError, unknown_name


def _read(state: Mapping[str, Any], names: tuple[str, ...]) -> tuple[Any, ...]:
    for name in state:
        if name not in names:
            raise unknown_name("state", name, names)
    missing = [name for name in names if name not in state]
    if missing:
        raise InputError(f"No value for state {', '.join(missing)}. States: {', '.join(names)}.")
    return tuple(np.asarray(state[name], dtype=np.float64) for name in names)


class Blocks(ABC):
    """The four maps between whole-layer states, block tensors and reduced states."""

    @abstractmethod
    def unpack(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Whole-layer states to block tensors."""

    @abstractmethod
    def pack(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Block tensors to whole-layer states."""

    @abstractmethod
    def lift(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Reduced states to whole-layer states."""

    @abstractmethod
    def restrict(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Whole-layer states to reduced states."""


@dataclass(frozen=True)
class MergedBlocks(Blocks):
    """Merged: ``u`` (H, D+1) and ``A`` (H, D, D+1), query first; reduced ``v``, ``U = A^T``."""

    def unpack(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Whole-layer states to block tensors."""
        u, A = _read(state, ("u", "A"))
        return {"u_x": u[..., :-1], "u_y": u[..., -1], "A_x": A[..., :-1], "A_y": A[..., -1]}

    def pack(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Block tensors to whole-layer states."""
        u_x, u_y, A_x, A_y = _read(state, ("u_x", "u_y", "A_x", "A_y"))
        return {
            "u": np.concatenate([u_x, u_y[..., None]], axis=-1),
            "A": np.concatenate([A_x, A_y[..., None]], axis=-1),
        }

    def lift(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Reduced states to whole-layer states: note the transpose."""
        v, U = _read(state, ("v", "U"))
        return self.pack(
            {
                "u_x": np.zeros((*v.shape, U.shape[-1])),
                "u_y": v,
                "A_x": np.swapaxes(U, -1, -2),
                "A_y": np.zeros(U.shape[:-1]),
            }
        )

    def restrict(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Whole-layer states to reduced states."""
        blocks = self.unpack(state)
        return {"v": blocks["u_y"], "U": np.swapaxes(blocks["A_x"], -1, -2)}


@dataclass(frozen=True)
class SeparateBlocks(Blocks):
    """Separate: ``u`` (H, D+1), ``K`` (H, R, D+1), ``Q`` (H, R, D); reduced ``v``, ``K``, ``Q``."""

    def unpack(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Whole-layer states to block tensors."""
        u, K, Q = _read(state, ("u", "K", "Q"))
        return {
            "u_x": u[..., :-1],
            "u_y": u[..., -1],
            "K_x": K[..., :-1],
            "K_y": K[..., -1],
            "Q": Q,
        }

    def pack(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Block tensors to whole-layer states."""
        u_x, u_y, K_x, K_y, Q = _read(state, ("u_x", "u_y", "K_x", "K_y", "Q"))
        return {
            "u": np.concatenate([u_x, u_y[..., None]], axis=-1),
            "K": np.concatenate([K_x, K_y[..., None]], axis=-1),
            "Q": Q,
        }

    def lift(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Reduced states to whole-layer states."""
        v, K, Q = _read(state, ("v", "K", "Q"))
        return self.pack(
            {
                "u_x": np.zeros((*v.shape, K.shape[-1])),
                "u_y": v,
                "K_x": K,
                "K_y": np.zeros(K.shape[:-1]),
                "Q": Q,
            }
        )

    def restrict(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Whole-layer states to reduced states."""
        blocks = self.unpack(state)
        return {"v": blocks["u_y"], "K": blocks["K_x"], "Q": blocks["Q"]}
