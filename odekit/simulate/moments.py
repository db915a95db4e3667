"""Sufficient statistics of full-batch training: all that linear attention sees of a data set.

With linear attention the prediction is linear in features z of the sequence, so the mean squared
error is `y2 - 2 c.P + P.C P` with the moments below, whatever the number of sequences.

Reduced: `z = vec(beta x_q^T)` (D^2 features, beta index slow), exact while the zero blocks are
zero: for the population, or for a data set closed under y -> -y. Full: `x_q[d] G[e, f]`, e <= f
(D (D+1) (D+2)/2 features), exact for every data set.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError
from odekit.simulate import loops
from odekit.simulate.layer import Floats, real_array

__all__ = [
    "Statistics",
    "attention_features",
    "checked_sequences",
    "close_under_sign",
    "prefix_statistics",
    "statistics",
]

_CHUNK_NUMBERS = 1_500_000  # floats in one block of features: 12 MB, in reach of a cache


def _dim_of(kind: str, features: int) -> int:
    dim = 1
    while _count(kind, dim) < features:
        dim += 1
    if _count(kind, dim) != features:
        raise InputError(
            f"c has {features} entries, which is no number of {kind} features: expected "
            + ("D^2." if kind == "reduced" else "D (D+1) (D+2)/2.")
        )
    return dim


def _count(kind: str, dim: int) -> int:
    return dim * dim if kind == "reduced" else dim * (dim + 1) * (dim + 2) // 2


def _checked_kind(kind: str) -> str:
    if kind not in ("reduced", "full"):
        raise InputError(f'kind must be "full" or "reduced", got {kind!r}.')
    return kind


@dataclass(frozen=True, eq=False, kw_only=True)
class Statistics:
    """Second moments of the features and the target.

    Parameters
    ----------
    kind : {"reduced", "full"}
        Which features: reduced `z = vec(beta x_q^T)`, row-major, beta index first; full
        `x_q[d] G[e, f]`, e <= f, d slowest, then e, then f, index D being the label's.
    C : array (F, F)
        Mean of the features' outer products, symmetric.
    c : array (F,)
        Mean of `y_q` times the features.
    y2 : float
        Mean of `y_q^2`.

    Notes
    -----
    `p * a + (1 - p) * b` is the statistics of the mixture with fraction p of data set a.
    """

    kind: str
    C: Floats
    c: Floats
    y2: float

    def __post_init__(self) -> None:
        _checked_kind(self.kind)
        C, c = real_array(self.C, "C", ndim=2), real_array(self.c, "c", ndim=1)
        y2 = float(real_array(self.y2, "y2", ndim=0))
        _dim_of(self.kind, c.size)
        if C.shape != (c.size, c.size):
            raise InputError(f"C has shape {C.shape}, expected {(c.size, c.size)} as c has.")
        if not np.allclose(C, C.T, rtol=1e-9, atol=1e-12 * float(np.abs(C).max(initial=0.0))):
            raise InputError("C is not symmetric; a second moment is, pass (C + C.T)/2.")
        if y2 < 0:
            raise InputError(f"y2 is a mean square and cannot be negative, got {y2!r}.")
        for name, array in (("C", C), ("c", c)):
            array = array.copy() if array is getattr(self, name) else array
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        object.__setattr__(self, "y2", y2)

    @property
    def dim(self) -> int:
        """D, the dimension of a token."""
        return _dim_of(self.kind, self.c.size)

    def __mul__(self, weight: float) -> Statistics:
        weight = float(real_array(weight, "A weight of statistics", ndim=0))
        if weight < 0:
            raise InputError(f"A weight of statistics must be at least 0, got {weight!r}.")
        return replace(self, C=weight * self.C, c=weight * self.c, y2=weight * self.y2)

    __rmul__ = __mul__

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        if (self.kind, self.c.size) != (other.kind, other.c.size):
            raise InputError(
                f"Cannot add {self.kind} statistics at D={self.dim} and {other.kind} statistics "
                f"at D={other.dim}; take both of one kind and dimension."
            )
        return replace(self, C=self.C + other.C, c=self.c + other.c, y2=self.y2 + other.y2)

    def loss(self, coefficients: ArrayLike) -> Floats:
        """Mean squared error of the predictor with these coefficients.

        Parameters
        ----------
        coefficients : array (..., F)
            Coefficients P of the features, as `coefficients(model, states)` gives them.

        Returns
        -------
        array (...)
            `y2 - 2 c.P + P.C P`.
        """
        P = real_array(coefficients, "coefficients")
        return self.y2 + ((P @ self.C - 2 * self.c) * P).sum(-1)

    def minimum(self) -> float:
        """Least mean squared error of any predictor linear in the features."""
        return self.y2 - float(self.c @ np.linalg.lstsq(self.C, self.c, rcond=None)[0])

    def symmetrised(self) -> Statistics:
        """Statistics of the same data closed under y -> -y, with odd moments exactly zero.

        Equal, but for rounding, to the statistics of `close_under_sign(x, y)`; here the moments
        that cancel are exact zeros, so that zero blocks of the weights stay exactly zero.
        """
        if self.kind == "reduced":
            return self  # every reduced feature is odd in y, so is the target: nothing cancels
        odd = _odd_features(self.dim)
        C = np.where(odd[:, None] == odd[None, :], self.C, 0.0)
        return replace(self, C=C, c=np.where(odd, self.c, 0.0))

    def reduced(self) -> Statistics:
        """Reduced statistics of the same data: the features with the label once."""
        if self.kind == "reduced":
            return self
        pick = _reduced_positions(self.dim)
        return Statistics(kind="reduced", C=self.C[np.ix_(pick, pick)], c=self.c[pick], y2=self.y2)


def _pairs(dim: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return np.triu_indices(dim + 1)


def _odd_features(dim: int) -> NDArray[np.bool_]:
    first, second = _pairs(dim)
    return np.tile((first == dim) != (second == dim), dim)


def _reduced_positions(dim: int) -> NDArray[np.intp]:
    first, second = _pairs(dim)
    label = np.flatnonzero((first < dim) & (second == dim))  # beta index 0 .. D-1, in order
    query = np.arange(dim) * first.size
    return (label[:, None] + query[None, :]).ravel()


def checked_sequences(
    x: ArrayLike, y: ArrayLike, lengths: ArrayLike | None = None
) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Check sequences and return them with each one's number of context tokens (P,)."""
    x, y = real_array(x, "x", ndim=3), real_array(y, "y", ndim=2)
    if y.shape != x.shape[:2]:
        raise InputError(f"y has shape {y.shape}, expected {x.shape[:2]}: a label for each token.")
    P, tokens, dim = x.shape
    if P < 1 or tokens < 2 or dim < 1:
        raise InputError(
            f"x has shape {x.shape}, expected (P, N+1, D) with P, N, D of at least 1 "
            "(the query is the last token)."
        )
    if lengths is None:
        return x, y, np.full(P, tokens - 1)
    n = real_array(lengths, "lengths", ndim=1)
    if n.shape != (P,) or (n != np.floor(n)).any() or n.min() < 1 or n.max() > tokens - 1:
        raise InputError(f"lengths must be {P} whole numbers from 1 to N={tokens - 1}.")
    return x, y, n.astype(np.int64)


