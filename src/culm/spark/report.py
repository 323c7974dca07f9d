"""The findings of a job, for people: as text, and as one HTML page to be sent to a colleague.

Both begin with a sentence.  Then the page lists faults by reason, by log, by file and, if records
have times, by day, each with a query that gives the rows; differences between replicas; sizes; and
at the end the job, its time, versions and settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from culm.bamboo.errors import Reason
from culm.garlic import ErrorCode
from culm.p2panda.errors import Reason as OperationFault
from culm.spark.archive import ArchiveFault
from culm.spark.capture_files import CaptureFault
from culm.spark.checks import Status
from culm.spark.lines import LineFault
from culm.spark.meanings import meanings
from culm.spark.page import Cell, Code, Query, Section, Table, bars, html_of
from culm.spark.raft_logs import VIOLATIONS
from culm.spark.sentences import sentence_of
from culm.spark.tables import TableFault
from culm.ssb.messages import MessageErrorCode
from culm.wire.errors import WireErrorCode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from culm.spark.jobs import Store

_ROWS_MAX = 20
_LOGS_MAX = 200
#: Counts in summaries: their titles, their units, and the tables of their rows.
_COUNTED = {
    "quarantined": ("Set aside, by reason", "rows", "quarantine", "reason = '{}'"),
    "violations": ("Rules that were broken", "times", "violations", "violation = '{}'"),
    "actions": ("Operations, by action", "operations", "operations", "action = '{}'"),
    "events": ("Events of machines", "events", "said", "kind = 'event' and name = '{}'"),
    "verdicts": ("Runs, by verdict", "runs", "runs", "verdict = '{}'"),
}
# Findings of jobs: in files, in records, and in the contents of these.  Some names have several
# meanings; of two in one job, the later one counts.
_FILES = (TableFault, LineFault, ArchiveFault)
_RECORDS = (MessageErrorCode, WireErrorCode, Reason)
_FOUND: Mapping[str, Sequence[type[Enum]]] = {
    "operations": (WireErrorCode, OperationFault, Reason),
    "raft": (ErrorCode,),
    "sessions": (),
    "captures": (CaptureFault,),
}
# The tables with the rules that these jobs have found broken.
_SAID_BY_MACHINES = {"captures": "decoded", "sessions": "said"}
# The tables with the reasons of these jobs.
_REASONS = {"audit": "verdicts", "operations": "operations"}


def text_of(summary: Mapping[str, Any]) -> str:
    """A summary as lines of text, nested ones indented, below its sentence."""
    return "".join(f"{line}\n" for line in (sentence_of(summary), "", *_lines(summary)))


def _lines(summary: Mapping[str, Any]) -> Iterator[str]:
    for name, value in summary.items():
        label = f"{_spelled(name)}:"
        if not isinstance(value, (Mapping, list)):
            yield f"{label} {value}"
            continue
        yield label if value else f"{label} none"
        if isinstance(value, Mapping):
            yield from (f"  {key}: {_plain(part)}" for key, part in value.items())
        else:
            yield from (f"  {_plain(row)}" for row in value)


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{_spelled(str(key))} {_plain(part)}" for key, part in value.items())
    return str(value)


def _spelled(name: str) -> str:
    """The name of a number, spelled for people."""
    return name.replace("_", " ")


def html_page(summary: Mapping[str, Any], store: Store) -> str:
    """The page about a job whose tables are in `store`."""
    mood = {Status.PASSED: "passed", Status.FAILED: "failed"}.get(summary["status"], "odd")
    inputs = ", ".join(summary.get("inputs", {})) or summary.get("simulator", "")
    sections = [
        Section("What is wrong, and where", list(_wrong(summary, store))),
        Section("Who has what", list(_replicas(summary, store))),
        Section("How much there is", list(_sizes(summary, store))),
        Section("What was run", list(_run(summary))),
    ]
    title = f"culm: {summary['job']} of {inputs}"
    return html_of(title, sentence_of(summary), mood, summary.get("hints", ()), sections)


def _query(store: Store, table: str, condition: str) -> Query:
    """A query for rows of a table."""
    return Query(f"SELECT * FROM parquet.`{store.path}/{table}` WHERE {condition}")


def _quoted(text: str) -> str:
    """The text as it stands between quotes in SQL."""
    return text.replace("\\", "\\\\").replace("'", "\\'")


def _wrong(summary: Mapping[str, Any], store: Store) -> Iterator[Table]:
    job = summary["job"]
    if "seeds_to_look_at" in summary:
        seeds = [(each["seed"], each["verdict"]) for each in summary["seeds_to_look_at"]]
        yield Table("Seeds to look at", ("seed", "verdict"), seeds)
    if "reasons" in summary:
        table = _REASONS.get(job, "verified")
        where = "array_contains(reason_names, '{}')"
        title = "Against records, by reason"
        said = _meanings(job)
        yield _counted(title, "records", summary["reasons"], store, table, where, said)
    for name, (title, unit, table, where) in _COUNTED.items():
        if name in summary and name in ("quarantined", "violations"):
            if name == "violations" and job in _SAID_BY_MACHINES:
                table, where = _SAID_BY_MACHINES[job], "coalesce(code, name) = '{}'"
            yield _counted(title, unit, summary[name], store, table, where, _meanings(job))
    if job == "audit" and summary["faulty_logs"]:
        yield _logs("Logs that are not verified to the end", store, is_faulty=True)
        yield _counted(
            "Forks, by how many variants there are",
            "forks",
            _groups(store.read("forks"), "variants"),
            store,
            "forks",
            "variants = {}",
        )
    if not summary["clean"] and "verified" in store.tables:
        yield from _places(store.read("verified"), store)


def _counted(
    title: str,
    unit: str,
    counts: Mapping[str, int],
    store: Store,
    table: str,
    where: str,
    said: Mapping[str, str] = MappingProxyType({}),
) -> Table:
    """Counts by name, the largest first, with meanings of names and a query for the rows."""
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    names = [name for name, _ in ordered]
    has_meanings = any(name in said for name in names)
    rows: list[Sequence[Cell]] = [
        (
            name,
            bar,
            *([said.get(name)] if has_meanings else ()),
            _query(store, table, where.format(_quoted(name))),
        )
        for name, bar in zip(names, bars([count for _, count in ordered]), strict=True)
    ]
    return Table(title, ("", unit, *(["meaning"] if has_meanings else ()), "the rows"), rows)


@cache
def _meanings(job: str) -> Mapping[str, str]:
    """The meanings of a job's findings, by name."""
    told = map(meanings, (*_FILES, *_FOUND.get(job, _RECORDS)))
    return {**VIOLATIONS, **{name: text for each in told for name, text in each.items()}}


