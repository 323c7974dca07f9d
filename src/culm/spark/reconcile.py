"""Comparing replicas: differing ranges, missing items, copies to make, and items at risk.

Each replica has an inventory: a column ``item`` and, optionally, ``size`` (bigint: the bytes to
move) and ``payload_bytes`` (bigint: of the item's payload, null if that is not on hand).
Fingerprints of ranges (`culm.spark.fingerprint`) are compared first, and only items in ranges that
differ are looked at: all replicas have the others.  With ``payload_bytes``, an item with its
payload differs from the same without: a replica may have all items, and lack their contents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from culm.reconcile import DEFAULT
from culm.spark.columns import check_columns, has_column, sent_if_few
from culm.spark.fingerprint import ITEM, RANGES, fingerprint

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The rows of `divergent_ranges`; ``counts`` has the number of items of each replica.
DIVERGENT = (("level", "int"), ("range", "binary"), ("counts", "map<string,bigint>"))
#: The rows of `Reconciliation.holders`.
HOLDERS = (
    ("item", "binary"),
    ("size", "bigint"),
    ("copies", "int"),
    ("holders", "array<string>"),
    ("lacking", "array<string>"),
    ("payload_bytes", "bigint"),
    ("payload_copies", "int"),
    ("payload_holders", "array<string>"),
)
#: The rows of `Reconciliation.plan`.
PLAN = (
    ("item", "binary"),
    ("part", "string"),
    ("size", "bigint"),
    ("source", "string"),
    ("target", "string"),
)
#: A part to copy: the whole item, with the payload if its source has that.
ITEM_PART = "item"
#: A part to copy: the payload alone, since the target has the rest.
PAYLOAD_PART = "payload"

_PAYLOAD_BYTES = ("payload_bytes", "bigint")
_ABSENT, _PRESENT = b"\0", b"\1"


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The findings of a comparison, as DataFrames that are computed when they are used.

    `ranges` are those that differ, of all levels (`DIVERGENT`).  `holders` has a row for each item
    in the narrowest of them (`HOLDERS`): the replicas that hold it, lack it, and have its payload
    (null if payloads are not compared), names ascending; all other items are held by all replicas
    alike.  `plan` has a row for each item and each replica that lacks it, or its payload: the
    source for a copy, spread evenly over the replicas that have all of it.  `at_risk` has the rows
    of `holders` with few copies, of the item or of its payload.
    """

    ranges: DataFrame
    holders: DataFrame
    plan: DataFrame
    at_risk: DataFrame
    _cached: tuple[DataFrame, ...] = ()

    def close(self) -> None:
        """Free the disk space of intermediate results; tables used later are computed anew."""
        for frame in self._cached:
            frame.unpersist()


def divergent_ranges(tables: Mapping[str, DataFrame]) -> DataFrame:
    """The ranges in which replicas differ, from the table `Fingerprinted.ranges` of each.

    Raises `ColumnError` if a table has other columns, ``ValueError`` if there are fewer than two,
    or if they were not made with the same monoid and levels.
    """
    from pyspark.sql import functions as f

    if len(tables) < 2:
        raise ValueError("to be compared, replicas are two or more")
    _check_same_way(tables)
    replicas = sorted(tables)
    said = f.struct("count", "digest")
    of_each = [
        f.sum(f.when(f.col("replica") == name, f.col("count"))).alias(f"_{at}")
        for at, name in enumerate(replicas)
    ]
    summed = (
        _named(tables, [name for name, _ in RANGES])
        .groupBy("level", "range")
        .agg(
            f.count("*").alias("_count"),
            f.min(said).alias("_least"),
            f.max(said).alias("_most"),
            *of_each,
        )
    )
    counts = [
        part
        for at, name in enumerate(replicas)
        for part in (f.lit(name), f.coalesce(f.col(f"_{at}"), f.lit(0)))
    ]
    differs = (f.col("_count") < len(replicas)) | (f.col("_least") != f.col("_most"))
    return summed.filter(differs).select("level", "range", f.create_map(*counts).alias("counts"))


