"""The tests before a commit: the quickest of every room, and all of the rooms that have changed.

::

    python tests/quick.py [--since COMMIT] [--list] [options of pytest ...]

Git tells which files have changed: since COMMIT, or since the work left its upstream, including
uncommitted and untracked files.  Seeds and examples are as few as in the profile ``brief``.  Rooms
that take minutes are left to the gate, except for test files that have themselves changed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]

#: Run after any change: the house, the contract, the shared foundations, and whole conversations.
ALWAYS = (
    *("tests/test_architecture.py", "tests/packaging"),
    *("tests/contract", "tests/machines", "tests/pump", "tests/wire"),
    *("tests/*/test_*_transcripts.py", "tests/oxen/test_oxen_conversations.py"),
)
SLOW = {"examples", "spark", "testing"}
#: Modules of `culm.machines` and of ``tests/specs`` that do not begin with the name of their room.
ROOMS = {"raft": "garlic", "replication": "point2point"}
#: What the names of a room's machines have in common, where that is not the room's name.
MACHINES = {"garlic": "garlic or raft"}


def changed_files(since: str | None) -> list[str]:
    """Paths of all changed and untracked files."""
    base = since or _git("merge-base", "HEAD", "@{upstream}") or "HEAD"
    return [
        *_git("diff", "--name-only", base).splitlines(),
        *_git("ls-files", "--others", "--exclude-standard").splitlines(),
    ]


def _git(*arguments: str) -> str:
    """The output of git; empty if it fails."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def room_of(path: str) -> str | None:
    """The folder of tests that a file belongs to."""
    parts = PurePosixPath(path).parts
    if parts[:-1] in {("src", "culm", "machines"), ("tests", "specs")}:
        stem = PurePosixPath(path).stem
        room = ROOMS.get(stem, stem.split("_")[0])
        return room if (ROOT / "src/culm" / room).is_dir() else "machines"
    match parts:
        case ("src", "culm", _):
            return "contract"
        case ("src", "culm", room, *_) | ("tests", room, _, *_):
            return room
        case ("cext", *_):
            return "kernels"
        case ("examples", "foreign", *_):
            return "foreign"
        case ("examples" | "benchmarks", *_):
            return "examples"
        case _:
            return None


def chosen(paths: Iterable[str]) -> tuple[list[str], set[str]]:
    """The tests to run for these files, and the changed rooms."""
    paths = list(paths)
    rooms = {room for path in paths if (room := room_of(path)) and (ROOT / "tests" / room).is_dir()}
    own = [path for path in paths if PurePosixPath(path).match("tests/**/test_*.py")]
    wanted = [*ALWAYS, *(f"tests/{room}" for room in sorted(rooms - SLOW)), *own]
    found = (str(each.relative_to(ROOT)) for one in wanted for each in sorted(ROOT.glob(one)))
    return list(dict.fromkeys(found)), rooms


def laws_of(rooms: Iterable[str]) -> str:
    """A ``-k`` expression for the machines of these rooms, whose laws are checked."""
    return " or ".join(MACHINES.get(room, room) for room in sorted(rooms))


def main(arguments: Sequence[str] | None = None) -> int:
    """The program; returns its exit status."""
    parser = argparse.ArgumentParser(prog="tests/quick.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--since", metavar="COMMIT", help="what has changed since then")
    parser.add_argument("--list", action="store_true", help="say what would be run, and stop")
    asked, options = parser.parse_known_args(arguments)
    tests, rooms = chosen(changed_files(asked.since))
    if left := sorted(rooms & SLOW):
        print(f"left to the gate: {', '.join(left)}", flush=True)
    runs = [tests, ["tests/test_every_machine.py", "-k", laws_of(rooms)]]
    environment = {"CULM_HYPOTHESIS_PROFILE": "brief", **os.environ}
    for run in runs if rooms else runs[:1]:
        print(" ".join(run), flush=True)
        if asked.list:
            continue
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *run, *options]
        status = subprocess.run(command, cwd=ROOT, env=environment).returncode
        if status not in {0, 5}:  # 5: these rooms have no machine
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
