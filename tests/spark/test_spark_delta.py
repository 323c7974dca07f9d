"""Audits in tables of Delta Lake, in sessions that support it: `tox run -e spark-delta`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import sessions_of_tests
from planted import honest_log, random_archive
from streams import follow

from culm.spark.archive import write_archive
from culm.spark.audits import Audits
from culm.spark.delta import DeltaAudits, append_once, merge_rows
from culm.spark.errors import SparkSetupError
from culm.spark.stream import read_batches

needs_delta = pytest.mark.skipif(
    sessions_of_tests.NAME != "delta", reason="a session without Delta Lake (tox -e spark-delta)"
)
PARTS = 5


def archives(folder: Path) -> None:
    folder.mkdir()
    rows = [row for row in random_archive(21, 12, 9) if row.entry is not None]
    for number in range(PARTS):
        with (folder / f"part-{number}").open("wb") as file:
            write_archive(file, "bamboo/YASMF", [*rows[number::PARTS], *rows[:number]])


def audits_at(folder: Path) -> Audits:
    return Audits(str(folder / "verified"), str(folder / "audits"))


def lake(folder: Path) -> DeltaAudits:
    return DeltaAudits(audits_at(folder), str(folder / "lake"))


def tables(spark, folder: Path) -> dict[str, Counter]:
    """The contents of the tables of Delta Lake, row by row."""
    names = ("verified", "logs", "forks")
    found = {name: spark.read.format("delta").load(str(folder / "lake" / name)) for name in names}
    return {name: Counter(map(str, rows.collect())) for name, rows in found.items()}


def wanted(spark, folder: Path) -> dict[str, Counter]:
    """The expected contents: all batches, and the audit's verdict at the end."""
    audits = audits_at(folder)
    found = {name: audits.read(spark, name) for name in ("logs", "forks")}
    found["verified"] = read_batches(spark, str(folder / "verified")).drop("batch")
    return {name: Counter(map(str, rows.collect())) for name, rows in found.items()}


@pytest.mark.slow
@needs_delta
def test_tables_have_each_row_once_and_what_the_last_audit_says(spark, tmp_path):
    archives(tmp_path / "archive")
    follow(spark, tmp_path / "archive", tmp_path / "verified", lake(tmp_path))
    right = wanted(spark, tmp_path)
    assert tables(spark, tmp_path) == right
    assert right["forks"]
    # The last batch comes again.
    last = max(int(each.name[6:]) for each in (tmp_path / "verified").glob("batch=*"))
    batch = read_batches(spark, str(tmp_path / "verified")).filter(f"batch = {last}").drop("batch")
    versions = "DESCRIBE HISTORY delta.`{}/lake/{}`"
    before = spark.sql(versions.format(tmp_path, "verified")).count()
    lake(tmp_path)(batch, last)
    assert tables(spark, tmp_path) == right
    assert spark.sql(versions.format(tmp_path, "verified")).count() == before
    # An unchanged row is not written anew.
    done = spark.sql(versions.format(tmp_path, "logs")).orderBy("version").collect()[-1]
    assert int(done.operationMetrics.get("numTargetRowsUpdated", 0)) == 0


@pytest.mark.slow
@needs_delta
def test_streams_may_share_tables(spark, tmp_path):
    """Their numbers of batches are alike, and their rows all arrive."""
    for name in ("one", "two"):
        (tmp_path / name / "archive").mkdir(parents=True)
        with (tmp_path / name / "archive" / "a").open("wb") as file:
            write_archive(file, "bamboo/YASMF", honest_log(len(name) + ord(name[0]), 4))
        audits = audits_at(tmp_path / name)
        both = DeltaAudits(audits, str(tmp_path / "lake"))
        follow(spark, tmp_path / name / "archive", tmp_path / name / "verified", both)
    found = tables(spark, tmp_path)
    assert {name: len(rows) for name, rows in found.items()} == {
        "verified": 8,
        "logs": 2,
        "forks": 0,
    }


@pytest.mark.slow
@needs_delta
def test_batches_are_appended_once_and_rows_have_one_place(spark, tmp_path):
    path = str(tmp_path / "a`b")
    rows = spark.createDataFrame([(1, "a"), (2, None)], "`the key` int, value string")
    for writer, number in (("x", 3), ("x", 3), ("x", 1), ("y", 1)):
        append_once(rows.withColumnRenamed("the key", "key"), path, writer, number)
    assert spark.read.format("delta").load(path).count() == 4
    merged = str(tmp_path / "merged")
    spark.sql(f"CREATE TABLE delta.`{merged}` (key int, value string) USING delta")
    for given in ([(1, "a"), (2, None)], [(2, "b"), (3, "c")], [(3, None)]):
        merge_rows(spark.createDataFrame(given, "key int, value string"), merged, ["key"])
    found = spark.read.format("delta").load(merged).orderBy("key").collect()
    assert [tuple(row) for row in found] == [(1, "a"), (2, "b"), (3, None)]


CHILD = """
import os, signal, sys
from pathlib import Path
from culm.spark import delta, start_session
from sessions_of_tests import NAME, QUICK_JAVA, SETTINGS
from streams import follow
from test_spark_delta import lake

folder, moment = Path(sys.argv[1]), int(sys.argv[2])
calls = 0

def mortal(function, *, before):
    def called(*arguments):
        global calls
        calls += 1
        if before and calls == moment:
            os.killpg(0, signal.SIGKILL)
        result = function(*arguments)
        if not before and calls == moment:
            os.killpg(0, signal.SIGKILL)
        return result
    return called

delta.merge_rows = mortal(delta.merge_rows, before=moment % 2 == 0)
delta.append_once = mortal(delta.append_once, before=moment % 2 == 0)
spark = start_session(master="local[1]", settings={
    **SETTINGS[NAME],
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
})
follow(spark, folder / "archive", folder / "verified", lake(folder))
"""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@needs_delta
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes are killed in groups")
def test_a_stream_that_is_killed_leaves_each_row_once(spark, tmp_path):
    """Killed around appending and merging, in one batch after the other."""
    archives(tmp_path / "archive")
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    for moment in (1, 2, 3, 6):
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(tmp_path), str(moment)],
            env={**os.environ, "PYTHONPATH": path},
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            timeout=900,
        )
        assert done.returncode == -signal.SIGKILL
    follow(spark, tmp_path / "archive", tmp_path / "verified", lake(tmp_path))
    assert tables(spark, tmp_path) == wanted(spark, tmp_path)


@pytest.mark.skipif(sessions_of_tests.NAME == "delta", reason="this session has Delta Lake")
def test_a_session_without_delta_says_so(spark, tmp_path):
    (tmp_path / "archive").mkdir()
    rows = spark.createDataFrame([], "log binary, n int")

    class Made:
        def __call__(self, batch, number):
            pass

        def touched(self, spark, table):
            return rows

    with pytest.raises(SparkSetupError, match="no Delta Lake"):
        DeltaAudits(Made(), str(tmp_path / "lake"))(rows, 0)
