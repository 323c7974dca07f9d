"""Programs in C and C++ for comparison: compiled where sources and a compiler are at hand.

The sources of others are not in this repository.  The environment tells where they are:
``CULM_NEGENTROPY`` is the directory ``cpp`` of hoytech/negentropy, ``CULM_XXHASH`` the one that
holds ``xxhash.h`` (``deps/xxhash`` in the source distribution of PyPI's xxhash).
"""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent

#: source -> environment variable, compiler, options
PROGRAMS = {
    "negentropy_tree.cpp": ("CULM_NEGENTROPY", "CXX", "g++", ["-std=c++20"], ["-lcrypto"]),
    "negentropy_session.cpp": ("CULM_NEGENTROPY", "CXX", "g++", ["-std=c++20"], ["-lcrypto"]),
    "xxh3_loop.c": ("CULM_XXHASH", "CC", "cc", [], []),
}


def built(source: str, directory: Path) -> Path:
    """The program compiled from `source`; skips where that is impossible."""
    where, compiler_name, compiler, options, libraries = PROGRAMS[source]
    if where not in os.environ:
        pytest.skip(f"{where} says where the other side lies")
    program = directory / Path(source).stem
    command = [
        *shlex.split(os.environ.get(compiler_name, compiler)),
        *("-O3", *options, f"-I{os.environ[where]}"),
        *(str(HERE / source), "-o", str(program), *libraries),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"{source} does not compile: {getattr(error, 'stderr', error)}")
    return program


def measured(program: Path, argument: int, data: bytes) -> dict[str, float]:
    """The program's own times, in nanoseconds."""
    run = subprocess.run(
        [program, str(argument)], input=data, check=True, stdout=subprocess.PIPE, stderr=-3
    )
    lines = (line.split() for line in run.stdout.decode().splitlines())
    return {name: float(value) for name, value in lines}
