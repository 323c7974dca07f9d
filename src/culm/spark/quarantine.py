"""Rows that a job could not use: set aside with their faults, and counted.

Every job gives each row of its input a ``fault``, which is null if the row can be used: the source
sets it for unreadable parts of files, a decoder for records that do not decode, `check_items` for
values that are no items.  So nothing is lost: `sound` rows are processed, `quarantined` ones are
written to a table of their own, and `count_faults` counts both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from culm.spark.columns import check_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The columns of `quarantined`: the fault, the origin, and the record if there is one.
QUARANTINE = (
    ("reason", "string"),
    ("kind", "string"),
    ("file", "string"),
    ("block", "bigint"),
    ("row", "int"),
    ("block_end", "bigint"),
    ("record", "binary"),
)
#: An item that is null.
NO_ITEM = "NO_ITEM"
#: An item of the wrong size, or larger than allowed.
WRONG_SIZE = "WRONG_SIZE"
#: A record of an archive that declares another kind.
WRONG_KIND = "WRONG_KIND"

_FAULT = (("fault", "string"),)


def sound(rows: DataFrame) -> DataFrame:
    """The rows without a fault."""
    check_columns(rows, _FAULT)
    return rows.filter("fault is null")


def quarantined(rows: DataFrame) -> DataFrame:
    """The rows with a fault, as `QUARANTINE`; columns that are missing become null.

    The record is the column ``entry``, or else ``item``.
    """
    from pyspark.sql import functions as f

    check_columns(rows, _FAULT)
    record = next((name for name in ("entry", "item") if name in rows.columns), None)
    sources = {"reason": "fault", "record": record}
    columns = []
    for name, kind in QUARANTINE:
        source = sources.get(name, name if name in rows.columns else None)
        value = f.lit(None) if source is None else f.col(source)
        columns.append(value.cast(kind).alias(name))
    return rows.filter("fault is not null").select(*columns)


def count_faults(rows: DataFrame) -> dict[str | None, int]:
    """The number of rows for each fault, and for ``None`` of those without; runs a Spark job."""
    check_columns(rows, _FAULT)
    return {row["fault"]: row["count"] for row in rows.groupBy("fault").count().collect()}


def check_items(items: DataFrame, item_size: int, *, varying: bool = False) -> DataFrame:
    """Give each row with an ``item`` its ``fault``: ``NO_ITEM``, ``WRONG_SIZE`` or null.

    A fault that is already there stays.
    """
    from pyspark.sql import functions as f

    check_columns(items, [("item", "binary")])
    size = f.octet_length("item")
    wrong = size > item_size if varying else size != item_size
    found = f.when(f.col("item").isNull(), NO_ITEM).when(wrong, WRONG_SIZE)
    return _add_fault(items, found)


def check_kind(rows: DataFrame, kind: str) -> DataFrame:
    """Give rows of another ``kind`` the fault ``WRONG_KIND``; a null kind is taken for any."""
    from pyspark.sql import functions as f

    check_columns(rows, [("kind", "string")])
    return _add_fault(rows, f.when(f.col("kind") != kind, WRONG_KIND))


def _add_fault(rows: DataFrame, found: Column) -> DataFrame:
    from pyspark.sql import functions as f

    earlier = f.col("fault") if "fault" in rows.columns else f.lit(None).cast("string")
    return rows.withColumn("fault", f.coalesce(earlier, found))
