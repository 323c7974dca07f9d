"""Programs around p2panda-rs and aquadoggo, two other implementations.

``python peer_programs.py`` builds them, with the help of the network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "peers"
FOLDER = Path(__file__).parents[3] / ".tox" / "p2panda-peers"


def built() -> Path:
    """The folder in which the programs are built; skips without cargo.

    All crates have the versions in `Cargo.lock`, even if there are newer ones.
    """
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("no cargo is at hand: there are no real peers of p2panda")
    folder = Path(os.environ.get("CULM_P2PANDA_PEERS") or FOLDER)
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    there = folder / "target"
    command = [cargo, "build", "--locked", "--target-dir", str(there)]
    subprocess.run(command, cwd=folder, check=True)
    return there / "debug"


@contextmanager
def running(*command: object) -> Iterator[subprocess.Popen[str]]:
    """A program that ends when its input does."""
    with subprocess.Popen(
        list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            with suppress(OSError):
                process.stdin.close()
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()


if __name__ == "__main__":
    try:
        print(built())
    except pytest.skip.Exception as skipped:
        print(skipped)
