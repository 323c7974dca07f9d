"""The cost of an import, beside others: the shortest of many, each in a new interpreter.

``python benchmarks/imports.py`` measures the rooms of culm, h2 and aioquic, or the named modules;
those not installed are left out.  The figures are those of ``-X importtime``: milliseconds until
the import is done, Python's own modules that come with it included.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys

ROOMS = ("bymux", "oxen", "garlic", "bamboo", "reconcile", "ssb.peer", "p2panda", "point2point")
MODULES = [*(f"culm.{room}" for room in ROOMS), "culm.point2point.replication"]
OTHERS = ["h2.connection", "aioquic.quic.connection"]


def import_time_ms(module: str) -> float:
    """The time of one import, including all further imports."""
    command = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    # A line for each package on the way; its imports count for the first importer.
    at_top = [line.split("|") for line in told.splitlines() if "| " in line]
    wanted = set(parents(module))
    return sum(int(cells[1]) for cells in at_top if cells[2][1:] in wanted) / 1000


def parents(module: str) -> list[str]:
    """A dotted name, preceded by those of its parent packages."""
    parts = module.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def installed(module: str) -> bool:
    return importlib.util.find_spec(module.split(".")[0]) is not None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", default=MODULES + OTHERS, help="modules to import")
    parser.add_argument("--times", type=int, default=20, help="imports of each (20)")
    options = parser.parse_args()
    print("module                          ms")
    for module in filter(installed, options.modules):
        best = min(import_time_ms(module) for _ in range(options.times))
        print(f"{module:30} {best:5.1f}")


if __name__ == "__main__":
    main()
