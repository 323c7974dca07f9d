"""The audit of all logs at once: links across entries, gaps, forks, ends.

This gives for every log of an archive, row by row, the verdicts that `culm.bamboo.audit_log` gives
for one.  It works because a log's verdicts follow from a few numbers: unless a log is sparse, an
entry is verified exactly if all entries before it are.  So it is enough to know, for each log,

- the first entry that is missing,
- the first with a wrong link, the first fork or lie about a payload's size,
- the entry that ends the log.

All of them are minima, which can be found wherever the rows lie.  Rows are brought together in
blocks of 1024 sequence numbers of a log (`culm.spark.blocks`); the few links that leave their
block are joined with the few entries that such links can lead to; findings about faulty logs are
joined back to their rows, again by block.  No step gathers more of a log under one key than a
block, so one giant log costs no more than many small ones.  A malicious author can make only a
block itself grow, by signing many variants of its entries.

Sequence numbers are unsigned 64-bit numbers, which Spark does not have; inside this module they
are ordinals, signed numbers with the highest bit flipped, which sort the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from culm.bamboo.entry import AUTHOR_SIZE
from culm.bamboo.errors import Reason
from culm.spark.blocks import BLOCK_BITS, LOWEST, SIGNED, SUMMARY, each_once, summaries
from culm.spark.columns import SENT_MAX, check_columns, free_names, schema_text
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

#: The columns of `Audit.logs`.
LOGS = (
    ("log", "binary"),
    ("author", "binary"),
    ("log_id", "bigint"),
    ("rows", "bigint"),
    ("entries", "bigint"),
    ("height", "bigint"),
    ("verified", "bigint"),
    ("first_fault", "bigint"),
    ("first_fault_reasons", "int"),
    ("forks", "bigint"),
    ("gaps", "bigint"),
    ("invalid_from", "bigint"),
    ("ends_at", "bigint"),
)

#: The columns of `Audit.forks`.
FORKS = (("log", "binary"), ("seqnum", "bigint"), ("variants", "bigint"), ("proof", "binary"))

#: Null in a row that its author has signed, if the entry has no such link.
_NULLABLE = ("lipmaalink", "backlink")
_FIRSTS = ("unbroken", "forked_at", "lied_at", "ended_at", "back_at", "lipmaa_at")


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
    blocks = _blocks(rows).persist(StorageLevel.DISK_ONLY)
    links = _links(blocks).persist(StorageLevel.DISK_ONLY)
    logs = _logs(blocks, links)
    faulty = _faulty(blocks, logs).persist(StorageLevel.DISK_ONLY)
    marks = _marks(blocks, links).persist(StorageLevel.DISK_ONLY)
    cached = (marks, faulty, links, blocks)
    forked = _forked(marks)
    if faulty.select("log").union(marks.select("log")).count() <= faulty_max:
        faulty, marks, forked = map(f.broadcast, (faulty, marks, forked))
    return Audit(_verdicts(rows, faulty, marks), _report(logs), _forks(rows, forked), cached)


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


def _blocks(rows: DataFrame) -> DataFrame:
    """A summary of each block: `SUMMARY`."""
    # Copies are merged before they travel: an entry may have any number of them.
    signed = _signed(rows).select(*dict(SIGNED))
    return summarise_blocks(signed.mapInArrow(each_once, schema_text(SIGNED)))


def summarise_blocks(signed: DataFrame) -> DataFrame:
    """A summary (`culm.spark.blocks.SUMMARY`) of each block that has rows here (`SIGNED`)."""
    from pyspark.sql import functions as f

    gathered = signed.select(*dict(SIGNED)).repartition("log", f.shiftright("n", BLOCK_BITS))
    return gathered.sortWithinPartitions("log", "n", "hash").mapInArrow(
        summaries, schema_text(SUMMARY)
    )


def log_rows(blocks: DataFrame) -> DataFrame:
    """The rows `LOGS`, from the summaries of all blocks of these logs."""
    return _report(_logs(blocks, _links(blocks)))


def _links(blocks: DataFrame) -> DataFrame:
    """The links that leave their block, and whether they lead to the right entry.

    ``missing`` means that there is no entry at the target, ``wrong`` that there is another one.
    """
    from pyspark.sql import functions as f

    # One join by target and one by hash: an author who forks can make any number of either.
    leaving = blocks.select("log", f.inline("links"))
    opens = blocks.select(f.col("log").alias("_log"), f.inline("opens").alias("_there", "_hashes"))
    hashes = opens.select(
        f.col("_log").alias("_of"), f.col("_there").alias("_at"), f.explode("_hashes").alias("_is")
    )
    there = (f.col("log") == f.col("_log")) & (f.col("target") == f.col("_there"))
    right = (
        (f.col("log") == f.col("_of"))
        & (f.col("target") == f.col("_at"))
        & (f.col("link") == f.col("_is"))
    )
    found = leaving.join(opens.drop("_hashes"), there, "left").join(hashes, right, "left")
    missing = f.col("_there").isNull()
    return found.select(
        "log",
        "n",
        "hash",
        "bits",
        missing.alias("missing"),
        (~missing & f.col("_is").isNull()).alias("wrong"),
    )


def _logs(blocks: DataFrame, links: DataFrame) -> DataFrame:
    """One row for each log; ``prefix`` is the newest verified entry."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    one_by_one = Window.partitionBy("log").orderBy("block")
    last = f.shiftleft("block", BLOCK_BITS) + ((1 << BLOCK_BITS) - 1)
    goes_on = f.lead("block").over(one_by_one) == f.col("block") + 1
    found = (
        blocks.drop("marks", "links", "opens")
        .withColumn(
            "unbroken", f.when(goes_on, f.col("unbroken")).otherwise(f.coalesce("unbroken", last))
        )
        .groupBy("log")
        .agg(
            *(f.sum(name).alias(name) for name in ("rows", "entries", "forks", "gaps")),
            f.max("highest").alias("height"),
            f.min("block").alias("lowest"),
            *(f.min(name).alias(name) for name in _FIRSTS),
        )
    )
    back = f.col("bits") == bits(Reason.WRONG_BACKLINK)
    wrong = f.col("wrong")
    of_links = links.groupBy(f.col("log").alias("_log")).agg(
        f.count_if(back & f.col("missing")).alias("_gaps"),
        f.min(f.when(back & wrong, f.col("n"))).alias("_back_at"),
        f.min(f.when(~back & wrong, f.col("n"))).alias("_lipmaa_at"),
    )
    logs = found.join(of_links, f.col("log") == f.col("_log"), "left")
    first_block = LOWEST >> BLOCK_BITS
    logs = (
        logs.withColumn("gaps", f.col("gaps") + f.coalesce("_gaps", f.lit(0)))
        .withColumn("back_at", f.least("back_at", "_back_at"))
        .withColumn("lipmaa_at", f.least("lipmaa_at", "_lipmaa_at"))
        .withColumn(
            "unbroken", f.when(f.col("lowest") == first_block, f.col("unbroken")).otherwise(LOWEST)
        )
        .withColumn("invalid", f.least("forked_at", "lied_at"))
    )
    return logs.withColumn(
        "prefix",
        f.least(
            f.col("unbroken"),
            f.col("invalid") - 1,
            f.col("back_at") - 1,
            f.col("lipmaa_at") - 1,
            f.col("ended_at"),
        ),
    )


