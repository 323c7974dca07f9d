"""Parquet files as rows of bytes, each file by its own schema.

Spark reads a directory of Parquet files by the schema of one of them, and fails if another has
a column of another type.  Here the rows of such a file are reported as faults, and other files are
read.

A few hundred bytes can stand for ten thousand copies of a megabyte: values of a dictionary are kept
as indices, and expanded a few megabytes at a time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

from culm.spark.columns import BATCH_SIZE, cuts_of, parts_of
from culm.spark.files import WatchedFile

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetFile

# Rows are numbered in 32 bits.
_ROWS_MAX = 2**31 - 1
_BATCH_ROWS = 10_000


class TableFault(StrEnum):
    """Why rows of a table cannot be read."""

    NO_PARQUET = "NO_PARQUET"
    """The file is none, or its end, which describes its contents, is missing."""
    MISSING_COLUMN = "MISSING_COLUMN"
    """There is no column of records, or a name stands for several."""
    WRONG_TYPE = "WRONG_TYPE"
    """A column is there, but not of bytes."""
    DAMAGED_ROWS = "DAMAGED_ROWS"
    """The rows cannot be decoded."""


class RowGroup(NamedTuple):
    """`size` rows of a group that begins about byte `offset`, from its row `first` on.

    Either `records` and `payloads`, binary columns, or a `fault` that they all share.
    """

    offset: int
    first: int
    size: int
    records: pyarrow.Array | None = None
    payloads: pyarrow.Array | None = None
    fault: TableFault | None = None


class _RowPosition(NamedTuple):
    """A row group: its number, its approximate beginning, and its number of rows."""

    number: int
    offset: int
    size: int


def read_row_groups(
    file: WatchedFile, column: str, *, start: int, stop: int, size: int | None = None, row: int = 0
) -> Iterator[RowGroup]:
    """The rows of the groups that begin from byte `start` up to `stop`, in batches.

    `column` names the records; payloads are in ``payload``, if there is such a column.  A file
    that is read in parts, all with the same `size` (by default its own), gives each row that it
    declares once; the first `row` rows of a group at `start` are left out.  Raises `OSError` if the
    file system fails, never for the contents of the file.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        size = file.seek(0, os.SEEK_END) if size is None else size
        table = parquet.ParquetFile(file)
        fault = _fault_of(table.schema_arrow, column)
        if fault is None:
            numbered = [name for name in (column, "payload") if name in table.schema_arrow.names]
            table = parquet.ParquetFile(file, read_dictionary=numbered)
        places = _places(table, size)
    except (pyarrow.ArrowException, OSError, ValueError):
        file.check()
        if not start:
            yield RowGroup(0, 0, 1, fault=TableFault.NO_PARQUET)
        return
    for place in places:
        if not start <= place.offset < stop:
            continue
        before = row if place.offset == start else 0
        if fault is None:
            yield from _batches(file, table, place, column, before)
        else:
            yield from _told(place, before, fault)


def _fault_of(schema: pyarrow.Schema, column: str) -> TableFault | None:
    if column not in schema.names or any(
        schema.names.count(name) > 1 for name in (column, "payload")
    ):
        return TableFault.MISSING_COLUMN
    for name in (column, "payload"):
        if name in schema.names and not _is_bytes(schema.field(name).type):
            return TableFault.WRONG_TYPE
    return None


def _is_bytes(kind: pyarrow.DataType) -> bool:
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    looks = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    return any(look(kind) for look in (*looks, types.is_binary_view))


def _places(table: ParquetFile, size: int) -> list[_RowPosition]:
    """The places of the row groups in a file of `size` bytes, estimated by their shares of it.

    The true offsets stand in the metadata of columns, but pyarrow 26 ends the process over some
    contradictions in it, so they are not read.  Raises ``ValueError`` for numbers of rows that
    contradict each other.
    """
    count = table.num_row_groups
    groups = [table.metadata.row_group(index) for index in range(count)]
    rows = [group.num_rows for group in groups]
    if any(not 0 <= each <= _ROWS_MAX for each in rows) or sum(rows) != table.metadata.num_rows:
        raise ValueError("wrong numbers of rows")
    before = list(accumulate((max(group.total_byte_size, 1) for group in groups), initial=0))
    places: list[_RowPosition] = []
    at = -1
    for index in range(count):
        # Each row group has a place of its own within the file.
        at = min(max(at + 1, size * before[index] // before[-1]), size - count + index)
        places.append(_RowPosition(index, at, rows[index]))
    return places


def _batches(
    file: WatchedFile, table: ParquetFile, place: _RowPosition, column: str, before: int
) -> Iterator[RowGroup]:
    """The rows of a group, without the first `before`.

    All rows after an undecodable part are reported as damaged.
    """
    import pyarrow

    names = [name for name in (column, "payload") if name in table.schema_arrow.names]
    done = 0
    try:
        for batch in table.iter_batches(
            row_groups=[place.number], columns=names, batch_size=_rows_at_once(table, place)
        ):
            for part in parts_of(sum(_cuts_of(batch.column(name)) for name in names)):
                rows = batch[part]
                if left_out := min(max(before - done, 0), len(rows)):
                    done += left_out
                    rows = rows.slice(left_out)
                if not (size := len(rows)):
                    continue
                payloads = pyarrow.nulls(size, pyarrow.binary())
                if "payload" in names and column != "payload":
                    payloads = _written_out(rows.column("payload"))
                records = _written_out(rows.column(column))
                yield RowGroup(place.offset, done, size, records, payloads)
                done += size
    except (pyarrow.ArrowException, OSError, ValueError):
        file.check()
    # pyarrow reads pages with fewer rows than the group declares without an error.
    yield from _told(place, max(done, before), TableFault.DAMAGED_ROWS)


def _rows_at_once(table: ParquetFile, place: _RowPosition) -> int:
    """The number of rows to read at once: a few megabytes of a group's declared size."""
    size = max(table.metadata.row_group(place.number).total_byte_size, 1)
    return min(max(BATCH_SIZE * place.size // size, 1), _BATCH_ROWS)


def _cuts_of(values: pyarrow.Array) -> Any:
    """The beginnings of a column's values if they were expanded one after the other."""
    import pyarrow
    from pyarrow import compute

    if not pyarrow.types.is_dictionary(values.type):
        return cuts_of(compute.call_function("binary_length", [values]).fill_null(0))
    sizes = compute.call_function("binary_length", [values.dictionary])
    return cuts_of(sizes.take(values.indices).fill_null(0))


def _written_out(values: pyarrow.Array) -> pyarrow.Array:
    """A column expanded into binary values."""
    import pyarrow

    if pyarrow.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pyarrow.binary())


def _told(place: _RowPosition, done: int, fault: TableFault) -> Iterator[RowGroup]:
    """The rows of a group from number `done` on, reported as damaged; there may be any number."""
    for at in range(done, place.size, _BATCH_ROWS):
        size = min(_BATCH_ROWS, place.size - at)
        yield RowGroup(place.offset, at, size, fault=fault)
