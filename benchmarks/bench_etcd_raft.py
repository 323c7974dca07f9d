"""Commits a second of culm's Raft core beside etcd's, by turns.

::

    python benchmarks/bench_etcd_raft.py [--rounds 5] [--seconds 2] [--size 64]

Three cores of either kind in one process, without network and disk: every message arrives at once,
and storage is in memory.  A number of values are proposed in one call, until all three have nothing
left to do; then the next ones.  The comparison is of processor time, including Go's garbage
collector; a ratio is the median of the rounds' ratios.

etcd's side is the program in ``etcd_raft``, which Go builds with the library named in ``go.mod``
there.  Without Go there is nothing to compare: it says so, and exits with status 0.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from bench_raft_core import measure

HERE = Path(__file__).resolve().parent
WINDOWS = (1, 1000)


class AbsentError(Exception):
    """etcd's core cannot be built: the reason."""


def built(folder: Path) -> Path:
    """The program with etcd's core."""
    if shutil.which("go") is None:
        raise AbsentError("Go is not installed")
    program = folder / "etcd_raft"
    command = ["go", "build", "-o", str(program), "."]
    done = subprocess.run(command, cwd=HERE / "etcd_raft", capture_output=True, text=True)
    if done.returncode:
        raise AbsentError(f"etcd's core does not build: {done.stderr.strip()}")
    return program


def of_culm(window: int, size: int, seconds: float) -> float:
    return measure(seconds, window, size)["committed_per_cpu_second"]


def of_etcd(program: Path, window: int, size: int, seconds: float) -> float:
    command = [program, str(window), str(size), str(seconds)]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    found: float = json.loads(told)["committed_per_cpu_second"]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Commits a second beside etcd's Raft core.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--size", type=int, default=64)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            program = built(Path(folder))
        except AbsentError as reason:
            print(f"not compared: {reason}")
            return 0
        print("| Commits a processor second | culm | etcd | ratio |\n| --- | ---: | ---: | ---: |")
        for window in WINDOWS:
            rounds = [
                (
                    of_culm(window, given.size, given.seconds),
                    of_etcd(program, window, given.size, given.seconds),
                )
                for _ in range(given.rounds)
            ]
            ours, theirs = (median(side) for side in zip(*rounds, strict=True))
            ratio = median(one / other for one, other in rounds)
            print(
                f"| {window:,} in flight | {ours:,.0f} | {theirs:,.0f} | {ratio:.2f} |", flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