def _faulty(blocks: DataFrame, logs: DataFrame) -> DataFrame:
    """The blocks of faulty logs, with the numbers by which their rows are judged.

    By block, so that the rows of a log need not all be gathered in one place.
    """
    from pyspark.sql import functions as f

    faulty = logs.filter("prefix < height").select(
        f.col("log").alias("_of"),
        f.col("prefix").alias("_prefix"),
        f.col("invalid").alias("_invalid"),
        f.col("ended_at").alias("_ended"),
    )
    places = blocks.select("log", f.col("block").alias("_block"))
    return places.join(faulty, f.col("log") == f.col("_of")).drop("_of")


def _marks(blocks: DataFrame, links: DataFrame) -> DataFrame:
    """Faults of an entry itself: forks, and links that lead to another entry."""
    from pyspark.sql import functions as f

    inside = blocks.select("log", f.inline("marks"))
    outside = links.filter("wrong").select("log", "n", "hash", "bits")
    return (
        inside.unionByName(outside)
        .groupBy("log", f.col("n").alias("_n"), "hash")
        .agg(f.bit_or("bits").alias("_marks"))
    )


def _verdicts(rows: DataFrame, faulty: DataFrame, marks: DataFrame) -> DataFrame:
    """The rows, with all reasons against them."""
    from pyspark.sql import functions as f

    names = free_names(rows, ("_n", "_block", "_signed", *dict(VERDICT)))
    judged = rows.join(faulty, ["log", "_block"], "left").join(marks, ["log", "_n", "hash"], "left")

    def bit(reason: Reason, condition: Column) -> Column:
        return f.when(condition, bits(reason)).otherwise(0)

    everything = reduce(
        lambda first, second: first.bitwiseOR(second),
        [
            f.col("reasons"),
            f.coalesce("_marks", f.lit(0)),
            bit(Reason.GAP, f.col("_n") - 1 > f.col("_prefix")),
            bit(Reason.INVALID_LOG, f.col("_n") > f.col("_invalid")),
            bit(Reason.AFTER_END_OF_LOG, f.col("_n") > f.col("_ended")),
        ],
    )
    verified = f.col("_signed") & (f.col("_prefix").isNull() | (f.col("_n") <= f.col("_prefix")))
    return judged.select(
        *names,
        f.when(f.col("_signed"), everything).otherwise(f.col("reasons")).alias("reasons"),
        verified.alias("verified"),
    )


def _report(logs: DataFrame) -> DataFrame:
    """The columns `LOGS`."""
    from pyspark.sql import functions as f

    first = f.when(f.col("prefix") < f.col("height"), f.col("prefix") + 1)
    reasons = [
        f.when(f.col(name) == first, bits(reason))
        for reason, name in (
            (Reason.FORK, "forked_at"),
            (Reason.PAYLOAD_SIZE_LIE, "lied_at"),
            (Reason.WRONG_BACKLINK, "back_at"),
            (Reason.WRONG_LIPMAALINK, "lipmaa_at"),
        )
    ]
    reasons.append(f.when(f.col("unbroken") == f.col("prefix"), bits(Reason.GAP)))
    reasons.append(f.when(f.col("ended_at") == f.col("prefix"), bits(Reason.AFTER_END_OF_LOG)))
    combined = reduce(
        lambda one, other: one.bitwiseOR(other), [f.coalesce(each, f.lit(0)) for each in reasons]
    )
    return logs.select(
        "log",
        f.substring("log", 1, AUTHOR_SIZE).alias("author"),
        f.conv(f.hex(f.substring("log", AUTHOR_SIZE + 1, 8)), 16, -10)
        .cast("bigint")
        .alias("log_id"),
        "rows",
        "entries",
        _ordinal(f.col("height")).alias("height"),
        _ordinal(f.col("prefix")).alias("verified"),
        _ordinal(first).alias("first_fault"),
        f.when(first.isNotNull(), combined).alias("first_fault_reasons"),
        "forks",
        "gaps",
        _ordinal(f.col("invalid")).alias("invalid_from"),
        _ordinal(f.col("ended_at")).alias("ends_at"),
    )


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
