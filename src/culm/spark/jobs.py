"""The jobs of the command line: files in, Parquet and a summary out.

Each job reads with the format ``culm``, writes each of its tables once, and continues from the
written tables, so that nothing is computed twice, and an interrupted run leaves finished tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from culm.reconcile import DEFAULT, named
from culm.spark.archive import READ_SIZE_MAX
from culm.spark.audit import audit
from culm.spark.checks import AT_RISK, DIVERGENT, SET_ASIDE, Outcome
from culm.spark.columns import schema_text
from culm.spark.errors import OnError
from culm.spark.files import read_table
from culm.spark.fingerprint import fingerprint, write_tree
from culm.spark.kinds import KINDS, Kind, other_kinds, signed_items
from culm.spark.operations import decode_operations
from culm.spark.quarantine import count_faults, quarantined, sound
from culm.spark.reading import ROWS
from culm.spark.reasons import names, reasons_of
from culm.spark.reconcile import ITEM_PART, PAYLOAD_PART, reconcile
from culm.spark.source import register
from culm.spark.splits import SPLIT_SIZE
from culm.spark.verifying import SIZES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

#: The file of the tree, beside the tables.
TREE = "tree.culmtree"

#: The columns of a record's origin, which stay with it.
_PLACE = ("entry", "kind", "file", "block", "row", "block_end", "size", "payload_bytes")

#: The columns of a verdict that are written: the record's identity and origin, and the verdict.
#: The others are in the table of verified rows.
_VERDICTS = (
    "log",
    "seqnum",
    "hash",
    "replica",
    "file",
    "block",
    "row",
    "fault",
    "reasons",
    "reason_names",
    "verified",
)

# The number of rows set aside that are looked at for a hint.
_SAMPLE = 20

#: Called with the name of each step.
Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The `inputs` of a job by name, and how they are read."""

    inputs: Mapping[str, str]
    on_io_error: str = OnError.FAIL

    def said(self) -> dict[str, Any]:
        """The part of the summary about them."""
        return {"inputs": dict(self.inputs)}

    def load(
        self,
        spark: SparkSession,
        path: str,
        columns: Sequence[tuple[str, str]] | None = None,
        **options: str,
    ) -> DataFrame:
        """The rows of an input, read by the format ``culm`` with these options and further ones.

        `columns` may choose among those of the format.
        """
        register(spark)
        own = {name: str(getattr(self, name)) for name in _READING if hasattr(self, name)}
        reader = spark.read.format("culm").options(**own, **options)
        return (reader if columns is None else reader.schema(schema_text(columns))).load(path)


# The options of reading that jobs may have.
_READING = ("column", "split_size", "block_size_max", "on_io_error")


@dataclass(frozen=True, kw_only=True)
class Options(Inputs):
    """The options of a job with archives: also the kind of their records.

    ``levels`` of ``None`` stands for those of the kind.
    """

    kind: str
    column: str = "entry"
    split_size: int = SPLIT_SIZE
    block_size_max: int = READ_SIZE_MAX
    monoid: str = DEFAULT
    levels: Sequence[int] | None = None
    copies_min: int = 2

    def said(self) -> dict[str, Any]:
        return {"kind": self.kind, **super().said()}


