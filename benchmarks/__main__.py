"""All benchmarks: `python -m benchmarks --table [--only solve ensemble ...]`.

Every `bench_*` module here with a `main()` is run in its own process, so that one's threads and
caches do not colour another's times, and its Markdown is printed under its name.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    names = sorted(path.stem.removeprefix("bench_") for path in HERE.glob("bench_*.py"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--table", action="store_true", help="run and print Markdown tables")
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    options = parser.parse_args()
    if not options.table:
        print("\n".join(names))
        return 0
    failed = 0
    for name in options.only:
        print(f"\n## {name}\n", flush=True)
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.bench_{name}"], cwd=HERE.parent, check=False
        )
        failed += done.returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
