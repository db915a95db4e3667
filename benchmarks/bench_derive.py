"""Derivation: seconds from a published model's predictor to its loss and gradient flow.

    python -m benchmarks.bench_derive [--quick]

CPU seconds in a fresh process each, imports left out, sizes symbolic, every cache empty; the goal
is .1 s, and that the time does not depend on the sizes is shown by concrete ones beside it.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

GOAL = 0.1
MODELS = {
    "attention_merged()": "attention_merged(dim=64, heads=32, context=100)",
    "attention_merged(blocks='all')": (
        "attention_merged(dim=64, heads=32, context=100, blocks='all')"
    ),
    "attention_separate()": "attention_separate(dim=64, heads=32, rank=4, context=100)",
    "attention_separate(blocks='all')": (
        "attention_separate(dim=64, heads=32, rank=4, context=100, blocks='all')"
    ),
    "linear_transformer()": "linear_transformer(dim=64, context=100)",
    "linear_transformer(blocks='all')": "linear_transformer(dim=64, context=100, blocks='all')",
    "deep_linear(depth=4)": None,
    "modes()": "modes(dim=64, context=100)",
}
PROGRAM = """
import time
import odekit as ok
ok.models.deep_linear
begun = time.process_time()
model = ok.models.{model}
model.loss, model.flow.rates
print(time.process_time() - begun)
"""


def seconds(model: str, rounds: int) -> float:
    runs = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM.format(model=model)],
            capture_output=True, text=True, check=True,
        ).stdout
        for _ in range(rounds)
    ]  # fmt: skip
    return statistics.median(float(out) for out in runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round, symbolic sizes only")
    options = parser.parse_args()
    rounds = 1 if options.quick else 3
    print("| model | loss and flow, s | at concrete sizes, s | goal |\n| --- | --- | --- | --- |")
    for model, concrete in MODELS.items():
        symbolic = seconds(model, rounds)
        other = seconds(concrete, rounds) if concrete and not options.quick else None
        verdict = "met" if symbolic <= GOAL else "missed"
        beside = f"{other:.3f}" if other is not None else "-"
        print(f"| {model} | {symbolic:.3f} | {beside} | {verdict} |", flush=True)


if __name__ == "__main__":
    main()
