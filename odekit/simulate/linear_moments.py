"""Sufficient statistics of predictors `W(theta) z` with several outputs: what training sees.

The mean squared error, summed over outputs, is ``y2 - 2 tr(c W^T) + tr(W C W^T)`` with the moments
below, whatever the number of samples. Deep linear networks have the inputs as features; the p, q
transformer has ``G[a, b] x_q[l]`` with G the second moment of its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError
from odekit.simulate.layer import Floats, real_array
from odekit.simulate.linear_models import LinearModel, linear_model_of
from odekit.simulate.population import Population, checked_covariance

__all__ = ["LinearStatistics", "linear_statistics"]

_CHUNK_NUMBERS = 1_500_000  # floats in one block of features: 12 MB, in reach of a cache


@dataclass(frozen=True, eq=False, kw_only=True)
class LinearStatistics:
    """Second moments of the features and the targets.

    Parameters
    ----------
    features : {"inputs", "restricted", "all"}
        Inputs x of a deep linear network; ``G_yx[j, k] x_q[l]`` of the p, q transformer, l
        fastest; or ``G[a, b] x_q[l]``, a <= b, of the transformer with all blocks.
    C : array (F, F)
        Mean of the features' outer products, symmetric.
    c : array (O, F)
        Mean of the targets times the features.
    y2 : float
        Mean of the squared length of the target.

    Notes
    -----
    `p * a + (1 - p) * b` is the statistics of the mixture with fraction p of data set a.
    """

    features: str
    C: Floats
    c: Floats
    y2: float

    def __post_init__(self) -> None:
        if self.features not in ("inputs", "restricted", "all"):
            raise InputError(
                f'features must be "inputs", "restricted" or "all", got {self.features!r}.'
            )
        C, c = real_array(self.C, "C", ndim=2), real_array(self.c, "c", ndim=2)
        y2 = float(real_array(self.y2, "y2", ndim=0))
        if not c.size or C.shape != (c.shape[1], c.shape[1]):
            raise InputError(
                f"C has shape {C.shape} and c {c.shape}; expected (F, F) and (outputs, F)."
            )
        if not np.allclose(C, C.T, rtol=1e-9, atol=1e-12 * float(np.abs(C).max(initial=0.0))):
            raise InputError("C is not symmetric; a second moment is, pass (C + C.T)/2.")
        if y2 < 0:
            raise InputError(f"y2 is a mean square and cannot be negative, got {y2!r}.")
        for name, array in (("C", C), ("c", c)):
            array = array.copy() if array is getattr(self, name) else array
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "y2", y2)

    def __mul__(self, weight: float) -> LinearStatistics:
        weight = float(real_array(weight, "A weight of statistics", ndim=0))
        if weight < 0:
            raise InputError(f"A weight of statistics must be at least 0, got {weight!r}.")
        return replace(self, C=weight * self.C, c=weight * self.c, y2=weight * self.y2)

    __rmul__ = __mul__

    def __add__(self, other: LinearStatistics) -> LinearStatistics:
        if not isinstance(other, LinearStatistics):
            return NotImplemented
        if (self.features, self.c.shape) != (other.features, other.c.shape):
            raise InputError(
                f"Cannot add statistics of {self.features} features, c {self.c.shape}, and of "
                f"{other.features} features, c {other.c.shape}."
            )
        return replace(self, C=self.C + other.C, c=self.c + other.c, y2=self.y2 + other.y2)

    def loss(self, W: ArrayLike) -> Floats:  # noqa: N803
        """Mean squared error, summed over outputs, of the predictor ``W z``.

        Parameters
        ----------
        W : array (..., O, F)

        Returns
        -------
        array (...)
        """
        maps = real_array(W, "W")
        if maps.shape[-2:] != self.c.shape:
            raise InputError(f"W has shape {maps.shape}, expected (..., {self.c.shape}).")
        return self.y2 + ((maps @ self.C - 2 * self.c) * maps).sum((-1, -2))

    def minimum(self) -> float:
        """Least mean squared error of any linear map of the features."""
        best = np.linalg.lstsq(self.C, self.c.T, rcond=None)[0]
        return self.y2 - float(np.sum(self.c.T * best))


def linear_statistics(
    model: Any,
    data: tuple[ArrayLike, ArrayLike] | Population,
    *,
    normalise: bool = True,
    lengths: ArrayLike | None = None,
) -> LinearStatistics:
    """Take the statistics that a deep linear network or a p, q transformer trains on.

    Parameters
    ----------
    model : Model
        ``deep_linear`` or ``linear_transformer``.
    data : (x, y) or Population
        For ``deep_linear`` inputs ``x (P, D0)`` and targets ``y (P, D_depth)``; for the transformer
        tokens ``x (P, N+1, d)``, the query last, and labels ``y (P, N+1, d)``, the target last,
        which the layer does not see. `Population` is infinitely many of the model's own law.
    normalise : bool
        Divide the transformer's sum over tokens by the number that the model says.
    lengths : array (P,) of int, optional
        Context tokens that each sequence uses, from the front; default N.

    Returns
    -------
    LinearStatistics
    """
    if isinstance(data, Population):
        if lengths is not None:
            raise InputError("lengths belong to sequences; a population has its N in params.")
        return _population(model, data.params, normalise)
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise InputError(f"data must be (x, y) or Population(params), got {type(data).__name__}.")
    features = features_of(model)
    if features == "inputs":
        if lengths is not None:
            raise InputError("A deep linear network has no context, so there are no lengths.")
        x, y = real_array(data[0], "x", ndim=2), real_array(data[1], "y", ndim=2)
        if len(x) != len(y) or not x.size or not y.size:
            raise InputError(f"x has shape {x.shape} and y {y.shape}; expected (P, D0), (P, D).")
        P = len(x)
        return LinearStatistics(
            features=features, C=x.T @ x / P, c=y.T @ x / P, y2=float(np.sum(y * y)) / P
        )
    x, y, used = _checked_tasks(data[0], data[1], lengths)
    extra = int(_option(model, "normalise") == "N+1")
    P, tokens, d = x.shape
    F = d**3 if features == "restricted" else d * d * (2 * d + 1)
    C, c = np.zeros((F, F)), np.zeros((d, F))
    rows = max(1, _CHUNK_NUMBERS // max(F, 2 * tokens * d))
    for start in range(0, P, rows):
        part = slice(start, start + rows)
        count = used[part] + extra if normalise else np.ones(len(used[part]))
        z = _transformer_features(x[part], y[part], used[part], count, features)
        C += z.T @ z
        c += y[part, -1].T @ z
    return LinearStatistics(
        features=features, C=C / P, c=c / P, y2=float(np.sum(y[:, -1] ** 2)) / P
    )


def features_of(model: Any) -> str:
    """Which features a model is linear in."""
    name = str(getattr(model, "name", ""))
    if name == "deep_linear":
        return "inputs"
    if name == "linear_transformer":
        return _option(model, "blocks")
    raise InputError(
        f"{name or type(model).__name__} is no deep_linear or linear_transformer model; attention "
        "layers have statistics(x, y)."
    )


def _option(model: Any, name: str) -> str:
    return str(model.options[name])


def _checked_tasks(
    x: ArrayLike, y: ArrayLike, lengths: ArrayLike | None
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    x, y = real_array(x, "x", ndim=3), real_array(y, "y", ndim=3)
    if x.shape != y.shape or min(x.shape) < 1 or x.shape[1] < 2:
        raise InputError(
            f"x has shape {x.shape} and y {y.shape}; expected (P, N+1, d) for both, N at least 1."
        )
    if lengths is None:
        return x, y, np.full(len(x), x.shape[1] - 1)
    n = real_array(lengths, "lengths", ndim=1)
    top = x.shape[1] - 1
    if n.shape != (len(x),) or (n != np.floor(n)).any() or n.min() < 1 or n.max() > top:
        raise InputError(f"lengths must be {len(x)} whole numbers from 1 to N={top}.")
    return x, y, n.astype(np.int64)


def _transformer_features(
    x: Floats, y: Floats, used: NDArray[np.int64], count: NDArray[Any], features: str
) -> Floats:
    """Features (P, F) of sequences."""
    query = x[:, -1]
    in_use = (np.arange(x.shape[1] - 1) < used[:, None])[:, :, None]
    context, labels = x[:, :-1] * in_use, y[:, :-1] * in_use
    if features == "restricted":
        G = labels.transpose(0, 2, 1) @ context
    else:
        tokens = np.concatenate([context, labels], axis=2)
        G = tokens.transpose(0, 2, 1) @ tokens
        d = x.shape[2]
        G[:, :d, :d] += query[:, :, None] * query[:, None, :]  # its own token, with label 0
        first, second = np.triu_indices(2 * d)
        G = G[:, first, second]
    G = G.reshape(len(x), -1) / count[:, None]
    z: Floats = (G[:, :, None] * query[:, None, :]).reshape(len(x), -1)
    return z


def _population(model: Any, params: Mapping[str, Any], normalise: bool) -> LinearStatistics:
    """Moments of the model's own law, in closed form."""
    features = features_of(model)
    named = {str(name): value for name, value in params.items()}
    if features == "inputs":
        _check_names(named, {"Lambda", "T"})
        L = checked_covariance(named["Lambda"])
        T = real_array(named["T"], "T", ndim=2)
        if T.shape[1] != len(L):
            raise InputError(f"T has shape {T.shape}, expected (outputs, {len(L)}).")
        return LinearStatistics(features=features, C=L, c=T @ L, y2=float(np.trace(T @ L @ T.T)))
    if features == "all":
        raise InputError(
            'The closed form of the population holds for blocks="restricted"; train on '
            "Population(params) with gradient_descent, which follows the derived loss."
        )
    fixed = getattr(model.flow, "constants", {})
    if "N" in fixed and named.setdefault("N", fixed["N"]) != fixed["N"]:
        raise InputError(f"The model has N={fixed['N']}, the population has N={named['N']}.")
    law = _option(model, "tasks")
    _check_names(named, {"Lambda", "N"} | ({"Omega"} if law == "general" else set()))
    L = checked_covariance(named["Lambda"])
    d, N = len(L), float(real_array(named["N"], "N", ndim=0))
    if not N > 0:
        raise InputError(f"N must be positive, got {named['N']!r}.")
    M = _task_moments(law, d, named.get("Omega"))
    # E[S M S] = L M L + (L M^T L + L tr(M L)) / N for S = (1/N) sum_n x_n x_n^T.
    inner = np.einsum("ka,ijab,bm->ijkm", L, M, L)
    turned = np.einsum("ka,ijba,bm->ijkm", L, M, L)
    traces = np.einsum("ijab,ba->ij", M, L)
    second = inner + (turned + traces[:, :, None, None] * L) / N
    divided = N + 1 if _option(model, "normalise") == "N+1" else N
    scale = N / divided if normalise else N
    C = scale**2 * np.einsum("jmkn,lo->jklmno", second, L).reshape(d**3, d**3)
    c = scale * np.einsum("ijlk->ijkl", inner).reshape(d, d**3)
    return LinearStatistics(
        features=features, C=(C + C.T) / 2, c=c, y2=float(np.einsum("iiab,ba->", M, L))
    )


