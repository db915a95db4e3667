"""Optimisers of discrete training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from odekit.errors import InputError, unknown_name
from odekit.simulate import loops
from odekit.simulate.layer import Floats, positive_number

__all__ = ["LearningRate", "Optimiser", "as_optimiser", "read_rate"]

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

    def hyper(self, lr: float, scales: Floats | None = None) -> Floats:
        """Numbers that the compiled update reads; `scales` (n,) multiply lr for each weight."""
        fixed = np.array([lr, self.momentum, self.second, self.epsilon, self.decay])
        return fixed if scales is None else np.concatenate([fixed, scales])


@dataclass(frozen=True)
class LearningRate:
    """One learning rate, or one for each state.

    Parameters
    ----------
    value : float
        The largest.
    each : dict or None
        State name to learning rate; None where all have the one.
    """

    value: float
    each: Mapping[str, float] | None = None

    @property
    def given(self) -> Any:
        """What the configuration records."""
        return self.value if self.each is None else dict(self.each)

    def scales(
        self, pack: Callable[[Mapping[str, Floats]], Floats], states: Mapping[str, Any]
    ) -> Floats | None:
        """Return each entry's rate in units of `value`, in the order of `pack`; None for one."""
        if self.each is None:
            return None
        return pack(
            {
                name: np.full(np.shape(array), self.each[name] / self.value)
                for name, array in states.items()
            }
        )


def read_rate(lr: Any, states: Any) -> LearningRate:
    """Read a learning rate, or a mapping from the name of every state to its own."""
    if not isinstance(lr, Mapping):
        return LearningRate(positive_number(lr, "lr"))
    named = {str(name): rate for name, rate in lr.items()}
    known = [str(name) for name in states] if isinstance(states, Mapping) else []
    for name in named:
        if name not in known:
            raise unknown_name("state in lr", name, known)
    for name in known:
        if name not in named:
            raise InputError(f"lr lacks the state {name!r}; give a rate for {', '.join(known)}.")
    each = {name: positive_number(named[name], f"lr[{name!r}]") for name in known}
    largest = max(each.values())
    return LearningRate(largest, None if len(set(each.values())) == 1 else each)


def as_optimiser(value: str | Optimiser) -> Optimiser:
    """Return an `Optimiser` for a name."""
    return value if isinstance(value, Optimiser) else Optimiser(value)
