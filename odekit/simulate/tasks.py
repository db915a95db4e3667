"""Training sequences for in-context linear regression, and mixtures with in-weight tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError
from odekit.simulate.layer import Floats, real_array
from odekit.simulate.moments import Statistics, attention_features, statistics
from odekit.simulate.population import checked_covariance
from odekit.simulate.record import whole_number

__all__ = ["SequenceLaw", "Sequences", "sequences"]


@dataclass(frozen=True, eq=False)
class Sequences:
    """A set of sequences; unpacks as ``x, y = set``.

    Parameters
    ----------
    x : array (P, N+1, D)
        Tokens, the query last.
    y : array (P, N+1)
        Labels, the target last.
    lengths : array (P,) of int
        Context tokens used, from the front; the tokens after them are zero.
    in_context : array (P,) of bool
        Whether the sequence's task is its own (in context) or the fixed one (in weights).
    """

    x: Floats
    y: Floats
    lengths: NDArray[np.int64]
    in_context: NDArray[np.bool_]

    def __iter__(self) -> Any:
        return iter((self.x, self.y))

    def __len__(self) -> int:
        return len(self.x)

    def statistics(self, kind: str = "full", normalise: bool = True) -> Statistics:
        """Take the sufficient statistics; see `odekit.simulate.statistics`."""
        return statistics(self.x, self.y, kind, normalise, lengths=self.lengths)

    def features(self, kind: str = "full", normalise: bool = True) -> Floats:
        """Features (P, F) of each sequence, in the order of `Statistics`."""
        return attention_features(self.x, self.y, self.lengths, kind, normalise)


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceLaw:
    """The law of a training sequence.

    Parameters
    ----------
    covariance : array (D, D)
        Of the tokens; singular is allowed.
    context : int or iterable of int
        N, or the lengths from which each sequence's own is drawn, equally likely.
    task : array (D, D) or None
        Covariance of the task vectors w; default the identity.
    noise : float
        Variance of the label noise.
    noisy_query : bool
        Whether the target carries noise too.
    in_context : float
        Fraction of sequences with a task of their own; the others have the task `fixed`.
    fixed : array (D,) or None
        The in-weight task; needed when `in_context` is below 1.
    pool : array (k, D) or None
        Tasks of which each sequence takes one, equally likely, instead of a Gaussian one.
    """

    covariance: ArrayLike
    context: int | Iterable[int]
    task: ArrayLike | None = None
    noise: float = 0.0
    noisy_query: bool = True
    in_context: float = 1.0
    fixed: ArrayLike | None = None
    pool: ArrayLike | None = None

    def __post_init__(self) -> None:
        covariance = checked_covariance(self.covariance, "covariance")
        D = len(covariance)
        lengths = [self.context] if np.isscalar(self.context) else list(self.context)  # type: ignore[arg-type]
        if not lengths:
            raise InputError("context is empty; give at least one number of context tokens.")
        chosen = tuple(whole_number(n, "context", 1) for n in lengths)
        task = np.eye(D) if self.task is None else checked_covariance(self.task, "task", D)
        noise = float(real_array(self.noise, "noise", ndim=0))
        if noise < 0:
            raise InputError(f"noise is a variance and cannot be negative, got {noise!r}.")
        fraction = float(real_array(self.in_context, "in_context", ndim=0))
        if not 0 <= fraction <= 1:
            raise InputError(f"in_context is a fraction from 0 to 1, got {fraction!r}.")
        fixed = None
        if self.fixed is not None:
            fixed = real_array(self.fixed, "fixed", ndim=1)
            if fixed.shape != (D,):
                raise InputError(f"fixed has shape {fixed.shape}, expected ({D},).")
        elif fraction < 1:
            raise InputError("in_context is below 1: give the in-weight task as fixed= (D,).")
        pool = None
        if self.pool is not None:
            if not np.array_equal(task, np.eye(D)):
                raise InputError("Give task= (a covariance) or pool= (the tasks), not both.")
            pool = real_array(self.pool, "pool", ndim=2)
            if pool.shape[1] != D or not len(pool):
                raise InputError(f"pool has shape {pool.shape}, expected (k, {D}) with k >= 1.")
        for name, value in (
            ("covariance", covariance), ("context", chosen), ("task", task), ("noise", noise),
            ("in_context", fraction), ("fixed", fixed), ("pool", pool),
        ):  # fmt: skip
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_roots", (_root(covariance), _root(task)))

    @property
    def dim(self) -> int:
        """D."""
        return int(np.shape(self.covariance)[0])

    def draw(self, count: int, rng: np.random.Generator) -> Sequences:
        """Draw sequences.

        Parameters
        ----------
        count : int
        rng : numpy.random.Generator

        Returns
        -------
        Sequences
        """
        D, chosen = self.dim, np.asarray(self.context, dtype=np.int64)
        longest = int(chosen.max())
        root, task_root = self._roots  # type: ignore[attr-defined]
        x = rng.standard_normal((count, longest + 1, D))
        rows = max(1, 500_000 // ((longest + 1) * D))
        for start in range(0, count, rows):  # in place: a large set is not held twice
            x[start : start + rows] = x[start : start + rows] @ root
        if self.pool is None:
            w = rng.standard_normal((count, D)) @ task_root
        else:
            pool = np.asarray(self.pool)
            w = pool[rng.integers(len(pool), size=count)]
        own = np.ones(count, dtype=np.bool_)
        if self.in_context < 1:
            own = rng.random(count) < self.in_context
            w[~own] = self.fixed
        y = np.matmul(x, w[:, :, None])[:, :, 0]
        if self.noise:
            added = np.sqrt(self.noise) * rng.standard_normal((count, longest + 1))
            added[:, -1] *= self.noisy_query
            y += added
        lengths = np.full(count, longest)
        if chosen.size > 1:
            lengths = chosen[rng.integers(chosen.size, size=count)]
            unused = np.arange(longest)[None, :] >= lengths[:, None]
            x[:, :-1][unused] = 0.0
            y[:, :-1][unused] = 0.0
        return Sequences(x, y, lengths, own)

    def tests(self, count: int, seed: int) -> dict[str, Sequences]:
        """Draw separate test sets for tasks in context and, when there is one, in weights.

        Parameters
        ----------
        count : int
            Sequences in each.
        seed : int
            Use another than the training set's.

        Returns
        -------
        dict
            ``"in-context"`` and, with a fixed task, ``"in-weight"``.
        """
        from dataclasses import replace

        fractions = {"in-context": 1.0} | ({} if self.fixed is None else {"in-weight": 0.0})
        streams = np.random.SeedSequence(whole_number(seed, "seed", 0)).spawn(len(fractions))
        return {
            name: replace(self, in_context=fraction).draw(count, np.random.default_rng(stream))
            for (name, fraction), stream in zip(fractions.items(), streams, strict=True)
        }


def _root(covariance: Floats) -> Floats:
    # The symmetric root exists for singular matrices too, unlike Cholesky's.
    values, vectors = np.linalg.eigh(covariance)
    root: Floats = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    return root


def sequences(
    count: int,
    covariance: ArrayLike,
    context: int | Iterable[int],
    *,
    seed: int,
    task: ArrayLike | None = None,
    noise: float = 0.0,
    noisy_query: bool = True,
    in_context: float = 1.0,
    fixed: ArrayLike | None = None,
    pool: ArrayLike | None = None,
    closed: bool = False,
) -> Sequences:
    """Draw training sequences: ``y_n = w . x_n + noise``, the query last.

    Parameters
    ----------
    count : int
        Number of sequences P; with `closed`, half of them are drawn.
    covariance, context, task, noise, noisy_query, in_context, fixed, pool
        See `SequenceLaw`.
    seed : int
    closed : bool
        Close the set under y -> -y, each sequence followed by its mirror image.

    Returns
    -------
    Sequences
        With ``.x (P, N+1, D)``, ``.y (P, N+1)``, ``.lengths``, ``.in_context``.
    """
    law = SequenceLaw(
        covariance=covariance,
        context=context,
        task=task,
        noise=noise,
        noisy_query=noisy_query,
        in_context=in_context,
        fixed=fixed,
        pool=pool,
    )
    count = whole_number(count, "count", 1)
    rng = np.random.default_rng(whole_number(seed, "seed", 0))
    if not closed:
        return law.draw(count, rng)
    if count % 2:
        raise InputError(f"A closed set holds pairs: count must be even, got {count}.")
    half = law.draw(count // 2, rng)
    return Sequences(
        np.repeat(half.x, 2, axis=0),
        np.stack([half.y, -half.y], axis=1).reshape(count, -1),
        np.repeat(half.lengths, 2),
        np.repeat(half.in_context, 2),
    )
