"""Training speed, side by side with what a user would write instead, in one run.

Full-batch descent from statistics against hand-written Numba loops on the same statistics (the
fastest of `hand_training` counts), plain NumPy on the sequences, and, where torch is installed,
plain torch loops; softmax attention against the last two. torch is in no extra, because it is
larger than everything else together: `pip install torch` beside odekit to have its columns.
Times are CPU times on one thread, medians of alternated rounds; goals are ratios (medians of the
rounds' own). Every peer is first checked to give the same loss.

Run: OPENBLAS_NUM_THREADS=1 python -m benchmarks.bench_simulate [--quick]
"""

from __future__ import annotations

import argparse
import statistics as stat
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import odekit.simulate as sim
from benchmarks import hand_training, torch_training

N = 31
GOAL = 1.1  # of the fastest hand-written loop
CASES = (  # name, family, D, H, R, P, goals in microseconds (reduced, full)
    ("merged D=4 H=8", "merged", 4, 8, 1, 5000, 0.35, 2.5),
    ("separate D=4 H=5", "separate", 4, 5, 1, 5000, 0.7, 2.0),
    ("separate D=8 H=9 R=2", "separate", 8, 9, 2, 2000, 9.0, 22.0),
)


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


def rounds_of(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each call in each round, the calls taking turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.process_time()
            call()
            times[name].append(time.process_time() - start)
    return times


def medians(calls: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median CPU seconds of each call, the calls taking turns."""
    return {name: stat.median(values) for name, values in rounds_of(calls, rounds).items()}


def check_equal(calls: dict[str, Callable[[], Any]], ours: float, tolerance: float) -> None:
    """Warm every call up, and refuse to time one that computes something else."""
    for name, call in calls.items():
        loss = float(call())
        if not abs(loss - ours) <= tolerance * abs(ours):
            raise SystemExit(f"{name} has loss {loss!r}, odekit {ours!r}: not the same training.")


def start_of(layer: sim.Layer, scale: float = 0.1) -> dict[str, Any]:
    """Small random weights, every block nonzero."""
    return layer.unpack(scale * np.random.default_rng(0).standard_normal(layer.size))


def sequence_peers(
    y0: dict[str, Any], data: sim.Sequences, lr: float, softmax: bool
) -> dict[str, Callable[[], float]]:
    """Steps of NumPy and torch on the sequences, each from its own copy of the start."""
    plain = {name: value.copy() for name, value in y0.items()}
    calls: dict[str, Callable[[], float]] = {
        "numpy": lambda: numpy_step(plain, data.x, data.y, lr, softmax, 1 / N)
    }
    if torch_training.PRESENT:
        for name, whole in (("torch", True), ("torch, query only", False)):
            calls[name] = torch_training.stepper(
                y0, data.x, data.y, lr, softmax=softmax, whole=whole
            )
    return calls


def bench_linear(quick: bool) -> bool:
    """Full-batch descent of linear attention."""
    print("Full-batch descent, linear attention (microseconds a step)\n")
    print("| case | odekit | goal | by hand, simple | expert | ratio to best |")
    print("| --- | --- | --- | --- | --- | --- |")
    met, rounds = True, 5 if quick else 21
    for name, family, D, H, R, P, *goals in CASES:
        data = sim.sequences(P, np.eye(D) / D, N, seed=0)
        for kind, goal in zip(("reduced", "full"), goals, strict=True):
            layer = sim.Layer(family, "zero" if kind == "reduced" else "all", H, D, R)
            # Long enough that a run's fixed cost (some .4 ms) does not count.
            steps = round(0.4 / (goal * 1e-6))
            y0, lr, m = start_of(layer), 1e-3, data.statistics(kind)

            def ours(
                layer: Any = layer, m: Any = m, y0: Any = y0, lr: float = lr, steps: int = steps
            ) -> float:
                run = sim.gradient_descent(layer, m, y0=y0, lr=lr, steps=steps, save_at=[steps - 1])
                assert run.loss is not None
                return float(run.loss[-1])

            calls = {"odekit": ours, **hand_training.loops(layer, m, y0, lr, steps)}
            check_equal(calls, ours(), 1e-9)
            times = rounds_of(calls, rounds)
            took = {key: 1e6 * stat.median(values) / steps for key, values in times.items()}
            best = min(("simple", "expert"), key=lambda key: took[key])
            ratio = stat.median(a / b for a, b in zip(times["odekit"], times[best], strict=True))
            met &= ratio <= GOAL and took["odekit"] <= goal
            print(
                f"| {name} {kind} | {took['odekit']:.3f} | {goal} | {took['simple']:.3f} | "
                f"{took['expert']:.3f} | {ratio:.2f} |",
                flush=True,
            )
    return met


def bench_sequences(quick: bool) -> None:
    """Linear attention from full statistics against training on the sequences themselves."""
    print("\nThe same against loops over the sequences (milliseconds a step; times odekit's)\n")
    print("| case | odekit, full | NumPy | torch | torch, query only |")
    print("| --- | --- | --- | --- | --- |")
    rounds = 3 if quick else 7
    for name, family, D, H, R, P, _, goal in CASES:
        data = sim.sequences(P, np.eye(D) / D, N, seed=0)
        layer, lr = sim.Layer(family, "all", H, D, R), 1e-3
        y0, m = start_of(layer), data.statistics()
        steps = round(0.05 / (goal * 1e-6))
        peers = sequence_peers(y0, data, lr, softmax=False)
        # torch computes in float32.
        check_equal(peers, float(m.loss(sim.coefficients(layer, y0))), 1e-4)

        def ours(layer: Any = layer, m: Any = m, y0: Any = y0, steps: int = steps) -> Any:
            return sim.gradient_descent(layer, m, y0=y0, lr=1e-3, steps=steps, save_at=[steps])

        ours()
        took = medians({"odekit": ours, **peers}, rounds)
        own = took.pop("odekit") / steps
        print(f"| {name} P={P} | {own * 1e3:.5f} | {_columns(took, own)} |", flush=True)


def bench_softmax(quick: bool) -> None:
    """Full-batch descent of softmax attention, P = 5000."""
    print("\nFull-batch descent, softmax attention, P=5000 (milliseconds a step; times odekit's)\n")
    print("| case | odekit | NumPy | torch | torch, query only |")
    print("| --- | --- | --- | --- | --- |")
    steps, rounds = (3, 3) if quick else (10, 7)
    for name, family, D, H, R in (
        ("merged D=4 H=8", "merged", 4, 8, 1),
        ("separate D=4 H=5", "separate", 4, 5, 1),
    ):
        data = sim.sequences(5000, np.eye(D) / D, N, seed=0)
        layer, lr = sim.Layer(family, "all", H, D, R), 1e-3
        y0 = start_of(layer)

        def ours(count: int, layer: Any = layer, data: Any = data, y0: Any = y0) -> Any:
            return sim.sgd(
                layer, y0=y0, lr=1e-3, steps=count, data=data, optimiser="gd",
                attention="softmax", save_at=[0, count],
            )  # fmt: skip

        peers = sequence_peers(y0, data, lr, softmax=True)
        loss = ours(1).loss
        assert loss is not None
        check_equal(peers, float(loss[0]), 1e-4)
        # The set is laid out once a run; two lengths part that from the steps.
        runs = {"short": lambda run=ours: run(1), "long": lambda run=ours: run(1 + steps)}
        took = medians({**runs, **peers}, rounds)
        own = (took.pop("long") - took.pop("short")) / steps
        print(f"| {name} | {own * 1e3:.2f} | {_columns(took, own)} |", flush=True)


def _columns(took: dict[str, float], own: float) -> str:
    names = ("numpy", "torch", "torch, query only")
    return " | ".join(
        f"{took[name] * 1e3:.1f} ({took[name] / own:,.0f})" if name in took else "not installed"
        for name in names
    )


def bench_statistics(quick: bool) -> None:
    """One-off statistics."""
    print("\nFull statistics, N=31 (once for a data set)\n")
    print("| P | D | seconds |")
    print("| --- | --- | --- |")
    for P, D in ((5000, 4), (5000, 8)) if quick else ((5000, 4), (5000, 8), (80_000, 8)):
        data = sim.sequences(P, np.eye(D) / D, N, seed=0)
        took = medians({"statistics": data.statistics}, 3)["statistics"]
        print(f"| {P} | {D} | {took:.3f} |", flush=True)


def main() -> int:
    """Print all tables; 1 if a goal on the hand-written loops is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds and steps")
    quick = parser.parse_args().quick
    met = bench_linear(quick)
    print(f"\nwithin {GOAL} of the best by hand, and within the goals: {'yes' if met else 'no'}")
    if torch_training.PRESENT:
        print(f"torch {torch_training.version()}, float32, one thread")
    bench_sequences(quick)
    bench_softmax(quick)
    bench_statistics(quick)
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main())
