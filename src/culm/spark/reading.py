"""The rows that the format ``culm`` reads from a part of a file.

A damaged stretch becomes a row with a fault, and everything sound around it is read.  An error of
the file system is another matter, and no sign of damage.  So it fails the task, or, if that is the
policy, becomes a row that names the part of the file that has not been read.  By that row the part
can be read later, without reading any record twice (`rest_of`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from culm.spark.archive import (
    ABSENT,
    ArchiveError,
    ArchiveFault,
    Block,
    Damage,
    Readable,
    find_header,
    read_blocks,
)
from culm.spark.capture_files import KIND, read_capture
from culm.spark.columns import BATCH_SIZE, arrow_schema, cuts_of, parts_of, validity
from culm.spark.errors import OnError, UnreadableError
from culm.spark.files import WatchedFile, open_file
from culm.spark.lines import GZIP_ERRORS, GzipText, LineFault, is_utf16, read_lines
from culm.spark.splits import FileForm, Split, form_of
from culm.spark.tables import TableFault, read_row_groups

if TYPE_CHECKING:
    import pyarrow

#: The columns of rows that are read.  ``kind`` is declared by the archive, ``block`` is the byte of
#: the file at which the row's block, line or row group begins, ``row`` its number within that.  For
#: an unreadable part of a file, ``fault`` is the cause (`ArchiveFault`, `LineFault`, `TableFault`,
#: `CaptureFault`) and ``block`` the place; ``entry`` and ``payload`` are null then, and so is
#: ``row`` unless it is known.  ``block_end`` is the end of that part, if that is known.
#: Lines and tables have no ``kind``.
ROWS = (
    ("entry", "binary"),
    ("payload", "binary"),
    ("kind", "string"),
    ("file", "string"),
    ("block", "bigint"),
    ("row", "int"),
    ("fault", "string"),
    ("block_end", "bigint"),
)
_LINES_MAX = 10_000
_DAMAGES_MAX = 1000


class _Mark(NamedTuple):
    """The progress in a split: up to `row` of the block, line or row group at byte `offset`.

    A `row` of ``None`` means that perhaps none begins there.
    """

    offset: int
    row: int | None = 0


_Marked = tuple["pyarrow.RecordBatch", _Mark]


def read_split(split: Split, on_error: OnError = OnError.FAIL) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a split, and a row for each damage.

    Raises `UnreadableError` if the file system fails, or gives a row for that, by the policy.
    """
    if split.fault is not None:
        yield _fault_row(split.path, None, split.start, split.fault, row=0, end=split.stop)
        return
    mark = _Mark(split.start, split.row if split.is_end or not split.start else None)
    try:
        with open_file(split.path) as file:
            for batch, reached in _READ[form_of(split.path)](split, mark, file):
                yield batch
                mark = reached
    except OSError as error:
        if on_error is OnError.FAIL:
            raise UnreadableError(split.path, mark.offset, split.stop, error) from error
        end = max(split.stop, mark.offset)
        yield _fault_row(
            split.path, None, mark.offset, ArchiveFault.UNREADABLE, row=mark.row, end=end
        )


def rest_of(path: str, block: int, row: int | None, block_end: int, column: str) -> Split:
    """The part of a file that a row names as unread."""
    return Split(path, block, block_end, column, None, row is not None, row or 0)


def _read_archive(split: Split, mark: _Mark, file: WatchedFile) -> Iterator[_Marked]:
    try:
        header = find_header(file, split.size)
    except ArchiveError as error:
        # The first part of a file reports the error.
        if not split.start:
            yield _fault_row(split.path, None, 0, error.fault), mark
        return
    damages = [] if header.damage is None or split.start else [header.damage]
    for part in read_blocks(
        file,
        header,
        start=split.start,
        stop=split.stop,
        size=split.size,
        is_end=split.is_end,
        size_max=split.block_size_max,
    ):
        if damages and (isinstance(part, Block) or len(damages) >= _DAMAGES_MAX):
            yield _damage_rows(split.path, header.kind, damages)
            damages = []
        if isinstance(part, Damage):
            damages.append(part)
            continue
        # No read can fail between the records of a block, which is whole in memory.
        for batch in _batches(split.path, header.kind, part):
            yield batch, _Mark(part.offset + part.size)
    if damages:
        yield _damage_rows(split.path, header.kind, damages)


def _read_lines(split: Split, mark: _Mark, file: WatchedFile) -> Iterator[_Marked]:
    yield from _lines(split, mark, file, split.stop)


def _read_gzip(split: Split, mark: _Mark, file: WatchedFile) -> Iterator[_Marked]:
    """The lines of a compressed file, with places in the text."""
    yield from _lines(split, mark, GzipText(file), None)


def _lines(split: Split, mark: _Mark, text: Readable, stop: int | None) -> Iterator[_Marked]:
    rows: list[dict[str, Any]] = []
    size = 0
    try:
        if is_utf16(text):
            if not split.start:
                yield _fault_row(split.path, None, 0, LineFault.UTF_16), _Mark(split.stop)
            return
        for line in read_lines(text, start=split.start, stop=stop):
            fault = None if line.data is not None else LineFault.LONG_LINE
            row = {"entry": line.data, "file": split.path, "block": line.offset, "row": 0}
            rows.append(row | {"fault": fault})
            size += len(line.data or b"")
            mark = _Mark(line.end)
            if len(rows) >= _LINES_MAX or size >= BATCH_SIZE:
                yield _batch_of(rows), mark
                rows, size = [], 0
    except GZIP_ERRORS:
        fault = LineFault.DAMAGED_GZIP
        rows.append({"file": split.path, "block": mark.offset, "fault": fault})
    yield _batch_of(rows), mark


