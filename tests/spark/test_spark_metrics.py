"""Numbers reported while rows pass: of batches and of streams, and the results of checks."""

from __future__ import annotations

from random import Random

import pytest
from planted import FAULTS, expected, honest_log, plant
from pyspark.sql import Observation
from streams import KEEP, to_the_end

from culm.bamboo.errors import Reason
from culm.spark.archive import write_archive
from culm.spark.checks import Checks, Status
from culm.spark.decode import verify_entries
from culm.spark.errors import ColumnError
from culm.spark.metrics import METRICS, observe, outcome_of, told_in
from culm.spark.source import register
from culm.spark.stream import write_batches
from culm.wire.multihash import YASMF

ROWS = [
    row
    for number, fault in enumerate(FAULTS, 1)
    for row in plant(fault, honest_log(number, 9), number, YASMF, Random(number))
    if row.entry is not None
]
#: Verdicts on a row alone.
ALONE = {Reason.MALFORMED, Reason.BAD_SIGNATURE} | {
    reason for reason in Reason if reason.name.startswith("PAYLOAD")
}


def wanted(rows) -> dict[str, int]:
    """The expected numbers for rows that were verified, without audit."""
    found = dict.fromkeys(METRICS, 0)
    for judged in expected(rows):
        found["ROWS"] += 1
        found["SET_ASIDE"] += Reason.MALFORMED in judged.reasons
        for reason in judged.reasons & ALONE:
            found[reason.name] += 1
    return found


def test_numbers_come_with_what_is_done_anyway(spark, tmp_path):
    rows = spark.createDataFrame([tuple(row) for row in ROWS], "entry binary, payload binary")
    told = Observation("numbers")
    observe(verify_entries(rows, YASMF), told).write.parquet(str(tmp_path / "verified"))
    assert told.get == wanted(ROWS)
    assert sum(count > 0 for count in told.get.values()) >= 6
    outcome = outcome_of(told.get)
    assert Checks().status(outcome) is Status.FAILED
    assert Checks(fail_on=frozenset({"FORK"})).status(outcome) is Status.PASSED
    assert Checks(rows_min=len(ROWS) + 1).status(outcome) is Status.TOO_FEW_ROWS
    with pytest.raises(ColumnError, match="reasons"):
        observe(rows.selectExpr("'' AS fault"))


def test_a_stream_tells_them_with_each_batch(spark, tmp_path):
    register(spark)
    parts = [honest_log(1, 9), ROWS]
    (tmp_path / "in").mkdir()
    for number, part in enumerate(parts):
        with (tmp_path / "in" / str(number)).open("wb") as file:
            write_archive(file, "bamboo/YASMF", part)
    queries = []

    def start():
        growing = spark.readStream.format("culm").option("files_max", "1").load(f"{tmp_path}/in")
        rows = observe(verify_entries(growing, YASMF, keep=KEEP))
        out = f"{tmp_path}/verified"
        queries.append(write_batches(rows, out, f"{out}.checkpoint", until_all=True))
        return queries[-1]

    to_the_end(start)
    progress = [each for query in queries for each in query.recentProgress]
    told = [*map(told_in, progress)]
    assert [each for each in told if each.get("ROWS")] == [wanted(part) for part in parts]
