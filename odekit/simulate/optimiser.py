"""Optimisers of discrete training."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from odekit.errors import InputError
from odekit.simulate import loops
from odekit.simulate.layer import Floats

__all__ = ["Optimiser", "as_optimiser"]

_NAMES = ("gd", "sgd", "heavy ball", "adamw")


@dataclass(frozen=True)
class Optimiser:
    """How a gradient becomes a step.

    Parameters
    ----------
    name : {"gd", "sgd", "heavy ball", "adamw"}
        "gd" and "sgd" are the plain step `theta -= lr g`; "heavy ball" is
        `velocity = momentum * velocity - lr g`; "adamw" decouples the decay from the gradient.
    momentum : float, optional
        Of the heavy ball (default 0.9), or the first decay rate of AdamW (default 0.9).
    second : float
        AdamW's decay rate of squared gradients.
    epsilon : float
        AdamW's guard of the denominator.
    decay : float
        AdamW's weight decay; a step multiplies the weights by `1 - lr * decay`.

    References
    ----------
    I. Loshchilov and F. Hutter, Decoupled weight decay regularization, ICLR 2019.
    """

    name: str
    momentum: float | None = None
    second: float = 0.999
    epsilon: float = 1e-8
    decay: float = 0.01

    def __post_init__(self) -> None:
        if self.name not in _NAMES:
            raise InputError(f"optimiser must be one of {', '.join(_NAMES)}, got {self.name!r}.")
        plain = self.name in ("gd", "sgd")
        if plain and self.momentum:
            raise InputError(f'{self.name!r} has no momentum; use Optimiser("heavy ball", ...).')
        if self.momentum is None:
            object.__setattr__(self, "momentum", 0.0 if plain else 0.9)
        for name in ("momentum", "second"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(
                    f"{name} must be at least 0 and below 1, got {getattr(self, name)!r}."
                )
        if not (self.epsilon > 0 and self.decay >= 0):
            raise InputError("epsilon must be positive and decay at least 0.")

    @property
    def code(self) -> int:
        """The number of this update in the compiled loops."""
        return {"heavy ball": loops.HEAVY_BALL, "adamw": loops.ADAMW}.get(self.name, loops.PLAIN)

    def hyper(self, lr: float) -> Floats:
        """Numbers that the compiled update reads."""
        return np.array([lr, self.momentum, self.second, self.epsilon, self.decay])


def as_optimiser(value: str | Optimiser) -> Optimiser:
    """Return an `Optimiser` for a name."""
    return value if isinstance(value, Optimiser) else Optimiser(value)
