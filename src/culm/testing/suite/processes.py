"""Determinism beyond one process: another seed of Python's hash changes nothing."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import warnings
from functools import cache

from culm.arguments import is_list, is_tuple
from culm.testing.spec import MachineSpec
from culm.testing.suite.runs import PropertyError

# Answers each line with another until there are no more; errors of a spec go back as text.
_PROGRAM = """
import importlib, json, sys, traceback
answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    sys.path[:], (module, name, place) = json.loads(line)
    try:
        from culm.testing.transcript import all_conversations
        found = getattr(importlib.import_module(module), name)
        answer = all_conversations(found if place is None else found[place]), None
    except Exception:
        answer = None, traceback.format_exc()
    print(json.dumps(answer), file=answers, flush=True)
"""


class LeftOutWarning(UserWarning):
    """A part of a law was not checked."""


# A module, its name for a spec or for the list that has it, and the place in that list.
_Address = tuple[str, str, "int | None"]


def processes(spec: MachineSpec) -> None:
    """The conversations go the same way in processes that hash strings differently.

    Detects order that comes from a set.  The other process has to find the spec under a
    name in a module, perhaps in a list.  Warns with `LeftOutWarning` if it cannot.
    """
    address = _address(spec)
    if address is None:
        warnings.warn(
            f"{spec} was not compared with itself in another process, which would not find it:"
            " give it a name in a module",
            LeftOutWarning,
            stacklevel=2,
        )
        return
    first, second = (_transcripts(address, seed) for seed in ("1", "2"))
    if first != second:
        pairs = zip(first.splitlines(), second.splitlines(), strict=False)
        line = next((pair for pair in pairs if pair[0] != pair[1]), ("one is longer",))
        raise PropertyError("\n  ".join(["another hash seed makes a difference:", *line]))


def _address(spec: MachineSpec) -> _Address | None:
    """Where to find `spec`."""
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()) if module.__name__ != "__main__" else ():
            if value is spec:
                return module.__name__, name, None
            if is_list(value) or is_tuple(value):
                places = (index for index, each in enumerate(value) if each is spec)
                if (index := next(places, None)) is not None:
                    return module.__name__, name, index
    return None


@cache
def interpreter(hash_seed: str) -> subprocess.Popen[str]:
    """Another process, which stays until this one ends, as the start is the expensive part."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    )
    atexit.register(process.communicate)
    return process


def _transcripts(address: _Address, hash_seed: str) -> str:
    process = interpreter(hash_seed)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps([sys.path, address]) + "\n")
    process.stdin.flush()
    text, error = json.loads(process.stdout.readline())
    if error is not None:
        raise PropertyError(f"with PYTHONHASHSEED={hash_seed}, conversations end with\n{error}")
    assert isinstance(text, str)
    return text
