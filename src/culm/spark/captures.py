"""Captures of machines as rows: one for each step, each message, and each broken rule.

Input are the rows of captures that the format ``culm`` reads (`culm.spark.capture_files`), or of
any other source, with one block of a capture in each.  A capture is decoded by one task, since a
step means what it means after those before it, but any number of them at a time; the task holds a
block, and the steps that wait for the ends of their messages.  After a damage the steps that follow
have neither a number nor a time, and their bytes are not split: what was lost before is not known.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from culm.capture.dissect import Field, StepFields, with_fields
from culm.capture.errors import CaptureError
from culm.capture.links import link_of, note_links
from culm.capture.records import Header, Step, records_in
from culm.capture.text import PARTS, is_idle, kind_of, plain, plain_parts, short_words
from culm.spark.capture_files import KIND, CaptureFault
from culm.spark.columns import bigint, check_columns, row_batches, schema_text
from culm.spark.dissection import FIELDS, field_rows

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

__all__ = ["CAPTURED", "decode_blocks", "decode_captures", "step_rows"]

#: The columns of `decode_captures`.
CAPTURED = (
    ("file", "string"),
    ("block", "bigint"),
    ("row", "int"),
    ("machine", "string"),
    ("session", "string"),
    ("step", "bigint"),
    ("at", "double"),
    ("time", "double"),
    ("part", "int"),
    ("what", "string"),
    ("kind", "string"),
    ("call", "string"),
    ("handle", "bigint"),
    ("link", "bigint"),
    ("state", "string"),
    ("received", "boolean"),
    ("peer", "string"),
    ("name", "string"),
    ("code", "string"),
    ("within", "string"),
    ("offset", "int"),
    ("size", "int"),
    ("continues", "boolean"),
    ("said", "string"),
    ("data", "binary"),
    ("fields", FIELDS),
    ("fault", "string"),
    ("block_end", "bigint"),
)
_NEEDED = (
    ("file", "string"),
    ("block", "bigint"),
    ("entry", "binary"),
    ("fault", "string"),
    ("block_end", "bigint"),
)


def decode_captures(rows: DataFrame) -> DataFrame:
    """The steps of captures, their messages, and the rules that were broken: `CAPTURED`.

    rows: those of the format ``culm`` for files ``*.culmcap``.  Parts that could not be read stay,
        with their ``fault``.

    Raises `ColumnError` if a column is missing or of another type.
    """
    check_columns(rows, _NEEDED)
    ordered = (
        rows.select(*(name for name, _ in _NEEDED))
        .repartition("file")
        .sortWithinPartitions("file", "block")
    )
    return ordered.mapInArrow(_batches, schema_text(CAPTURED))


def _batches(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """The work of an executor on blocks in order."""
    blocks = (row for batch in batches for start in range(len(batch)) for row in _one(batch, start))
    return row_batches(decode_blocks(blocks), CAPTURED)


def decode_blocks(blocks: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows `CAPTURED` of captures, from their blocks in the order of files and places."""
    for _, each in groupby(blocks, itemgetter("file")):
        yield from _Capture(each).rows()


def _one(batch: pyarrow.RecordBatch, start: int) -> list[dict[str, Any]]:
    """One row of a batch, so that its block is no object of Python before its turn."""
    found: list[dict[str, Any]] = batch.slice(start, 1).to_pylist()
    return found


