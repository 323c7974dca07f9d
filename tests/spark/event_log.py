"""Spark's notes on its tasks, in its event log: the number of records of each."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 60.0


def _wait_until_noted(spark: SparkSession, path: Path) -> None:
    """Spark notes events in order, but later: wait for a last job."""
    context = spark.sparkContext
    group, last = context.getLocalProperty("spark.jobGroup.id"), f"the last {time.monotonic()}"
    context.setLocalProperty("spark.jobGroup.id", last)
    spark.range(1).count()
    context.setLocalProperty("spark.jobGroup.id", group)  # type: ignore[arg-type]
    end = time.monotonic() + PATIENCE_S
    while not _has_ended(path, last):
        assert time.monotonic() < end
        time.sleep(0.05)


def _has_ended(path: Path, group: str) -> bool:
    """Whether all jobs of that group have ended, and there are any."""
    jobs: set[int] = set()
    seen = False
    for line in path.read_text().splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            if event["Properties"].get("spark.jobGroup.id") == group:
                jobs.add(event["Job ID"])
                seen = True
        elif event["Event"] == "SparkListenerJobEnd":
            jobs.discard(event["Job ID"])
    return seen and not jobs


def records_of_stages(spark: SparkSession, group: str) -> list[list[int]]:
    """For each stage of the jobs of that group, the records that its tasks have read.

    Stages that begin with the same shuffles are one here.  Without adaptive execution they are
    submitted together, and where their input is persisted, each partition is made by the stage that
    reaches it first: no single stage has all records.  In a union each task belongs to one side;
    tasks of an empty side have nothing to do, and are left out.
    """
    folder = spark.conf.get("spark.eventLog.dir")
    assert folder is not None
    [path] = Path(folder.removeprefix("file:")).iterdir()
    _wait_until_noted(spark, path)
    names: dict[int, tuple[int, ...]] = {}
    stages: set[int] = set()
    unions: set[tuple[int, ...]] = set()
    found: dict[tuple[int, ...], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for line in path.read_text().splitlines():
        event = json.loads(line)
        match event["Event"]:
            case "SparkListenerJobStart":
                if event["Properties"].get("spark.jobGroup.id") == group:
                    stages.update(event["Stage IDs"])
            case "SparkListenerStageSubmitted":
                stage = event["Stage Info"]
                # A stage that reads files is separate; its number is not that of a shuffle.
                names[stage["Stage ID"]] = tuple(stage["Parent IDs"]) or (-1, stage["Stage ID"])
                if any(each["Name"] == "UnionRDD" for each in stage["RDD Info"]):
                    unions.add(names[stage["Stage ID"]])
            case "SparkListenerTaskEnd" if event["Stage ID"] in stages:
                metrics = event["Task Metrics"]
                read = metrics["Shuffle Read Metrics"]["Total Records Read"]
                read += metrics["Input Metrics"]["Records Read"]
                found[names[event["Stage ID"]]][event["Task Info"]["Index"]] += read
    return [
        [read for read in tasks.values() if read or name not in unions]
        for name, tasks in found.items()
    ]


def skew(records: list[int]) -> float:
    """The ratio of the largest to the median."""
    return max(records) / max(median(records), 1)
