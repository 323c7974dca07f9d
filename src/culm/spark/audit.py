"""The audit of all logs at once: links across entries, gaps, forks, ends.

This gives for every log of an archive, row by row, the verdicts that `culm.bamboo.audit_log` gives
for one.  It works because a log's verdicts follow from a few numbers: unless a log is sparse, an
entry is verified exactly if all entries before it are.  So it is enough to know, for each log,

- the first entry that is missing,
- the first with a wrong link, the first fork or lie about a payload's size,
- the entry that ends the log.

All of them are minima, which can be found wherever the rows lie.  Rows are brought together in
blocks of 1024 sequence numbers of a log (`culm.spark.blocks`), packed (`culm.spark.packed`); then
the blocks' summaries are brought together by log, and the few links that leave their block are
looked up among the few entries that such links can lead to (`culm.spark.findings`).  Findings about
faulty logs are joined back to their rows, again by block.  No step gathers more rows of a log under
one key than a block's, so one giant log costs no more than many small ones.  A malicious author can
make only a block itself grow, by signing many variants of its entries.

Sequence numbers are unsigned 64-bit numbers, which Spark does not have; inside this module they
are ordinals, signed numbers with the highest bit flipped, which sort the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from culm.bamboo.errors import Reason
from culm.spark.blocks import BLOCK_BITS, LOWEST, SIGNED, SUMMARY
from culm.spark.columns import SENT_MAX, check_columns, free_names, schema_text
from culm.spark.findings import FINDINGS, LOGS, findings
from culm.spark.packed import PACKED, pack, summaries
from culm.spark.reasons import UNSIGNED, bits

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The columns that `audit` needs, as `culm.spark.decode.verify_entries` makes them.  In a row that
#: its author has signed only links may be null, and numbers start at 1: else it is ``MALFORMED``.
NEEDED = (
    ("log", "binary"),
    ("seqnum", "bigint"),
    ("end_of_log", "boolean"),
    ("lipmaa", "bigint"),
    ("lipmaalink", "binary"),
    ("backlink", "binary"),
    ("hash", "binary"),
    ("reasons", "int"),
)

#: The columns that `Audit.verdicts` adds, or gives another meaning.
VERDICT = (("reasons", "int"), ("verified", "boolean"))

#: The columns of `Audit.forks`.
FORKS = (("log", "binary"), ("seqnum", "bigint"), ("variants", "bigint"), ("proof", "binary"))

#: Null in a row that its author has signed, if the entry has no such link.
_NULLABLE = ("lipmaalink", "backlink")


@dataclass(frozen=True, slots=True)
class Audit:
    """The findings of an audit, as DataFrames that are computed when they are used.

    `verdicts` has the given rows with `VERDICT` added: all reasons, as from `audit_log`, and
    whether the entry is verified.  `logs` has one row for each log with at least one entry that
    its author has signed (`LOGS`).  `forks` has one row for each forked place (`FORKS`): ``log``,
    ``seqnum``, the number of ``variants`` and, if entries were kept, a ``proof`` made of the first
    and the last in byte order, which `culm.bamboo.ForkProof.decode_prefix` reads.
    """

    verdicts: DataFrame
    logs: DataFrame
    forks: DataFrame
    _cached: tuple[DataFrame, ...] = ()

    def close(self) -> None:
        """Free the disk space of intermediate results; tables used later are computed anew."""
        for frame in self._cached:
            frame.unpersist()


def audit(rows: DataFrame, *, faulty_max: int = SENT_MAX) -> Audit:
    """Audit all logs that have entries in `rows`, which come from `verify_entries`.

    The rows are read several times: write them to a file or persist them first, or each reading
    verifies them again.  Blocks are summarised before this returns, and the summaries stay on disk
    until `Audit.close` or the end of the session.  Blocks of faulty logs, and entries that are
    part of a fork or have a wrong link, are broadcast to all tasks if there are at most
    `faulty_max` of them, at some 100 bytes each; if there are more, the rows are shuffled once
    more to join them.  Raises `ColumnError` if one of `NEEDED` is missing.  Column names that
    begin with an underscore are reserved for the audit.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    check_columns(rows, NEEDED)
    rows = _placed(rows)
    blocks = summarise_blocks(_signed(rows))
    found = _findings(blocks).persist(StorageLevel.DISK_ONLY)
    places = f.coalesce(f.sum(f.size("blocks")), f.lit(0)).alias("places")
    [counted] = found.agg(places, f.count("marks").alias("marks")).collect()
    logs = found.filter("marks is null").select(*dict(LOGS))
    if not counted.places and not counted.marks:
        sources = ("log", "n", "rows", "hash")
        none = found.limit(0).select(
            *(f.col(source).alias(name) for source, (name, _) in zip(sources, FORKS, strict=True))
        )
        return Audit(_verdicts(rows), logs, none, (found,))
    faulty, marks = _faulty(found), _marks(found)
    forked = _forked(marks)
    if counted.places + counted.marks <= faulty_max:
        faulty, marks, forked = map(f.broadcast, (faulty, marks, forked))
    judged = rows.join(faulty, ["log", "_block"], "left").join(marks, ["log", "_n", "hash"], "left")
    return Audit(_verdicts(judged), logs, _forks(rows, forked), (found,))


