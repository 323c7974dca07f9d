"""Streams in tests: followed to their end, the way a user does it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from culm.spark.audits import Audits
from culm.spark.decode import verify_entries
from culm.spark.source import register
from culm.spark.stream import write_batches
from culm.wire.multihash import YASMF

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEEP = ["entry", "payload", "file", "block", "row"]
STARTS_MAX = 10
# Spark waits ten seconds for a Python process that reads a stream, and no setting changes that.
TOO_BUSY = "Python worker failed to connect back"


def follow(spark: SparkSession, source: Path, output: Path, then: Audits | None = None) -> None:
    """Verify everything that is there and not verified yet."""
    register(spark)

    def start() -> Any:
        growing = spark.readStream.format("culm").option("files_max", "2").load(str(source))
        rows = verify_entries(growing, YASMF, keep=KEEP)
        return write_batches(rows, str(output), f"{output}.checkpoint", until_all=True, then=then)

    to_the_end(start)


def to_the_end(start: Callable[[], Any]) -> None:
    """Await the end of a query; if the machine was too busy, restart it from its checkpoint."""
    from pyspark.errors import PySparkException

    for starts in range(1, STARTS_MAX + 1):
        try:
            start().awaitTermination()
        except PySparkException as error:  # over Spark Connect it fails at the start
            if TOO_BUSY not in str(error) or starts == STARTS_MAX:
                raise
        else:
            return
