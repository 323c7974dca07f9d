"""The program on a failing file system: below pyarrow, in the workers of a real job."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sessions_of_tests
from planted import honest_log, random_archive
from pyarrow import parquet
from streams import follow

from culm.spark.archive import write_archive
from culm.spark.audit import audit
from culm.spark.audits import Audits
from culm.spark.errors import OnError
from culm.spark.stream import read_batches

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
    """A library that makes calls fail."""
    made = tmp_path_factory.mktemp("preloaded") / "failing_calls.so"
    source = Path(__file__).with_name("failing_calls.c")
    command = [str(COMPILER), "-shared", "-fPIC", "-o", str(made), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return made


def verify(
    tmp_path: Path, preloaded: Path, error: int, *more: str, once: bool
) -> tuple[int, dict[str, Any], str]:
    """The status of the program, its summary, and its stderr."""
    (tmp_path / "in").mkdir()
    for number in range(3):
        with (tmp_path / "in" / f"{number}.culm").open("wb") as file:
            write_archive(file, "bamboo/YASMF", honest_log(number, 10))
    faults = failing(tmp_path / "in" / "1.culm", preloaded, error)
    if once:
        faults["CULM_FAULT_ONCE"] = str(tmp_path / "failed")
    told = run(tmp_path, faults, "verify", "--input", f"{tmp_path}/in", *more)
    assert not once or (tmp_path / "failed").exists()
    return told


def failing(path: Path, preloaded: Path, error: int) -> dict[str, str]:
    """The environment in which reads of a path fail."""
    return {
        "LD_PRELOAD": str(preloaded),
        "CULM_FAULT_PATH": str(path),
        "CULM_FAULT_ERRNO": str(error),
    }


def run(tmp_path: Path, faults: dict[str, str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    program = [sys.executable, "-m", "culm.spark", *arguments, "--json", "--quiet"]
    done = subprocess.run(
        [*program, "--output", str(tmp_path / "out"), "--conf", "spark.log.level=OFF"],
        env=sessions_of_tests.outside_of(os.environ) | faults,
        capture_output=True,
        text=True,
        timeout=600,
    )
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


@pytest.mark.parametrize("policy", list(OnError))
@pytest.mark.parametrize("job", ["raft", "sessions"])
def test_jobs_about_protocols_know_what_to_do_then(tmp_path, preloaded, job, policy):
    lines = {
        "raft": {"at": 1, "term": 1, "is_configuration": False, "value": "aa"},
        "sessions": {"op": "receive", "hex": "20000568656c6c6f"},
    }
    (tmp_path / "in").mkdir()
    for name in ("good", "bad"):
        (tmp_path / "in" / f"{name}.jsonl").write_text(json.dumps(lines[job]) + "\n")
    more = {
        "raft": [f"--input={name}={tmp_path}/in/{name}.jsonl" for name in ("good", "bad")],
        "sessions": [
            *("--input", f"{tmp_path}/in", "--machine", "bymux"),
            *("--config", json.dumps({"role": "REACTIVE", "streams": {"0": [100, 100]}})),
        ],
    }
    faults = failing(tmp_path / "in" / "bad.jsonl", preloaded, errno.EIO)
    status, said, told = run(tmp_path, faults, job, *more[job], "--on-io-error", policy)
    if policy is OnError.FAIL:
        assert (status, said) == (3, {})
        assert "bad.jsonl cannot be read" in told
    else:
        counted = (status, said["sound"], said["quarantined"])
        assert counted == (1, 1, {"UNREADABLE": 1})
        rows = parquet.read_table(tmp_path / "out" / "quarantine").to_pylist()
        assert [row["block_end"] is not None for row in rows] == [True]


def written(
    tmp_path: Path, preloaded: Path, part: str, error: int, *, once: bool
) -> dict[str, str]:
    """The environment in which writes of some part of the output fail; and an archive."""
    (tmp_path / "in").mkdir()
    with (tmp_path / "in" / "a.culm").open("wb") as file:
        write_archive(file, "bamboo/YASMF", honest_log(1, 30))
    faults = failing(tmp_path / part, preloaded, error) | {"CULM_FAULT_WRITES": "1"}
    return faults | ({"CULM_FAULT_ONCE": str(tmp_path / "failed")} if once else {})


@pytest.mark.parametrize("part", ["out/verified", "out/quarantine"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.ETIMEDOUT])
def test_a_write_of_a_table_that_fails_once_is_done_again(tmp_path, preloaded, part, error):
    """Or the job fails and says why: the driver's writes at the end are not repeated."""
    faults = written(tmp_path, preloaded, part, error, once=True)
    status, said, told = run(tmp_path, faults, "verify", "--input", f"{tmp_path}/in")
    assert (tmp_path / "failed").exists()
    if status == 0:
        assert (said["sound"], said["quarantined"]) == (30, {})
        assert parquet.read_table(tmp_path / "out" / "verified").num_rows == 30
    else:
        assert status == 3
        assert os.strerror(error) in told


