"""Audits of a growing archive, after each batch and at the cost of the logs that it touches.

An audit's memory of earlier rows is kept in shelves (`culm.spark.shelves`): the signed rows without
repetition, and the forks among them, by block; summaries of blocks, and the rows about logs, by
log.  A batch reads and writes the shelves of its blocks and logs; the rest is not looked at,
whatever its size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from culm.spark.audit import FORKS, forks_of, log_rows, signed_rows, summarise_blocks
from culm.spark.blocks import BLOCK_BITS, SIGNED, SUMMARY
from culm.spark.columns import free_names, sent_if_few
from culm.spark.findings import LOGS
from culm.spark.shelves import SHELF, ShelfSnapshot, Shelves, shelf_of
from culm.spark.stream import read_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Limit for the average number of rows on a shelf.
SHELF_ROWS = 4096

_ROWS = (*SIGNED, ("entry", "binary"))
_TABLES = {"rows": _ROWS, "forks": FORKS, "blocks": SUMMARY, "logs": LOGS}
_BY_BLOCK, _BY_LOG = ("rows", "forks"), ("blocks", "logs")
_BLOCK, _LOG = ("log", "block"), ("log",)


@dataclass(frozen=True, slots=True)
class _Batch:
    """New rows, the number of shelves, and which of them hold the rows' blocks and logs."""

    number: int
    shelves: int
    rows: DataFrame
    blocks_at: Sequence[int]
    logs_at: Sequence[int]


class Audits:
    """Audits of everything that `culm.spark.stream.write_batches` has written to `verified`.

    Pass an instance as its `then`.  The tables ``logs`` and ``forks`` of `culm.spark.audit.Audit`
    are kept below `output`, with the memory that the next audit needs.  `read` gives them as of the
    last batch.  A batch that was audited before may come again.  Verdicts on single rows are not
    written; they take an audit of everything.
    """

    def __init__(self, verified: str, output: str) -> None:
        self._verified = verified
        self._shelves = Shelves(output, _TABLES)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Audit everything up to this batch, which may have been audited before."""
        from pyspark import StorageLevel

        spark = batch.sparkSession
        self._shelves.begin(number)
        before = self._shelves.snapshot(number - 1)
        if before is None:
            # For the first batch, or without the snapshot before this one, all rows are new.
            before = ShelfSnapshot.empty(number - 1)
            batch = read_batches(spark, self._verified).filter(f"batch <= {number}").drop("batch")
        rows = _merged(signed_rows(batch)).persist(StorageLevel.DISK_ONLY)
        shelves = _shelves_for(max(before.rows, rows.count()), before.shelves)
        if shelves == before.shelves:
            at = [sorted(_shelves_of(rows, shelves, key)) for key in (_BLOCK, _LOG)]
        else:
            at = [list(range(shelves))] * 2
        this = _Batch(number, shelves, rows, *at)
        self._audit(spark, before, this)
        rows.unpersist()

    def _audit(self, spark: SparkSession, before: ShelfSnapshot, new: _Batch) -> None:
        from pyspark import StorageLevel

        def earlier(table: str, at: Sequence[int]) -> DataFrame:
            some = at if new.shelves == before.shelves else None
            return self._shelves.read(spark, before, table, some)

        def write(table: str, rows: DataFrame, *key: str) -> set[int]:
            placed = rows.withColumn(SHELF, shelf_of(new.shelves, *key))
            return self._shelves.write(table, placed, new.number)

        old = earlier("rows", new.blocks_at)
        rows = _merged(old.unionByName(new.rows)).persist(StorageLevel.DISK_ONLY)
        now = {"rows": write("rows", _blocked(rows), *_BLOCK)}
        now["forks"] = write("forks", _blocked(forks_of(rows)), *_BLOCK)
        touched = _blocked(new.rows).select(*_BLOCK).distinct()
        anew = summarise_blocks(
            _blocked(rows).join(sent_if_few(touched), list(_BLOCK), "left_semi").drop("block")
        )
        left = earlier("blocks", new.logs_at).join(sent_if_few(touched), list(_BLOCK), "left_anti")
        blocks = left.unionByName(anew).persist(StorageLevel.DISK_ONLY)
        now["blocks"] = write("blocks", blocks, *_LOG)
        now["logs"] = write("logs", log_rows(blocks), *_LOG)
        total = before.rows - old.count() + rows.count()
        for each in (rows, blocks):
            each.unpersist()
        after = ShelfSnapshot(new.number, new.shelves, total, {})
        at = dict.fromkeys(_BY_BLOCK, new.blocks_at) | dict.fromkeys(_BY_LOG, new.logs_at)
        self._shelves.commit(before, after, at, now)

    def read(self, spark: SparkSession, table: str) -> DataFrame:
        """``logs`` or ``forks`` of the last complete audit.

        Raises `FileNotFoundError` if there is none.
        """
        return self._shelves.read(spark, self._newest(), table)

    def touched(self, spark: SparkSession, table: str) -> DataFrame:
        """Those of its rows that the last batch may have changed, among others in their shelves.

        Raises `FileNotFoundError` as `read` does.
        """
        newest = self._newest()
        return self._shelves.read(spark, newest, table, newest.shelves_of(table, newest.batch))

    def name(self) -> str:
        """A name that no other audits have; it lasts as long as these are kept."""
        return self._shelves.name()

    def _newest(self) -> ShelfSnapshot:
        newest = self._shelves.newest()
        if newest is None:
            raise FileNotFoundError("there is no audit yet")
        return newest


def _shelves_for(rows: int, shelves: int) -> int:
    """The number of shelves for this number of rows, at least as many as now."""
    while rows > shelves * SHELF_ROWS:
        shelves *= 2
    return shelves


def _shelves_of(rows: DataFrame, shelves: int, key: Sequence[str]) -> set[int]:
    found = _blocked(rows).select(shelf_of(shelves, *key)).distinct().collect()
    return {row[SHELF] for row in found}


def _blocked(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    return rows.withColumn("block", f.shiftright("n", BLOCK_BITS))


def _merged(rows: DataFrame) -> DataFrame:
    """The rows without repetition, with the number of their copies."""
    from pyspark.sql import functions as f

    told = free_names(rows, ("lied", "copies", "entry"))
    return (
        rows.groupBy(*told)
        .agg(
            f.bool_or("lied").alias("lied"),
            f.sum("copies").alias("copies"),
            f.min("entry").alias("entry"),
        )
        .select(*dict(_ROWS))
    )
