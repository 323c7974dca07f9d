"""Records that are verified where they are read have the rows of those that are verified later."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from planted import FAULTS, honest_log, plant

from culm.spark import read, verify
from culm.spark.archive import write_archive
from culm.spark.kinds import KINDS
from culm.spark.quarantine import WRONG_KIND, check_kind
from culm.spark.verifying import SIZES
from culm.wire.multihash import YASMF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Archives with all faults, of two kinds and of two replicas, a damaged one, and lines."""
    found = tmp_path_factory.mktemp("verifying")
    chance = Random(5)
    rows = honest_log(1, 20)
    for number, fault in enumerate(FAULTS, 2):
        rows += plant(fault, honest_log(number, 9), number, YASMF, chance)
    rows += rows[:9]
    some = [(row.entry, row.payload) for row in rows if row.entry is not None]
    for replica in ("vienna", "quito"):
        (found / f"replica={replica}").mkdir()
        with (found / f"replica={replica}" / "a.culm").open("wb") as file:
            write_archive(file, "bamboo/YASMF", some if replica == "quito" else some[::2])
    with (found / "other.culm").open("wb") as file:
        write_archive(file, "bamboo/YAMF", [*some[:5], (b"", None)])
    data = (found / "other.culm").read_bytes()
    (found / "damaged.culm").write_bytes(data[:-3])
    (found / "lines.jsonl").write_bytes(b'{"key": 1}\nnothing\n')
    return found


def counted(rows: DataFrame) -> Counter[tuple[object, ...]]:
    return Counter(
        tuple(bytes(value) if isinstance(value, bytearray) else value for value in row)
        for row in rows.collect()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_the_same_wherever_they_are_verified(
    spark: SparkSession, folder: Path, kind: str
) -> None:
    from pyspark.sql import functions as f

    payload = f.octet_length("payload").cast("bigint")
    rows = check_kind(read(spark, str(folder)), kind).withColumn("payload_bytes", payload)
    size = f.octet_length("entry") + f.coalesce("payload_bytes", f.lit(0))
    made = dict(KINDS[kind].made)
    here = read(spark, str(folder), verify=kind)
    kept = [name for name in here.columns if name not in made]
    assert {"replica", "entry", "block", *dict(SIZES)} < set(kept)
    later = verify(rows.withColumn("size", size), kind, keep=kept)
    assert here.dtypes == later.dtypes
    found = counted(here)
    assert found == counted(later)
    faults = Counter(row[here.columns.index("fault")] for row in found.elements())
    assert faults[WRONG_KIND] >= 5
    assert faults["TRUNCATED_BLOCK"] == 1
    assert (faults[None] > 100) == (kind == "bamboo/YASMF")


def test_columns_are_chosen_by_a_schema(spark: SparkSession, folder: Path) -> None:
    reader = spark.read.format("culm").option("verify", "bamboo/YASMF")
    some = reader.schema("seqnum bigint, payload binary, reasons int, size bigint, replica string")
    found = some.load(str(folder)).filter("replica = 'quito' and reasons = 0")
    assert found.count() > 100
    assert found.filter("seqnum is null or size < 100").count() == 0


def test_an_unknown_kind_is_refused(spark: SparkSession, folder: Path) -> None:
    with pytest.raises(Exception, match="the format culm verifies bamboo/YAMF, bamboo/YASMF, ssb"):
        read(spark, str(folder), verify="bamboo").count()
