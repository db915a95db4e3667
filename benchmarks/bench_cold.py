"""Cold start: CPU seconds of a fresh process from nothing to the first S4 trajectory and picture.

    python -m benchmarks.bench_cold [--quick]

"warm" finds its machine code on the disk, "empty" finds nothing there; peers keep what they can
(Numba's cache). "recalled" loads the field by its key, without deriving it. Every program solves
S4 to 1e-8 and, for a picture, draws its loss and writes a PNG. Goals: a recalled field at most 1.5
times `import numpy, numba`; 4 s with an empty cache; `import odekit` at most .1 s more than
`import sympy, numpy`.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.peers import PEERS, missing

ROOT = Path(__file__).parents[1]
NAMES = ("numbalsoda dop853", "CyRK DOP853", "scipy LSODA")
START = """
import numpy as np
draw = np.random.default_rng(3).normal(size=36) * 1e-2
y0 = {"v": draw[:4], "K": draw[4:20].reshape(4, 1, 4), "Q": draw[20:].reshape(4, 1, 4)}
params = {"Lambda": np.diag([0.4, 0.3, 0.2, 0.1]), "N": 31}
times = np.linspace(0, 2e4, 201)
"""
DERIVED = """
import odekit as ok
field = ok.models.attention_separate().flow
run = ok.solve(field, y0, times, params)
t, loss = run.t, run.loss
"""
KEY = """
import odekit as ok
print(ok.compile(ok.models.attention_separate(), {"D": 4, "H": 4, "R": 1}, "quick").key)
"""
RECALLED = """
from odekit.codegen import recall
from odekit.integrate import solve
run = solve(recall({key!r}), y0, times, params)
t, loss = run.t, run.loss
"""
PEER = """
from benchmarks.hand_written import problem
from benchmarks.peers import PEERS
p = problem("S4")
peer = next(peer for peer in PEERS if peer.name == {name!r})
t, loss = p.times, p.loss(peer.make(p)(1e-8, 1e-11))
"""
DRAW = """
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
plt.plot(t, loss)
plt.savefig({path!r})
"""


def cost(program: str, folder: str) -> tuple[float, str]:
    """CPU seconds of a fresh process, and what it printed."""
    caches = dict.fromkeys(("ODEKIT_CACHE_DIR", "NUMBA_CACHE_DIR", "ODEKIT_BENCH_CACHE"), folder)
    environment = {**os.environ, **caches, "MPLCONFIGDIR": folder}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def warm(program: str, folder: str, rounds: int) -> float:
    return statistics.median(cost(program, folder)[0] for _ in range(rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one round, no peers")
    options = parser.parse_args()
    rounds = 1 if options.quick else 3
    with tempfile.TemporaryDirectory() as folder:
        floor = warm("import numpy, numba", folder, rounds)
        symbols = warm("import sympy, numpy", folder, rounds)
        own = warm("import odekit", folder, rounds)
    print(f"`import numpy, numba` {floor:.2f} s; `import sympy, numpy` {symbols:.2f} s; "
          f"`import odekit` {own:.2f} s (goal at most {symbols + 0.1:.2f}).\n")  # fmt: skip
    print("| program | empty: trajectory | warm: trajectory | warm: and picture | / floor |")
    print("| --- | --- | --- | --- | --- |")
    programs = {"odekit": START + DERIVED}
    absent = missing()
    if not options.quick:
        for peer in PEERS:
            if peer.name in NAMES and peer.package not in absent:
                programs[peer.name] = PEER.format(name=peer.name)
    for name, program in programs.items():
        with tempfile.TemporaryDirectory() as folder:
            draw = DRAW.format(path=str(Path(folder) / "first.png"))
            empty = cost(program, folder)[0]
            first = warm(program, folder, rounds)
            cost(program + draw, folder)
            picture = warm(program + draw, folder, rounds)
            print(f"| {name} | {empty:.2f} | {first:.2f} | {picture:.2f} | {first / floor:.2f} |",
                  flush=True)  # fmt: skip
            if name == "odekit":
                recalled = START + RECALLED.format(key=cost(KEY, folder)[1].strip())
                cost(recalled, folder)
                first, picture = (
                    warm(recalled, folder, rounds),
                    warm(recalled + draw, folder, rounds),
                )
                print(f"| odekit, recalled | - | {first:.2f} | {picture:.2f} | "
                      f"{first / floor:.2f} |", flush=True)  # fmt: skip
    lacking = [name for name in absent if any(peer.startswith(name) for peer in NAMES)]
    print(f"\nMissing peers: {', '.join(lacking) or 'none'}.")


if __name__ == "__main__":
    main()
