"""Exact full-batch gradient descent on the mean squared error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from odekit.errors import InputError
from odekit.simulate import linear_loops, loops
from odekit.simulate.full_batch import Work, aligned, run
from odekit.simulate.layer import (
    Floats,
    Layer,
    checked_state,
    fixed_sizes,
    kind_of,
    layer_of,
)
from odekit.simulate.linear_models import is_linear, linear_model_of
from odekit.simulate.linear_moments import (
    LinearStatistics,
    features_of,
    linear_coefficients,
    moments_of,
)
from odekit.simulate.moments import Statistics, statistics
from odekit.simulate.optimiser import Optimiser, read_rate
from odekit.simulate.population import Population, population_statistics
from odekit.simulate.record import (
    Checkpoint,
    checked_progress,
    configuration_of,
    digest,
    solution_of,
    steps_to_save,
    whole_number,
)
from odekit.solution import Solution

__all__ = ["coefficients", "gradient_descent", "loss_curve"]

_UNROLLED = 8  # largest dimension whose loops are compiled for it alone


def gradient_descent(
    model: Any,
    data: Statistics | LinearStatistics | Population | tuple[ArrayLike, ArrayLike],
    *,
    y0: Mapping[str, ArrayLike],
    lr: float | Mapping[str, float],
    steps: int,
    save_at: ArrayLike | None = None,
    momentum: float = 0.0,
    attention: str = "linear",
    normalise: bool = True,
    checkpoint: str | Path | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Solution:
    """Train by full-batch gradient descent on the mean squared error (no 1/2).

    Parameters
    ----------
    model : Model
        An attention model of `odekit.models`, ``deep_linear`` or ``linear_transformer``; with
        `Population` any model.
    data : Statistics, LinearStatistics, (x, y), or Population
        Sufficient statistics, sequences ``x (P, N+1, D)``, ``y (P, N+1)`` (for other models see
        `linear_statistics`), or the exact expected loss of the model at parameters.
    y0 : mapping
        State name to array: the weights at step 0.
    lr : float or mapping
        Learning rate, or one for each state by name. A step is a time ``lr * time_scale`` of the
        gradient flow; with rates of their own this must be the same for all states.
    steps : int
        Number of steps.
    save_at : array_like of int, optional
        Steps to record; default about 1000, evenly spaced, the last included.
    momentum : float
        Heavy ball: ``velocity = momentum * velocity - lr * gradient``.
    attention : {"linear", "softmax"}
        Softmax needs sequences and a model with ``blocks="all"``.
    normalise : bool
        For sequences and populations: whether the sum over tokens is divided by the number of
        context tokens (published code does not). Statistics carry their own.
    checkpoint : path, optional
        Written as the run goes; the same call again goes on from it and ends the same.
    progress : callable, optional
        Called with (step, loss) after each compiled stretch of steps.

    Returns
    -------
    Solution
        ``.t`` counts steps; ``.loss[k]`` is the loss before step ``t[k]``. ``.stats`` holds the
        configuration, versions, seconds, and under ``"edge"`` the windows at the edge of
        stability. A run whose loss is no longer finite ends with its last good state.

    Raises
    ------
    InputError
        For states, data or settings that do not fit the model.
    """
    rate, momentum = read_rate(lr, y0), _checked_momentum(momentum)
    steps = whole_number(steps, "steps", 0)
    at = steps_to_save(save_at, steps)
    checked_progress(progress)
    if attention not in ("linear", "softmax"):
        raise InputError(f'attention must be "linear" or "softmax", got {attention!r}.')
    if attention == "softmax":
        from odekit.simulate.stochastic import sgd

        if isinstance(data, (Statistics, LinearStatistics, Population)):
            raise InputError(
                "Softmax attention has no sufficient statistics; pass the sequences (x, y)."
            )
        return sgd(
            model,
            y0=y0,
            lr=lr,
            steps=steps,
            data=data,
            save_at=at,
            attention="softmax",
            optimiser=Optimiser("heavy ball", momentum) if momentum else "gd",
            checkpoint=checkpoint,
            progress=progress,
        )
    problem: Any
    if isinstance(data, Population) and not _in_closed_form(model):
        from odekit.simulate.flow_descent import FlowDescent

        problem = FlowDescent(model, data, y0, steps)
    elif is_linear(model):
        problem = LinearDescent(model, data, y0, normalise)
    else:
        heavy = momentum > 0 or rate.each is not None
        problem = LayerDescent(model, data, y0, normalise, heavy)
    settings = configuration_of(
        "gradient_descent",
        model=_name(model),
        lr=rate.given,
        steps=steps,
        momentum=momentum,
        attention="linear",
        normalise=normalise,
        **problem.describe(),
    )
    kept = Checkpoint.at(checkpoint, digest(settings, problem.theta, at))
    outcome = run(
        problem, problem.theta, lr=rate.value, momentum=momentum, steps=steps, at=at,
        checkpoint=kept, progress=progress, scales=rate.scales(problem.pack, y0),
    )  # fmt: skip
    return solution_of(
        t=outcome.t,
        states=problem.unpack(outcome.states),
        loss=outcome.loss,
        status=outcome.status,
        step=outcome.step,
        stats={
            "method": "gradient descent" if momentum == 0 else "heavy ball",
            "seconds": outcome.seconds,
            "lr": rate.given,
            "edge": outcome.edge,
            "configuration": settings,
        },
        params=data.params if isinstance(data, Population) else None,
        field=getattr(model, "flow", model) if isinstance(data, Population) else None,
    )


def _checked_momentum(momentum: Any) -> float:
    if not isinstance(momentum, (int, float, np.integer, np.floating)) or not 0 <= momentum < 1:
        raise InputError(f"momentum must be at least 0 and below 1, got {momentum!r}.")
    return float(momentum)


def _name(model: Any) -> str:
    return str(getattr(model, "name", type(model).__name__))


def _in_closed_form(model: Any) -> bool:
    if is_linear(model):
        return features_of(model) != "all"
    kind = kind_of(model)
    return kind is not None and kind[1] == "zero"


def _described(data: Any, kind: str, features: int, *arrays: Any) -> dict[str, Any]:
    what = type(data).__name__
    if isinstance(data, (tuple, list)):
        what = f"sequences {np.shape(data[0])}"
    return {
        "data": f"{what}: {kind} statistics, {features} features",
        "statistics": digest(*arrays),
    }


def moments_for(layer: Layer, data: Any, normalise: bool, context: int | None = None) -> Statistics:
    """Return the statistics that this layer trains on, of its kind and dimension.

    `context` is the number of context tokens that the model itself fixes, if it does.
    """
    if isinstance(data, Population):
        named = {str(name): value for name, value in data.params.items()}
        if context is not None and int(named.setdefault("N", context)) != context:
            raise InputError(f"The model has N={context}, the population has N={named['N']}.")
        if set(named) != {"Lambda", "N"}:
            raise InputError(
                "The population of an attention model takes Lambda and N, got "
                f"{', '.join(named) or 'nothing'}; for noise or task covariances train on "
                "population_statistics(...)."
            )
        if layer.blocks != "zero":
            raise InputError('The closed form of the population holds for blocks="zero" only.')
        moments = population_statistics(named["Lambda"], named["N"], normalise=normalise)
    elif isinstance(data, Statistics):
        moments = data
    else:
        if not isinstance(data, (tuple, list)) or len(data) != 2:
            raise InputError(
                "data must be Statistics, sequences (x, y) or Population(params), got "
                f"{type(data).__name__}."
            )
        moments = statistics(data[0], data[1], layer.kind, normalise)
    if layer.kind == "reduced":
        moments = moments.reduced()
    if moments.kind != layer.kind:
        raise InputError(
            'Reduced statistics train the reduced model only; use blocks="zero", or take '
            'statistics(x, y, kind="full") for a model with blocks="all".'
        )
    if moments.dim != layer.dim:
        raise InputError(
            f"The data have D={moments.dim}, the weights in y0 have D={layer.dim}; "
            "they must be the same."
        )
    return moments


class LayerDescent:
    """Linear attention on its statistics."""

    replays = True

    def __init__(
        self, model: Any, data: Any, y0: Mapping[str, ArrayLike], normalise: bool, heavy: bool
    ) -> None:
        self.layer = layer_of(model, y0)
        self.data = data
        self.moments = moments_for(self.layer, data, normalise, fixed_sizes(model).get("context"))
        self.theta = self.layer.pack(checked_state(y0, self.layer.shapes))
        self.pack, self.unpack = self.layer.pack, self.layer.unpack
        self.scale = self.moments.y2
        layer = self.layer
        self.offset = layer.heads * (1 if layer.blocks == "zero" else layer.dim + 1)
        self.C = aligned(self.moments.C)
        # The merged reduced loops run over D^2 numbers at once and lose by being unrolled.
        short = self.layer.dim <= _UNROLLED and self.layer.case != loops.MERGED_ZERO
        known = self.layer.dim if short else 0
        self.train = loops.descent(self.layer.case, known, heavy)

    def describe(self) -> dict[str, Any]:
        """Return what the configuration records."""
        m = self.moments
        return {
            "layer": repr(self.layer),
            **_described(self.data, m.kind, m.c.size, m.C, m.c, m.y2),
        }

    def loss(self, theta: Floats) -> float:
        """Return the loss."""
        return moments_gradient(self.layer, self.moments, theta)[0]

    def gradient(self, theta: Floats) -> Floats:
        """Return the gradient (n,)."""
        return moments_gradient(self.layer, self.moments, theta)[1]

    def advance(self, work: Work) -> int:
        """Do the steps from work.span[0] to work.span[1]; return a code."""
        m = self.moments
        return int(
            self.train(
                *self.layer.sizes[1:], work.theta, work.velocity, self.C, m.c, m.y2, work.lr,
                work.momentum, work.scales, *work.tail, work.kept,
            )
        )  # fmt: skip


class LinearDescent:
    """A deep linear network or a p, q transformer on its statistics."""

    replays = True
    offset = 0

    def __init__(self, model: Any, data: Any, y0: Mapping[str, ArrayLike], normalise: bool) -> None:
        self.linear = linear_model_of(model, y0)
        self.data, self.moments = data, moments_of(self.linear, model, data, normalise)
        self.theta = self.linear.pack(y0)
        self.pack, self.unpack = self.linear.pack, self.linear.unpack
        self.scale = self.moments.y2
        self.scratch = self.linear.scratch()
        self.train = linear_loops.descent(self.linear.kind)

    def describe(self) -> dict[str, Any]:
        """Return what the configuration records."""
        m = self.moments
        return {
            "sizes": self.linear.sizes.tolist(),
            **_described(self.data, m.features, m.c.shape[1], m.C, m.c, m.y2),
        }

    def loss(self, theta: Floats) -> float:
        """Return the loss."""
        return self._evaluate(theta)[0]

    def gradient(self, theta: Floats) -> Floats:
        """Return the gradient (n,)."""
        return self._evaluate(theta)[1]

    def _evaluate(self, theta: Floats) -> tuple[float, Floats]:
        linear, m, grad = self.linear, self.moments, np.empty(theta.size)
        loss = linear_loops.loss_and_gradient(
            linear.kind, linear.sizes, linear.slots, theta, m.C, m.c, m.y2, grad, self.scratch
        )
        return float(loss), grad

    def advance(self, work: Work) -> int:
        """Do the steps from work.span[0] to work.span[1]; return a code."""
        linear, m = self.linear, self.moments
        return int(
            self.train(
                linear.sizes, linear.slots, self.scratch, work.theta, work.velocity, m.C, m.c,
                m.y2, work.lr, work.momentum, work.scales, *work.tail, work.kept,
            )
        )  # fmt: skip


def moments_gradient(layer: Layer, moments: Statistics, theta: Floats) -> tuple[float, Floats]:
    """Return loss and gradient (n,) at one flat state."""
    F, E = layer.features, layer.dim + 1
    blocks = layer.heads * layer.dim * E
    grad = np.empty(layer.size)
    loss = loops.moments_gradient(
        *layer.sizes,
        theta,
        moments.C,
        moments.c,
        moments.y2,
        grad,
        np.empty(F),
        np.empty(F),
        np.empty(blocks),
        np.empty(layer.dim * E * E),
        np.empty(blocks),
    )
    return float(loss), grad


def coefficients(model: Any, states: Mapping[str, ArrayLike]) -> Floats:
    """Coefficients of the features in the prediction.

    Parameters
    ----------
    model : Model or Layer
    states : mapping
        State name to array ``(..., *shape)``: one state or a whole run (`Solution.states`).

    Returns
    -------
    array (..., F) or (..., O, F)
        In the order of `Statistics`; for the models of `linear_statistics` the map W.
    """
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in states.items()}
    for name in model.shapes if isinstance(model, Layer) else ():
        if name not in arrays:
            raise InputError(f"states lack {name!r}; expected {', '.join(model.shapes)}.")
    if is_linear(model):
        return linear_coefficients(model, arrays)
    if not isinstance(model, Layer):
        lead = _leading(model, arrays)
        layer = layer_of(model, {name: value[(0,) * lead] for name, value in arrays.items()})
    else:
        layer = model
        name, shape = next(iter(layer.shapes.items()))
        lead = arrays[name].ndim - len(shape)
    if layer.blocks == "zero":
        if layer.family == "merged":
            P = np.einsum("...h,...hij->...ij", arrays["v"], arrays["U"])
        else:
            P = np.einsum("...h,...hri,...hrj->...ij", arrays["v"], arrays["K"], arrays["Q"])
        return P.reshape(*P.shape[:lead], -1)
    A = (
        arrays["A"]
        if layer.family == "merged"
        else np.einsum("...hrd,...hre->...hde", arrays["Q"], arrays["K"])
    )
    M = np.einsum("...hde,...hf->...def", A, arrays["u"])
    first, second = np.triu_indices(layer.dim + 1)
    P = M[..., first, second] + np.where(first == second, 0.0, M[..., second, first])
    return P.reshape(*P.shape[:lead], -1)


def _leading(model: Any, arrays: Mapping[str, Floats]) -> int:
    kind = kind_of(model)
    value = "v" if kind is None or kind[1] == "zero" else "u"
    if value not in arrays:
        return 0
    return arrays[value].ndim - (1 if value == "v" else 2)


def loss_curve(
    model: Any, run: Solution | Mapping[str, ArrayLike], data: Any, *, normalise: bool = True
) -> Floats:
    """Loss of a run's states on other data: a test curve.

    Parameters
    ----------
    model : Model or Layer
        A linear-attention model, or one of `linear_statistics`.
    run : Solution or mapping
        A run, or states ``(K, *shape)``.
    data : Statistics, LinearStatistics, (x, y), or Population
        The test set; `Population` stands for infinitely many sequences (reduced attention and
        restricted transformer only).
    normalise : bool
        As in `gradient_descent`.

    Returns
    -------
    array (K,)
        Mean squared error at each recorded step.
    """
    states = run.states if isinstance(run, Solution) else run
    if not isinstance(states, Mapping) or not states:
        raise InputError(
            "run must be a Solution, or a mapping from state names to arrays (K, ...)."
        )
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in states.items()}
    if is_linear(model):
        linear = linear_model_of(model, {name: value[0] for name, value in arrays.items()})
        return moments_of(linear, model, data, normalise).loss(linear_coefficients(model, arrays))
    layer = layer_of(model, {name: value[0] for name, value in arrays.items()})
    moments = moments_for(layer, data, normalise, fixed_sizes(model).get("context"))
    return moments.loss(coefficients(layer, arrays))
