"""Comparing replicas: where they differ, who lacks what, what has to be moved, what is at risk.

Each replica has an inventory: a column ``item`` and, optionally, ``size`` (bigint: the bytes to
move).  Fingerprints of ranges (`culm.spark.fingerprint`) are compared first, and only items in
ranges that differ are looked at: all replicas have the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from culm.reconcile import DEFAULT
from culm.spark.columns import check_columns, sent_if_few
from culm.spark.fingerprint import ITEM, RANGES, fingerprint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["DIVERGENT", "HOLDERS", "PLAN", "Reconciliation", "divergent_ranges", "reconcile"]

#: The rows of `divergent_ranges`; ``counts`` has the number of items of each replica.
DIVERGENT = (("level", "int"), ("range", "binary"), ("counts", "map<string,bigint>"))
#: The rows of `Reconciliation.holders`.
HOLDERS = (
    ("item", "binary"),
    ("size", "bigint"),
    ("copies", "int"),
    ("holders", "array<string>"),
    ("lacking", "array<string>"),
)
#: The rows of `Reconciliation.plan`.
PLAN = (("item", "binary"), ("size", "bigint"), ("source", "string"), ("target", "string"))


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What a comparison found, as DataFrames that are computed when they are used.

    `ranges` are those that differ, of all levels (`DIVERGENT`).  `holders` has a row for each item
    in the narrowest of them (`HOLDERS`): who holds it and who lacks it, names ascending; all other
    items are held by all replicas.  `plan` has a row for each item and each replica that lacks it:
    from whom to get it, spread evenly over the holders.  `at_risk` has the rows of `holders` with
    few copies.
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
    then); by default they are computed, for which the inventories are read once more.  Items are
    at risk if fewer than `copies_min` replicas hold them.  Raises `ColumnError` if an inventory
    has other columns, ``ValueError`` as `fingerprint` and `divergent_ranges` do, if tables and
    inventories are not of the same replicas, or if `copies_min` exceeds their number.
    """
    from pyspark import StorageLevel

    for frame in inventories.values():
        check_columns(frame, ITEM)
    if not 1 <= copies_min <= len(inventories):
        raise ValueError(f"{len(inventories)} replicas hold 1 to as many copies, not {copies_min}")
    cached: list[DataFrame] = []
    if tables is None:
        made = {
            name: fingerprint(
                frame, item_size=item_size, varying=varying, monoid=monoid, levels=levels
            )
            for name, frame in inventories.items()
        }
        tables = {name: each.ranges.persist() for name, each in made.items()}
        cached = [*tables.values(), *(each.items for each in made.values())]
    elif tables.keys() != inventories.keys():
        raise ValueError("tables and inventories are of the same replicas")
    ranges = divergent_ranges(tables).persist(StorageLevel.DISK_ONLY)
    holders = _holders(inventories, ranges).persist(StorageLevel.DISK_ONLY)
    at_risk = holders.filter(holders["copies"] < copies_min)
    return Reconciliation(ranges, holders, _plan(holders), at_risk, (*cached, ranges, holders))


def _holders(inventories: Mapping[str, DataFrame], ranges: DataFrame) -> DataFrame:
    """The rows `HOLDERS`, of the narrowest ranges."""
    from pyspark.sql import functions as f

    narrowest = ranges.agg(f.max("level")).collect()[0][0] or 0
    wanted = sent_if_few(ranges.filter(f.col("level") == narrowest).select("range"))
    sized = {
        name: frame
        if "size" in frame.columns
        else frame.withColumn("size", f.lit(None).cast("bigint"))
        for name, frame in inventories.items()
    }
    rows = _named(sized, ["item", "size"]).filter("item is not null")
    expanded = rows.join(wanted, f.substring("item", 1, narrowest) == f.col("range"), "left_semi")
    names = f.array(*map(f.lit, sorted(inventories)))
    return (
        expanded.groupBy("item")
        .agg(
            f.max("size").cast("bigint").alias("size"),
            f.array_sort(f.collect_set("replica")).alias("holders"),
        )
        .select(
            "item",
            "size",
            f.size("holders").alias("copies"),
            "holders",
            f.array_except(names, "holders").alias("lacking"),
        )
    )


def _plan(holders: DataFrame) -> DataFrame:
    """The rows `PLAN`."""
    from pyspark.sql import functions as f

    chosen = f.pmod(f.hash("item", "target"), f.size("holders")) + 1
    lacking = holders.select("item", "size", "holders", f.explode("lacking").alias("target"))
    return lacking.select("item", "size", f.element_at("holders", chosen).alias("source"), "target")
