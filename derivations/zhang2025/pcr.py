r"""Principal component regression in context.

Token covariance with spectrum .4 .3 .2 .1 in a rotated basis, H = 5, rank one. At each plateau the
matrix A that the layer has learned is compared with the sum over the learned eigenvectors; and what
the layer predicts there with principal component regression on the context's own tokens, as the
context grows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import odekit as ok
import odekit.plot as pictures
from odekit.reproduce import Picture

from . import plateaus, separate, staircase

Array = NDArray[np.float64]

SPECTRUM = np.array([0.4, 0.3, 0.2, 0.1])
DIM, HEADS, CONTEXT, SCALE = 4, 5, 31, 0.01
SEEDS = (0, 1, 2)
CONTEXTS = (31, 125, 500, 2000)
TESTS, TEST_SEED = 500, 7
VECTORS = np.linalg.qr(np.random.default_rng(11).standard_normal((DIM, DIM)))[0]
COVARIANCE = (VECTORS * SPECTRUM) @ VECTORS.T
COVARIANCE = (COVARIANCE + COVARIANCE.T) / 2


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the figure."""
    model: Any = ok.models.attention_separate(heads=HEADS, rank=1, dim=DIM)
    rate = staircase.speed(model.flow)
    contexts = CONTEXTS[::3] if quick else CONTEXTS
    matrices: dict[tuple[int, int], Array] = {}
    shown: Any = None
    rows = []
    for context in contexts:
        for seed in SEEDS[:1] if quick or context != CONTEXT else SEEDS:
            progress(f"trains with a context of {context}, seed {seed}")
            run = _integrate(model, seed, context)
            stairs = staircase.read_staircase(run, rate)
            at = np.searchsorted(run.t, stairs.times)
            learned = run.value("A")[at]
            if seed == SEEDS[0]:
                matrices[context, seed] = learned
                shown = run if context == CONTEXT else shown
            for m, A in enumerate(learned):
                wanted = separate.saddle(VECTORS, SPECTRUM, context, range(m))
                size = float(np.linalg.norm(wanted)) or 1.0
                rows.append(
                    {
                        "context": context,
                        "seed": seed,
                        "plateau": m,
                        "gap": float(np.linalg.norm(A - wanted)) / size,
                    }
                )
    progress("tests against principal component regression")
    figure, axes = pictures.panels(2, 2, height=4.8)
    with pictures.style():
        _strengths(axes[0], shown)
        _gaps(axes[1], rows)
        tests = _tests(axes[2], axes[3], contexts, matrices)
    return Picture(
        pictures.finish(figure),
        {"A against the sum over learned eigenvectors": rows, "tests": tests},
        f"Principal component regression (D = 4, H = 5, rank one, spectrum .4 .3 .2 .1 in a random "
        f"basis, start {SCALE:g}). (a) Strength of each eigenvector in A at N = 31; dashed: 1/("
        "lambda_d c_d); grey: largest entry between different eigenvectors. (b) A at each plateau "
        "against the sum over the learned eigenvectors, relative in Frobenius norm (plateau 0: "
        f"absolute). (c) {TESTS} test sequences at plateau 2: prediction of the layer against "
        "principal component regression with two components on the context. (d) Root mean square "
        "of the difference, relative, as the context grows; dashed: N^(-1/2).",
        plateaus.principal_components().equations,
    )


def _integrate(model: Any, seed: int, context: int) -> Any:
    y0 = ok.simulate.initial(model, SCALE, seed)
    times = np.concatenate([[0.0], np.geomspace(0.3 / SCALE, 6e3 / SCALE, 900)])
    return ok.solve(
        model.flow,
        y0,
        times,
        {"Lambda": COVARIANCE, "N": context},
        tolerance=ok.Tolerance(relative=1e-8),
    )


def regression(x: Array, y: Array, queries: Array, components: int) -> Array:
    """Principal component regression on each context: x (P, N, D), y (P, N), queries (P, D)."""
    gram = np.einsum("pni,pnj->pij", x, x) / x.shape[1]
    beta = np.einsum("pn,pni->pi", y, x) / x.shape[1]
    values, vectors = np.linalg.eigh(gram)
    chosen, weights = vectors[:, :, -components:], values[:, -components:]
    along = np.einsum("pim,pi->pm", chosen, beta) / weights
    return np.einsum("pm,pim,pi->p", along, chosen, queries)


