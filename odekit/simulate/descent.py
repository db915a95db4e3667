"""Exact full-batch gradient descent on the mean squared error."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from odekit.errors import InputError
from odekit.simulate import loops
from odekit.simulate.edge import WINDOWS, report_edge
from odekit.simulate.layer import (
    Floats,
    Layer,
    checked_state,
    fixed_sizes,
    kind_of,
    layer_of,
    positive_number,
)
from odekit.simulate.moments import Statistics, statistics
from odekit.simulate.optimiser import Optimiser
from odekit.simulate.population import Population, population_statistics
from odekit.simulate.record import configuration_of, solution_of, steps_to_save, whole_number
from odekit.solution import Solution, Status

__all__ = ["coefficients", "gradient_descent", "loss_curve"]

# Steps between two returns to Python: an interrupt waits this long at most.
_CALL_STEPS = 800 * loops.KEPT_EVERY
_UNROLLED = 8  # largest dimension whose loops are compiled for it alone
_GAP = 50  # rises of the loss closer than this many steps are one window
_CODES = {loops.NOT_A_NUMBER: Status.nan, loops.BLOWN_UP: Status.blow_up}


def gradient_descent(
    model: Any,
    data: Statistics | Population | tuple[ArrayLike, ArrayLike],
    *,
    y0: Mapping[str, ArrayLike],
    lr: float,
    steps: int,
    save_at: ArrayLike | None = None,
    momentum: float = 0.0,
    attention: str = "linear",
    normalise: bool = True,
) -> Solution:
    """Train by full-batch gradient descent on the mean squared error (no 1/2).

    Parameters
    ----------
    model : Model
        An attention model of `odekit.models`; with `Population` any model.
    data : Statistics, (x, y), or Population
        Sufficient statistics, sequences ``x (P, N+1, D)``, ``y (P, N+1)``, or the exact expected
        loss of the model at parameters.
    y0 : mapping
        State name to array: the weights at step 0.
    lr : float
        Learning rate. A step is a time ``lr * time_scale`` of the gradient flow.
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
    lr, momentum = positive_number(lr, "lr"), _checked_momentum(momentum)
    steps = whole_number(steps, "steps", 0)
    at = steps_to_save(save_at, steps)
    if attention not in ("linear", "softmax"):
        raise InputError(f'attention must be "linear" or "softmax", got {attention!r}.')
    if attention == "softmax":
        from odekit.simulate.stochastic import sgd

        if isinstance(data, (Statistics, Population)):
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
        )
    if isinstance(data, Population) and not _in_closed_form(model):
        from odekit.simulate.flow_descent import descend_flow

        return descend_flow(model, data, y0=y0, lr=lr, steps=steps, at=at, momentum=momentum)
    layer = layer_of(model, y0)
    moments = moments_for(layer, data, normalise, fixed_sizes(model).get("context"))
    run = _Run(layer, moments, lr, momentum)
    started = time.perf_counter()
    outcome = run(layer.pack(checked_state(y0, layer.shapes)), steps, at)
    settings = configuration_of(
        "gradient_descent",
        model=_name(model),
        layer=repr(layer),
        lr=lr,
        steps=steps,
        momentum=momentum,
        attention="linear",
        normalise=normalise,
        data=_describe(data, moments),
    )
    return solution_of(
        t=outcome["t"],
        states=layer.unpack(outcome["states"]),
        loss=outcome["loss"],
        status=outcome["status"],
        step=outcome["step"],
        stats={
            "method": "gradient descent" if momentum == 0 else "heavy ball",
            "seconds": time.perf_counter() - started,
            "lr": lr,
            "edge": outcome["edge"],
            "configuration": settings,
        },
        params=data.params if isinstance(data, Population) else None,
        field=getattr(model, "flow", None) if isinstance(data, Population) else None,
    )


def _checked_momentum(momentum: Any) -> float:
    if not isinstance(momentum, (int, float, np.integer, np.floating)) or not 0 <= momentum < 1:
        raise InputError(f"momentum must be at least 0 and below 1, got {momentum!r}.")
    return float(momentum)


def _name(model: Any) -> str:
    return str(getattr(model, "name", type(model).__name__))


