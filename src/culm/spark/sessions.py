"""Recorded sessions, replayed through their protocol's machine, with a row for each of its outputs.

A session is the input of one machine: lines of JSON as `culm.machines.lines` reads them, or bytes
with the times at which they arrived (`session_lines` turns these into lines).  Every registered
machine can be named.  A session is replayed by one task, which holds one machine at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from culm.machines import lookup
from culm.machines.lines import LineDriver
from culm.spark.columns import check_columns, row_batches, schema_text
from culm.wire.json import read_json

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

__all__ = ["LINES", "RECORDED", "SAID", "replay_sessions", "session_lines"]

#: The input of `replay_sessions`: lines, numbered within their session from 1 on.
LINES = (("session", "string"), ("number", "bigint"), ("line", "string"))
#: The input of `session_lines`: ``direction`` is ``in`` for received bytes, ``out`` for sent ones.
RECORDED = (
    ("session", "string"),
    ("direction", "string"),
    ("time", "double"),
    ("bytes", "binary"),
)
#: The output of `replay_sessions`: the answers to line ``number`` (0: before any), in the order of
#: ``at``.  ``what`` is ``event``, ``effect``, ``result``, ``violation`` if the peer has broken a
#: rule, or ``refused`` if the line breaks one.
SAID = (
    ("session", "string"),
    ("number", "bigint"),
    ("at", "int"),
    ("what", "string"),
    ("name", "string"),
    ("code", "string"),
    ("fields", "string"),
)


def session_lines(recorded: DataFrame, *, then: Sequence[str] = ()) -> DataFrame:
    """Sessions of bytes as lines, in order of time: the columns `LINES`.

    Bytes with the same time are in the order of the columns `then`, since a clock may stand still.
    Only received bytes become lines: the replayed machine sends its own again.  Raises
    `ColumnError` if one of `RECORDED` or of `then` is missing, or is of another type.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    kinds = dict(recorded.dtypes)
    check_columns(recorded, [*RECORDED, *((name, kinds.get(name, "any type")) for name in then)])
    received = recorded.filter(f.col("direction") == "in")
    in_order = Window.partitionBy("session").orderBy("time", *then)
    line = f.concat(f.lit('{"op": "receive", "hex": "'), f.lower(f.hex("bytes")), f.lit('"}'))
    number = f.row_number().over(in_order).cast("bigint")
    return received.select("session", number.alias("number"), line.alias("line"))


def replay_sessions(
    lines: DataFrame, machine: str, *, config: Mapping[str, Any] | None = None, respond: bool = True
) -> DataFrame:
    """Replay each session through a new machine of the given name: the columns `SAID`.

    `config` is as for the line driver.  With `respond`, the machine's in-memory store answers its
    effects.  Raises `ColumnError` if one of `LINES` is missing or of another type, ``KeyError`` if
    there is no machine of that name, and the machine's own errors for a wrong config.
    """
    check_columns(lines, LINES)
    settings = dict(config or {})
    LineDriver(lookup(machine), settings)
    ordered = (
        lines.select("session", "number", "line")
        .repartition("session")
        .sortWithinPartitions("session", "number")
    )
    work = partial(replay_batches, machine=machine, config=settings, respond=respond)
    return ordered.mapInArrow(work, schema_text(SAID))


def replay_batches(
    batches: Iterator[pyarrow.RecordBatch], *, machine: str, config: dict[str, Any], respond: bool
) -> Iterator[pyarrow.RecordBatch]:
    """The work of an executor on its sorted batches of `LINES`."""
    rows = (row for batch in batches for row in batch.to_pylist())
    said = (
        {"session": session, **each}
        for session, lines in groupby(rows, itemgetter("session"))
        for each in _replay_one(lines, LineDriver(lookup(machine), config, respond=respond))
    )
    return row_batches(said, SAID)


def _replay_one(lines: Iterator[dict[str, Any]], driver: LineDriver) -> Iterator[dict[str, Any]]:
    yield from _said(0, driver.start())
    for row in lines:
        try:
            value = read_json(row["line"] or "")
        except ValueError as error:
            answer = driver.refuse(error)
        else:
            answer = driver.do(value)
        yield from _said(row["number"], answer)


def _said(number: int, answer: Iterator[Any]) -> Iterator[dict[str, Any]]:
    for at, said in enumerate(filter(None, map(_row, answer))):
        yield {"number": number, "at": at, **said}


def _row(said: dict[str, Any]) -> dict[str, Any] | None:
    """The row for a line of the driver's answer; ``None`` for bytes and for the state."""
    if "error" in said:
        return _fault("refused", said["error"])
    if "event" in said:
        fields = said["fields"]
        if said["event"] == "Closed" and fields.get("error") is not None:
            return _fault("violation", fields["error"])
        return {"what": "event", "name": said["event"], "fields": json.dumps(fields)}
    if "effect" in said:
        return {"what": "effect", "name": said["effect"], "fields": json.dumps(said["fields"])}
    if "result" in said:
        return {"what": "result", "fields": json.dumps(said["result"])}
    return None


def _fault(what: str, error: Mapping[str, Any]) -> dict[str, Any]:
    code = error.get("code")
    fields = json.dumps({"message": error.get("message")})
    return {
        "what": what,
        "name": error["type"],
        "code": None if code is None else str(code),
        "fields": fields,
    }
