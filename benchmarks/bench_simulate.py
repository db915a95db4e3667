"""Training speed, side by side with what a user would write instead, in one run.

Full-batch descent from statistics against a hand-written Numba loop on the same statistics, plain
NumPy on the sequences, and (when torch is installed) a plain torch loop; softmax attention against
the last two. Times are medians of CPU time over alternated rounds on one thread; goals are ratios.

Run: OPENBLAS_NUM_THREADS=1 python benchmarks/bench_simulate.py [--quick]
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics as stat
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

import odekit.simulate as sim

N = 31
CASES = (  # name, family, D, H, R, P, goals in microseconds (reduced, full)
    ("merged D=4 H=8", "merged", 4, 8, 1, 5000, 0.35, 2.5),
    ("separate D=4 H=5", "separate", 4, 5, 1, 5000, 0.7, 2.0),
    ("separate D=8 H=9 R=2", "separate", 8, 9, 2, 2000, 9.0, 22.0),
)


@njit(fastmath=True)
def hand_merged_reduced(v, U, C, c, y2, lr, steps):
    H, F = U.shape
    loss = 0.0
    for _ in range(steps):
        P = np.zeros(F)
        for h in range(H):
            for j in range(F):
                P[j] += v[h] * U[h, j]
        g = np.zeros(F)
        loss = y2
        for i in range(F):
            s = 0.0
            for j in range(F):
                s += C[i, j] * P[j]
            loss += P[i] * (s - 2.0 * c[i])
            g[i] = 2.0 * (s - c[i])
        for h in range(H):
            s = 0.0
            w = v[h]
            for j in range(F):
                s += U[h, j] * g[j]
                U[h, j] -= lr * w * g[j]
            v[h] -= lr * s
    return loss


@njit(fastmath=True)
def hand_separate_reduced(v, K, Q, C, c, y2, lr, steps):
    H, R, D = K.shape
    F = D * D
    gK, gQ = np.empty((R, D)), np.empty((R, D))
    loss = 0.0
    for _ in range(steps):
        P = np.zeros(F)
        for h in range(H):
            for r in range(R):
                for d in range(D):
                    for e in range(D):
                        P[d * D + e] += v[h] * K[h, r, d] * Q[h, r, e]
        g = np.zeros((D, D))
        loss = y2
        for i in range(F):
            s = 0.0
            for j in range(F):
                s += C[i, j] * P[j]
            loss += P[i] * (s - 2.0 * c[i])
            g[i // D, i % D] = 2.0 * (s - c[i])
        for h in range(H):
            gv = 0.0
            for r in range(R):
                for e in range(D):
                    gQ[r, e] = 0.0
                for d in range(D):
                    s = 0.0
                    for e in range(D):
                        s += g[d, e] * Q[h, r, e]
                        gQ[r, e] += v[h] * K[h, r, d] * g[d, e]
                    gK[r, d] = v[h] * s
                    gv += K[h, r, d] * s
            for r in range(R):
                for d in range(D):
                    K[h, r, d] -= lr * gK[r, d]
                    Q[h, r, d] -= lr * gQ[r, d]
            v[h] -= lr * gv
    return loss


@njit(fastmath=True)
def hand_full(u, A, K, Q, C, c, y2, lr, steps, separate):
    H, E = u.shape
    D = E - 1
    R = Q.shape[1]
    F = c.shape[0]
    gA, gs = np.empty((D, E)), np.empty((D, E, E))
    loss = 0.0
    for _ in range(steps):
        if separate:
            A[:] = 0.0
            for h in range(H):
                for r in range(R):
                    for d in range(D):
                        for e in range(E):
                            A[h, d, e] += Q[h, r, d] * K[h, r, e]
        P = np.zeros(F)
        for h in range(H):
            j = 0
            for d in range(D):
                for e in range(E):
                    P[j] += A[h, d, e] * u[h, e]
                    j += 1
                    for f in range(e + 1, E):
                        P[j] += A[h, d, e] * u[h, f] + A[h, d, f] * u[h, e]
                        j += 1
        loss = y2
        j = 0
        for d in range(D):
            for e in range(E):
                for f in range(e, E):
                    s = 0.0
                    for k in range(F):
                        s += C[j, k] * P[k]
                    loss += P[j] * (s - 2.0 * c[j])
                    gs[d, e, f] = 2.0 * (s - c[j])
                    gs[d, f, e] = gs[d, e, f]
                    j += 1
        for h in range(H):
            gu = np.zeros(E)
            for d in range(D):
                for e in range(E):
                    s = 0.0
                    for f in range(E):
                        s += gs[d, e, f] * u[h, f]
                        gu[f] += A[h, d, e] * gs[d, e, f]
                    gA[d, e] = s
            if separate:
                for r in range(R):
                    old = K[h, r].copy()
                    for e in range(E):
                        s = 0.0
                        for d in range(D):
                            s += gA[d, e] * Q[h, r, d]
                        K[h, r, e] -= lr * s
                    for d in range(D):
                        s = 0.0
                        for e in range(E):
                            s += gA[d, e] * old[e]
                        Q[h, r, d] -= lr * s
            else:
                for d in range(D):
                    for e in range(E):
                        A[h, d, e] -= lr * gA[d, e]
            for f in range(E):
                u[h, f] -= lr * gu[f]
    return loss


def hand(layer: sim.Layer, y0: dict[str, Any], m: sim.Statistics, lr: float, steps: int) -> float:
    """Run the hand-written loop of this case and return its last loss."""
    y = {name: value.copy() for name, value in y0.items()}
    if layer.blocks == "zero":
        if layer.family == "merged":
            U = y["U"].reshape(layer.heads, -1)
            return hand_merged_reduced(y["v"], U, m.C, m.c, m.y2, lr, steps)
        return hand_separate_reduced(y["v"], y["K"], y["Q"], m.C, m.c, m.y2, lr, steps)
    H, D = layer.heads, layer.dim
    A = y.get("A", np.zeros((H, D, D + 1)))
    K, Q = y.get("K", np.zeros((H, 1, D + 1))), y.get("Q", np.zeros((H, 1, D)))
    return hand_full(y["u"], A, K, Q, m.C, m.c, m.y2, lr, steps, layer.family == "separate")


def numpy_step(
    y: dict[str, Any], x: Any, labels: Any, lr: float, softmax: bool, normalise: float
) -> float:
    """Take one step of plain NumPy on the sequences: the layer as a user would write it."""
    P, query = len(x), x[:, -1]
    tokens = np.concatenate([x, labels[:, :, None]], axis=2)
    tokens[:, -1, -1] = 0.0
    A = y["A"] if "A" in y else np.einsum("hrd,hre->hde", y["Q"], y["K"])
    H, E = y["u"].shape
    keys = (query @ A.transpose(1, 0, 2).reshape(len(A[0]), -1)).reshape(P, H, E)
    scores = keys @ tokens.transpose(0, 2, 1)
    if softmax:
        scores = np.exp(scores - scores.max(axis=2, keepdims=True))
        scores /= scores.sum(axis=2, keepdims=True)
    else:
        scores *= normalise
    mu = scores @ tokens
    r = np.einsum("he,phe->p", y["u"], mu) - labels[:, -1]
    gu = 2 / P * np.tensordot(r, mu, 1)
    values = (tokens @ y["u"].T).transpose(0, 2, 1)
    if softmax:
        values = scores * (values - np.einsum("he,phe->ph", y["u"], mu)[:, :, None])
    else:
        values = values * normalise
    pulled = (values @ tokens).reshape(P, -1)
    gA = 2 / P * ((r[:, None] * query).T @ pulled).reshape(-1, H, E).transpose(1, 0, 2)
    if "A" in y:
        y["A"] -= lr * gA
    else:
        gK = np.einsum("hde,hrd->hre", gA, y["Q"])
        y["Q"] -= lr * np.einsum("hde,hre->hrd", gA, y["K"])
        y["K"] -= lr * gK
    y["u"] -= lr * gu
    return float(np.mean(r**2))


def torch_stepper(
    y0: dict[str, Any], x: Any, labels: Any, lr: float, softmax: bool
) -> Callable[[], Any] | None:
    """Return one step of a plain torch loop (float32, one thread, autograd), or None."""
    if importlib.util.find_spec("torch") is None:
        return None
    import torch

    torch.set_num_threads(1)
    tokens = np.concatenate([x, labels[:, :, None]], axis=2)
    tokens[:, -1, -1] = 0.0
    z = torch.tensor(tokens, dtype=torch.float32)
    target = torch.tensor(labels[:, -1], dtype=torch.float32)
    w = {k: torch.tensor(v, dtype=torch.float32, requires_grad=True) for k, v in y0.items()}
    optimiser = torch.optim.SGD(w.values(), lr=lr)
    dim = x.shape[2]

    def step() -> Any:
        optimiser.zero_grad()
        A = w["A"] if "A" in w else torch.einsum("hrd,hre->hde", w["Q"], w["K"])
        scores = torch.einsum("pd,hde,pme->phm", z[:, -1, :dim], A, z)
        scores = torch.softmax(scores, dim=2) if softmax else scores / N
        out = torch.einsum("phm,pme,he->p", scores, z, w["u"])
        loss = ((out - target) ** 2).mean()
        loss.backward()
        optimiser.step()
        return loss

    return step


def median(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median CPU seconds of each call, the calls taking turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return {name: stat.median(values) for name, values in times.items()}


def start_of(layer: sim.Layer) -> dict[str, Any]:
    """Small random weights, every block nonzero."""
    return layer.unpack(0.1 * np.random.default_rng(0).standard_normal(layer.size))


def bench_linear(quick: bool) -> None:
    """Full-batch descent of linear attention."""
    print("Full-batch descent, linear attention (microseconds a step)")
    print(
        f"{'case':32}{'odekit':>9}{'goal':>8}{'by hand':>9}{'ratio':>7}{'NumPy':>11}{'times':>10}"
    )
    rounds = 3 if quick else 9
    for name, family, D, H, R, P, *goals in CASES:
        data = sim.sequences(P, np.eye(D) / D, N, seed=0)
        for kind, goal in zip(("reduced", "full"), goals, strict=True):
            layer = sim.Layer(family, "zero" if kind == "reduced" else "all", H, D, R)
            whole = sim.Layer(family, "all", H, D, R)
            # Long enough that a run's fixed cost (.1 ms) does not count.
            steps = round((0.02 if quick else 0.1) / (goal * 1e-6))
            y0, lr = start_of(layer), 1e-3
            moments = data.statistics(kind)
            plain = start_of(whole)
            calls: dict[str, Callable[[], Any]] = {
                "odekit": lambda layer=layer, moments=moments, y0=y0, lr=lr, steps=steps: (
                    sim.gradient_descent(
                        layer, moments, y0=y0, lr=lr, steps=steps, save_at=[steps]
                    ).loss[-1]
                ),
                "hand": lambda layer=layer, moments=moments, y0=y0, lr=lr, steps=steps: hand(
                    layer, y0, moments, lr, steps
                ),
                "numpy": lambda plain=plain, data=data, lr=lr: numpy_step(
                    plain, data.x, data.y, lr, False, 1 / N
                ),
            }
            torch_step = torch_stepper(plain, data.x, data.y, lr, False)
            if torch_step is not None:
                calls["torch"] = torch_step
            took = median(calls, rounds)
            ours, by_hand = took["odekit"] / steps * 1e6, took["hand"] / steps * 1e6
            other = took["numpy"] * 1e6
            line = (
                f"{name + ' ' + kind:32}{ours:9.2f}{goal:8.2f}{by_hand:9.2f}{ours / by_hand:7.2f}"
                f"{other:11.0f}{other / ours:10.0f}"
            )
            if "torch" in took:
                line += (
                    f"   torch {took['torch'] * 1e6:.0f} ({took['torch'] * 1e6 / ours:.0f} times)"
                )
            print(line, flush=True)


def bench_softmax(quick: bool) -> None:
    """Full-batch descent of softmax attention, P = 5000."""
    print("\nFull-batch descent, softmax attention, P=5000 (milliseconds a step)")
    print(f"{'case':32}{'odekit':>9}{'goal':>8}{'NumPy':>9}{'times':>8}")
    steps, rounds = (3, 3) if quick else (10, 7)
    for name, family, D, H, R, goal in (
        ("merged D=4 H=8", "merged", 4, 8, 1, 7.4),
        ("separate D=4 H=5", "separate", 4, 5, 1, 4.8),
    ):
        data = sim.sequences(5000, np.eye(D) / D, N, seed=0)
        layer = sim.Layer(family, "all", H, D, R)
        y0, plain = start_of(layer), start_of(layer)
        # The set is laid out once a run; two lengths separate that from the steps.
        run = {
            count: (
                lambda count=count, layer=layer, data=data, y0=y0: sim.sgd(
                    layer, y0=y0, lr=1e-3, steps=count, data=data, optimiser="gd",
                    attention="softmax", save_at=[count],
                )
            )
            for count in (1, 1 + steps)
        }  # fmt: skip
        calls: dict[str, Callable[[], Any]] = {
            "short": run[1],
            "long": run[1 + steps],
            "numpy": lambda plain=plain, data=data: numpy_step(
                plain, data.x, data.y, 1e-3, True, 1.0
            ),
        }
        torch_step = torch_stepper(plain, data.x, data.y, 1e-3, True)
        if torch_step is not None:
            calls["torch"] = torch_step
        took = median(calls, rounds)
        ours, other = (took["long"] - took["short"]) / steps * 1e3, took["numpy"] * 1e3
        line = f"{name:32}{ours:9.2f}{goal:8.2f}{other:9.1f}{other / ours:8.1f}"
        if "torch" in took:
            line += f"   torch {took['torch'] * 1e3:.0f} ({took['torch'] * 1e3 / ours:.0f} times)"
        print(line, flush=True)


def bench_statistics(quick: bool) -> None:
    """One-off statistics."""
    print("\nFull statistics, N=31 (seconds, once for a data set)")
    for P, D in ((5000, 4), (5000, 8)) if quick else ((5000, 4), (5000, 8), (80_000, 8)):
        data = sim.sequences(P, np.eye(D) / D, N, seed=0)
        took = median({"statistics": data.statistics}, 3)["statistics"]
        print(f"P={P} D={D}: {took:.3f}", flush=True)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and steps")
    quick = parser.parse_args().quick
    bench_linear(quick)
    bench_softmax(quick)
    bench_statistics(quick)


if __name__ == "__main__":
    main()
