"""Campaigns of minutes: large archives compared with one process; executors and streams killed.

``tox run -e spark-long`` runs them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest
import sessions_of_tests
from planted import Row, expected, honest_log, random_archive
from test_spark_audit import audited
from test_spark_stream import add_file
from test_spark_stream import audited as audited_of_stream

from culm.bamboo.entry import decode
from culm.spark.reasons import bits
from culm.spark.stream import read_batches
from culm.wire.errors import DecodeError
from culm.wire.multihash import YAMF, YASMF

parquet = pytest.importorskip("pyarrow.parquet")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc"),
]

HERE = str(Path(__file__).parent)
KILLS = int(os.environ.get("CULM_SPARK_KILLS", "10"))
ENTRIES = int(os.environ.get("CULM_SPARK_ENTRIES", "100000"))
SECONDS_MAX = 900.0


@pytest.mark.parametrize(("seed", "family"), [(11, YASMF), (12, YAMF), (13, YASMF)])
@pytest.mark.timeout(3600)
def test_large_archives_are_judged_row_by_row_as_by_a_single_process(spark, seed, family):
    rows = random_archive(seed, ENTRIES // 100, 200, family)
    assert len(rows) > 0.9 * ENTRIES
    assert audited(spark, rows, family).verdicts == Counter(expected(rows, family))


def child(program: str, *arguments: object) -> subprocess.Popen[str]:
    """A program in its own process group, with the modules of this directory."""
    path = os.pathsep.join([HERE, str(Path(HERE).parent), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        env={**sessions_of_tests.outside_of(os.environ), "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def until(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == text:
            return
    raise AssertionError(f"the process has ended before it said {text!r}")


STREAM = """
import sys
from pathlib import Path
from culm.spark import start_session
from sessions_of_tests import QUICK_JAVA
from streams import follow
spark = start_session(master="local[1]", settings={
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
})
print("ready", flush=True)
follow(spark, Path(sys.argv[1]), Path(sys.argv[2]))
print("done", flush=True)
"""


@pytest.mark.timeout(7200)
def test_a_stream_that_is_killed_at_any_moment_has_the_same_output(spark, tmp_path):
    """At each start there are more files than it can have read when it is killed, and late ones."""
    chance = Random(int(os.environ.get("CULM_SPARK_FIRST_SEED", "1")))
    source, output = tmp_path / "archive", tmp_path / "verified"
    source.mkdir()
    rows = [row for row in random_archive(21, 150, 12) if row.entry is not None]
    chance.shuffle(rows)
    files = [rows[at::150] for at in range(150)]
    killed = 0
    while killed < KILLS:
        for _ in range(min(12, len(files))):
            add_file(source, f"part-{chance.random()}", files.pop())
        with child(STREAM, source, output) as process:
            try:
                until(process, "ready")
                time.sleep(chance.uniform(0, 15))
            finally:
                unfinished = process.poll() is None
                if unfinished:
                    os.killpg(process.pid, signal.SIGKILL)
        killed += unfinished
        if not unfinished and not files:
            pytest.fail(f"all is read, after {killed} kills")
    for number, left in enumerate(files):
        add_file(source, f"last-{number}", left)
    with child(STREAM, source, output) as process:
        until(process, "done")
    verified = read_batches(spark, str(output)).drop("batch").persist()
    found = audited_of_stream(verified)
    verified.unpersist()
    wanted = Counter((each.row.entry, each.reasons, each.verified) for each in expected(rows))
    assert found == wanted


CLUSTER = """
import sys
from culm.spark import start_session
from culm.spark.audit import audit
from culm.spark.decode import verify_entries
from culm.spark.source import register
from culm.wire.multihash import YASMF
spark = start_session(master="local-cluster[2,1,1024]", settings={
    "spark.sql.shuffle.partitions": "16",
    "spark.executor.memory": "1g",
})
register(spark)
read = spark.read.format("culm").option("split_size", "100000")
rows = verify_entries(read.load(sys.argv[1]), YASMF)
print("ready", flush=True)
rows.write.parquet(sys.argv[2] + "/verified")
print("verified", flush=True)
found = audit(spark.read.parquet(sys.argv[2] + "/verified"))
found.verdicts.select("hash", "reasons", "verified").write.parquet(sys.argv[2] + "/verdicts")
print("done", flush=True)
"""


def executors(root: int) -> list[int]:
    """The processes below `root` that are executors."""
    parents, found = {}, []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                stat, command = (path / "stat").read_text(), (path / "cmdline").read_bytes()
            except OSError:
                continue
            parents[int(path.name)] = int(stat.rpartition(")")[2].split()[1])
            if b"CoarseGrainedExecutorBackend" in command:
                found.append(int(path.name))

    def is_below(process: int) -> bool:
        while process and process != root:
            process = parents.get(process, 0)
        return bool(process)

    return [process for process in found if is_below(process)]


def kill_one(root: int, chance: Random, *, before: Path) -> None:
    """Wait for executors, and a little longer, and kill one of them before that file exists."""
    end = time.monotonic() + SECONDS_MAX
    while len(there := executors(root)) < 2:
        assert time.monotonic() < end, "there are no executors"
        time.sleep(0.1)
    time.sleep(chance.uniform(0, 3))
    assert not before.exists(), "it was over"
    os.kill(chance.choice(there), signal.SIGKILL)


@pytest.mark.timeout(3600)
def test_an_executor_that_is_killed_in_the_midst_changes_no_result(tmp_path):
    """One is killed during verification, and one during the audit."""
    chance = Random(5)
    source, output = tmp_path / "archive", tmp_path / "out"
    source.mkdir()
    rows = [row for row in random_archive(31, 200, 200) if row.entry is not None]
    rows += honest_log(3000, 3000)
    for number in range(4):
        add_file(source, f"part-{number}", rows[number::4])
    with child(CLUSTER, source, output) as process:
        try:
            until(process, "ready")
            kill_one(process.pid, chance, before=output / "verified" / "_SUCCESS")
            until(process, "verified")
            kill_one(process.pid, chance, before=output / "verdicts" / "_SUCCESS")
            until(process, "done")
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    table = parquet.read_table(output / "verdicts", columns=["hash", "reasons", "verified"])
    found = Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert found == Counter(
        (hash_of(each.row), bits(*each.reasons), each.verified) for each in expected(rows)
    )


def hash_of(row: Row) -> bytes | None:
    try:
        return decode(row.entry or b"", family=YASMF).hash()
    except DecodeError:
        return None
