"""A live archive: each record once, whatever comes late, twice or in between, and after SIGKILL."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
import sessions_of_tests
from event_log import records_of_stages
from planted import expected, honest_log, random_archive
from pyspark.sql import functions
from sessions_of_tests import needs_jvm
from streams import STARTS_MAX, TOO_BUSY, follow, to_the_end
from unsigned import write_rows

from culm.spark.archive import write_archive
from culm.spark.audit import NEEDED, audit
from culm.spark.audits import Audits
from culm.spark.columns import schema_text
from culm.spark.decode import verify_entries
from culm.spark.files import read_table
from culm.spark.quarantine import count_faults
from culm.spark.reasons import reasons_of
from culm.spark.stream import read_batches, write_batches
from culm.wire.multihash import YASMF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def add_file(folder: Path, name: str, rows) -> None:
    with (folder / f".{name}").open("wb") as file:
        write_archive(file, "bamboo/YASMF", [row for row in rows if row.entry is not None])
    (folder / f".{name}").rename(folder / name)


def audited(verified: DataFrame) -> Counter:
    found = audit(verified)
    rows = found.verdicts.select("entry", "reasons", "verified").collect()
    found.close()
    return Counter((bytes(row.entry), reasons_of(row.reasons), row.verified) for row in rows)


def test_files_that_come_late_twice_and_out_of_order_are_audited_as_if_at_once(spark, tmp_path):
    source, output = tmp_path / "archive", tmp_path / "verified"
    source.mkdir()
    rows = [row for row in random_archive(4, 12, 12) if row.entry is not None]
    rows += rows[:10]
    Random(5).shuffle(rows)
    third = len(rows) // 3
    for number in (2, 0, 1):
        add_file(source, f"part {number}", rows[third * number : third * (number + 1)])
        if number == 0:
            (source / "broken").write_bytes(b"?")
            follow(spark, source, output)
    add_file(source, "rest", rows[3 * third :])
    (source / "broken").write_bytes(b"")
    follow(spark, source, output)
    follow(spark, source, output)
    growing = spark.readStream.format("culm").load(str(source))
    with pytest.raises(FileExistsError, match="not of the checkpoint"):
        write_batches(growing, str(output), f"{output}.another")
    verified = read_batches(spark, str(output)).drop("batch").persist()
    faults = count_faults(verified)
    assert (faults["NO_ARCHIVE"], faults["REPLACED"]) == (1, 1)
    found = audited(verified.filter("entry is not null"))
    assert found == Counter(
        (each.row.entry, each.reasons, each.verified) for each in expected(rows)
    )
    verified.unpersist()


def test_an_audit_goes_on_from_the_last_one(spark, tmp_path, monkeypatch):
    """Open blocks are closed by later entries, in any order; others stay."""
    source, output, told = tmp_path / "archive", tmp_path / "verified", tmp_path / "audits"
    source.mkdir()
    rows = [row for row in random_archive(6, 10, 12) if row.entry is not None]
    log = honest_log(50, 1030)  # two blocks
    parts = [log[:600], [*log[700:], *rows[::2]], [*log[600:700], *rows[1::2]]]
    audits = Audits(str(output), str(told))
    with pytest.raises(FileNotFoundError):
        audits.read(spark, "logs")
    for number, part in enumerate(parts):
        add_file(source, f"part {number}", part)
        follow(spark, source, output, audits)
    whole = audit(read_batches(spark, str(output)).drop("batch"))
    for table in ("logs", "forks"):
        found = audits.read(spark, table).collect()
        assert Counter(found) == Counter(getattr(whole, table).collect())
    whole.close()
    [giant] = audits.read(spark, "logs").filter("entries > 1000").collect()
    assert (giant.verified, giant.first_fault) == (1030, None)
    assert {path.stem for path in (told / "snapshots").iterdir()} == {"1", "2"}
    # A repeated one starts from the state before it; if it fails, nothing is lost.
    batch = read_table(spark, f"{output}/batch=2")
    audits(batch.limit(0), 2)
    [giant] = audits.read(spark, "logs").filter("entries > 900").collect()
    assert (giant.verified, giant.first_fault) == (600, 601)
    monkeypatch.setattr("culm.spark.audits.log_rows", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        audits(batch, 2)
    assert audits.read(spark, "logs").filter("entries > 900").collect() == [giant]


@pytest.mark.slow
@needs_jvm
def test_an_audit_costs_what_the_batch_touches(spark, tmp_path, monkeypatch):
    """And a growing archive gets as many shelves as that takes."""
    monkeypatch.setattr("culm.spark.audits.SHELF_ROWS", 128)
    write_rows(tmp_path / "rows", 10, 799)
    schema = schema_text(NEEDED)  # the files are not Spark's own
    rows = spark.read.schema(schema).parquet(str(tmp_path / "rows"))
    new = rows.filter("seqnum = 7").limit(2).withColumn("hash", functions.expr("sha2(hash, 256)"))
    new = new.withColumn("hash", functions.col("hash").cast("binary"))
    output = tmp_path / "verified"
    rows.write.parquet(f"{output}/batch=0")
    new.write.parquet(f"{output}/batch=1")
    audits = Audits(str(output), str(tmp_path / "audits"))
    audits(read_table(spark, f"{output}/batch=0"), 0)
    written = set((tmp_path / "audits").rglob("*.parquet"))
    spark.sparkContext.setJobGroup("touched", "touched")
    audits(read_table(spark, f"{output}/batch=1"), 1)
    read = sum(map(sum, records_of_stages(spark, "touched")))
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    # Although rows are counted in every step that they pass.
    assert read < rows.count()
    again = set((tmp_path / "audits").rglob("*.parquet")) - written
    assert 0 < len(again) <= 4 * 2
    whole = audit(read_batches(spark, str(output)).drop("batch"))
    for table in ("logs", "forks"):
        found = audits.read(spark, table).collect()
        assert Counter(found) == Counter(getattr(whole, table).collect())
    whole.close()


def same_as_a_whole_audit(spark, audits: Audits, output: Path) -> bool:
    """Whether an ongoing audit has the same results as one of everything."""
    whole = audit(read_batches(spark, str(output)).drop("batch"))
    found = {
        table: Counter(audits.read(spark, table).collect())
        == Counter(getattr(whole, table).collect())
        for table in ("logs", "forks")
    }
    whole.close()
    return all(found.values())


@pytest.mark.slow
def test_shelves_are_doubled_in_the_midst_of_a_stream(spark, tmp_path, monkeypatch):
    """With any batch: rows of all logs, copies of one row, nothing; also when repeated."""
    monkeypatch.setattr("culm.spark.audits.SHELF_ROWS", 16)
    output, told = tmp_path / "verified", tmp_path / "audits"
    rows = [(row.entry, row.payload) for row in random_archive(3, 20, 12) if row.entry is not None]
    parts = [rows[:12], rows[12:14], rows[:2] * 9, rows[14:60], [], rows[60:61], rows[61:]]
    audits = Audits(str(output), str(told))
    shelves = []
    for number, part in enumerate(parts):
        given = spark.createDataFrame(part, "entry binary, payload binary")
        path = f"{output}/batch={number}"
        verify_entries(given, YASMF, keep=["entry", "payload"]).coalesce(1).write.parquet(path)
        for _ in range(2 if number == 3 else 1):
            audits(read_table(spark, path), number)
        shelves.append(json.loads((told / "snapshots" / f"{number}.json").read_text())["shelves"])
        if shelves[-1] != shelves[-2:][0] or number in (4, 5):
            assert same_as_a_whole_audit(spark, audits, output), number
    assert shelves[:3] == [1, 1, 1]
    assert 1 < shelves[3] == shelves[4] == shelves[5] < shelves[6]
    assert same_as_a_whole_audit(spark, audits, output)


class Query:
    """Ends on request."""

    def __init__(self, message: str | None) -> None:
        self._message = message

    def awaitTermination(self) -> None:  # noqa: N802
        from pyspark.errors import StreamingQueryException

        if self._message is not None:
            raise StreamingQueryException(self._message)


def test_a_query_is_started_again_where_the_machine_was_too_busy_and_only_there() -> None:
    busy = f"[STREAM_FAILED] terminated with exception: {TOO_BUSY}."
    endings = iter([busy, busy, None, "?"])
    to_the_end(lambda: Query(next(endings)))
    assert list(endings) == ["?"]
    for message, starts in (("the disk is full", 1), (busy, STARTS_MAX)):
        started: list[Query] = []

        def start(message: str = message, started: list[Query] = started) -> Query:
            started.append(Query(message))
            return started[-1]

        with pytest.raises(Exception, match="disk" if starts == 1 else "connect back"):
            to_the_end(start)
        assert len(started) == starts


CHILD = """
import sys
from pathlib import Path
from culm.spark import start_session
from sessions_of_tests import QUICK_JAVA
from event_log import records_of_stages
from streams import follow
spark = start_session(master="local[1]", settings={
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
})
follow(spark, Path(sys.argv[1]), Path(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes are killed in groups")
def test_a_stream_that_is_killed_goes_on_where_it_was(spark, tmp_path):
    """Killed, with its Java, after writing a batch or two; then started again."""
    source, output = tmp_path / "archive", tmp_path / "verified"
    source.mkdir()
    for number in range(1, 9):
        add_file(source, f"part-{number}", honest_log(number, 3))
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(source), str(output)],
        env={**sessions_of_tests.outside_of(os.environ), "PYTHONPATH": path},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        try:
            while not list(output.glob("batch=1")) and process.poll() is None:
                time.sleep(0.01)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    done = len(list(output.glob("batch=*")))
    assert 0 < done < 4
    follow(spark, source, output)
    rows = read_batches(spark, str(output)).collect()
    wanted = Counter(row.entry for number in range(1, 9) for row in honest_log(number, 3))
    assert Counter(bytes(row.entry) for row in rows) == wanted
    assert {row.batch for row in rows} == {0, 1, 2, 3}
    shutil.rmtree(output)


MORTAL = """
import os, signal, sys
from pathlib import Path
from culm.spark import Audits, start_session
from culm.spark import shelves
from sessions_of_tests import QUICK_JAVA
from streams import follow

source, output, told, moment = sys.argv[1:]
calls = 0

def mortal(function):
    def called(*arguments, **named):
        global calls
        if calls == int(moment):
            os.killpg(0, signal.SIGKILL)
        calls += 1
        return function(*arguments, **named)
    return called

shelves.Shelves.write = mortal(shelves.Shelves.write)
shelves.Shelves.commit = mortal(shelves.Shelves.commit)
shelves.Shelves._forget = mortal(shelves.Shelves._forget)
shelves.remove = mortal(shelves.remove)
spark = start_session(master="local[1]", settings={
    "spark.sql.shuffle.partitions": "1",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
})
follow(spark, Path(source), Path(output), Audits(output, told))
"""
# Calls by which a batch changes the stored state: it removes two things, writes four tables, notes
# and forgets, and from the third batch on removes everything no longer named.
CHANGES = 8


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes are killed in groups")
def test_an_audit_that_is_killed_in_each_of_its_steps_goes_on(spark, tmp_path):
    """Each process is killed one step later than the one before, and goes on from there."""
    source, output, told = tmp_path / "archive", tmp_path / "verified", tmp_path / "audits"
    source.mkdir()
    rows = [row for row in random_archive(6, 10, 12) if row.entry is not None]
    for number in range(8):
        add_file(source, f"part-{number}", rows[number::8])
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    snapshots = []
    # In the first batch of each process, and in the middle of a later one.
    for moment in (0, 2, 4, 6, 7, CHANGES + 4, 2 * CHANGES + 1):
        with subprocess.Popen(
            [sys.executable, "-c", MORTAL, *map(str, (source, output, told, moment))],
            env={**sessions_of_tests.outside_of(os.environ), "PYTHONPATH": path},
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            assert process.wait(600) in (-signal.SIGKILL, 0)
        notes = told / "snapshots"
        names = [int(each.stem) for each in notes.glob("*.json")] if notes.exists() else []
        snapshots.append(max(names, default=-1))
        if snapshots[-1] >= 0:
            audits = Audits(str(output), str(told))
            assert audits.read(spark, "logs").count() > 0
    assert snapshots == sorted(snapshots)
    assert snapshots[0] == -1 < snapshots[-1]
    audits = Audits(str(output), str(told))
    follow(spark, source, output, audits)
    assert same_as_a_whole_audit(spark, audits, output)
    undisturbed = tmp_path / "undisturbed"
    follow(spark, source, undisturbed, Audits(str(undisturbed), f"{undisturbed}.audits"))
    for table in ("logs", "forks"):
        other = Audits(str(undisturbed), f"{undisturbed}.audits").read(spark, table)
        assert Counter(audits.read(spark, table).collect()) == Counter(other.collect())
    place = ("batch", "file", "block", "row", "entry", "reasons")
    both = [read_batches(spark, str(each)).select(*place) for each in (output, undisturbed)]
    assert Counter(both[0].collect()) == Counter(both[1].collect())
