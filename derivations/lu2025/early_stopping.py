"""Figure: errors along training time, beside ridge regression of strength one over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import odekit as ok
from odekit.reproduce import Picture
from odekit.simulate import (
    feature_statistics,
    population_error,
    sample_pretraining,
)

from .dynamics import direct_flow, product_flow
from .measured import pool_of

ALPHA, KAPPA, NOISE, TAU = 5.0, 0.5, 0.5, 0.9
START = 1e-2


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw the flow on the population, on pretraining sets, and of the product u N."""
    dim, seeds = (6, 6) if quick else (12, 20)
    times = np.geomspace(0.01, 1e5, 120)
    tasks = pool_of(KAPPA, dim)
    assert tasks is not None
    context = round(ALPHA * dim)
    samples = round(TAU * dim**2)

    progress("population flow in the limit")
    limit = ok.theory.population_flow(ALPHA, KAPPA, NOISE, times)
    ridge = ok.theory.learning_curve(ALPHA, KAPPA, np.inf, NOISE, 1 / times)

    progress(f"flow on {seeds} pretraining sets at d = {dim}")
    errors = np.empty((seeds, 2, len(times)))
    for child, row in zip(np.random.SeedSequence(3).spawn(seeds), errors, strict=True):
        second, drive = feature_statistics(_sample(tasks, context, samples, child))
        row[:] = _errors(ok.theory.linear_flow(second, drive, times), tasks, context)
    strengths = 1 / times[::5]
    equivalent = np.array([_ridge(tasks, context, samples, lam) for lam in strengths]).T

    progress("integrates the fields of the last set")
    marks = np.geomspace(0.1, 1e3, 9)
    solved = ok.solve(direct_flow(), {"Gamma": 0 * drive}, marks, {"S": second, "v": drive})
    exact = ok.theory.linear_flow(second, drive, marks)
    # the product has settled by then, and the stiff end is slow
    early = times[times < 3e3]
    product, drift = _product(second, drive, early)

    numbers = {
        "alpha": ALPHA,
        "kappa": KAPPA,
        "noise": NOISE,
        "tau": TAU,
        "dim": dim,
        "t": times.tolist(),
        "population": {"icl": limit.icl.tolist(), "idg": limit.idg.tolist()},
        "population_ridge": {"icl": ridge.icl.tolist(), "idg": ridge.idg.tolist()},
        "set": {"icl": errors[:, 0].mean(0).tolist(), "idg": errors[:, 1].mean(0).tolist()},
        "set_error": (errors.std(0, ddof=1) / np.sqrt(seeds)).tolist(),
        "ridge_times": (1 / strengths).tolist(),
        "ridge_equivalent": equivalent.tolist(),
        "solved_times": marks.tolist(),
        "solved": _errors(solved["Gamma"], tasks, context).tolist(),
        "solver_deviation": float(np.abs(solved["Gamma"] - exact).max() / np.abs(exact).max()),
        "product_times": early.tolist(),
        "product": _errors(product, tasks, context).tolist(),
        "product_drift": drift,
        "direct_last_set": errors[-1].tolist(),
    }
    return Picture(
        _figure(times, numbers, errors),
        numbers,
        f"Test errors along gradient flow from zero, alpha = {ALPHA:g}, kappa = {KAPPA:g}, label "
        f"noise {NOISE:g}. (a) Population training in the limit of large d (lines) beside ridge "
        f"regression of strength 1/t (dashes). (b) Training on sets of tau = {TAU:g}, d = {dim}: "
        f"exact flow, mean and standard error over {seeds} sets (bands), beside the ridge of "
        "strength 1/t (finite-dimension equivalent, dashes): close to the interpolation peak "
        "longer training hurts, and stopping early helps as the best ridge does. (c) The last of "
        "these sets: the linear flow of Gamma (lines; points: the compiled field) and the flow of "
        "Gamma = u N from a small balanced start (dashes), which waits on a plateau and then "
        f"reaches the same interpolant; u^2 - |N|^2 drifts by {drift:.0e} relative to |N|^2.",
        (
            r"\dot\Gamma = v - (S+\lambda)\Gamma,\quad \Gamma(t) = \frac{1-e^{-St}}{S}\,v",
            r"\dot u = N\cdot g,\quad \dot N = u\,g,\quad g = v - S\,uN,\quad u^2-|N|^2 = "
            r"\mathrm{const}",
        ),
    )


