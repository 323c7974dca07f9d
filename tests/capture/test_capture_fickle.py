"""A machine that depends on more than its input is found by a replay, which names the step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "fickle.py"


def run(what: str, kind: str, path: Path, seed: int) -> str:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), what, kind, str(path)],
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(("kind", "step"), [("set", "6 data_to_send"), ("clock", "3 data_to_send")])
def test_a_planted_dependence_is_found_and_its_step_is_named(
    kind: str, step: str, tmp_path: Path
) -> None:
    path = tmp_path / "fickle.culmcap"
    run("write", kind, path, 1)
    assert {run("replay", kind, path, seed) for seed in range(2, 8)} - {"the same"} == {step}
    if kind == "set":
        assert run("replay", kind, path, 1) == "the same"  # so its order is the only fault
