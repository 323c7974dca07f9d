"""Jobs of the command line about runs of protocols: captures, Raft's logs, sessions, simulators.

All but captures are lines of JSON, read by the format ``culm``; a line that is not JSON, or not of
the required form, is set aside as in all jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from math import isfinite
from typing import TYPE_CHECKING, Any

from culm.spark.archive import READ_SIZE_MAX
from culm.spark.captures import decode_captures
from culm.spark.checks import REFUSED, Outcome
from culm.spark.columns import map_rows
from culm.spark.errors import OnError
from culm.spark.jobs import Inputs, Store, Tell, counts, fault_counts, outcome, rows_of
from culm.spark.options import Reading
from culm.spark.paths import Filter
from culm.spark.quarantine import quarantined, sound
from culm.spark.raft_logs import decode_raft_entries, raft_violations
from culm.spark.sessions import LINES, RECORDED, replay_sessions, session_lines
from culm.spark.simulate import KEPT, simulate
from culm.spark.splits import SPLIT_SIZE
from culm.wire.json import read_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A line that is not JSON.
NOT_JSON = "NOT_JSON"
#: A line of JSON that lacks a field, or has it in another type.
WRONG_FORM = "WRONG_FORM"

_PLACE = ("file", "block", "row")
_SHOWN_MAX = 20
_NUMBERS = range(2**63)


@dataclass(frozen=True, kw_only=True)
class RaftLogs(Inputs):
    """Logs of servers: the `inputs`, by the names of the servers.

    A line is an entry: ``{"at": 1, "term": 1, "is_configuration": false, "value": "hex"}``.
    """


@dataclass(frozen=True, kw_only=True)
class RecordedSessions(Inputs):
    """Sessions to be replayed through `machine`, with `config` as the line driver takes it.

    Each file is a session, and each of its lines one for the line driver; with `recorded` a line is
    ``{"session": "name", "direction": "in", "time": 1.5, "hex": "..."}``.
    """

    machine: str
    config: Mapping[str, Any] = field(default_factory=dict)
    recorded: bool = False

    def said(self) -> dict[str, Any]:
        return {"machine": self.machine, **super().said()}


@dataclass(frozen=True, kw_only=True)
class Captures(Inputs):
    """Captures, files ``*.culmcap``; those of more than `split_size` bytes go to several tasks."""

    split_size: int = SPLIT_SIZE
    block_size_max: int = READ_SIZE_MAX

    def reading(self, path: str) -> Reading:
        """How those at `path` are read."""
        return Reading(
            paths=(path,),
            filter=Filter(name_glob=_CAPTURES),
            split_size=self.split_size,
            block_size_max=self.block_size_max,
            on_io_error=OnError(self.on_io_error),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """A simulator, named ``module:function``, its seeds, and the directories of its modules."""

    simulator: str
    seeds: range
    modules: Sequence[str] = ()

    def said(self) -> dict[str, Any]:
        """The part of a summary about the campaign, with the seed to continue from."""
        seeds = {"first_seed": self.seeds.start, "next_seed": self.seeds.stop}
        return {"simulator": self.simulator, **seeds}


def raft_job(spark: SparkSession, logs: RaftLogs, store: Store, tell: Tell) -> Outcome:
    """Logs of Raft's servers: tables ``entries`` and ``violations``."""
    from pyspark.sql import functions as f

    tell("reading the logs")
    kinds = (
        ("at", "bigint"),
        ("term", "bigint"),
        ("is_configuration", "boolean"),
        ("value", "binary"),
        ("fault", "string"),
    )
    frames = [
        map_rows(
            logs.load(spark, path).select(*_LINE),
            partial(parsed_lines, form=raft_entry),
            ["entry"],
            _KEPT,
            kinds,
        )
        .withColumn("server", f.lit(name))
        .drop("entry")
        for name, path in logs.inputs.items()
    ]
    read = reduce(lambda one, other: one.union(other), frames)
    entries = store.write("entries", decode_raft_entries(read))
    store.write("quarantine", quarantined(entries))
    tell("looking for contradictions")
    # A configuration that cannot be decoded still has its place.
    placed = entries.filter("at is not null")
    violations = store.write("violations", raft_violations(placed))
    said = {
        **fault_counts(entries),
        "rows_of": rows_of(entries, "server", logs.inputs),
        "servers": len(logs.inputs),
        "terms": placed.select("term").distinct().count(),
        "violations": counts(violations, "violation"),
    }
    return outcome(said, "violations")


