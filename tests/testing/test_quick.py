"""The choice of tests to run before a commit."""

from __future__ import annotations

import subprocess
import sys

import pytest

import quick


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("src/culm/stack.py", "contract"),
        ("src/culm/bymux/limits.py", "bymux"),
        ("src/culm/garlic/raft/core.py", "garlic"),
        ("src/culm/machines/raft.py", "garlic"),
        ("src/culm/machines/bymux.py", "bymux"),
        ("src/culm/machines/sample_logs.py", "machines"),
        ("src/culm/machines/ssb_peer.py", "ssb"),
        ("tests/specs/replication.py", "point2point"),
        ("tests/p2panda/interop/conftest.py", "p2panda"),
        ("tests/conftest.py", None),
        ("cext/_tree.pyx", "kernels"),
        ("examples/culm_io/stores/bamboo.py", "examples"),
        ("docs/testing.md", None),
    ],
)
def test_a_file_is_a_matter_of_a_room(path: str, room: str | None) -> None:
    assert quick.room_of(path) == room


def test_the_changed_rooms_are_run_and_the_slow_ones_left_but_for_changed_tests() -> None:
    changed = ["src/culm/oxen/limits.py", "src/culm/testing/link.py", "tests/testing/test_quick.py"]
    tests, rooms = quick.chosen(changed)
    assert rooms == {"oxen", "testing"}
    assert {"tests/contract", "tests/oxen", "tests/testing/test_quick.py"} <= set(tests)
    assert "tests/bymux/test_bymux_transcripts.py" in tests
    assert "tests/testing" not in tests
    assert len(tests) == len(set(tests))


def test_what_is_always_run_is_there() -> None:
    assert all(list(quick.ROOT.glob(each)) for each in quick.ALWAYS)


def test_the_program_says_what_it_would_run() -> None:
    command = [sys.executable, str(quick.ROOT / "tests/quick.py"), "--list", "--since", "HEAD"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "tests/contract" in said