class _Capture:
    """One capture, read from its blocks, in order."""

    def __init__(self, blocks: Iterable[dict[str, Any]]) -> None:
        self._blocks = iter(blocks)
        self._header: Header | None = None
        self._places: deque[dict[str, Any]] = deque()  # of the steps that have no rows yet
        self._faults: list[dict[str, Any]] = []

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of all steps, and of what could not be read."""
        is_whole = True
        for first in self._blocks:
            said: dict[str, Any] = {"file": first["file"]}
            steps = self._steps_from(first)
            begun = next(steps, None)  # with it the header is known
            if self._header is not None:
                said |= {"machine": self._header.machine, "session": self._header.session}
            if begun is not None:
                header = self._header if is_whole else None
                for number, rows in enumerate(step_rows(header, chain([begun], steps)), 1):
                    place = said | self._places.popleft()
                    if header is not None:
                        place["step"] = number
                    yield from (place | row for row in rows)
            yield from (said | fault for fault in self._faults)
            self._faults.clear()
            is_whole = False

    def _steps_from(self, first: dict[str, Any]) -> Iterator[Step]:
        """The steps up to the next damage, which is noted."""
        for row in chain([first], self._blocks):
            place = {name: row[name] for name in ("block", "block_end")}
            if row["fault"] is not None:
                self._faults.append({"kind": KIND, **place, "fault": row["fault"]})
                return
            try:
                yield from self._steps_in(row["block"], row["entry"] or b"")
            except CaptureError:
                self._faults.append({"kind": KIND, **place, "fault": CaptureFault.BAD_RECORD.value})
                return

    def _steps_in(self, block: int, records: bytes) -> Iterator[Step]:
        for number, found in enumerate(records_in(records)):
            if isinstance(found, Step):
                self._places.append({"block": block, "row": number})
                yield found
            elif self._header is None:
                self._header = found


def step_rows(header: Header | None, steps: Iterable[Step]) -> Iterator[list[dict[str, Any]]]:
    """For each step its rows, without the place in a file.

    header: of the capture; ``None`` if something is missing before the first step.
    """
    links: dict[int, int] = {}
    at = 0.0
    for step, parts in with_fields(header or Header(), steps):
        note_links(step.result, links)
        at += step.after
        began = None if header is None else header.began
        rows = [_step_row(step, parts), *_message_rows(parts), *_broken_rules(step, parts)]
        common: dict[str, Any] = {"handle": bigint(step.on), "call": step.name}
        if (link := link_of(step.on, links)) is not None:
            common["link"] = bigint(link)
        if header is not None:
            common["at"] = at
            common["time"] = None if began is None else began + at
        yield [{**common, "part": part, **row} for part, row in enumerate(rows)]


def _step_row(step: Step, moved: Sequence[StepFields]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "what": "step",
        "kind": "idle" if is_idle(step) else kind_of(step),
        "name": _name_of(step.result),
        "state": step.state,
    }
    if len(moved) == 1 and moved[0].moved.peer is None:  # that is all there is to say
        return row | _moved(moved[0]) | {"data": moved[0].moved.data}
    names = PARTS
    if len(moved) == 1:
        row |= _moved(moved[0]) | {"data": moved[0].moved.data}
        names = ("keywords", "error")
    said = plain_parts(step, names)
    return row | {"said": json.dumps(said) if said else None}


def _name_of(value: Any) -> str | None:
    """The class of what a call gave, without its module."""
    mark = value.get("") if isinstance(value, dict) else None
    return mark.rpartition(":")[2] if isinstance(mark, str) and ":" in mark else None


def _moved(part: StepFields) -> dict[str, Any]:
    moved = part.moved
    peer = None if moved.peer is None else short_words(moved.peer)
    return {"received": moved.received, "peer": peer, "size": len(moved.data)}


def _message_rows(parts: Sequence[StepFields]) -> Iterator[dict[str, Any]]:
    for part in parts:
        for message, within in _messages(part.fields, None):
            yield _moved(part) | {
                "what": "message",
                "name": message.name,
                "within": within,
                "offset": message.offset,
                "size": message.size,
                "continues": message.continues,
                "fields": list(field_rows([message], part.moved.data)),
            }


# Packets that carry messages of the layer above.
_CARRIERS = frozenset({"WRITE", "box"})


def _messages(fields: Sequence[Field], within: str | None) -> Iterator[tuple[Field, str | None]]:
    """The messages in some bytes, and after a packet those that it carries."""
    for each in fields:
        yield each, within
        if each.name in _CARRIERS:
            for part in each.inside:
                yield from _messages(part.inside, each.name)


def _broken_rules(step: Step, parts: Sequence[StepFields]) -> Iterator[dict[str, Any]]:
    if step.error is not None:
        yield {"what": "refused", **_error(step.error)}
    fields = step.result.get("fields") if isinstance(step.result, dict) else None
    if step.name == "next_event" and isinstance(fields, dict) and fields.get("error") is not None:
        yield {"what": "violation", "state": step.state, **_error(fields["error"])}
    for part in parts:
        fault = part.fault
        if fault is not None and not fault.is_short:
            yield _moved(part) | {
                "what": "violation",
                "code": fault.code,
                "offset": fault.offset,
                "said": json.dumps({"message": fault.message}),
            }


def _error(error: Any) -> dict[str, Any]:
    """The class of an error, its code and its message."""
    parts: Mapping[str, Any] = error if isinstance(error, dict) else {}
    code = parts.get("code")
    name = _name_of(parts) or parts.get("type")
    return {
        "name": name if isinstance(name, str) else None,
        "code": str(code["member"]) if isinstance(code, dict) and "member" in code else None,
        "said": json.dumps({"message": plain(parts.get("message"))}),
    }