def _groups(rows: DataFrame, column: str) -> dict[str, int]:
    from pyspark.sql import functions as f

    counted = rows.groupBy(column).count().orderBy(f.desc("count"), column).limit(_ROWS_MAX)
    return {str(row[column]): row["count"] for row in counted.collect()}


def _logs(title: str, store: Store, *, is_faulty: bool) -> Table:
    """The largest logs, of those with a fault or of those without."""
    from pyspark.sql import functions as f

    some = store.read("logs").filter(f"first_fault is {'not ' if is_faulty else ''}null")
    most = _LOGS_MAX if is_faulty else _ROWS_MAX
    found = some.orderBy(f.desc("entries"), "log").limit(most + 1).collect()
    rows: list[Sequence[Cell]] = []
    for row, bar in zip(found[:most], bars([row["entries"] for row in found[:most]]), strict=True):
        log = bytes(row["log"])
        name = Code(_short(log), f"{log[:32].hex()}/{int.from_bytes(log[32:], 'big')}")
        why = ", ".join(row["first_fault_reason_names"] or ())
        numbers = [row[each] for each in ("verified", "first_fault", "forks", "gaps")]
        unsigned = [None if each is None else each % 2**64 for each in numbers]
        query = _query(store, "verdicts", f"log = X'{log.hex()}'")
        rows.append(
            (
                name,
                bar,
                unsigned[0],
                *((unsigned[1], why) if is_faulty else ()),
                *unsigned[2:],
                query,
            )
        )
    faults = ("first fault", "why") if is_faulty else ()
    columns = ("log", "entries", "verified to", *faults, "forks", "gaps", "the rows")
    note = f"Only the {most} largest are shown." if len(found) > most else ""
    return Table(title, columns, rows, note)


def _short(log: bytes) -> str:
    """A log in short: the beginning of its author's key, and its number."""
    return f"{log[:4].hex()}…/{int.from_bytes(log[32:40], 'big')}"


def _places(verified: DataFrame, store: Store) -> Iterator[Table]:
    """The files and the days of records that are faulty by themselves."""
    from pyspark.sql import functions as f

    wrong = verified.filter("fault is not null or reasons <> 0")
    by_file = _groups(wrong, "file")
    where = "file = '{}' and (fault is not null or reasons <> 0)"
    yield _counted(
        "By file: faults of records by themselves",
        "rows",
        by_file,
        store,
        "verified",
        where,
    )
    if "timestamp" in verified.columns:
        day = f.to_date(f.timestamp_millis(f.col("timestamp").cast("bigint")))
        dated = wrong.filter(f.col("timestamp").between(0, _TIME_MAX)).withColumn("day", day)
        where = "to_date(timestamp_millis(cast(timestamp as bigint))) = '{}' and reasons <> 0"
        yield _counted(
            "By day, as authors say", "rows", _groups(dated, "day"), store, "verified", where
        )


# The end of the year 9999, in milliseconds.
_TIME_MAX = 253_402_300_799_000


