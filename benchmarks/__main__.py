"""`python -m benchmarks [NAME [ARGUMENT...]]`: every benchmark once, or the one of that name, with the conditions that its
figures were had under."""

from __future__ import annotations

import os
import platform
import runpy
import sys
from pathlib import Path


def main() -> None:
    cores, load = os.cpu_count(), os.getloadavg()[0]
    print(f"{platform.python_implementation()} {platform.python_version()}, {cores} cores, load {load:.1f}")
    names = sorted(
        p.stem for p in Path(__file__).parent.glob("*.py") if not p.stem.startswith("_") and p.stem != "fleets"
    )
    if len(sys.argv) > 1 and sys.argv[1] not in names:
        raise SystemExit(f"There is no benchmark {sys.argv[1]}; there are {', '.join(names)}.")
    chosen, rest = (sys.argv[1:2], sys.argv[2:]) if len(sys.argv) > 1 else (names, [])
    sys.argv = [sys.argv[0], *rest]
    for name in chosen:
        print(f"\n{name}")
        runpy.run_module(f"benchmarks.{name}", run_name="__main__")


if __name__ == "__main__":
    main()