def _sample(tasks: Any, context: int, samples: int, seed: Any) -> Any:
    return sample_pretraining(tasks, context=context, samples=samples, noise=NOISE, seed=seed)


def _ridge(tasks: Any, context: int, samples: int, ridge: float) -> Any:
    return ok.theory.finite_equivalent(
        tasks, context=context, samples=samples, noise=NOISE, ridge=ridge
    )


def _errors(gammas: Any, tasks: Any, context: int) -> Any:
    d = tasks.shape[1]
    return np.array(
        [
            [
                population_error(gamma.reshape(d, d + 1), context=context, noise=NOISE, tasks=pool)
                for gamma in gammas
            ]
            for pool in (None, tasks)
        ]
    )


def _product(second: Any, drive: Any, times: Any) -> tuple[Any, float]:
    """Gamma along the flow of u N, and the largest drift of its conserved quantity."""
    begin = np.random.default_rng(4).standard_normal(len(drive))
    begin *= START / np.linalg.norm(begin)
    y0 = {"u": np.array(START), "N": begin}
    run = ok.solve(product_flow(), y0, times, {"S": second, "v": drive})
    kept = run["u"] ** 2 - np.sum(run["N"] ** 2, axis=1)
    size = np.sum(run["N"][-1] ** 2)
    return run["u"][:, None] * run["N"], float(
        np.abs(kept - (START**2 - begin @ begin)).max() / size
    )


def _figure(times: Any, numbers: dict[str, Any], errors: Any) -> Any:
    figure, axes = ok.plot.panels(1, 3, height=2.7)
    with ok.plot.style():
        for row, (name, words) in enumerate((("icl", "fresh task"), ("idg", "pool"))):
            colour = ok.plot.PALETTE[row]
            axes[0].plot(times, numbers["population"][name], color=colour, label=f"flow, {words}")
            axes[0].plot(times, numbers["population_ridge"][name], "--", color=colour, lw=0.9)
            mean = np.array(numbers["set"][name])
            error = np.array(numbers["set_error"][row])
            axes[1].plot(times, mean, color=colour)
            axes[1].fill_between(times, mean - error, mean + error, color=colour, alpha=0.25, lw=0)
            axes[1].plot(
                numbers["ridge_times"], numbers["ridge_equivalent"][row], "--", color=colour, lw=0.9
            )
            axes[1].plot(times[np.argmin(mean)], mean.min(), "*", color=colour, ms=7)
            axes[2].plot(times, errors[-1, row], color=colour)
            axes[2].plot(
                numbers["product_times"], numbers["product"][row], ls=(0, (3, 2)), color=colour
            )
            axes[2].plot(numbers["solved_times"], numbers["solved"][row], "o", color=colour, ms=2.5)
        axes[0].plot([], [], "--", color="0.3", lw=0.9, label=r"ridge, $\lambda = 1/t$")
        axes[0].plot([], [], "*", color="0.3", ms=7, label="best time")
        axes[0].plot([], [], ls=(0, (3, 2)), color="0.3", label=r"(c): $\Gamma = uN$")
        titles = ("population", rf"pretraining sets, $\tau = {TAU:g}$", "one set")
        for ax, words in zip(axes, titles, strict=True):
            ax.set_xscale("log")
            ax.set_xlabel("training time $t$")
            ax.set_title(words, loc="center")
        axes[0].set_ylabel("test error")
        axes[1].set_yscale("log")
        axes[2].set_yscale("log")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5)
    return ok.plot.finish(figure)