class Store:
    """The directory of a job's output, with its Parquet tables."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path.rstrip("/")
        self.tables: set[str] = set()

    def write(self, name: str, frame: DataFrame) -> DataFrame:
        """Write a table; returns a DataFrame that reads it from there."""
        frame.write.mode("overwrite").parquet(f"{self.path}/{name}")
        self.tables.add(name)
        return read_table(self._spark, f"{self.path}/{name}", frame.schema)

    def read(self, name: str) -> DataFrame:
        """A table that has been written."""
        return read_table(self._spark, f"{self.path}/{name}")


def _read(spark: SparkSession, options: Options, path: str, *keep: str) -> DataFrame:
    """The rows of an input, verified, with `_PLACE` and the columns to `keep`."""
    kinds = dict((*ROWS, *SIZES))
    columns = [*((name, kinds[name]) for name in (*_PLACE, *keep)), *KINDS[options.kind].made]
    return options.load(spark, path, columns, verify=options.kind)


def _verified(
    spark: SparkSession, options: Options, store: Store, tell: Tell
) -> tuple[DataFrame, dict[str, Any]]:
    """The verified rows of all inputs, and their counts for the summary."""
    kind = KINDS[options.kind]
    tell(f"verifying {', '.join(options.inputs)}")
    rows = _of_all(options, lambda path: _read(spark, options, path))
    verified = store.write("verified", rows)
    tell("setting aside unusable rows")
    aside = store.write("quarantine", quarantined(verified))
    said = _counted(verified, options)
    said["hints"] = _hints(aside, kind) if said["quarantined"] else []
    return verified, said


def _of_all(options: Options, rows_at: Callable[[str], DataFrame]) -> DataFrame:
    """The rows of all inputs, of each those at its path, with the name of the input."""
    from pyspark.sql import functions as f

    frames = [
        rows_at(path).withColumn("replica", f.lit(name)) for name, path in options.inputs.items()
    ]
    return _named(reduce(lambda one, other: one.union(other), frames))


def _named(rows: DataFrame) -> DataFrame:
    """The rows, with their reasons as text beside the bits."""
    return rows.withColumn("reason_names", names("reasons"))


def _counted(rows: DataFrame, options: Options) -> dict[str, Any]:
    """The rows by fault, as from `fault_counts`, by input, and by reason; in one pass."""
    groups = rows.groupBy("fault", "replica", "reasons").count().collect()
    faults: Counter[str | None] = Counter()
    of_inputs: Counter[str] = Counter(dict.fromkeys(sorted(options.inputs), 0))
    for group in groups:
        faults[group["fault"]] += group["count"]
        of_inputs[group["replica"]] += group["count"]
    return {
        **_faults_said(faults),
        "rows_of": dict(of_inputs),
        "reasons": _reasons_counted(group for group in groups if group["fault"] is None),
    }


def fault_counts(rows: DataFrame) -> dict[str, Any]:
    """The number of all rows, of usable ones, and of those set aside for each fault."""
    return _faults_said(count_faults(rows))


def _faults_said(faults: dict[str | None, int]) -> dict[str, Any]:
    good = faults.pop(None, 0)
    return {
        "rows": good + sum(faults.values()),
        "sound": good,
        "quarantined": dict(sorted((str(fault), count) for fault, count in faults.items())),
    }


def rows_of(rows: DataFrame, column: str, inputs: Iterable[str]) -> dict[str, int]:
    """The number of rows of each input, which `column` names; 0 for one without any."""
    return {**dict.fromkeys(sorted(inputs), 0), **counts(rows, column)}


def _hints(aside: DataFrame, kind: Kind) -> list[str]:
    """A possible cause of rows set aside, that their records are of another kind."""
    some = aside.filter("record is not null").limit(_SAMPLE).collect()
    return [
        f"of {len(some)} records that were set aside all can be read as {other}:"
        f" is it --kind {other} that is wanted?"
        for other in other_kinds([bytes(row["record"]) for row in some], kind)
    ]


def counts(rows: DataFrame, column: str) -> dict[str, int]:
    """The number of rows for each value of a column, sorted by value."""
    return dict(
        sorted((str(row[column]), row["count"]) for row in rows.groupBy(column).count().collect())
    )


def _reasons_counted(groups: Iterable[Row]) -> dict[str, int]:
    """The rows against which each reason stands, of groups with equal ``reasons``."""
    found: Counter[str] = Counter()
    for group in groups:
        found.update({reason.name: group["count"] for reason in reasons_of(group["reasons"])})
    return dict(sorted(found.items()))


def verify_job(spark: SparkSession, options: Options, store: Store, tell: Tell) -> Outcome:
    """Each record by itself: table ``verified``."""
    _, said = _verified(spark, options, store, tell)
    return outcome(said, "reasons")


def outcome(said: dict[str, Any], *kinds: str, **others: int) -> Outcome:
    """The outcome in these numbers: rows that were set aside, reasons, and other findings.

    `kinds` name further counts in the numbers, by findings; `others` are findings themselves.
    """
    aside: dict[str, int] = said["quarantined"]
    findings = {SET_ASIDE: sum(aside.values()), **others}
    for name in ("quarantined", *kinds):
        findings |= said[name]
    return Outcome(said, findings, said.get("rows_of", {}))


def audit_job(spark: SparkSession, options: Options, store: Store, tell: Tell) -> Outcome:
    """All logs: tables ``verified``, ``verdicts``, ``logs`` and ``forks``."""
    from pyspark.sql import functions as f

    verified, said = _verified(spark, options, store, tell)
    tell("auditing")
    found = audit(verified)
    why = f.when(f.col("first_fault_reasons").isNotNull(), names("first_fault_reasons"))
    logs = store.write("logs", found.logs.withColumn("first_fault_reason_names", why))
    store.write("forks", found.forks)
    verdicts = store.write("verdicts", _named(found.verdicts).select(*_VERDICTS))
    found.close()
    counted = logs.agg(
        f.count("*").alias("logs"),
        f.count("first_fault").alias("faulty_logs"),
        *(f.coalesce(f.sum(name), f.lit(0)).alias(name) for name in ("entries", "gaps", "forks")),
    )
    said |= counted.collect()[0].asDict()
    groups = verdicts.groupBy("fault", "reasons", "verified").count().collect()
    said["verified_rows"] = sum(group["count"] for group in groups if group["verified"])
    said["reasons"] = _reasons_counted(group for group in groups if group["fault"] is None)
    return outcome(said, "reasons")


def operations_job(spark: SparkSession, options: Options, store: Store, tell: Tell) -> Outcome:
    """Entries of p2panda and their operations: table ``operations``, of all inputs."""
    tell(f"decoding {', '.join(options.inputs)}")
    rows = _of_all(options, lambda path: decode_operations(_read(spark, options, path, "payload")))
    operations = store.write("operations", rows)
    tell("setting aside unusable rows")
    store.write("quarantine", quarantined(operations))
    said = {
        **_counted(operations, options),
        "actions": counts(sound(operations), "action"),
        "schemas": sound(operations).select("schema_id").distinct().count(),
    }
    return outcome(said, "reasons")


def fingerprint_job(spark: SparkSession, options: Options, store: Store, tell: Tell) -> Outcome:
    """The set of all signed records: table ``ranges``, and the tree in ``tree.culmtree``."""
    verified, said = _verified(spark, options, store, tell)
    tell("fingerprinting")
    kind = KINDS[options.kind]
    found = fingerprint(
        signed_items(verified, kind),
        item_size=kind.item_size,
        monoid=options.monoid,
        levels=_levels(options, kind),
    )
    ranges = store.write("ranges", found.ranges)
    tell("writing the tree")
    size = write_tree(found.tree, f"{store.path}/{TREE}")
    found.close()
    said |= {"items": found.whole.count, "ranges": ranges.count(), "tree_bytes": size}
    return outcome(said, "reasons")


def reconcile_job(spark: SparkSession, options: Options, store: Store, tell: Tell) -> Outcome:
    """Replicas compared: tables ``ranges``, ``holders``, ``plan`` and ``at_risk``."""
    from pyspark.sql import functions as f

    verified, said = _verified(spark, options, store, tell)
    tell("comparing")
    kind = KINDS[options.kind]
    found = reconcile(
        {
            name: signed_items(verified.filter(f.col("replica") == name), kind)
            for name in options.inputs
        },
        item_size=kind.item_size,
        levels=_levels(options, kind),
        monoid=options.monoid,
        copies_min=options.copies_min,
    )
    ranges = store.write("ranges", found.ranges)
    holders = store.write("holders", found.holders)
    plan = store.write("plan", found.plan)
    at_risk = store.write("at_risk", found.at_risk)
    found.close()
    moved = plan.groupBy("source", "target").agg(
        f.count_if(f.col("part") == ITEM_PART).alias("copies"),
        f.count_if(f.col("part") == PAYLOAD_PART).alias("payloads"),
        f.coalesce(f.sum("size"), f.lit(0)).alias("bytes"),
    )
    strong = named(options.monoid).is_strong
    said |= {
        "monoid": options.monoid,
        "equality": "shown" if strong else "shown unless somebody has crafted items",
        "divergent_ranges": ranges.count(),
        "items_looked_at": holders.count(),
        "at_risk": at_risk.count(),
        "copies": [row.asDict() for row in moved.orderBy("source", "target").collect()],
    }
    found_here = {DIVERGENT: said["divergent_ranges"], AT_RISK: said["at_risk"]}
    return outcome(said, "reasons", **found_here)


def _levels(options: Options, kind: Kind) -> Sequence[int]:
    return kind.levels if options.levels is None else options.levels