def _read_table(split: Split, mark: _Mark, file: WatchedFile) -> Iterator[_Marked]:
    import numpy
    import pyarrow

    for group in read_row_groups(
        file, split.column, start=split.start, stop=split.stop, size=split.size, row=split.row
    ):
        count = group.size
        absent = pyarrow.nulls(count, pyarrow.binary())
        numbers = pyarrow.array(numpy.arange(group.first, group.first + count, dtype="int32"))
        if group.fault is TableFault.NO_PARQUET:
            numbers = pyarrow.nulls(count, pyarrow.int32())
        columns = [
            absent if group.records is None else group.records,
            absent if group.payloads is None else group.payloads,
            pyarrow.nulls(count, pyarrow.string()),
            pyarrow.repeat(split.path, count),
            pyarrow.repeat(pyarrow.scalar(group.offset, pyarrow.int64()), count),
            numbers,
            pyarrow.repeat(pyarrow.scalar(group.fault, pyarrow.string()), count),
            pyarrow.nulls(count, pyarrow.int64()),
        ]
        batch = pyarrow.RecordBatch.from_arrays(columns, schema=arrow_schema(ROWS))
        yield batch, _Mark(group.offset, group.first + count)


def _read_capture(split: Split, mark: _Mark, file: WatchedFile) -> Iterator[_Marked]:
    """A row for each block: its records are one value, since they make sense in order only."""
    parts = read_capture(
        file,
        start=mark.offset,
        stop=split.stop,
        size=split.stop if split.size is None else split.size,
        size_max=split.block_size_max,
    )
    for part in parts:
        said = {"kind": KIND, "file": split.path, "block": part.offset}
        if part.fault is None:
            row = said | {"entry": part.records, "row": 0}
        else:
            row = said | {"fault": str(part.fault), "block_end": part.end}
        yield _batch_of([row]), _Mark(part.end)


_READ = {
    FileForm.ARCHIVE: _read_archive,
    FileForm.LINES: _read_lines,
    FileForm.GZIP_LINES: _read_gzip,
    FileForm.TABLE: _read_table,
    FileForm.CAPTURE: _read_capture,
}


def _batch_of(rows: list[dict[str, Any]]) -> pyarrow.RecordBatch:
    import pyarrow

    return pyarrow.RecordBatch.from_pylist(rows, arrow_schema(ROWS))


def _damage_rows(path: str, kind: str | None, damages: Sequence[Damage]) -> _Marked:
    """Rows of damage that lies side by side, and the place up to which it reaches."""
    said = {"kind": kind, "file": path}
    places = [
        {"block": each.offset, "block_end": each.offset + each.size, "fault": str(each.fault)}
        for each in damages
    ]
    end = damages[-1].offset + damages[-1].size
    return _batch_of([said | place for place in places]), _Mark(end)


def _fault_row(
    path: str,
    kind: str | None,
    offset: int,
    fault: str,
    *,
    row: int | None = None,
    end: int | None = None,
) -> pyarrow.RecordBatch:
    said = {"kind": kind, "file": path, "block": offset, "fault": str(fault)}
    return _batch_of([said | {"row": row, "block_end": end}])


def _batches(path: str, kind: str | None, block: Block) -> Iterator[pyarrow.RecordBatch]:
    """The records of a block, without copying any value.

    A block may have a hundred million of them, all empty, so the other columns are made for a few
    at a time.
    """
    import numpy
    import pyarrow

    payload_sizes = numpy.frombuffer(block.payload_sizes, "<u4")
    present = payload_sizes != ABSENT
    entry_cuts = cuts_of(numpy.frombuffer(block.entry_sizes, "<u4"))
    payload_cuts = cuts_of(numpy.where(present, payload_sizes, 0))
    for part in parts_of(entry_cuts + payload_cuts):
        count = part.stop - part.start
        columns = [
            _values(entry_cuts, block.entries, part, None),
            _values(payload_cuts, block.payloads, part, present[part]),
            pyarrow.repeat(pyarrow.scalar(kind, pyarrow.string()), count),
            pyarrow.repeat(path, count),
            pyarrow.repeat(pyarrow.scalar(block.offset, pyarrow.int64()), count),
            pyarrow.array(numpy.arange(part.start, part.stop, dtype="int32")),
            pyarrow.nulls(count, pyarrow.string()),
            pyarrow.nulls(count, pyarrow.int64()),
        ]
        yield pyarrow.RecordBatch.from_arrays(columns, schema=arrow_schema(ROWS))


def _values(cuts: Any, data: memoryview, part: slice, present: Any) -> pyarrow.Array:
    """A slice of a binary column of adjacent values."""
    import pyarrow

    begin, end = cuts[part.start], cuts[part.stop]
    offsets = (cuts[part.start : part.stop + 1] - begin).astype("int32")
    bitmap = None if present is None else validity(present)
    buffers = [bitmap, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data[begin:end])]
    return pyarrow.Array.from_buffers(pyarrow.binary(), len(offsets) - 1, buffers)
