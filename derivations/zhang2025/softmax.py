r"""Softmax attention at small cost: mirrored heads, closed training sets, and what it is near zero.

A head answers with the mean of its tokens under the weights ``softmax(scores)``. Of small scores
that is the plain mean, which says nothing of the task, and then the covariance of tokens and
scores. In a pair of mirrored heads, ``(u, a)`` and ``(-u, -a)``, all even orders cancel: what is
left at first order is linear attention on centred tokens. A single head must first be rid of its
plain mean, which another head then serves to cancel in place of learning an eigenvector.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike, NDArray

import odekit as ok
from odekit.claims import Check, identity

Array = NDArray[np.float64]
State = dict[str, Array]


def closed(x: Array, y: Array) -> tuple[Array, Array]:
    """Close a set of sequences under the signs that leave the population as it is.

    Parameters
    ----------
    x : ndarray (P, N + 1, D)
        Tokens in the eigenbasis of their covariance, the query last.
    y : ndarray (P, N + 1)
        Labels.

    Returns
    -------
    x, y : ndarray (2^(D+1) P, N + 1, D) and (2^(D+1) P, N + 1)
        With each coordinate turned around (with the task's, so that labels stay), and the query
        with its label.
    """
    for d in range(x.shape[-1]):
        turned = x.copy()
        turned[:, :, d] *= -1
        x, y = np.concatenate([x, turned]), np.concatenate([y, y])
    other_x, other_y = x.copy(), y.copy()
    other_x[:, -1] *= -1
    other_y[:, -1] *= -1
    return np.concatenate([x, other_x]), np.concatenate([y, other_y])


def mirrored(state: State) -> State:
    """Add to each head its mirror image: values and queries (merged: the block) of other sign."""
    turned = ("u", "Q") if "Q" in state else ("u", "A")
    return {
        name: np.concatenate([value, -value if name in turned else value])
        for name, value in state.items()
    }


def aligned(sizes: ArrayLike) -> State:
    """One separate head for each eigenvector: value s, key and query s e_d; rank one."""
    s = np.asarray(sizes, dtype=np.float64)
    D = len(s)
    state = {"u": np.zeros((D, D + 1)), "K": np.zeros((D, 1, D + 1)), "Q": np.zeros((D, 1, D))}
    state["u"][:, D] = s
    state["K"][:, 0, :D] = state["Q"][:, 0] = np.diag(s)
    return state


def pair_at_first_order(a: ArrayLike, tokens: Array, labels: Array, value: float) -> float:
    """Prediction of the heads (value, a) and (-value, -a): twice the covariance, times value."""
    scores = tokens @ np.asarray(a)
    return float(2 * value * (np.mean(labels * scores) - np.mean(labels) * np.mean(scores)))


def pair(a: ArrayLike, tokens: Array, labels: Array, value: float) -> float:
    """Prediction of the heads (value, a) and (-value, -a) with softmax; tokens (M, D)."""
    scores = tokens @ np.asarray(a)
    up, down = np.exp(scores), np.exp(-scores)
    return float(value * (labels @ up / up.sum() - labels @ down / down.sum()))


def expansion() -> Iterable[Check]:
    """Identities: a head's mean to second order in its scores, and the pair's.

    ``m_j`` is the mean of ``s^j`` and ``c_j`` that of ``y s^j`` over the M tokens.
    """
    e = sp.Symbol("epsilon")
    m = sp.symbols("m1:4")
    c = sp.symbols("c0:4")
    weights = 1 + sum(e**j * m[j - 1] / sp.factorial(j) for j in (1, 2, 3))
    labelled = sum(e**j * c[j] / sp.factorial(j) for j in range(4))
    head = sp.series(labelled / weights, e, 0, 3).removeO()
    yield identity("a head at zero scores answers with the mean label", head.subs(e, 0), c[0])
    yield identity(
        "at first order with the covariance of labels and scores",
        head.coeff(e, 1),
        c[1] - c[0] * m[0],
    )
    both = sp.expand(head - head.subs(e, -e))
    yield identity(
        "a mirrored pair: twice the covariance, and no second order",
        both,
        2 * e * (c[1] - c[0] * m[0]),
    )


def pull_near_zero() -> Iterable[Check]:
    """Identity: what pulls on A near zero, for symbolic N and D.

    The centred ``beta = (1/M) sum_m y_m x_m - (mean y)(mean x)`` over M = N + 1 tokens, the query
    with label zero, has ``E[y_q beta x_q^T] = (N/(N+1))^2 Lambda^2``.
    """
    N, D = ok.dims("N D")
    L: Any = ok.parameter("Lambda", (D, D), symmetric=True)
    x, xq = ok.gaussian("x", (N, D), covariance=L), ok.gaussian("x_q", (D,), covariance=L)
    w = ok.gaussian("w", (D,), covariance=ok.identity(D))
    M = N + 1
    y, target = ok.einsum("d,nd->n", w, x), ok.einsum("d,d->", w, xq)
    total: Any = ok.einsum("nd->d", x) + xq * 1
    centred = ok.einsum("n,nd->d", y, x) / M - ok.einsum("n,d->d", y, total) / M**2
    found = ok.expectation(ok.einsum(",i,j->ij", target, centred, xq))
    yield identity(
        "E[y_q beta x_q^T] with centred tokens",
        found,
        (sp.Integer(1) * N / M) ** 2 * ok.einsum("ij,jk->ik", L, L),
    )