def _placed(rows: DataFrame) -> DataFrame:
    """Add each row's ordinal and block, and whether its author has signed it.

    A row that lacks a value which every signed one has was made elsewhere, and is ``MALFORMED``.
    """
    from pyspark.sql import functions as f

    needed = (f.col(name).isNotNull() for name, _ in NEEDED if name not in _NULLABLE)
    is_whole = reduce(lambda one, other: one & other, needed) & (f.col("seqnum") != 0)
    reasons = f.coalesce("reasons", f.lit(0))
    is_sound = reasons.bitwiseAND(UNSIGNED) == 0
    malformed = f.when(is_sound & ~is_whole, bits(Reason.MALFORMED)).otherwise(0)
    signed = is_sound & is_whole
    rows = rows.withColumn("_signed", signed).withColumn("reasons", reasons.bitwiseOR(malformed))
    return rows.withColumn("_n", _ordinal(f.col("seqnum"))).withColumn(
        "_block", f.shiftright("_n", BLOCK_BITS)
    )


def _ordinal(seqnum: Column) -> Column:
    """The ordinal of a sequence number, or the sequence number of an ordinal."""
    from pyspark.sql import functions as f

    return seqnum.bitwiseXOR(f.lit(LOWEST))


def signed_rows(rows: DataFrame) -> DataFrame:
    """The rows that their authors have signed: `culm.spark.blocks.SIGNED`, and the ``entry``.

    Raises `ColumnError` as `audit` does; the entry is null if there is no such column.
    """
    check_columns(rows, NEEDED)
    return _signed(_placed(rows))


