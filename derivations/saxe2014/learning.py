"""Figure: the modes of a deep linear network, against closed forms, the flow and training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy as sp
from numpy.typing import ArrayLike, NDArray

import odekit as ok
from odekit.reproduce import Picture

from .modes import published_rate, sigmoid

Array = NDArray[np.float64]

STRENGTHS = np.array([2.0, 1.2, 0.7, 0.4])
"""Singular values of the teacher; the inputs have unit covariance."""
START = 1e-3
"""Strength u of each mode at the start."""


def task(seed: int = 0, dim: int = 4) -> tuple[Array, Array, Array]:
    """The teacher ``U diag(s) V^T`` and its singular vectors (columns)."""
    rng = np.random.default_rng(seed)
    U, V = (np.linalg.qr(rng.standard_normal((dim, dim)))[0] for _ in range(2))
    return (U * STRENGTHS) @ V.T, U, V


def aligned_start(depth: int, U: Array, V: Array, u0: float, seed: int = 1) -> dict[str, Array]:
    """Balanced layers, aligned with the teacher, hidden bases at random: every mode at u0."""
    rng = np.random.default_rng(seed)
    dim = len(U)
    hidden = [np.linalg.qr(rng.standard_normal((dim, dim)))[0] for _ in range(depth - 1)]
    sides = [V, *hidden, U]
    return {f"W{k + 1}": u0 ** (1 / depth) * sides[k + 1] @ sides[k].T for k in range(depth)}


def strengths(run: Any, depth: int, U: Array, V: Array) -> Array:
    """``u_a = U_a . W_n ... W_1 V_a`` along a run, shape (len(t), modes)."""
    whole = run["W1"]
    for k in range(2, depth + 1):
        whole = run[f"W{k}"] @ whole
    return np.asarray(np.einsum("ia,tij,ja->ta", U, whole, V))


def single_mode(depth: int, times: ArrayLike, s: float, u0: float) -> Array:
    """Strength u(t) of a balanced mode by odekit's closed form of the published equation."""
    rate, u = published_rate(depth)
    values = {sp.Symbol("s", positive=True): s, sp.Symbol("lambda", positive=True): 1}
    # In a = u^(1/n) the equation is polynomial: a' = a^(n-1) (s - a^n).
    a = sp.Symbol("a", positive=True)
    scalar = sp.expand(sp.powsimp(rate.subs(values).subs(u, a**depth) / (depth * a ** (depth - 1))))
    form = ok.closed_form(ok.vector_field({a: sp.nsimplify(scalar)}))
    return np.asarray(form.evaluate(times, u0 ** (1 / depth))["a"]) ** depth


def draw(quick: bool, progress: Callable[[str], None]) -> Picture:
    """Draw modes at depth 2, one mode at several depths, half-rise times, and the balances."""
    figure, axes = ok.plot.panels(2, 2)
    numbers: dict[str, Any] = {"strengths": STRENGTHS.tolist(), "start": START}
    with ok.plot.style():
        _modes(axes[0], numbers, quick, progress)
        _depths(axes[1], numbers, progress)
        _half_rise(axes[2], numbers, quick)
        _balances(axes[3], numbers, progress)
    return Picture(
        ok.plot.finish(figure),
        numbers,
        "Deep linear networks on Gaussian inputs of unit covariance. (a) Depth 2: strength of each "
        "mode of the teacher; lines: the sigmoid; dots: SGD from a balanced, aligned start; "
        "dashed: the flow from a generic start of the same size. (b) One mode, s = 1, from the "
        "same strength at several depths: closed forms (lines) and the flow of the whole network "
        "(dots). (c) Time to half height against s: like 1/s at every depth; a small start enters "
        "by a logarithm at depth 2 and as u0^-(1 - 2/n) at depth n > 2. (d) Largest relative drift "
        "of W W^T - W^T W between neighbouring layers from a generic start: the integrator's "
        "error.",
        (
            r"\dot u = n\,\lambda\,u^{2-2/n}(s - u),\qquad u = \prod_k a_k",
            r"u(t) = \frac{s\,u_0}{u_0 + (s-u_0)e^{-2 s\lambda t}}\quad (n = 2)",
            r"\frac{d}{dt}\left(W_k W_k^\top - W_{k+1}^\top W_{k+1}\right) = 0",
        ),
    )


def _modes(ax: Any, numbers: Any, quick: bool, progress: Callable[[str], None]) -> None:
    T, U, V = task()
    params = {"Lambda": np.eye(4), "T": T}
    model: Any = ok.models.deep_linear(2)
    end = 1.7 * np.log(STRENGTHS[-1] / START) / (2 * STRENGTHS[-1])
    times = np.linspace(0, end, 300)
    lr, y0 = 0.004, aligned_start(2, U, V, START)
    progress("trains a network of depth 2")
    steps = round(end / (2 * lr))
    trained = ok.simulate.sgd(
        model, y0=y0, params=params, lr=lr, steps=steps, batch=16 if quick else 64, seed=0,
        save_at=np.unique(np.linspace(0, steps, 50).astype(int)),
    )  # fmt: skip
    rng = np.random.default_rng(2)
    generic = {n: np.sqrt(START) * rng.standard_normal((4, 4)) for n in y0}
    progress("integrates from a generic start")
    flow = strengths(ok.solve(model.flow, generic, times, params), 2, U, V)
    exact = np.stack([sigmoid(times, START, s, 1.0, np.exp) for s in STRENGTHS], axis=1)
    dots = strengths(trained, 2, U, V)
    for k, colour in enumerate(ok.plot.PALETTE[: len(STRENGTHS)]):
        ax.plot(times, exact[:, k], color=colour, label=f"$s={STRENGTHS[k]:g}$")
        ax.plot(times, flow[:, k], color=colour, lw=0.8, ls=(0, (3, 2)))
        ax.plot(2 * lr * trained.t, dots[:, k], ".", color=colour, ms=2.5)
    ax.set_xlabel(r"time ($\tau$)")
    ax.set_ylabel(r"mode strength $u$")
    ax.set_ylim(top=2.5)
    ax.legend(fontsize=6, loc="upper center", ncol=4, columnspacing=1.0)
    at = np.interp(2 * lr * trained.t, times, np.arange(len(times))).astype(int)
    numbers["modes"] = {
        "t": times.tolist(), "sigmoid": exact.tolist(), "generic": flow.tolist(),
        "sgd_t": (2 * lr * trained.t).tolist(), "sgd": dots.tolist(),
        "end, sgd": dots[-1].tolist(), "end, sigmoid": exact[at[-1]].tolist(),
    }  # fmt: skip


