"""Parquet files as rows of bytes, each file by its own schema.

Spark reads a directory of Parquet files by the schema of one of them, and fails if another has
a column of another type.  Here such a file's rows are told as faults, and the others are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow
    from pyarrow.parquet import ParquetFile

__all__ = ["RowGroup", "TableFault", "read_row_groups"]


class TableFault(StrEnum):
    """Why rows of a table cannot be read."""

    NO_PARQUET = "NO_PARQUET"
    """The file is none, or its end, which says what is in it, is missing."""
    MISSING_COLUMN = "MISSING_COLUMN"
    """There is no column of records."""
    WRONG_TYPE = "WRONG_TYPE"
    """A column is there, but not of bytes."""
    DAMAGED_ROWS = "DAMAGED_ROWS"
    """The rows cannot be decoded."""


class RowGroup(NamedTuple):
    """Rows which begin at byte `offset` of their file: `size` of them, from number `first` on.

    Either `records` and `payloads`, binary columns, or a `fault` that is the same for all.
    """

    offset: int
    first: int
    size: int
    records: pyarrow.Array | None = None
    payloads: pyarrow.Array | None = None
    fault: TableFault | None = None


def read_row_groups(file: IO[bytes], column: str, *, start: int, stop: int) -> Iterator[RowGroup]:
    """The rows of the groups that begin from byte `start` up to `stop`, in batches.

    `column` names the records; payloads are in ``payload``, if there is such a column.  Never
    raises for what is in the file.
    """
    import pyarrow
    from pyarrow import parquet

    try:
        table = parquet.ParquetFile(file)
    except (pyarrow.ArrowException, OSError, ValueError):
        if not start:
            yield RowGroup(0, 0, 1, fault=TableFault.NO_PARQUET)
        return
    fault = _fault_of(table.schema_arrow, column)
    for index in range(table.num_row_groups):
        offset = _offset(table, index)
        count = table.metadata.row_group(index).num_rows
        if not start <= offset < stop:
            continue
        if fault is not None:
            yield RowGroup(offset, 0, count, fault=fault)
            continue
        yield from _batches(table, index, RowGroup(offset, 0, count), column)


def _fault_of(schema: pyarrow.Schema, column: str) -> TableFault | None:
    if column not in schema.names:
        return TableFault.MISSING_COLUMN
    for name in (column, "payload"):
        if name in schema.names and not _is_bytes(schema.field(name).type):
            return TableFault.WRONG_TYPE
    return None


def _is_bytes(kind: pyarrow.DataType) -> bool:
    from pyarrow import types

    looks = (types.is_binary, types.is_large_binary, types.is_fixed_size_binary)
    return any(look(kind) for look in (*looks, types.is_binary_view))


def _offset(table: ParquetFile, index: int) -> int:
    """Where a row group begins: at the first page of its first column."""
    first = table.metadata.row_group(index).column(0)
    pages = [first.dictionary_page_offset, first.data_page_offset]
    return min(page for page in pages if page is not None)


def _batches(table: ParquetFile, index: int, group: RowGroup, column: str) -> Iterator[RowGroup]:
    """The rows of a group; those behind what cannot be decoded are told as damaged."""
    import pyarrow

    names = [name for name in (column, "payload") if name in table.schema_arrow.names]
    done = 0
    try:
        for batch in table.iter_batches(row_groups=[index], columns=names, batch_size=10_000):
            records = batch.column(column).cast(pyarrow.binary())
            payloads = pyarrow.nulls(len(batch), pyarrow.binary())
            if "payload" in names and column != "payload":
                payloads = batch.column("payload").cast(pyarrow.binary())
            yield RowGroup(group.offset, done, len(batch), records, payloads)
            done += len(batch)
    except (pyarrow.ArrowException, OSError, ValueError):
        count = group.size - done
        yield RowGroup(group.offset, done, count, fault=TableFault.DAMAGED_ROWS)