def _describe(data: Any, moments: Statistics) -> str:
    what = (
        type(data).__name__
        if isinstance(data, (Statistics, Population))
        else (f"sequences {np.shape(data[0])}")
    )
    return f"{what}: {moments.kind} statistics, {moments.c.size} features"


def _in_closed_form(model: Any) -> bool:
    kind = kind_of(model)
    return kind is not None and kind[1] == "zero"


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


class _Run:
    """Drives the compiled loop and gathers what it leaves."""

    def __init__(self, layer: Layer, moments: Statistics, lr: float, momentum: float) -> None:
        self.layer, self.moments, self.lr, self.momentum = layer, moments, lr, momentum

    def __call__(self, theta: Floats, steps: int, at: Any) -> dict[str, Any]:
        moments, n = self.moments, self.layer.size
        velocity = np.zeros(n)
        states, losses = np.empty((at.size, n)), np.empty(at.size)
        span, saved = np.array([0, 0, 0]), np.zeros(2, dtype=np.int64)
        rises, starts = np.zeros((WINDOWS, 2), dtype=np.int64), np.zeros((WINDOWS, n))
        memory = np.array([np.nan])
        first = float(moments.loss(coefficients(self.layer, self.layer.unpack(theta))))
        # Twelve decades above the start: no run comes back from there, and overflow is far.
        ceiling = 1e12 * (abs(first) + moments.y2) + 1.0
        slack = 1e-12 * moments.y2  # rounding of the loss, which is a difference of terms like y2
        status, code = Status.success, loops.RUNNING
        kept = np.zeros((2, n))
        sizes = self.layer.sizes[1:]
        known = self.layer.dim if self.layer.dim <= _UNROLLED else 0
        train = loops.descent(self.layer.case, known, self.momentum > 0)

        def advance(at: Any, saved: Any, slack: float) -> int:
            return int(
                train(
                    *sizes, theta, velocity, moments.C, moments.c, moments.y2, self.lr,
                    self.momentum, span, at, saved, states, losses, ceiling, slack, _GAP, rises,
                    starts, memory, kept,
                )
            )  # fmt: skip

        try:
            while True:
                span[1] = min(span[0] + _CALL_STEPS, steps)
                code = advance(at, saved, slack)
                if code != loops.RUNNING or span[0] >= steps:
                    break
        except KeyboardInterrupt:
            status = Status.interrupted
        if code != loops.RUNNING:
            status = _CODES[code]
            bad = int(span[0])
            if bad > 0:
                # Back to the last copy and on to the step before the bad one, by the same code.
                theta[:], velocity[:] = kept
                span[0], span[1] = span[2], bad - 1
                advance(np.zeros(0, dtype=np.int64), np.zeros(2, dtype=np.int64), np.inf)
        edge = report_edge(rises, starts, int(saved[1]), self.gradient, self.lr, self.momentum)
        done, step = int(saved[0]), int(span[0])
        t, states, losses = at[:done], states[:done], losses[:done]
        if status is not Status.success and (not done or t[-1] != step):
            t = np.append(t, step)
            states = np.vstack([states, theta])
            losses = np.append(losses, memory[0])
        return {
            "t": t,
            "states": states,
            "loss": losses,
            "status": status,
            "step": step,
            "edge": edge,
        }

    def gradient(self, theta: Floats) -> Floats:
        return moments_gradient(self.layer, self.moments, theta)[1]


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
    """Coefficients of the features in the linear-attention prediction.

    Parameters
    ----------
    model : Model or Layer
    states : mapping
        State name to array ``(..., *shape)``: one state or a whole run (`Solution.states`).

    Returns
    -------
    array (..., F)
        In the order of `Statistics`.
    """
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in states.items()}
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
        A linear-attention model.
    run : Solution or mapping
        A run, or states ``(K, *shape)``.
    data : Statistics, (x, y), or Population
        The test set; `Population` stands for infinitely many sequences (reduced model only).
    normalise : bool
        As in `gradient_descent`.

    Returns
    -------
    array (K,)
        Mean squared error at each recorded step.
    """
    states = run.states if isinstance(run, Solution) else run
    arrays = {name: np.asarray(value, dtype=np.float64) for name, value in states.items()}
    layer = layer_of(model, {name: value[0] for name, value in arrays.items()})
    moments = moments_for(layer, data, normalise, fixed_sizes(model).get("context"))
    return moments.loss(coefficients(layer, arrays))
