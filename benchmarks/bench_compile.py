"""Compilation: seconds from a field to its first right-hand side, cold and from the cache.

    python -m benchmarks.bench_compile [--quick]

Every figure is from a process of its own. "cold" starts from an empty cache, "warm" finds the
field in it, "recalled" loads it by its key without deriving anything; "floor" is
`python -c "import numpy, numba"`. Times are CPU seconds of the whole process but for "compile",
which is `compile_seconds`. Goals: cold under 5 s of compilation at effort="quick", loaded under
0.5 s, recalled at most 1.5 times the floor.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile

CASES = (
    ("attention_separate", {"D": 4, "H": 4, "R": 1}),
    ("attention_separate", {"D": 8, "H": 9, "R": 1}),
    ("attention_separate", {"D": 32, "H": 32, "R": 1}),
    ("attention_merged", {"D": 4, "H": 8}),
    ("attention_merged", {"D": 128, "H": 4}),
)

COMPILE = """
import numpy as np, odekit as ok
compiled = ok.compile(ok.models.{model}(), {sizes}, effort={effort!r})
y = np.ones(compiled.layout.size)
D = dict(compiled.layout.parameters)["Lambda"][0]
p = compiled.layout.pack_parameters({{"Lambda": np.eye(D) / D, "N": 31}})
compiled.rhs(0.0, y, p, np.empty_like(y))
print(compiled.key, compiled.compile_seconds, compiled.from_cache)
"""

RECALL = """
import numpy as np
from odekit.codegen import recall
compiled = recall({key!r})
y = np.ones(compiled.layout.size)
D = dict(compiled.layout.parameters)["Lambda"][0]
p = compiled.layout.pack_parameters({{"Lambda": np.eye(D) / D, "N": 31}})
compiled.rhs(0.0, y, p, np.empty_like(y))
"""


def run(program: str, folder: str) -> tuple[float, list[str]]:
    """CPU seconds of a fresh process, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "ODEKIT_CACHE_DIR": folder},
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, done.stdout.split()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="the first case only, three rounds")
    arguments = parser.parse_args()
    rounds = 3 if arguments.quick else 5
    cases = CASES[:1] if arguments.quick else CASES
    with tempfile.TemporaryDirectory() as folder:
        floor = statistics.median(run("import numpy, numba", folder)[0] for _ in range(rounds))
    print(f"floor: {floor:.2f} s\n")
    print("| field | effort | cold compile | cold | loaded | warm | recalled | / floor |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for model, sizes in cases:
        for effort in ("quick", "full"):
            with tempfile.TemporaryDirectory() as folder:
                program = COMPILE.format(model=model, sizes=sizes, effort=effort)
                cold, (key, compiling, _) = run(program, folder)
                warm = [run(program, folder) for _ in range(rounds)]
                assert all(answer[2] == "True" for _, answer in warm), "the cache was not used"
                recalled = statistics.median(
                    run(RECALL.format(key=key), folder)[0] for _ in range(rounds)
                )
            loaded = statistics.median(float(answer[1]) for _, answer in warm)
            print(
                f"| {model} {sizes} | {effort} | {float(compiling):.2f} | {cold:.2f} | "
                f"{loaded:.2f} | {statistics.median(s for s, _ in warm):.2f} | {recalled:.2f} | "
                f"{recalled / floor:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
