"""The cost of every protocol's whole path, counted, compared with the committed counts.

``python benchmarks/counts.py`` brings entries, operations, messages and values from one store to
another, through drivers and loopback sockets (`driven`), and counts the steps of culm: lines of
Python that run in the package, its drivers and its stores, and calls of functions written in C.  No
clock is read, so a busy machine counts the same.  A path with more than 3 % more steps than in
`counts.json` for this version of Python makes the exit status 1.

The same goes for the inside of kernels: their instructions for a piece of work (`kernel_counts`)
are compared with those in `counts.json` for the same compiler, processor and version of Python,
if valgrind is installed.

``--accept`` writes the counts into `counts.json`, after a change that is worth its steps: the
change has a line in the changelog.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parent / "examples")]

import callgrind  # noqa: E402
import culm  # noqa: E402
import culm_io  # noqa: E402
import driven  # noqa: E402
import kernel_counts  # noqa: E402

BASELINE = HERE / "counts.json"
TOLERANCE = 0.03


def _recorded(path: Callable[..., driven.Work], *of: int) -> Callable[[], driven.Work]:
    return partial(path, *of, tap=driven.recorded)


PATHS: dict[str, tuple[int, Callable[[], driven.Work]]] = {
    "Point-2-Point, an entry of 100 bytes": (400, partial(driven.point2point, 400, 100)),
    "Point-2-Point, that entry, recorded": (400, _recorded(driven.point2point, 400, 100)),
    "Point-2-Point, an entry verified apart": (
        400,
        partial(driven.point2point, 400, 100, verifying=4096),
    ),
    "Point-2-Point, a payload of 1 MiB": (4, partial(driven.point2point, 4, 1 << 20)),
    "p2panda, an operation": (400, partial(driven.p2panda, 400)),
    "Secure Scuttlebutt, a message": (400, partial(driven.ssb, 400)),
    "Garlic Farm, a value by itself": (100, partial(driven.garlic, 100, 1)),
    "Garlic Farm, one of 1000 values": (6000, partial(driven.garlic, 6000, 1000)),
    "Oxen, a message to each of two": (400, partial(driven.oxen, 400)),
    "Oxen, that message, recorded": (400, _recorded(driven.oxen, 400)),
}
"""By name: the number of items in a round, and the function that prepares the round."""


class Steps:
    """Counts the steps of culm while its `count` runs some work."""

    def __init__(self) -> None:
        self.taken = 0

    def count(self, work: driven.Work) -> int:
        """The steps of that work."""
        self.taken = 0
        sys.settrace(self._call)
        sys.setprofile(self._profile)
        try:
            work()
        finally:
            sys.setprofile(None)
            sys.settrace(None)
        return self.taken

    def _call(self, frame: FrameType, _event: str, _argument: object) -> Any:
        return self._line if _is_ours(frame) else None

    def _line(self, _frame: FrameType, event: str, _argument: object) -> Any:
        self.taken += event == "line"
        return self._line

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        self.taken += event == "c_call" and _is_ours(frame)


# The folders above these are not part of culm, whatever their names.
_OURS = tuple(str(Path(str(package.__file__)).parent) + os.sep for package in (culm, culm_io))


def _is_ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_OURS)


def measure(only: str) -> dict[str, float]:
    """Steps of each path for one entry, operation, message or value."""
    found = {}
    for name, (count, prepare) in PATHS.items():
        if only in name:
            prepare()()  # caches, and everything made only once
            found[name] = Steps().count(prepare()) / count
    return found


def faults(found: dict[str, float], known: dict[str, float]) -> list[str]:
    """Deviations from the committed counts, a sentence each."""
    unknown = [f"{name}: not in {BASELINE.name}" for name in found.keys() - known.keys()]
    worse = [
        f"{name}: {found[name]:.1f} counted, {known[name]:.1f} before"
        for name in found.keys() & known.keys()
        if found[name] > known[name] * (1 + TOLERANCE)
    ]
    return sorted(unknown + worse)


def show(what: str, found: dict[str, float], known: dict[str, float]) -> None:
    print(f"{what:<40}{'now':>10}{'before':>10}{'ratio':>8}")
    for name, count in found.items():
        before = known.get(name, count)
        print(f"{name:<40}{count:>10.1f}{before:>10.1f}{count / before:>8.3f}")


def compare(what: str, key: str, found: dict[str, float], *, accept: bool) -> list[str]:
    """Show what was counted beside what is committed under that key; the faults."""
    committed: dict[str, dict[str, float]] = json.loads(BASELINE.read_text())
    known = committed.get(key, {})
    show(what, found, known)
    if accept:
        committed[key] = known | {name: round(count, 1) for name, count in found.items()}
        BASELINE.write_text(json.dumps(committed, indent=2, sort_keys=True) + "\n")
        return []
    if not known:
        print(f"{BASELINE.name} knows nothing of {key}: nothing was compared")
        return []
    return faults(found, known)


def main() -> int:
    parser = argparse.ArgumentParser(description="Count the steps of whole paths.")
    parser.add_argument("--only", default="", help="a part of the names of paths and kernels")
    parser.add_argument("--accept", action="store_true", help="write them into counts.json")
    arguments = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of sets is a cost, too
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, *sys.argv])
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    told = compare("steps of one", version, measure(arguments.only), accept=arguments.accept)
    if (built_by := kernel_counts.built_by()) is None:
        print("no kernels are compiled: none was counted")
    elif not callgrind.is_there():
        print("valgrind is not installed: no kernel was counted")
    elif any(arguments.only in name for name in kernel_counts.TITLES):
        found = kernel_counts.counted(arguments.only)
        told += compare("instructions, thousands", built_by, found, accept=arguments.accept)
    for each in told:
        print(each, file=sys.stderr)
    if told:
        print("If that is worth it: python benchmarks/counts.py --accept", file=sys.stderr)
    return bool(told)


if __name__ == "__main__":
    sys.exit(main())
