"""Captures of machines as rows: one for each step, each message, and each broken rule.

Input are the rows of captures that the format ``culm`` reads (`culm.spark.capture_files`), or of
any other source, with one block of a capture in each.  A capture is decoded by one task, since
the meaning of a step depends on those before it, but any number of them at a time; the task
holds a block, and the steps that wait for the ends of their messages.  Large ones are decoded
in parts (`culm.spark.capture_parts`).  After a damage the steps that follow have neither a
number nor a
time, and their bytes are not split: the loss before them is not known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from culm.capture.errors import CaptureError
from culm.capture.records import Header, Step, records_in
from culm.spark.capture_files import KIND, CaptureFault
from culm.spark.capture_parts import decode_parts
from culm.spark.capture_rows import BLOCKS, CAPTURED, block_rows, step_rows
from culm.spark.columns import check_columns, row_batches, schema_text

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame


def decode_captures(rows: DataFrame, *, in_parts: bool = False) -> DataFrame:
    """The steps of captures, their messages, and the rules that were broken: `CAPTURED`.

    rows: those of the format ``culm`` for files ``*.culmcap``.  Parts that could not be read stay,
        with their ``fault``.
    in_parts: decode each capture by several tasks, block by block, and each direction of a
        connection by one.  The rows are the same.  It takes more work, so it is for captures
        that are larger than a task's share.

    Raises `ColumnError` if a column is missing or of another type.
    """
    check_columns(rows, BLOCKS)
    blocks = rows.select(*(name for name, _ in BLOCKS))
    if in_parts:
        return decode_parts(blocks)
    ordered = blocks.repartition("file").sortWithinPartitions("file", "block")
    return ordered.mapInArrow(_batches, schema_text(CAPTURED))


def _batches(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """The work of an executor on blocks in order."""
    return row_batches(decode_blocks(block_rows(batches)), CAPTURED)


def decode_blocks(blocks: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows `CAPTURED` of captures, from their blocks in the order of files and places."""
    for _, each in groupby(blocks, itemgetter("file")):
        yield from _Capture(each).rows()


class _Capture:
    """One capture, read from its blocks, in order."""

    def __init__(self, blocks: Iterable[dict[str, Any]]) -> None:
        self._blocks = iter(blocks)
        self._header: Header | None = None
        self._places: deque[dict[str, Any]] = deque()  # of the steps that have no rows yet
        self._faults: list[dict[str, Any]] = []

    def rows(self) -> Iterator[dict[str, Any]]:
        """The rows of all steps, and of unreadable places."""
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
