"""Effective rank and subspace distance: what is measured on a weight matrix along training."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import reduce
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from odekit.errors import InputError, OdekitWarning

Floats: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = ArrayLike | tuple[ArrayLike, ...]
Side: TypeAlias = Literal["row", "column"]
Kind: TypeAlias = Literal["residual", "projector", "angle"]


class MeasureWarning(OdekitWarning):
    """A measure was asked of a matrix about which it cannot say anything."""


def effective_rank(M: Matrix, skip: int = 0) -> float | Floats:  # noqa: N803
    """Exponential of the entropy of the normalised singular values.

    Parameters
    ----------
    M : array_like, shape (..., n, m), or tuple of such arrays
        The matrix, or a stack of them along leading axes (checkpoints). A tuple is the product of
        its factors, formed in float64 whatever the factors' precision.
    skip : int
        Leave out this many leading singular values: the marginal effective rank, which dips when
        the next direction is being learned.

    Returns
    -------
    float, or ndarray of shape (...)
        Between 1 and ``min(n, m) - skip``: 1 for a matrix of rank ``skip + 1``, the upper end for
        equal singular values. 0, with a warning, where no singular value is left.

    Raises
    ------
    InputError
        If M is not a finite matrix or ``skip`` is not a nonnegative integer.

    Warns
    -----
    MeasureWarning
        If M is zero, or has no rank left after ``skip``: the entropy of nothing is undefined.

    Notes
    -----
    Free of units: M and c M have the same value. Singular values below
    ``max(n, m) * eps * s_max``, eps of M's own precision, are rounding and count as zero;
    otherwise the marginal rank of a low-rank matrix would be that of its rounding errors.

    References
    ----------
    Roy & Vetterli, "The effective rank", EUSIPCO 2007; marginal version: Mainali & Teixeira,
    "Exact learning dynamics of in-context learning in linear transformers", 2025.
    """
    if isinstance(skip, bool) or not isinstance(skip, int | np.integer) or skip < 0:
        raise InputError(
            f"skip must be a whole number of singular values >= 0, got {skip!r}; 0 keeps them all"
        )
    matrix, rounding = _matrix("M", M)
    values = np.linalg.svd(matrix, compute_uv=False)
    values = np.where(values > _cutoff(matrix, values, rounding), values, 0.0)[..., skip:]
    total = values.sum(axis=-1, keepdims=True)
    empty = total[..., 0] == 0
    if np.any(empty):
        _warn(
            f"effective_rank: no singular value is left after skip={skip} in {_share(empty)}, "
            "where it is returned as 0; look at it only where the matrix has a larger rank"
        )
    share = np.divide(values, total, out=np.zeros_like(values), where=total > 0)
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    result = np.where(empty, 0.0, np.exp(-(share * logs).sum(axis=-1)))
    return float(result) if result.ndim == 0 else result


def subspace_distance(
    M: Matrix,  # noqa: N803
    reference: Matrix,
    side: Side = "row",
    rank: int | float | None = None,
    kind: Kind = "residual",
    relative: bool = True,
) -> float | Floats:
    """Distance of the subspace that M spans from a reference matrix.

    Parameters
    ----------
    M : array_like, shape (..., n, m), or tuple of such arrays
        The matrix, or a stack of them (checkpoints); a tuple is the product of its factors,
        formed in float64.
    reference : array_like, shape (n', m'), or tuple of such arrays
        The matrix to compare with: m' = m for ``side="row"``, n' = n for ``side="column"``.
    side : {"row", "column"}
        Which subspace of M: that of its rows (in R^m) or of its columns (in R^n).
    rank : int, float or None
        An int keeps that many leading singular directions of M; a float in (0, 1) the fewest that
        hold this fraction of the squared singular values; None every direction above rounding.
        For the kinds that compare two subspaces the reference is cut in the same way.
    kind : {"residual", "projector", "angle"}
        "residual": ``min_A |A M - reference|_F`` (row; ``|M A - reference|_F`` for column).
        "projector": ``|P - P'|_F``, P and P' the orthogonal projectors on both subspaces.
        "angle": the largest principal angle between them, in radians.
    relative : bool
        Divide by the value for orthogonal subspaces: ``|reference|_F``, ``sqrt(r + r')``, pi/2.
        Relative distances lie in [0, 1].

    Returns
    -------
    float, or ndarray of shape (...)

    Raises
    ------
    InputError
        If shapes do not match, or an argument is not among its choices.

    Warns
    -----
    MeasureWarning
        Where the measure cannot say anything: the subspace is the whole space (the residual is 0
        whatever the reference), M or the reference is zero, the rank asked for exceeds the
        numerical rank (which is then used), or the cut falls between equal singular values.

    Notes
    -----
    "residual" is one-sided and zero at ``M = reference`` by construction: name the checkpoint
    that serves as the reference, and set the curve beside `random_subspace_distance`.

    References
    ----------
    Mainali & Teixeira, "Exact learning dynamics of in-context learning in linear transformers",
    2025 (kind "residual", side "row", no truncation, not relative). Bjorck & Golub, Math. Comp.
    27 (1973) for principal angles.
    """
    if side not in ("row", "column"):
        raise InputError(f'side must be "row" or "column", got {side!r}')
    if kind not in ("residual", "projector", "angle"):
        raise InputError(f'kind must be "residual", "projector" or "angle", got {kind!r}')
    matrix, rounding = _matrix("M", M)
    target, target_rounding = _matrix("reference", reference)
    if target.ndim != 2:
        raise InputError(f"reference must be one matrix, got an array of shape {target.shape}")
    if side == "column":
        matrix, target = np.swapaxes(matrix, -1, -2), target.T
    if matrix.shape[-1] != target.shape[-1]:
        axis = "columns" if side == "row" else "rows"
        raise InputError(
            f'side="{side}" needs M and reference with equally many {axis}, '
            f"got {matrix.shape[-1]} and {target.shape[-1]}"
        )
    _check_rank(rank, min(matrix.shape[-2:]), "M")
    if kind != "residual":
        _check_rank(rank, min(target.shape), "reference")

    stack = matrix.reshape((-1, *matrix.shape[-2:]))
    bases = [_leading_rows(one, rounding, rank, "M") for one in stack]
    whole = np.array([len(basis) == stack.shape[-1] for basis in bases])
    if np.any(whole):
        _warn(
            f"subspace_distance: M spans the whole {side} space in {_share(whole)}; the distance "
            "says nothing there; truncate with rank= or take the other side"
        )
    distance: Callable[[Floats], float]
    if kind == "residual":
        size = float(np.linalg.norm(target)) if relative else 1.0
        if not np.any(target):
            _warn("subspace_distance: the reference is zero, every subspace contains it")

        def distance(basis: Floats) -> float:
            residual = float(np.linalg.norm(target - (target @ basis.T) @ basis))
            return residual / size if size else float("nan")
    else:
        other = _leading_rows(target, target_rounding, rank, "the reference")
        measure = _projector_distance if kind == "projector" else _largest_angle

        def distance(basis: Floats) -> float:
            return measure(basis, other, relative)

    result = np.array([distance(basis) for basis in bases]).reshape(matrix.shape[:-2])
    return float(result) if result.ndim == 0 else result


def random_subspace_distance(rank: ArrayLike, dim: ArrayLike) -> float | Floats:
    """Relative residual that a random subspace leaves: the baseline of `subspace_distance`.

    Parameters
    ----------
    rank, dim : array_like of int
        Dimension r of the subspace and n of the space around it, broadcast together.

    Returns
    -------
    float or ndarray
        ``sqrt(1 - r/n)``, the root mean square of the relative residual over subspaces drawn
        uniformly; the same for every reference.
    """
    r, n = np.asarray(rank, dtype=np.float64), np.asarray(dim, dtype=np.float64)
    if np.any(~(r >= 0)) or np.any(~(n >= 1)) or np.any(r > n):
        raise InputError(f"rank must lie between 0 and dim, got rank {rank!r} and dim {dim!r}")
    result = np.sqrt(1.0 - r / n)
    return float(result) if result.ndim == 0 else np.asarray(result)


def _matrix(name: str, given: Matrix) -> tuple[Floats, float]:
    """Float64 matrix, or product of factors, and the unit roundoff of what was given."""
    factors = given if isinstance(given, tuple) else (given,)
    arrays = [np.asarray(factor) for factor in factors]
    for array in arrays:
        if array.dtype.kind not in "fiub":
            raise InputError(f"{name} must hold real numbers, got dtype {array.dtype}")
        if array.ndim < 2 or 0 in array.shape:
            raise InputError(
                f"{name} must be a matrix (..., n, m), or a tuple of factors that are, "
                f"got an array of shape {array.shape}"
            )
        if not np.all(np.isfinite(array)):
            raise InputError(f"{name} must be finite, got nan or inf; drop the diverged steps")
    try:
        product: Floats = reduce(np.matmul, [array.astype(np.float64) for array in arrays])
    except ValueError as error:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise InputError(f"{name}: the factors' shapes {shapes} do not chain") from error
    # Factors are exact as given: only a product that was formed in low precision has its rounding.
    lone = arrays[0].dtype
    coarse = len(arrays) == 1 and lone.kind == "f" and lone.itemsize < 8
    return product, float(np.finfo(lone if coarse else np.float64).eps)


def _cutoff(matrix: Floats, values: NDArray[Any], rounding: float) -> Any:
    return max(matrix.shape[-2:]) * rounding * values[..., :1]


def _check_rank(rank: int | float | None, largest: int, name: str) -> None:
    if rank is None:
        return
    if isinstance(rank, int | np.integer) and not isinstance(rank, bool):
        if 1 <= rank <= largest:
            return
        raise InputError(f"rank must lie between 1 and {largest}, the sides of {name}, got {rank}")
    if isinstance(rank, float | np.floating) and 0 < rank < 1:
        return
    raise InputError(
        f"rank must be a whole number >= 1, a fraction of energy in (0, 1), or None, got {rank!r}"
    )


def _leading_rows(matrix: Floats, rounding: float, rank: int | float | None, name: str) -> Floats:
    """Orthonormal rows (r, m) that span the leading row space."""
    _, values, rows = np.linalg.svd(matrix, full_matrices=False)
    cutoff = float(_cutoff(matrix, values, rounding)[0])
    numerical = int(np.count_nonzero(values > cutoff))
    if numerical == 0:
        _warn(f"subspace_distance: {name} is zero and spans no direction")
        return rows[:0]
    if rank is None:
        return rows[:numerical]
    if isinstance(rank, int | np.integer):
        kept = int(rank)
    else:
        energy = np.cumsum((values / values[0]) ** 2)
        kept = int(np.searchsorted(energy, rank * energy[-1])) + 1
    if kept > numerical:
        _warn(
            f"subspace_distance: rank={rank} exceeds the numerical rank {numerical} of {name}, "
            "which is used instead"
        )
        return rows[:numerical]
    if kept < len(values) and values[kept - 1] - values[kept] <= cutoff:
        _warn(
            f"subspace_distance: singular values {kept} and {kept + 1} of {name} are equal, its "
            f"{kept} leading directions are arbitrary; choose another rank"
        )
    return rows[:kept]


def _projector_distance(one: Floats, other: Floats, relative: bool) -> float:
    # |P - P'|_F^2 = |(1 - P') P|^2 + |(1 - P) P'|^2: no cancellation when the two nearly agree.
    overlap = one @ other.T
    squared = np.sum((one - overlap @ other) ** 2) + np.sum((other - overlap.T @ one) ** 2)
    largest = np.sqrt(len(one) + len(other)) if relative else 1.0
    return float(np.sqrt(squared) / largest) if largest else float("nan")


def _largest_angle(one: Floats, other: Floats, relative: bool) -> float:
    if len(one) == 0 or len(other) == 0:
        return float("nan")
    small, large = (one, other) if len(one) <= len(other) else (other, one)
    overlap = small @ large.T
    cosine = np.linalg.svd(overlap, compute_uv=False).min()
    sine = np.linalg.norm(small - overlap @ large, ord=2)
    # The sine is accurate for small angles, the cosine for those near a right angle.
    angle = float(np.arctan2(sine, cosine))
    return angle / (np.pi / 2) if relative else angle


def _share(where: NDArray[np.bool_]) -> str:
    return (
        "the matrix" if where.size == 1 else f"{np.count_nonzero(where)} of {where.size} matrices"
    )


def _warn(message: str) -> None:
    warnings.warn(message, MeasureWarning, stacklevel=3)
