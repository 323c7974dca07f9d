"""The program beside a file system that fails: below pyarrow, in the workers of a real job."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sessions_of_tests
from planted import honest_log

from culm.spark.archive import write_archive

COMPILER = shutil.which("cc")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        COMPILER is None or not sys.platform.startswith("linux"),
        reason="what fails is preloaded on Linux, and has to be compiled",
    ),
]


@pytest.fixture(scope="module")
def preloaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library by which reads fail."""
    made = tmp_path_factory.mktemp("preloaded") / "failing_reads.so"
    source = Path(__file__).with_name("failing_reads.c")
    command = [str(COMPILER), "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return made


def verify(
    tmp_path: Path, preloaded: Path, error: int, *more: str, once: bool
) -> tuple[int, dict[str, Any], str]:
    """The status of the program, what it sums up, and what it says on stderr."""
    (tmp_path / "in").mkdir()
    for number in range(3):
        with (tmp_path / "in" / f"{number}.culm").open("wb") as file:
            write_archive(file, "bamboo/YASMF", honest_log(number, 10))
    faults = {
        "LD_PRELOAD": str(preloaded),
        "CULM_FAULT_PATH": f"{tmp_path}/in/1.culm",
        "CULM_FAULT_ERRNO": str(error),
    }
    if once:
        faults["CULM_FAULT_ONCE"] = str(tmp_path / "failed")
    where = ["--input", f"{tmp_path}/in", "--output", str(tmp_path / "out")]
    program = [sys.executable, "-m", "culm.spark", "verify", "--json", "--quiet"]
    done = subprocess.run(
        [*program, *where, *more, "--conf", "spark.log.level=OFF"],
        env=sessions_of_tests.outside_of(os.environ) | faults,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert not once or (tmp_path / "failed").exists()
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_a_read_that_fails_once_is_done_again(tmp_path, preloaded):
    status, said, _ = verify(tmp_path, preloaded, errno.ETIMEDOUT, once=True)
    assert (status, said["sound"], said["quarantined"]) == (0, 30, {})


def test_reads_that_always_fail_end_the_job_with_a_sentence(tmp_path, preloaded):
    status, said, told = verify(tmp_path, preloaded, errno.EIO, once=False)
    assert (status, said) == (3, {})
    last = told.strip().splitlines()[-1]
    assert last.startswith(f"culm.spark: {tmp_path}/in/1.culm cannot be read, bytes 0 to ")
    assert os.strerror(errno.EIO) in last


def test_reads_that_always_fail_are_set_aside_where_that_is_wanted(tmp_path, preloaded):
    wanted = ("--on-io-error", "quarantine")
    status, said, _ = verify(tmp_path, preloaded, errno.ESTALE, *wanted, once=False)
    assert (status, said["sound"], said["quarantined"]) == (1, 20, {"UNREADABLE": 1})