@pytest.mark.parametrize("part", ["out/verified", "out/report.html", "out/summary.json"])
def test_writes_that_always_fail_end_the_job_with_a_sentence(tmp_path, preloaded, part):
    hidden = str(Path(part).with_name(f".{Path(part).name}")) if "." in part else part
    faults = written(tmp_path, preloaded, hidden, errno.ENOSPC, once=False)
    status, said, told = run(tmp_path, faults, "verify", "--input", f"{tmp_path}/in")
    assert (status, said) == (3, {})
    last = told.strip().splitlines()[-1]
    assert last.startswith("culm.spark: ")
    assert os.strerror(errno.ENOSPC) in last
    assert not (tmp_path / "out" / "summary.json").exists()


STREAM = """
import sys
from pathlib import Path
from culm.spark import Audits, start_session
from sessions_of_tests import QUICK_JAVA
from streams import follow

folder = Path(sys.argv[1])
spark = start_session(master="local[1,2]", settings={
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
})
audits = Audits(str(folder / "verified"), str(folder / "audits"))
follow(spark, folder / "archive", folder / "verified", audits)
"""
PLACES = ("audits/batch=1/rows", "verified.checkpoint/offsets")


@pytest.mark.timeout(3600)
def test_a_stream_whose_writes_fail_goes_on_where_it_was(spark, tmp_path, preloaded):
    """Each process has one write that fails; the last one, here, has none."""
    archive = tmp_path / "archive"
    archive.mkdir()
    rows = [row for row in random_archive(6, 10, 12) if row.entry is not None]
    for number in range(6):
        with (archive / f"part-{number}").open("wb") as file:
            write_archive(file, "bamboo/YASMF", rows[number::6])
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    for number, place in enumerate(PLACES):
        faults = failing(tmp_path / place, preloaded, errno.ENOSPC)
        faults |= {"CULM_FAULT_WRITES": "1", "CULM_FAULT_ONCE": str(tmp_path / f"failed-{number}")}
        done = subprocess.run(
            [sys.executable, "-c", STREAM, str(tmp_path)],
            env=sessions_of_tests.outside_of(os.environ) | faults | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=900,
        )
        if done.returncode:
            assert os.strerror(errno.ENOSPC) in done.stderr
    assert list(tmp_path.glob("failed-*"))
    audits = Audits(str(tmp_path / "verified"), str(tmp_path / "audits"))
    follow(spark, archive, tmp_path / "verified", audits)
    verified = read_batches(spark, str(tmp_path / "verified")).drop("batch")
    wanted = Counter(row.entry for row in rows)
    assert Counter(bytes(row.entry) for row in verified.collect()) == wanted
    whole = audit(verified)
    for table in ("logs", "forks"):
        found = Counter(audits.read(spark, table).collect())
        assert found == Counter(getattr(whole, table).collect())
    whole.close()
