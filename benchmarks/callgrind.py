"""Instructions of the processor, counted by callgrind (of valgrind): the same on a busy machine.

A process under `parts` calls `mark` before and after the work to be counted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

__all__ = ["ENVIRONMENT", "in_libraries", "is_there", "mark", "parts"]

_MARK = "getpgrp"  # does nothing, and nobody else calls it

# Whether the C library gives memory back to the system, and asks for it again, is luck: it depends
# on what happens to lie at the end of the heap, and may take half as long again.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "MALLOC_TOP_PAD_": str(1 << 26),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 28),
    "MALLOC_MMAP_THRESHOLD_": str(1 << 28),
}


def is_there() -> bool:
    return shutil.which("valgrind") is not None


def mark() -> None:
    """Here a part ends, and the next one begins."""
    getattr(os, _MARK)()


def parts(
    command: Sequence[str | Path],
    *,
    said: str = "",
    environment: Mapping[str, str] = os.environ,
) -> list[Counter[str]]:
    """Instructions of `command` by library: before the first mark, between marks, after the last.

    said: its standard input.
    """
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told"
        subprocess.run(
            [
                *("valgrind", "--tool=callgrind", f"--callgrind-out-file={told}"),
                f"--dump-before={_MARK}",
                *command,
            ],
            input=said,
            check=True,
            capture_output=True,
            text=True,
            env={**environment, **ENVIRONMENT},
        )
        found = []
        for number in range(1, len(list(told.parent.iterdir()))):
            with told.with_suffix(f".{number}").open(encoding="utf-8") as lines:
                found.append(in_libraries(lines))
        with told.open(encoding="utf-8") as lines:
            return [*found, in_libraries(lines)]


def in_libraries(lines: Iterable[str]) -> Counter[str]:
    """Instructions by library in callgrind's file, each without those of its calls."""
    found: Counter[str] = Counter()
    names: dict[str, str] = {}
    library, is_call = "", False
    for line in lines:
        if line.startswith(("ob=", "cob=")):
            place, _, name = line.split("=", 1)[1].strip().partition(" ")
            names.setdefault(place, name)
            if line.startswith("ob="):
                library = names[place]
        elif line.startswith("calls="):
            is_call = True  # the next line has the cost of the call
        elif line[:1] in "+-*0123456789" and len(numbers := line.split()) == 2:
            if not is_call:
                found[library] += int(numbers[1])
            is_call = False
    return found
