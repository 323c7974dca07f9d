"""The Oxen example: processes over UDP, one of which is killed, comes back, and one leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "oxen_cluster.py"


def run(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(EXAMPLE), *arguments],
        input=typed,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_story_ends_well() -> None:
    done = run("demo", "--nodes", "3")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["in_order"] is True
    assert summary["exit_codes"] == [0, 0, 0]
    # Three lines of three, one of the two that are left, two of three.
    assert summary["lines_said"] == 17
    # The first round as the two survivors heard it, the second among them, the last of all.
    assert summary["lines_heard"] == 2 * 6 + 2 + 3 * 4
    assert set(summary["seconds"]) >= {"the killed one is given up", "it is back"}
    assert done.stderr == ""


def test_one_node_shows_its_table_and_leaves() -> None:
    done = run("node", "39471", typed="hello\n/leave\n")
    assert done.returncode == 0, done.stderr
    assert "39471 (" in done.stdout
    assert "you: hello" in done.stdout
    assert "peer  state  link" in done.stdout


def test_end_of_input_is_a_goodbye() -> None:
    assert run("node", "39472", "--json").returncode == 0
