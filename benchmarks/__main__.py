"""All benchmarks: `python -m benchmarks --table [--quick] [--only solve ...] [--out DIR]`.

Every `bench_*` module here with a `main()` is run in its own process, so that one's threads and
caches do not colour another's times. Its Markdown goes to the screen and to `DIR/benchmarks.md`,
with the pictures beside it. Without `--table` their names are listed.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).parent
VERSIONS = (
    "odekit", "numpy", "scipy", "numba", "CyRK", "diffrax", "heyoka", "numbalsoda", "pydiffsol",
    "scikit-sundae",
)  # fmt: skip


def heading() -> str:
    """What was measured, where and when."""
    found = []
    for name in VERSIONS:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} missing")
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    return (
        f"# Benchmarks\n\n{time.strftime('%Y-%m-%d %H:%M')}, {platform.machine()}, {cores} cores, "
        f"load {load:.1f} at the start, Python {platform.python_version()}; {', '.join(found)}.\n"
    )


def run(name: str, options: argparse.Namespace) -> tuple[int, str]:
    """Run one benchmark; its Markdown, printed as it comes."""
    text = (HERE / f"bench_{name}.py").read_text(encoding="utf-8")
    command = [sys.executable, "-m", f"benchmarks.bench_{name}"]
    if options.quick and '"--quick"' in text:
        command.append("--quick")
    if options.out is not None and '"--out"' in text:
        command += ["--out", str(options.out.resolve())]
    lines = []
    # BLAS threads make small products slower, and the times of all of them another thing.
    environment = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **os.environ}
    with subprocess.Popen(
        command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return process.returncode, "".join(lines)


def main() -> int:
    names = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--table", action="store_true", help="run and write Markdown tables")
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--quick", action="store_true", help="fewer problems, sizes and rounds")
    parser.add_argument("--out", type=Path, help="folder for benchmarks.md and the pictures")
    options = parser.parse_args()
    if not options.table:
        print("\n".join(names))
        return 0
    parts = [heading()]
    print(parts[0])
    failed = 0
    for name in options.only:
        title = f"\n## {name}\n\n"
        print(title, end="", flush=True)
        begun = time.perf_counter()
        code, text = run(name, options)
        failed += code != 0
        note = "" if code == 0 else f"\n{name} failed with exit code {code}.\n"
        took = f"\n{time.perf_counter() - begun:.0f} s.\n"
        print(note + took)
        parts.append(title + text + note + took)
        if options.out is not None:  # after each, so that an interrupted table is not lost
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "benchmarks.md").write_text("".join(parts), encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
