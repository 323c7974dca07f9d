"""One session for all tests of the pipeline; without PySpark, only tests that need none."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import sessions_of_tests

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

if importlib.util.find_spec("pyspark") is None:
    collect_ignore_glob = ["test_spark_*.py"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two threads."""
    from culm.spark import start_session

    events = tmp_path_factory.mktemp("events")
    settings = {
        # Tasks report their work there.
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": str(events),
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark") / "warehouse"),
        "spark.driver.memory": "1g",
        "spark.log.level": "ERROR",
        # Most of the waiting would be for Java's compiler: rows are few, plans are many. Enough of
        # it is left on that compilation does not stop once its cache, 48 MB, is full.
        "spark.driver.extraJavaOptions": (
            "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
        ),
        **sessions_of_tests.SETTINGS[sessions_of_tests.NAME],
    }
    where = {"master": "local[2]"}
    if sessions_of_tests.NAME == "connect":
        where = {"remote": "local[2]"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = start_session("culm tests", **where, settings=settings)
        yield session
        session.stop()


@pytest.fixture
def same_settings(spark: SparkSession) -> Iterator[None]:
    """For tests of the program, which gets the session of all tests and changes its settings."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before)