def _signed(rows: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    lied = f.col("reasons").bitwiseAND(bits(Reason.PAYLOAD_SIZE_LIE)) != 0
    entry = f.col("entry") if "entry" in rows.columns else f.lit(None).cast("binary")
    return rows.filter("_signed").select(
        "log",
        f.col("_n").alias("n"),
        "hash",
        _ordinal(f.col("lipmaa")).alias("target"),
        "backlink",
        "lipmaalink",
        f.col("end_of_log").alias("ended"),
        lied.alias("lied"),
        f.lit(1).cast("bigint").alias("copies"),
        entry.alias("entry"),
    )


def summarise_blocks(signed: DataFrame) -> DataFrame:
    """A summary (`culm.spark.blocks.SUMMARY`) of each block that has rows here (`SIGNED`)."""
    packed = signed.select(*dict(SIGNED)).mapInArrow(pack, schema_text(PACKED))
    gathered = packed.repartition("log", "block").sortWithinPartitions("log", "block")
    return gathered.mapInArrow(summaries, schema_text(SUMMARY))


def log_rows(blocks: DataFrame) -> DataFrame:
    """The rows `LOGS`, from the summaries of all blocks of these logs."""
    return _findings(blocks).filter("marks is null").select(*dict(LOGS))


def _findings(blocks: DataFrame) -> DataFrame:
    gathered = blocks.repartition("log").sortWithinPartitions("log", "block")
    return gathered.mapInArrow(findings, schema_text(FINDINGS))


def _faulty(found: DataFrame) -> DataFrame:
    """The blocks of faulty logs, with the numbers by which their rows are judged.

    By block, so that the rows of a log need not all be gathered in one place.
    """
    from pyspark.sql import functions as f

    numbers = {"_prefix": "verified", "_invalid": "invalid_from", "_ended": "ends_at"}
    return found.filter("blocks is not null").select(
        "log",
        f.explode("blocks").alias("_block"),
        *(_ordinal(f.col(name)).alias(alias) for alias, name in numbers.items()),
    )


def _marks(found: DataFrame) -> DataFrame:
    """Faults of an entry itself: forks, and links that lead to another entry."""
    from pyspark.sql import functions as f

    marks = found.filter("marks is not null")
    return marks.select("log", f.col("n").alias("_n"), "hash", f.col("marks").alias("_marks"))


def _verdicts(rows: DataFrame) -> DataFrame:
    """The rows, with all reasons against them, joined with what was found or without any."""
    from pyspark.sql import functions as f

    made = ("_prefix", "_invalid", "_ended", "_marks")
    names = free_names(rows, ("_n", "_block", "_signed", *made, *dict(VERDICT)))
    reasons, verified = f.col("reasons"), f.col("_signed")
    if "_marks" in rows.columns:

        def bit(reason: Reason, condition: Column) -> Column:
            return f.when(condition, bits(reason)).otherwise(0)

        everything = reduce(
            lambda first, second: first.bitwiseOR(second),
            [
                reasons,
                f.coalesce("_marks", f.lit(0)),
                bit(Reason.GAP, f.col("_n") - 1 > f.col("_prefix")),
                bit(Reason.INVALID_LOG, f.col("_n") > f.col("_invalid")),
                bit(Reason.AFTER_END_OF_LOG, f.col("_n") > f.col("_ended")),
            ],
        )
        reasons = f.when(verified, everything).otherwise(reasons)
        verified &= f.col("_prefix").isNull() | (f.col("_n") <= f.col("_prefix"))
    return rows.select(*names, reasons.alias("reasons"), verified.alias("verified"))


def _forked(marks: DataFrame) -> DataFrame:
    """The forked places, with the number of variants at each."""
    from pyspark.sql import functions as f

    forks = marks.filter(f.col("_marks").bitwiseAND(bits(Reason.FORK)) != 0)
    return forks.groupBy("log", "_n").agg(f.count("*").alias("_variants"))


def _forks(rows: DataFrame, forked: DataFrame) -> DataFrame:
    """The rows `FORKS`, of places that are known to be forked."""
    from pyspark.sql import functions as f

    found = rows.filter("_signed").join(forked, ["log", "_n"])
    entry = f.col("entry") if "entry" in rows.columns else f.lit(None).cast("binary")
    return (
        found.groupBy("log", "_n")
        .agg(
            f.first("seqnum").alias("seqnum"),
            f.first("_variants").alias("variants"),
            f.concat(f.min(entry), f.max(entry)).alias("proof"),
        )
        .drop("_n")
    )


def forks_of(signed: DataFrame) -> DataFrame:
    """The rows `FORKS`, with the ordinal ``n``, from all rows of some blocks (`SIGNED`)."""
    from pyspark.sql import functions as f

    return (
        signed.groupBy("log", "n")
        .agg(
            f.count_distinct("hash").alias("variants"),
            f.concat(f.min("entry"), f.max("entry")).alias("proof"),
        )
        .filter("variants > 1")
        .withColumn("seqnum", _ordinal(f.col("n")))
    )