def sessions_job(
    spark: SparkSession, sessions: RecordedSessions, store: Store, tell: Tell
) -> Outcome:
    """Replayed sessions: table ``said``."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    tell("reading the sessions")
    [path] = sessions.inputs.values()
    lines = sessions.load(spark, path).select(*_LINE)
    if sessions.recorded:
        made = (*RECORDED, ("fault", "string"))
        rows = map_rows(lines, partial(parsed_lines, form=recorded_bytes), ["entry"], _KEPT, made)
        told = session_lines(sound(rows), then=_PLACE)
    else:
        no_text = f.when(~f.is_valid_utf8(f.col("entry").cast("string")), NOT_JSON)
        rows = lines.withColumn("fault", f.coalesce("fault", no_text))
        in_order = Window.partitionBy("file").orderBy("block")
        told = sound(rows).select(
            f.col("file").alias("session"),
            f.row_number().over(in_order).cast("bigint").alias("number"),
            f.col("entry").cast("string").alias("line"),
        )
    store.write("quarantine", quarantined(rows))
    tell("replaying them")
    said = store.write(
        "said",
        replay_sessions(told.select(*dict(LINES)), sessions.machine, config=sessions.config).filter(
            "kind is null or kind <> 'idle'"
        ),
    )
    faults = fault_counts(rows)
    numbers = {
        **faults,
        "rows_of": dict.fromkeys(sessions.inputs, faults["rows"]),
        "sessions": told.select("session").distinct().count(),
        "events": counts(said.filter("kind = 'event'"), "name"),
        "violations": counts(said.filter("what = 'violation' and name is not null"), "code"),
        "refused": said.filter("what = 'refused'").count(),
    }
    return outcome(numbers, "violations", **{REFUSED: numbers["refused"]})


def captures_job(spark: SparkSession, captures: Captures, store: Store, tell: Tell) -> Outcome:
    """Captures, decoded: table ``decoded``."""
    from pyspark.sql import functions as f

    [path] = captures.inputs.values()
    reading = captures.reading(path)
    found = reading.find()
    is_large = any((each.size or 0) > captures.split_size for each in found)
    tell(f"decoding {len(found):,} captures")
    loaded = captures.load(spark, path, pathGlobFilter=_CAPTURES)
    rows = decode_captures(loaded, in_parts=is_large)
    decoded = store.write("decoded", rows)
    tell("setting aside unusable rows")
    store.write("quarantine", quarantined(decoded))
    faults = fault_counts(decoded)
    steps = decoded.filter("what = 'step'")
    # Bytes that break the protocol are told twice if the machine has ended with an error for them.
    broken = decoded.filter("what = 'violation'").withColumn("rule", f.coalesce("code", "name"))
    numbers = {
        **faults,
        "rows_of": dict.fromkeys(captures.inputs, faults["rows"]),
        "captures": len(found),
        "machines": counts(steps.select("file", "machine").distinct(), "machine"),
        "steps": steps.count(),
        "messages": decoded.filter("what = 'message'").count(),
        "violations": counts(broken.select("file", "step", "rule").distinct(), "rule"),
        "refused": decoded.filter("what = 'refused'").count(),
    }
    return outcome(numbers, "violations", **{REFUSED: numbers["refused"]})


def simulate_job(spark: SparkSession, campaign: Campaign, store: Store, tell: Tell) -> Outcome:
    """Seeds of a simulator: table ``runs``."""
    from pyspark.sql import functions as f

    tell(f"running {campaign.simulator} for {len(campaign.seeds):,} seeds")
    runs = simulate(spark, campaign.simulator, campaign.seeds, paths=campaign.modules)
    done = store.write("runs", runs)
    totals = done.agg(
        f.sum("steps").alias("steps"),
        f.sum("bytes").alias("bytes"),
        f.round(f.sum("cpu_s"), 1).alias("processor_seconds"),
        f.round(f.max("cpu_s"), 1).alias("longest_run_seconds"),
    )
    wrong = done.filter(f.col("verdict") != KEPT).orderBy("seed")
    said = {
        "runs": len(campaign.seeds),
        "verdicts": counts(done, "verdict"),
        **totals.collect()[0].asDict(),
        "seeds_to_look_at": [
            {"seed": row["seed"], "verdict": row["verdict"]}
            for row in wrong.limit(_SHOWN_MAX).collect()
        ],
    }
    verdicts: dict[str, int] = said["verdicts"]
    return Outcome(said, {name: count for name, count in verdicts.items() if name != KEPT})


_CAPTURES = "*.culmcap"
_KEPT = ("entry", *_PLACE, "block_end")
_LINE = (*_KEPT, "fault")


def parsed_lines(
    given: Sequence[dict[str, Any]], *, form: Callable[[Any], dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    """Rows from lines of JSON, made by `form`, which raises for a line of another form."""
    for row in given:
        if row.get("fault") is not None:
            yield {"fault": row["fault"]}
            continue
        try:
            value = read_json(row["entry"])
        except ValueError:
            yield {"fault": NOT_JSON}
            continue
        try:
            yield form(value)
        except (TypeError, ValueError, KeyError, OverflowError):
            yield {"fault": WRONG_FORM}


def raft_entry(value: Any) -> dict[str, Any]:
    """The row of an entry of a Raft log; raises for a line of another form."""
    numbers = {name: value[name] for name in ("at", "term")}
    is_configuration = value["is_configuration"]
    if any(type(number) is not int or number not in _NUMBERS for number in numbers.values()):
        raise TypeError("at and term are numbers")
    if type(is_configuration) is not bool:
        raise TypeError("is_configuration is true or false")
    return {**numbers, "is_configuration": is_configuration, "value": bytes.fromhex(value["value"])}


def recorded_bytes(value: Any) -> dict[str, Any]:
    """A row of `RECORDED`; raises for a line of another form."""
    session, direction, time = value["session"], value["direction"], float(value["time"])
    if type(session) is not str or direction not in ("in", "out"):
        raise TypeError("a session has a name, and two directions")
    if not isfinite(time):
        raise ValueError("a time must be finite")
    session.encode()  # half a surrogate pair is no name
    return {
        "session": session,
        "direction": direction,
        "time": time,
        "bytes": bytes.fromhex(value["hex"]),
    }