def _replicas(summary: Mapping[str, Any], store: Store) -> Iterator[Table]:
    """Items and payloads, for each pair of replicas, that one has and the other lacks."""
    from pyspark.sql import functions as f

    if summary["job"] != "reconcile":
        return
    names = sorted(summary["inputs"])
    holders = store.read("holders")
    lacks = f.array_except(f.array(*map(f.lit, names)), "payload_holders")
    parts = []
    for has, lacking in (("holders", f.col("lacking")), ("payload_holders", lacks)):
        pairs = holders.select(f.explode(has).alias("has"), lacking.alias("_lacking"))
        pairs = pairs.select("has", f.explode("_lacking").alias("lacks"), f.lit(has).alias("what"))
        parts.append(pairs)
    counted = parts[0].union(parts[1]).groupBy("what", "has", "lacks").count().collect()
    found = {(row["what"], row["has"], row["lacks"]): row["count"] for row in counted}
    titles = {"holders": "Items", "payload_holders": "Payloads"}
    for what, title in titles.items():
        if any(key[0] == what for key in found):
            rows: list[Sequence[Cell]] = [
                (
                    has,
                    *(
                        None if has == other else found.get((what, has, other), 0)
                        for other in names
                    ),
                )
                for has in names
            ]
            columns = ("has", *(f"{name} lacks" for name in names))
            yield Table(f"{title} that one has and another lacks", columns, rows)
    plan = [
        (each["source"], each["target"], each["copies"], each["payloads"], each["bytes"])
        for each in summary["copies"]
    ]
    yield Table("Copies to make", ("from", "to", "items", "payloads alone", "bytes"), plan)
    risk = store.read("at_risk").orderBy("copies", "item").limit(_ROWS_MAX + 1).collect()
    shown: list[Sequence[Cell]] = [_risk(row) for row in risk[:_ROWS_MAX]]
    note = f"{summary['at_risk']:,} in all." if len(risk) > _ROWS_MAX else ""
    yield Table("At risk", ("log", "number", "item", "held by", "payload held by"), shown, note)
    copies = _groups(holders, "copies")
    yield _counted(
        "Items in ranges that differ, by copies", "items", copies, store, "holders", "copies = {}"
    )
    levels = _groups(store.read("ranges"), "level")
    yield _counted(
        "Ranges that differ, by bytes of their names",
        "ranges",
        levels,
        store,
        "ranges",
        "level = {}",
    )


def _risk(row: Any) -> Sequence[Cell]:
    item = bytes(row["item"])
    number = int.from_bytes(item[40:48], "big")
    holders = [", ".join(row[name] or ()) for name in ("holders", "payload_holders")]
    return Code(_short(item)), number, Code(f"{item[48:56].hex()}…", item.hex()), *holders


def _sizes(summary: Mapping[str, Any], store: Store) -> Iterator[Table]:
    from pyspark.sql import functions as f

    rows_of = summary.get("rows_of", {})
    if len(rows_of) > 1:
        counts = bars(list(rows_of.values()))
        yield Table("Rows of each input", ("", "rows"), list(zip(rows_of, counts, strict=True)))
    for name, (title, unit, table, where) in _COUNTED.items():
        if name in summary and name not in ("quarantined", "violations"):
            yield _counted(title, unit, summary[name], store, table, where)
    if summary["job"] != "audit":
        return
    entries = f.greatest(f.col("entries"), f.lit(1))
    power = f.floor(f.log10(entries)).cast("int").alias("power")
    sizes = store.read("logs").groupBy(power).count().orderBy("power").collect()
    counts = bars([row["count"] for row in sizes])
    names = [f"{10 ** row['power']:,} and more" for row in sizes]
    yield Table(
        "Logs, by their entries", ("entries", "logs"), list(zip(names, counts, strict=True))
    )
    yield _logs("The largest logs without a fault", store, is_faulty=False)


def _run(summary: Mapping[str, Any]) -> Iterator[Table]:
    run = summary["run"]
    told = {
        "began": run["began"],
        "took": f"{summary['seconds']:,} s",
        **{f"version of {name}": run[name] for name in ("culm", "pyspark")},
        **{f"input {name}": path for name, path in summary.get("inputs", {}).items()},
        "output": summary["output"],
        **{
            f"setting {_spelled(name)}": json.dumps(value)
            for name, value in run["settings"].items()
        },
    }
    yield Table(
        "When, where, with what", ("", ""), [(name, Code(str(each))) for name, each in told.items()]
    )
    numbers = ((name, value) for name, value in summary.items() if name not in ("inputs", "run"))
    yield Table("All of the summary", ("", ""), list(_cells(numbers)))


def _cells(numbers: Iterable[tuple[str, Any]]) -> Iterator[Sequence[Cell]]:
    for name, value in numbers:
        yield _spelled(name), Code(value if isinstance(value, str) else json.dumps(value))
