"""Audits in tables of Delta Lake, to which each batch is appended or merged once.

The session needs Delta's extension and catalog; its Python package is not used.  A batch that comes
again, after a crash for instance, leaves the tables as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from culm.spark.audit import FORKS
from culm.spark.columns import schema_text
from culm.spark.errors import SparkSetupError
from culm.spark.findings import LOGS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from culm.spark.audits import Audits

_NO_DELTA = "DATA_SOURCE_NOT_FOUND"
#: The tables that are merged, their columns, and their keys.
_MERGED = {"forks": (FORKS, ("log", "seqnum")), "logs": (LOGS, ("log",))}


class DeltaAudits:
    """Audits of a stream in the Delta tables ``verified``, ``forks`` and ``logs`` below `place`.

    Pass an instance to `culm.spark.stream.write_batches` as its `then`; it makes the `audits`, too.
    ``verified`` gets the rows of each batch; in ``forks`` and ``logs`` only rows change that the
    batch changes.  Several streams may share tables: each appends under the name of its audits.
    """

    def __init__(self, audits: Audits, place: str) -> None:
        self._audits = audits
        self._place = place.rstrip("/")

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Audit everything up to this batch, and note new findings in the tables."""
        spark = batch.sparkSession
        self._audits(batch, number)
        for table, (columns, key) in _MERGED.items():
            path = f"{self._place}/{table}"
            _create(spark, path, schema_text(columns))
            merge_rows(self._audits.touched(spark, table), path, key)
        append_once(batch, f"{self._place}/verified", self._audits.name(), number)


def append_once(rows: DataFrame, path: str, writer: str, number: int) -> None:
    """Append a batch to the Delta table at `path`, unless `writer` has appended it before.

    The numbers of a writer's batches ascend: a batch whose number does not exceed that of the last
    one is left out.
    """
    appending = rows.write.format("delta").mode("append")
    appending = appending.option("txnAppId", writer).option("txnVersion", str(number))
    appending.save(path)


def merge_rows(rows: DataFrame, path: str, key: Sequence[str]) -> None:
    """Put rows into the Delta table at `path`, each in place of the row with the same `key`.

    Rows that the table already has stay as they are, and so do files that no other row changes.
    """
    differs = " OR ".join(
        f"NOT (old.{_quoted(name)} <=> new.{_quoted(name)})"
        for name in rows.columns
        if name not in key
    )
    same = " AND ".join(f"old.{_quoted(name)} = new.{_quoted(name)}" for name in key)
    rows.sparkSession.sql(
        f"MERGE INTO delta.{_quoted(path)} AS old USING {{rows}} AS new ON {same}"
        f" WHEN MATCHED AND ({differs}) THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        rows=rows,
    )


def _create(spark: SparkSession, path: str, schema: str) -> None:
    try:
        spark.sql(f"CREATE TABLE IF NOT EXISTS delta.{_quoted(path)} ({schema}) USING delta")
    except Exception as error:  # Spark and Spark Connect raise different classes
        if _NO_DELTA not in str(error):
            raise
        raise SparkSetupError("this session has no Delta Lake: see the page about tables") from None


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