def _depths(ax: Any, numbers: Any, progress: Callable[[str], None]) -> None:
    numbers["depths"] = []
    times = np.linspace(0, 10, 241)
    for depth, colour in zip((2, 3, 4, 6), ok.plot.sequence(4), strict=True):
        progress(f"integrates depth {depth}")
        one = np.eye(2)
        model: Any = ok.models.deep_linear(depth)
        run = ok.solve(
            model.flow, aligned_start(depth, one, one, 1e-2), times,
            {"Lambda": np.eye(2), "T": np.eye(2)},
        )  # fmt: skip
        network = strengths(run, depth, one, one)[:, 0]
        closed = single_mode(depth, times, 1.0, 1e-2)
        ax.plot(times, closed, color=colour, label=f"{depth}")
        ax.plot(times[::12], network[::12], "o", color=colour, ms=2.2)
        numbers["depths"].append(
            {"depth": depth, "t": times.tolist(), "closed": closed.tolist(),
             "largest gap": float(np.abs(closed - network).max())}
        )  # fmt: skip
    ax.set_xlabel(r"time ($\tau$)")
    ax.set_ylabel(r"mode strength $u$")
    ax.legend(title="depth", title_fontsize=7, fontsize=6)


def half_rise(depth: int, s: float, u0: float) -> float:
    """Time from u0 to s/2: the integral of ``1/u'``."""
    if depth == 2:
        return float(np.log(s / u0 - 1) / (2 * s))
    from scipy.integrate import quad

    power = 2 - 2 / depth
    # In ln u the integrand is smooth over the decades from u0 on.
    value, _ = quad(
        lambda e: np.exp(e * (1 - power)) / (depth * (s - np.exp(e))), np.log(u0), np.log(s / 2),
        epsabs=0, epsrel=1e-11, limit=400,
    )  # fmt: skip
    return float(value)


def _half_rise(ax: Any, numbers: Any, quick: bool) -> None:
    s = np.geomspace(0.2, 2.0, 7)
    numbers["half-rise"] = []
    for depth, colour in zip((2, 3, 4), ok.plot.sequence(4), strict=False):
        for u0, style in ((1e-3, "-"), (1e-5, (0, (3, 2)))):
            rise = np.array([half_rise(depth, float(v), u0) for v in s])
            label = f"depth {depth}" if u0 == 1e-3 else None
            ax.plot(s, rise, color=colour, ls=style, marker="o", ms=2, label=label)
            slope = float(np.polyfit(np.log(s), np.log(rise), 1)[0])
            numbers["half-rise"].append(
                {"depth": depth, "start": u0, "s": s.tolist(), "t": rise.tolist(), "power": slope}
            )
    ax.plot([], [], color="0.3", label="$u_0=10^{-3}$")
    ax.plot([], [], color="0.3", ls=(0, (3, 2)), label="$u_0=10^{-5}$")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks([0.2, 0.5, 1.0, 2.0], ["0.2", "0.5", "1", "2"])
    ax.minorticks_off()
    ax.set_ylim(top=4e3)
    ax.set_xlabel("singular value $s$")
    ax.set_ylabel(r"time to half height ($\tau$)")
    ax.legend(fontsize=6, ncol=2)


def _balances(ax: Any, numbers: Any, progress: Callable[[str], None]) -> None:
    T, _, _ = task()
    numbers["balance"] = []
    times = np.linspace(0, 12, 121)
    for depth, colour in zip((2, 3, 4), ok.plot.sequence(4), strict=False):
        progress(f"follows the balances at depth {depth}")
        rng = np.random.default_rng(depth)
        y0 = {f"W{k + 1}": 0.4 * rng.standard_normal((4, 4)) for k in range(depth)}
        model: Any = ok.models.deep_linear(depth)
        run = ok.solve(model.flow, y0, times, {"Lambda": np.eye(4), "T": T})
        drift = np.zeros(len(times))
        for k in range(1, depth):
            low, high = run[f"W{k}"], run[f"W{k + 1}"]
            balance = low @ low.swapaxes(1, 2) - high.swapaxes(1, 2) @ high
            gap = np.abs(balance - balance[0]).max(axis=(1, 2)) / np.abs(balance[0]).max()
            drift = np.maximum(drift, gap)
        ax.plot(times, np.maximum(drift, 1e-17), color=colour, label=f"depth {depth}")
        numbers["balance"].append({"depth": depth, "drift": float(drift.max())})
    ax.set_yscale("log")
    ax.set_ylim(1e-17, 1e-4)
    ax.set_xlabel(r"time ($\tau$)")
    ax.set_ylabel(r"relative drift of $WW^\top - W^\top W$")
    ax.legend(fontsize=6)