def attention_features(
    x: Floats, y: Floats, lengths: NDArray[np.int64], kind: str, normalise: bool
) -> Floats:
    """Features (P, F) of checked sequences; a sequence uses its first `lengths` context tokens."""
    P = x.shape[0]
    z = np.empty((P, _count(kind, x.shape[2])))
    divisor = lengths.astype(np.float64) if normalise else np.ones(P)
    loops.token_features(x, y, lengths, divisor, z, kind == "full")
    return z


def _blocks(count: int, features: int, tokens: int) -> Iterator[slice]:
    rows = max(1, _CHUNK_NUMBERS // max(features, tokens))
    for start in range(0, count, rows):
        yield slice(start, start + rows)


def statistics(
    x: ArrayLike,
    y: ArrayLike,
    kind: str = "full",
    normalise: bool = True,
    *,
    lengths: ArrayLike | None = None,
) -> Statistics:
    """Take the sufficient statistics of a set of sequences.

    Accumulated in blocks, so that beside the sequences themselves only some tens of megabytes
    are needed, and nothing of the sequences afterwards.

    Parameters
    ----------
    x : array (P, N+1, D)
        Tokens; the query is the last.
    y : array (P, N+1)
        Labels; the last is the target, which the layer does not see.
    kind : {"full", "reduced"}
        See `Statistics`.
    normalise : bool
        Divide the sum over tokens by the number of context tokens; published code does not.
    lengths : array (P,) of int, optional
        Number of context tokens that each sequence uses, from the front; default N.

    Returns
    -------
    Statistics
    """
    _checked_kind(kind)
    x, y, n = checked_sequences(x, y, lengths)
    P, tokens, dim = x.shape
    F = _count(kind, dim)
    C, c = np.zeros((F, F)), np.zeros(F)
    for block in _blocks(P, F, tokens * (dim + 1)):
        z = attention_features(x[block], y[block], n[block], kind, normalise)
        C += z.T @ z
        c += y[block, -1] @ z
    target = y[:, -1]
    return Statistics(kind=kind, C=C / P, c=c / P, y2=float(target @ target) / P)


def prefix_statistics(
    x: ArrayLike,
    y: ArrayLike,
    kind: str = "full",
    normalise: bool = True,
    *,
    lengths: Iterable[int] | None = None,
    query: str = "next",
) -> Statistics:
    """Average the statistics over prefixes of the sequences: training at every context length.

    Parameters
    ----------
    x, y, kind, normalise
        As for `statistics`.
    lengths : iterable of int, optional
        Context lengths, equally weighted; default 1 to N.
    query : {"next", "last"}
        The query of a prefix of n tokens: token n + 1, or the sequence's last token.

    Returns
    -------
    Statistics
    """
    if query not in ("next", "last"):
        raise InputError(f'query must be "next" or "last", got {query!r}.')
    x, y, _ = checked_sequences(x, y)
    tokens = x.shape[1]
    chosen = list(range(1, tokens)) if lengths is None else [int(n) for n in lengths]
    if not chosen or min(chosen) < 1 or max(chosen) > tokens - 1:
        raise InputError(f"lengths must lie between 1 and N={tokens - 1}, got {chosen}.")
    total: Statistics | None = None
    for n in chosen:
        at = [*range(n), n if query == "next" else tokens - 1]
        part = statistics(x[:, at], y[:, at], kind, normalise) * (1 / len(chosen))
        total = part if total is None else total + part
    assert total is not None
    return total


def close_under_sign(x: ArrayLike, y: ArrayLike) -> tuple[Floats, Floats]:
    """Close a data set under y -> -y: each sequence is followed by its mirror image.

    On such a set the zero blocks of a full attention layer stay zero, so that the reduced model
    is the real layer.

    Parameters
    ----------
    x : array (P, N+1, D)
    y : array (P, N+1)

    Returns
    -------
    x : array (2 P, N+1, D)
    y : array (2 P, N+1)
    """
    x, y, _ = checked_sequences(x, y)
    return np.repeat(x, 2, axis=0), np.stack([y, -y], axis=1).reshape(-1, y.shape[1])