def _strengths(ax: Any, run: Any) -> None:
    colours = pictures.sequence(DIM)
    pictures.modes(run, VECTORS, ax=ax, colors=colours)
    best = 1 / (SPECTRUM * separate.shortfall(SPECTRUM, float(SPECTRUM.sum()), CONTEXT))
    for value, colour in zip(best, colours, strict=True):
        ax.axhline(value, color=colour, ls=(0, (4, 3)), lw=0.7, zorder=0)
    inside = np.einsum("im,tij,jn->tmn", VECTORS, run.value("A"), VECTORS)
    outside = np.abs(inside * (1 - np.eye(DIM))).max(axis=(1, 2))
    ax.plot(run.t, outside, color="0.6", lw=0.8, label="off-diagonal")
    ax.set_xscale("log")
    ax.set_xlim(300, 2e5)
    ax.set_ylim(-0.4, 10.5)
    ax.set_ylabel(r"mode strength $e_d^\top A\,e_d$")
    ax.legend(loc="upper left", ncols=3, columnspacing=1.0)


def _gaps(ax: Any, rows: list[dict[str, Any]]) -> None:
    contexts = sorted({row["context"] for row in rows})
    for context, colour in zip(contexts, pictures.PALETTE, strict=False):
        points = [(r["plateau"], r["gap"]) for r in rows if r["context"] == context]
        shift = 0.08 * (contexts.index(context) - (len(contexts) - 1) / 2)
        places, gaps = np.array(points).T
        ax.plot(places + shift, np.maximum(gaps, 1e-16), "o", color=colour, mfc="none",
                label=f"$N={context}$")  # fmt: skip
    ax.set_yscale("log")
    ax.set_xticks(range(DIM + 1))
    ax.set_xlabel("plateau $m$ (eigenvectors learned)")
    ax.set_ylabel(r"$\Vert A - A_m\Vert_F\,/\,\Vert A_m\Vert_F$")
    ax.legend()


def _tests(ax: Any, beside: Any, contexts: Any, matrices: Any) -> list[dict[str, Any]]:
    found = []
    for context in contexts:
        drawn = ok.simulate.sequences(TESTS, covariance=COVARIANCE, context=context, seed=TEST_SEED)
        x, y = drawn
        tokens, labels, queries = x[:, :-1], y[:, :-1], x[:, -1]
        beta = np.einsum("pn,pni->pi", labels, tokens) / context
        for m in range(1, DIM + 1):
            layer = np.einsum("pi,ij,pj->p", beta, matrices[context, SEEDS[0]][m], queries)
            fitted = regression(tokens, labels, queries, m)
            gap = np.sqrt(np.mean((layer - fitted) ** 2) / np.mean(fitted**2))
            found.append({"context": context, "components": m, "relative difference": float(gap)})
            if m == 2 and context in (contexts[0], contexts[-1]):
                first = context == contexts[0]
                pictures.agreement(
                    layer, fitted, ax, marker=".", ms=2.5, markeredgewidth=0,
                    markerfacecolor=pictures.PALETTE[0 if first else 1],
                    label=f"$N={context}$", zorder=2 + (not first),
                )  # fmt: skip
    for m, colour in zip(range(1, DIM + 1), pictures.sequence(DIM), strict=True):
        gaps = [row["relative difference"] for row in found if row["components"] == m]
        beside.loglog(contexts, gaps, "o-", color=colour, mfc="white", label=f"$m={m}$")
    guide = np.array([contexts[0], contexts[-1]], dtype=np.float64)
    beside.loglog(guide, 4 / np.sqrt(guide), "--", color="0.5", lw=0.8, label=r"$N^{-1/2}$")
    beside.set_xlabel("context length $N$")
    beside.set_ylabel("relative difference to PCR")
    beside.legend(loc="lower left")
    ax.set_xlim(-4, 4)
    ax.set_ylim(-4, 4)
    ax.set_xlabel("PCR on the context, two components")
    ax.set_ylabel("layer at plateau 2")
    ax.legend(loc="upper left", markerscale=2)
    return found