def _check_same_way(tables: Mapping[str, DataFrame]) -> None:
    """Raise unless all tables have the same levels of the same monoid."""
    made: dict[str, frozenset[tuple[str, int]]] = {}
    for name, table in tables.items():
        check_columns(table, RANGES)
        rows = table.select("monoid", "level").distinct().collect()
        made[name] = frozenset((row["monoid"], row["level"]) for row in rows)
    # The table of a replica without items has no rows.
    if len({each for each in made.values() if each}) > 1:
        raise ValueError(f"tables of other monoids or levels cannot be compared: {made}")


def _named(frames: Mapping[str, DataFrame], columns: Sequence[str]) -> DataFrame:
    """The rows of all replicas, with the name of the ``replica``."""
    from pyspark.sql import functions as f

    each = [
        frame.select(*columns, f.lit(name).alias("replica"))
        for name, frame in sorted(frames.items())
    ]
    return reduce(lambda one, other: one.union(other), each)


def with_presence(inventory: DataFrame) -> DataFrame:
    """The items of an inventory, each once and followed by a byte for its payload, on hand or not.

    To be fingerprinted as items of one byte more, for tables in which payloads count.  Raises
    `ColumnError` if there is no column ``payload_bytes``.
    """
    from pyspark.sql import functions as f

    check_columns(inventory, [*ITEM, _PAYLOAD_BYTES])
    held = f.max(f.col("payload_bytes").isNotNull())
    items = inventory.filter("item is not null").groupBy("item").agg(held.alias("_held"))
    return items.select(_marked(f.col("_held")).alias("item"))


def _marked(is_held: Column) -> Column:
    from pyspark.sql import functions as f

    return f.concat("item", f.when(is_held, f.lit(_PRESENT)).otherwise(f.lit(_ABSENT)))


def _payloads_count(inventories: Mapping[str, DataFrame]) -> bool:
    """Whether inventories include payloads; raises `ColumnError` if only some do."""
    said = [has_column(frame, "payload_bytes") for frame in inventories.values()]
    if any(said):
        for frame in inventories.values():
            check_columns(frame, [_PAYLOAD_BYTES])
    return any(said)


