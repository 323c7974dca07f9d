"""One large log among many small ones: no task has much more work than others of its stage."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from event_log import records_of_stages, skew
from sessions_of_tests import needs_jvm
from unsigned import SMALL, write_rows

from culm.bamboo import Reason
from culm.spark.audit import audit
from culm.spark.reasons import reasons_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SKEW_MAX = 1.5


@pytest.mark.slow
@needs_jvm
@pytest.mark.parametrize(
    ("large", "small"),
    [
        (30_000, 3_000),
        (1_000_000, 100_000),
        (5_000_000, 1_000_000),
    ],
)
def test_a_giant_log_is_no_more_work_for_a_task_than_many_small_ones(
    spark: SparkSession, tmp_path: Path, large: int, small: int
) -> None:
    missing = large // 2
    path, partitions = tmp_path / "rows", spark.conf.get("spark.sql.shuffle.partitions")
    write_rows(path, large, small, missing=missing)
    spark.conf.set("spark.sql.shuffle.partitions", "8")
    # Or small data would be sent to one task, however it is spread.
    spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    # The file is not Spark's own, and so does not declare that its bytes are not text.
    as_string = spark.conf.get("spark.sql.parquet.binaryAsString")
    spark.conf.set("spark.sql.parquet.binaryAsString", "false")
    group = f"skew of {large}"
    spark.sparkContext.setJobGroup(group, group)
    try:
        found = audit(spark.read.parquet(str(path)))
        faulty = found.logs.filter("first_fault is not null").collect()
        verified = found.verdicts.filter("verified").count()
        found.close()
        records = records_of_stages(spark, group)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", partitions or "2")
        spark.conf.unset("spark.sql.adaptive.coalescePartitions.enabled")
        spark.conf.set("spark.sql.parquet.binaryAsString", as_string or "false")
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", "")
        shutil.rmtree(path)
    [log] = faulty
    assert (log.entries, log.first_fault, log.gaps) == (large - 1, missing, 1)
    assert reasons_of(log.first_fault_reasons) == {Reason.GAP}
    assert verified == missing - 1 + SMALL * small
    count = large - 1 + SMALL * small
    all_rows = [tasks for tasks in records if sum(tasks) >= count]
    assert len(all_rows) >= 2  # read for blocks, packed, and for verdicts
    measured = [tasks for tasks in records if sum(tasks) >= count // 100]
    assert max(map(len, measured)) >= 8
    assert {tuple(tasks) for tasks in measured if skew(tasks) > SKEW_MAX} == set()
