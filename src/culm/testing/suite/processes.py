"""Determinism beyond one process: another seed of Python's hash changes nothing."""

from __future__ import annotations

import os
import subprocess
import sys

from culm.testing.machines import is_registered
from culm.testing.spec import MachineSpec
from culm.testing.suite.runs import PropertyError

__all__ = ["processes"]

_PROGRAM = """
import sys
from culm.testing.transcript import all_conversations
sys.stdout.write(all_conversations(sys.argv[1]))
"""


def processes(spec: MachineSpec) -> None:
    """The conversations go the same way in processes that hash strings differently.

    Catches an order that comes from a set.  Only for machines of the registry, which the
    other process can find.
    """
    if not is_registered(spec):
        return
    first, second = (_transcripts(spec.name, seed) for seed in ("1", "2"))
    if first != second:
        pairs = zip(first.splitlines(), second.splitlines(), strict=False)
        line = next((pair for pair in pairs if pair[0] != pair[1]), ("one is longer",))
        raise PropertyError("\n  ".join(["another hash seed makes a difference:", *line]))


def _transcripts(name: str, hash_seed: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, name],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ).stdout
