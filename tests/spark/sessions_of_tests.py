"""The sessions in which the tests of the pipeline can run: it must work under any user's settings.

``CULM_SPARK_SESSION`` names one; ``tox run -e spark-strict`` (``spark-lenient``, ``spark-connect``)
runs all of them in it.  ``delta`` is for the tests of tables alone (`tox run -e spark-delta`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import metadata

import pytest

NAME = os.environ.get("CULM_SPARK_SESSION", "plain")
#: Command-line options that select the same session.
ARGUMENTS = ["--remote", "local[2]"] if NAME == "connect" else []
#: Java options that start a session of few rows and many plans in a third of the time.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: For tests that look into plans and tasks.
needs_jvm = pytest.mark.skipif(NAME == "connect", reason="Spark Connect shows nothing of its JVM")


def _delta() -> dict[str, str]:
    """A session with Delta Lake, whose jars Spark gets from Maven Central."""
    if NAME != "delta":
        return {}
    version = ".".join(metadata.version("pyspark").split(".")[:2])
    delta = metadata.version("delta-spark")
    return {
        "spark.jars.packages": f"io.delta:delta-spark_{version}_2.13:{delta}",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Delta makes fifty parts of its own log, however small it is.
        "spark.databricks.delta.snapshotPartitions": "2",
    }


#: Additional settings, by the names of sessions.
SETTINGS: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    # Small batches, one partition, and unusual settings for SQL's names and times.
    "strict": {
        "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "-1",
        "spark.sql.caseSensitive": "true",
        "spark.sql.session.timeZone": "Asia/Kolkata",
    },
    # The largest batches possible (PySpark's sources refuse -1), many partitions, and the behaviour
    # of Spark 3.
    "lenient": {
        "spark.sql.execution.arrow.maxRecordsPerBatch": str(2**31 - 1),
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.execution.arrow.pyspark.fallback.enabled": "true",
        "spark.sql.shuffle.partitions": "5",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.parquet.binaryAsString": "true",
        "spark.sql.session.timeZone": "America/St_Johns",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.sql.sources.partitionOverwriteMode": "dynamic",
    },
    "connect": {},
    "delta": _delta(),
}


def outside_of(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment, without the variables that Spark Connect sets for its own process."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT"))
    }
