"""A live archive: each record once, whatever comes late, twice or in between, and after SIGKILL."""

from __future__ import annotations

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
from culm.spark.files import read_table
from culm.spark.quarantine import count_faults
from culm.spark.reasons import reasons_of
from culm.spark.stream import read_batches, write_batches

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
    """Blocks that were open are closed by what comes later, in any order; others stay."""
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
    # One that is made again is made of what was there before it; if it fails, nothing is lost.
    batch = read_table(spark, f"{output}/batch=2")
    audits(batch.limit(0), 2)
    [giant] = audits.read(spark, "logs").filter("entries > 900").collect()
    assert (giant.verified, giant.first_fault) == (600, 601)
    monkeypatch.setattr("culm.spark.audits.log_rows", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        audits(batch, 2)
    assert audits.read(spark, "logs").filter("entries > 900").collect() == [giant]


@needs_jvm
def test_an_audit_costs_what_the_batch_touches(spark, tmp_path, monkeypatch):
    """And there are as many shelves as it takes for that, while an archive grows."""
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
    # Though rows are counted in each step to which they come.
    assert read < rows.count()
    again = set((tmp_path / "audits").rglob("*.parquet")) - written
    assert 0 < len(again) <= 4 * 2
    whole = audit(read_batches(spark, str(output)).drop("batch"))
    for table in ("logs", "forks"):
        found = audits.read(spark, table).collect()
        assert Counter(found) == Counter(getattr(whole, table).collect())
    whole.close()


class Query:
    """Ends as it is told to."""

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


@pytest.mark.once
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes are killed in groups")
def test_a_stream_that_is_killed_goes_on_where_it_was(spark, tmp_path):
    """Killed, with its Java, when it has written a batch or two; then started again."""
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
