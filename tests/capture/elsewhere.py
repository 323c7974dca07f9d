"""Captures across interpreters: ``elsewhere.py write FOLDER [COUNT]``, ``replay FOLDER``.

With a count, only that many conversations are written for each machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from culm.capture import read, replay  # noqa: E402
from culm.testing.record import conversations  # noqa: E402
from specs import SPECS  # noqa: E402


def write(folder: Path, count: str = "") -> None:
    """Record the conversations of the suite, and print their number."""
    from capture_conversations import recorded

    for spec in SPECS:
        for number, told in enumerate(conversations(spec)[: int(count) if count else None]):
            (folder / f"{spec.name}-{number}.culmcap").write_bytes(recorded(spec, told))
    print(len([*folder.iterdir()]))


def replay_all(folder: Path, _count: str = "") -> None:
    """Replay the recordings; print their number, and each that differs."""
    paths = sorted(folder.iterdir())
    for path in paths:
        if (difference := replay(read(path.read_bytes()))) is not None:
            print(path.name, difference)
    print(len(paths))


if __name__ == "__main__":
    {"write": write, "replay": replay_all}[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
