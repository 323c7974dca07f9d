"""A recording made by one interpreter, with compiled or pure kernels, is replayed by another."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import culm

PROGRAM = Path(__file__).parent / "elsewhere.py"
PACKAGE = Path(culm.__file__).parent
# All of the conversations, or this many of each machine.
COUNT = os.environ.get("CULM_CONVERSATIONS_ELSEWHERE", "2")
# Other interpreters that have culm's dependencies, such as those of other versions.
PYTHONS = [each for each in os.environ.get("CULM_PYTHONS", "").split(os.pathsep) if each]


@pytest.fixture(scope="module")
def pure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package without compiled kernels."""
    folder = tmp_path_factory.mktemp("pure")
    left = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    shutil.copytree(PACKAGE, folder / "culm", ignore=left)
    return folder


def run(python: str, source: Path | None, what: str, folder: Path) -> str:
    """With the package in `source`, or the one installed for the interpreter."""
    path = {} if source is None else {"PYTHONPATH": str(source)}
    done = subprocess.run(
        [python, str(PROGRAM), what, str(folder), COUNT],
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _is_compiled(python: str) -> bool:
    asked = "import culm.kernels, sys; sys.exit(culm.kernels.IMPLEMENTATION != 'compiled')"
    return subprocess.run([python, "-c", asked], capture_output=True).returncode == 0


@pytest.mark.costly
@pytest.mark.parametrize("compiled", [False, True], ids=["pure", "compiled"])
@pytest.mark.parametrize("python", [sys.executable, *PYTHONS])
def test_captures_are_replayed_elsewhere(
    python: str, compiled: bool, pure: Path, tmp_path: Path
) -> None:
    if compiled and not _is_compiled(python):
        pytest.skip("this interpreter has no compiled kernels")
    source = None if compiled else pure
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    written = run(sys.executable, PACKAGE.parent, "write", here)
    assert int(written) > 20
    assert run(python, source, "replay", here) == written
    assert run(python, source, "write", there) == written
    assert run(sys.executable, PACKAGE.parent, "replay", there) == written