def _task_moments(law: str, d: int, Omega: Any) -> Floats:  # noqa: N803
    """M[i, j, a, b] = E[W[i, a] W[j, b]]."""
    eye = np.eye(d)
    M: Floats
    if law == "iid":
        M = np.einsum("ij,ab->ijab", eye, eye)
    elif law == "general":
        M = np.einsum("ij,ab->ijab", eye, checked_covariance(Omega, "Omega", d))
    elif law == "diagonal":
        M = np.einsum("ij,ia,jb->ijab", eye, eye, eye)
    else:
        M = np.einsum("ia,jb->ijab", eye, eye)
    return M


def _check_names(named: Mapping[str, Any], expected: set[str]) -> None:
    if set(named) != expected:
        raise InputError(
            f"The population takes {', '.join(sorted(expected))}, got "
            f"{', '.join(sorted(named)) or 'nothing'}."
        )


def moments_of(linear: LinearModel, model: Any, data: Any, normalise: bool) -> LinearStatistics:
    """Return the statistics of any kind of data for this model, checked to fit its weights."""
    moments = (
        data
        if isinstance(data, LinearStatistics)
        else linear_statistics(model, data, normalise=normalise)
    )
    if moments.features != linear.features:
        raise InputError(
            f"The statistics are of {moments.features} features, the model has {linear.features}."
        )
    if moments.c.shape != linear.map_shape:
        raise InputError(
            f"The data have c of shape {moments.c.shape}, the weights in y0 make W of shape "
            f"{linear.map_shape}; they must be the same."
        )
    return moments


def linear_coefficients(model: Any, states: Mapping[str, ArrayLike]) -> Floats:
    """W (..., O, F) of states ``(..., *shape)``."""
    arrays = {str(name): np.asarray(value, dtype=np.float64) for name, value in states.items()}
    lead = next(iter(arrays.values())).shape[:-2] if arrays else ()
    flat = [
        {name: value.reshape(-1, *value.shape[len(lead) :])[k] for name, value in arrays.items()}
        for k in range(prod(lead))
    ]
    linear = linear_model_of(model, flat[0] if flat else arrays)
    maps = np.array([linear.maps(linear.pack(state)) for state in flat])
    return maps.reshape(*lead, *linear.map_shape)
