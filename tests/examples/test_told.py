"""A server's output for people never holds it up, its end included."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import sys
from culm_io.programs.ending import end_with
from culm_io.programs.told import Telling

def main():
    telling = Telling(sys.stdout)
    for _ in range(50):
        telling.tell("x" * 10_000)
    telling.close()
    return 0

end_with(main)
"""


def start() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen(command, env=buffered, stdout=subprocess.PIPE)


@pytest.mark.parametrize("gone", [True, False])
def test_a_program_ends_though_nobody_reads_what_it_tells(gone: bool) -> None:
    with start() as process:
        assert process.stdout is not None
        if gone:
            process.stdout.close()
        assert process.wait(60) == 0


def test_all_lines_are_told_to_whoever_reads_them() -> None:
    with start() as process:
        assert process.stdout is not None
        lines = process.stdout.read().split()
        assert process.wait(60) == 0
    assert lines == [b"x" * 10_000] * 50
