"""Recorded sessions, replayed through their protocol's machine, with the rows of a capture of it.

A session is the input of one machine: lines of JSON as `culm.machines.lines` reads them, or bytes
with the times at which they arrived (`session_lines` turns these into lines).  Every registered
machine can be named.  A session is replayed by one task, which holds one machine at a time.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from culm.capture.recorder import Tape
from culm.capture.records import Header, Step
from culm.machines import lookup
from culm.machines.lines import LineDriver
from culm.spark.capture_rows import CAPTURED, step_rows
from culm.spark.columns import check_columns, row_batches, schema_text
from culm.wire.json import read_json

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

__all__ = ["LINES", "RECORDED", "SAID", "replay_sessions", "session_lines"]

#: The input of `replay_sessions`: lines, numbered within their session from 1 on.
LINES = (("session", "string"), ("number", "bigint"), ("line", "string"))
#: The input of `session_lines`: ``direction`` is ``in`` for received bytes, ``out`` for sent ones.
RECORDED = (("session", "string"), ("direction", "string"), ("time", "double"), ("bytes", "binary"))
#: The output of `replay_sessions`: the columns of a capture (`CAPTURED`), without the place in
#: a file, and the ``line`` that it answers (0: before any).
SAID = (
    ("session", "string"),
    ("line", "bigint"),
    *(
        (name, kind)
        for name, kind in CAPTURED
        if name not in ("file", "block", "row", "machine", "session", "fault", "block_end")
    ),
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
        for each in _Replayed(lines, machine, config, respond=respond).rows()
    )
    return row_batches(said, SAID)


class _Replayed(Tape):
    """A session that is replayed, and recorded as in a capture."""

    def __init__(
        self,
        lines: Iterator[dict[str, Any]],
        machine: str,
        config: dict[str, Any],
        *,
        respond: bool,
    ) -> None:
        super().__init__(redact=frozenset())
        self._header = Header(machine=machine, config=config)
        self._driver = LineDriver(lookup(machine), config, respond=respond)
        self._driver.record_by(self.stand_in, self.verb)
        self._lines = lines
        self._line = 0
        self._noted: list[Step] = []
        self._line_of: deque[int] = deque()  # each step that has no rows yet
        self._refused: list[dict[str, Any]] = []

    def put(self, step: Step) -> None:
        self._noted.append(step)

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows `SAID`, without the session."""
        for number, rows in enumerate(step_rows(self._header, self._steps()), 1):
            place = {"line": self._line_of.popleft(), "step": number}
            yield from ({**place, **row} for row in rows)
        yield from self._refused

    def _steps(self) -> Iterator[Step]:
        yield from self._take(self._driver.start())
        for row in self._lines:
            self._line = row["number"]
            try:
                value = read_json(row["line"] or "")
            except ValueError as error:
                yield from self._take(self._driver.refuse(error))
            else:
                yield from self._take(self._driver.do(value))

    def _take(self, answer: Iterator[Any]) -> Iterator[Step]:
        """The steps of an answer; a line that never got to the machine has none, and is noted."""
        for said in answer:
            if "error" in said and not any(step.error for step in self._noted):
                self._refused.append({"line": self._line, **_refusal(said["error"])})
        steps, self._noted = self._noted, []
        for step in steps:
            self._line_of.append(self._line)
            yield step


def _refusal(error: Mapping[str, Any]) -> dict[str, Any]:
    code = error.get("code")
    return {
        "part": 0,
        "what": "refused",
        "name": error["type"],
        "code": None if code is None else str(code),
        "said": json.dumps({"message": error.get("message")}),
    }
