"""`python -m benchmarks`: every benchmark once, with the conditions that its figures were had under."""

from __future__ import annotations

import os
import platform
import runpy
import sys
from pathlib import Path


def main() -> None:
    cores, load = os.cpu_count(), os.getloadavg()[0]
    print(f"{platform.python_implementation()} {platform.python_version()}, {cores} cores, load {load:.1f}")
    sys.argv = sys.argv[:1]
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if not path.stem.startswith("_") and path.stem != "fleets":
            print(f"\n{path.stem}")
            runpy.run_module(f"benchmarks.{path.stem}", run_name="__main__")


if __name__ == "__main__":
    main()
