"""What a job could not use: rows set aside with the reason, and counted.

Every job here gives each row of its input a ``fault``, which is null if the row could be used: the
source for what it could not read, a decoder for what does not decode, `check_items` for what is no
item.  So nothing is lost: `sound` rows go on, `quarantined` ones are written elsewhere, and
`count_faults` tells how many there are of both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from culm.spark.columns import check_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = [
    "NO_ITEM",
    "QUARANTINE",
    "WRONG_KIND",
    "WRONG_SIZE",
    "check_items",
    "check_kind",
    "count_faults",
    "quarantined",
    "sound",
]

#: The columns of `quarantined`: why, where from, and the record if there is one.
QUARANTINE = (
    ("reason", "string"),
    ("kind", "string"),
    ("file", "string"),
    ("block", "bigint"),
    ("row", "int"),
    ("record", "binary"),
)
#: An item that is null.
NO_ITEM = "NO_ITEM"
#: An item of another size than all have, or larger than the largest may be.
WRONG_SIZE = "WRONG_SIZE"
#: A record of an archive that says to hold something else.
WRONG_KIND = "WRONG_KIND"

_FAULT = (("fault", "string"),)


def sound(rows: DataFrame) -> DataFrame:
    """The rows that can be used."""
    check_columns(rows, _FAULT)
    return rows.filter("fault is null")


def quarantined(rows: DataFrame) -> DataFrame:
    """The rows that cannot, as `QUARANTINE`; columns that are not there become null.

    The record is the column ``entry``, else ``item``.
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
    """How many rows there are of each fault, and under ``None`` of those without; a Spark job."""
    check_columns(rows, _FAULT)
    return {row["fault"]: row["count"] for row in rows.groupBy("fault").count().collect()}


def check_items(items: DataFrame, item_size: int, *, varying: bool = False) -> DataFrame:
    """Give each row with an ``item`` its ``fault``: ``NO_ITEM``, ``WRONG_SIZE`` or null.

    A fault that is there stays.
    """
    from pyspark.sql import functions as f

    check_columns(items, [("item", "binary")])
    size = f.octet_length("item")
    wrong = size > item_size if varying else size != item_size
    found = f.when(f.col("item").isNull(), NO_ITEM).when(wrong, WRONG_SIZE)
    return _add_fault(items, found)


def check_kind(rows: DataFrame, kind: str) -> DataFrame:
    """Give rows whose ``kind`` is another one the fault ``WRONG_KIND``; null is any."""
    from pyspark.sql import functions as f

    check_columns(rows, [("kind", "string")])
    return _add_fault(rows, f.when(f.col("kind") != kind, WRONG_KIND))


def _add_fault(rows: DataFrame, found: Column) -> DataFrame:
    from pyspark.sql import functions as f

    earlier = f.col("fault") if "fault" in rows.columns else f.lit(None).cast("string")
    return rows.withColumn("fault", f.coalesce(earlier, found))
