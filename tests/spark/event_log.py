"""What Spark notes of its tasks in its event log: how many records each of them had."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def records_of_stages(spark: SparkSession, group: str) -> dict[int, list[int]]:
    """For each stage of the jobs of that group, the records that its tasks have read."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    folder = spark.conf.get("spark.eventLog.dir")
    assert folder is not None
    [path] = Path(folder.removeprefix("file:")).iterdir()
    stages: set[int] = set()
    found: dict[int, list[int]] = defaultdict(list)
    for line in path.read_text().splitlines():
        event = json.loads(line)
        match event["Event"]:
            case "SparkListenerJobStart":
                if event["Properties"].get("spark.jobGroup.id") == group:
                    stages.update(event["Stage IDs"])
            case "SparkListenerTaskEnd" if event["Stage ID"] in stages:
                metrics = event["Task Metrics"]
                read = metrics["Shuffle Read Metrics"]["Total Records Read"]
                found[event["Stage ID"]].append(read + metrics["Input Metrics"]["Records Read"])
    return found


def skew(records: list[int]) -> float:
    """How many times the median the largest is."""
    return max(records) / max(median(records), 1)