def reconcile(
    inventories: Mapping[str, DataFrame],
    *,
    item_size: int,
    varying: bool = False,
    levels: Sequence[int] = (0, 1, 2),
    monoid: str = DEFAULT,
    tables: Mapping[str, DataFrame] | None = None,
    copies_min: int = 2,
) -> Reconciliation:
    """Compare the inventories of replicas, given by name.

    `tables` are their fingerprints, if these exist already (`levels` and `monoid` are ignored
    then); by default they are computed, for which the inventories are read once more.  Payloads are
    compared if inventories have ``payload_bytes``; given `tables` show where they differ only if
    they were made `with_presence`.  Items are at risk if fewer than `copies_min` replicas hold
    them, or their payload (unless no replica has it).  Raises `ColumnError` if an inventory has
    other columns, or some have ``payload_bytes`` and others do not, ``ValueError`` as
    `fingerprint` and `divergent_ranges` do, if tables and inventories are not of the same replicas,
    or if `copies_min` exceeds their number.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    for frame in inventories.values():
        check_columns(frame, ITEM)
    payloads = _payloads_count(inventories)
    if not 1 <= copies_min <= len(inventories):
        raise ValueError(f"{len(inventories)} replicas hold 1 to as many copies, not {copies_min}")
    cached: list[DataFrame] = []
    if tables is None:
        made = {
            name: fingerprint(
                with_presence(frame) if payloads else frame,
                item_size=item_size + payloads,
                varying=varying,
                monoid=monoid,
                levels=levels,
            )
            for name, frame in inventories.items()
        }
        tables = {name: each.ranges.persist() for name, each in made.items()}
        cached = [*tables.values(), *(each.items for each in made.values())]
    elif tables.keys() != inventories.keys():
        raise ValueError("tables and inventories are of the same replicas")
    ranges = divergent_ranges(tables).persist(StorageLevel.DISK_ONLY)
    expanded = _expanded(inventories, ranges, varying=varying)
    holders = _holders(expanded, sorted(inventories), payloads=payloads)
    holders = holders.persist(StorageLevel.DISK_ONLY)
    few = f.col("payload_copies").between(1, copies_min - 1)
    at_risk = holders.filter((f.col("copies") < copies_min) | f.coalesce(few, f.lit(False)))
    return Reconciliation(ranges, holders, _plan(holders), at_risk, (*cached, ranges, holders))


def _expanded(
    inventories: Mapping[str, DataFrame], ranges: DataFrame, *, varying: bool
) -> DataFrame:
    """The rows of all inventories in the narrowest ranges."""
    from pyspark.sql import functions as f

    narrowest = ranges.agg(f.max("level")).collect()[0][0] or 0
    wanted = sent_if_few(ranges.filter(f.col("level") == narrowest).select("range"))
    optional = ("size", "payload_bytes")
    sized = {
        name: frame.select(
            "item",
            *(
                f.col(each) if each in frame.columns else f.lit(None).cast("bigint").alias(each)
                for each in optional
            ),
        )
        for name, frame in inventories.items()
    }
    rows = _named(sized, ["item", *optional]).filter("item is not null")
    prefixes = [f.substring("item", 1, narrowest)]
    if varying:  # of an item shorter than the level, the mark may be part of the range
        prefixes.append(f.substring(_marked(f.col("payload_bytes").isNotNull()), 1, narrowest))
        rows = rows.withColumn("_in", f.explode(f.array_distinct(f.array(*prefixes))))
    else:
        rows = rows.withColumn("_in", prefixes[0])
    return rows.join(wanted, f.col("_in") == f.col("range"), "left_semi").drop("_in")


def _holders(expanded: DataFrame, replicas: Sequence[str], *, payloads: bool) -> DataFrame:
    """The rows `HOLDERS`, of these rows of inventories."""
    from pyspark.sql import functions as f

    names = f.array(*map(f.lit, replicas))
    with_payload = f.when(f.col("payload_bytes").isNotNull(), f.col("replica"))
    held = f.array_sort(f.collect_set(with_payload)) if payloads else f.lit(None)
    return (
        expanded.groupBy("item")
        .agg(
            f.max("size").cast("bigint").alias("size"),
            f.array_sort(f.collect_set("replica")).alias("holders"),
            f.max("payload_bytes").cast("bigint").alias("payload_bytes"),
            held.cast("array<string>").alias("payload_holders"),
        )
        .withColumn("copies", f.size("holders"))
        .withColumn("lacking", f.array_except(names, "holders"))
        .withColumn(
            "payload_copies",
            f.when(f.col("payload_holders").isNotNull(), f.size("payload_holders")),
        )
        .select(*dict(HOLDERS))
    )


def _plan(holders: DataFrame) -> DataFrame:
    """The rows `PLAN`."""
    from pyspark.sql import functions as f

    has_all = f.coalesce(f.col("payload_copies") > 0, f.lit(False))
    sources = f.when(has_all, f.col("payload_holders")).otherwise(f.col("holders"))
    bare = f.array_except("holders", "payload_holders")
    copies = [
        holders.select("item", f.lit(part).alias("part"), size, sources.alias("_from"), target)
        for part, size, target in (
            (ITEM_PART, f.col("size"), f.explode("lacking").alias("target")),
            (
                PAYLOAD_PART,
                f.col("payload_bytes").alias("size"),
                f.explode(f.when(has_all, bare)).alias("target"),
            ),
        )
    ]
    chosen = f.pmod(f.hash("item", "target"), f.size("_from")) + 1
    source = f.element_at("_from", chosen).alias("source")
    return copies[0].union(copies[1]).select("item", "part", "size", source, "target")
