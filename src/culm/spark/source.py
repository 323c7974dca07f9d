"""Files as a data source of Spark: ``spark.read.format("culm")``, and ``write``.

`register` makes the name known to a session.  Reading gives one row for each record, and one for
each part of a file that cannot be read, so that nothing is dropped silently (`ROWS`).  A path is
a file, or a directory with everything in it except hidden names, on the local file system or on
one that pyarrow knows by its URL.  The suffix of its name tells what a file is:

- ``.jsonl``, ``.ndjson``: a file of lines, each of which is a record;
- ``.parquet``: a table with a column of records (option ``column``, by default ``entry``) and,
  if there, one named ``payload``;
- anything else: an archive of `culm.spark.archive`.

All of them are read in parts of `split_size` bytes, cut where blocks, lines or row groups begin.

Writing takes the columns ``entry`` and, if present, ``payload``, and makes one archive of each
partition, all in a directory of their own.  That is hidden until all are written; on file systems
that can rename directories (the local one, ``hdfs://``) they then appear all at once.  With
``overwrite`` what was there before is removed after that: a job that is killed in between leaves
both, and can be run again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Set
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from culm.spark.archive import (
    ABSENT,
    BLOCK_SIZE_MAX,
    ArchiveError,
    Block,
    Damage,
    Fault,
    Header,
    encode_block,
    read_blocks,
    read_header,
)
from culm.spark.columns import BATCH_SIZE, cuts_of, messages, parts_of, validity
from culm.spark.files import is_hidden, open_file, open_system, remove
from culm.spark.growing import Growing
from culm.spark.lines import LineFault, read_lines
from culm.spark.splits import LINES, SPLIT_SIZE, TABLES, Split, plan
from culm.spark.tables import TableFault, read_row_groups

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

__all__ = ["FILES_MAX", "ROWS", "SUFFIX", "read_split", "register"]

#: The columns of rows that are read.  ``kind`` is what the archive declares, ``block`` is where in
#: the file the row's block, line or row group begins, ``row`` is its number within that.  Where a
#: part of a file cannot be read, ``fault`` says why (`culm.spark.archive.Fault`, `LineFault` or
#: `TableFault`) and ``block`` where; ``entry`` and ``payload`` are null then, and so is ``row``
#: unless it is known.  Lines and tables have no ``kind``.
ROWS = (
    ("entry", "binary"),
    ("payload", "binary"),
    ("kind", "string"),
    ("file", "string"),
    ("block", "bigint"),
    ("row", "int"),
    ("fault", "string"),
)
#: How many files make a batch of a stream, unless the option ``files_max`` is given.
FILES_MAX = 100
#: The suffix of files that are written.
SUFFIX = ".culm"

# File systems that rename a directory in one step.
_RENAMED_WHOLE = frozenset({"local", "hdfs"})

_LINES_MAX = 10_000


def read_split(split: Split) -> Iterator[pyarrow.RecordBatch]:
    """The rows of a split; what cannot be read becomes a row, too, never an error."""
    if split.stop < split.start:
        yield _fault_row(split.path, None, split.start, Fault.REPLACED)
        return
    read = _FORMS.get(PurePosixPath(split.path).suffix, _read_archive)
    try:
        with open_file(split.path) as file:
            yield from read(split, file)
    except OSError:
        yield _fault_row(split.path, None, split.start, Fault.UNREADABLE)


def _read_archive(split: Split, file: IO[bytes]) -> Iterator[pyarrow.RecordBatch]:
    try:
        header = read_header(file)
    except ArchiveError as error:
        # The first part of a file reports the error.
        if not split.start:
            yield _fault_row(split.path, None, 0, error.fault)
        return
    _, start, stop, _, size, is_end = split
    for part in read_blocks(file, header, start=start, stop=stop, size=size, is_end=is_end):
        if isinstance(part, Damage):
            yield _fault_row(split.path, header.kind, part.offset, part.fault)
        else:
            yield from _batches(split.path, header.kind, part)


def _read_lines(split: Split, file: IO[bytes]) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow

    rows: list[dict[str, Any]] = []
    size = 0
    for offset, data in read_lines(file, start=split.start, stop=split.stop):
        fault = LineFault.LONG_LINE if data is None else None
        rows.append({"entry": data, "file": split.path, "block": offset, "row": 0, "fault": fault})
        size += len(data or b"")
        if len(rows) >= _LINES_MAX or size >= BATCH_SIZE:
            yield pyarrow.RecordBatch.from_pylist(rows, _schema())
            rows, size = [], 0
    yield pyarrow.RecordBatch.from_pylist(rows, _schema())


def _read_table(split: Split, file: IO[bytes]) -> Iterator[pyarrow.RecordBatch]:
    import numpy
    import pyarrow

    _, start, stop, column, size, _ = split
    for group in read_row_groups(file, column, start=start, stop=stop, size=size):
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
        ]
        yield pyarrow.RecordBatch.from_arrays(columns, schema=_schema())


_FORMS = {**dict.fromkeys(LINES, _read_lines), **dict.fromkeys(TABLES, _read_table)}


def _schema() -> pyarrow.Schema:
    import pyarrow

    kinds = {
        "binary": pyarrow.binary(),
        "string": pyarrow.string(),
        "bigint": pyarrow.int64(),
        "int": pyarrow.int32(),
    }
    return pyarrow.schema([(name, kinds[kind]) for name, kind in ROWS])


def _fault_row(path: str, kind: str | None, offset: int, fault: Fault) -> pyarrow.RecordBatch:
    import pyarrow

    row = {"kind": kind, "file": path, "block": offset, "fault": str(fault)}
    return pyarrow.RecordBatch.from_pylist([row], _schema())


def _batches(path: str, kind: str, block: Block) -> Iterator[pyarrow.RecordBatch]:
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
            pyarrow.repeat(kind, count),
            pyarrow.repeat(path, count),
            pyarrow.repeat(pyarrow.scalar(block.offset, pyarrow.int64()), count),
            pyarrow.array(numpy.arange(part.start, part.stop, dtype="int32")),
            pyarrow.nulls(count, pyarrow.string()),
        ]
        yield pyarrow.RecordBatch.from_arrays(columns, schema=_schema())


def _values(cuts: Any, data: memoryview, part: slice, present: Any) -> pyarrow.Array:
    """A slice of a binary column of adjacent values."""
    import pyarrow

    begin, end = cuts[part.start], cuts[part.stop]
    offsets = (cuts[part.start : part.stop + 1] - begin).astype("int32")
    bitmap = None if present is None else validity(present)
    buffers = [bitmap, pyarrow.py_buffer(offsets), pyarrow.py_buffer(data[begin:end])]
    return pyarrow.Array.from_buffers(pyarrow.binary(), len(offsets) - 1, buffers)


def encode_batch(marker: bytes, entries: pyarrow.Array, payloads: pyarrow.Array) -> bytes:
    """Blocks of the records of a batch, cut at about 4 MiB.

    Raises `ValueError` if an entry is null or a record is larger than a block can be.
    """
    import numpy

    if entries.null_count:
        raise ValueError("an entry is null: filter rows without one before they are written")
    entry_sizes = numpy.diff(numpy.asarray(messages(entries).offsets)).astype("int64")
    absent = numpy.asarray(payloads.is_null())
    payload_sizes = numpy.diff(numpy.asarray(messages(payloads).offsets)).astype("int64")
    payload_sizes[absent] = 0
    cuts = cuts_of(entry_sizes + payload_sizes)
    blocks = []
    for part in parts_of(cuts):
        start, stop = part.start, part.stop
        if cuts[stop] - cuts[start] > BLOCK_SIZE_MAX:
            raise ValueError(f"a record has at most {BLOCK_SIZE_MAX} bytes")
        sizes = numpy.where(absent[part], ABSENT, payload_sizes[part])
        blocks.append(
            encode_block(
                marker,
                stop - start,
                entry_sizes[part].astype("<u4").tobytes(),
                sizes.astype("<u4").tobytes(),
                _joined(entries[start:stop]),
                _joined(payloads[start:stop].drop_null()),
            )
        )
    return b"".join(blocks)


def _joined(column: pyarrow.Array) -> bytes:
    """The values of a column without nulls, joined."""
    values = messages(column)
    return bytes(values.data[values.offsets[0] : values.offsets[len(column)]])


def register(spark: SparkSession) -> None:
    """Make the format ``culm`` known to `spark`.

    Options are ``path``; for reading ``split_size`` and ``column``, in streams also ``files_max``;
    for writing ``kind``.
    """
    spark.dataSource.register(_data_source())


def _reader_class() -> Any:
    """The class that reads archives in splits; made in a function because its base is Spark's."""
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    class Reader(DataSourceReader):
        def __init__(self, path: str, split_size: int, column: str) -> None:
            self._splits = plan(path, split_size, column)

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(tuple(each)) for each in self._splits]

        def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
            # Of what has no parts Spark asks for one that is none.
            value = partition.value
            return iter(()) if value is None else read_split(Split(*value))

    return Reader


def _stream_reader_class() -> Any:
    """The class that reads archives as they grow."""
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadMaxFiles, SupportsTriggerAvailableNow

    class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self, growing: Growing, files_max: int) -> None:
            self._growing = growing
            self._limit = ReadMaxFiles(files_max)

        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {}

        def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
            files_max = limit.max_files if isinstance(limit, ReadMaxFiles) else None
            return self._growing.after(start, files_max)

        def getDefaultReadLimit(self) -> Any:  # noqa: N802
            return self._limit

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._growing.pin()

        def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
            return [InputPartition(tuple(each)) for each in self._growing.between(start, end)]

        def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
            return read_split(Split(*partition.value))

    return StreamReader


def _writer_class() -> Any:
    """The class that writes a file for each partition, and names them all in the end."""
    from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

    class Written(WriterCommitMessage):
        """A file that is complete, by its name."""

        def __init__(self, name: str) -> None:
            self.name = name

    class Writer(DataSourceArrowWriter):
        def __init__(self, path: str, kind: str, overwrite: bool) -> None:
            self._path = path
            self._kind = kind
            self._overwrite = overwrite
            self._folder = f"part-{secrets.token_hex(8)}"

        def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
            hidden = f"{self._path}/.{self._folder}"
            return Written(write_partition(hidden, self._kind, iterator))

        def commit(self, messages: list[Any]) -> None:
            names = {each.name for each in messages if each is not None}
            commit_partitions(self._path, self._folder, names, overwrite=self._overwrite)

        def abort(self, messages: list[Any]) -> None:
            remove(f"{self._path}/.{self._folder}")

    return Writer


def _data_source() -> Any:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
    )

    reader_class, stream_reader_class = _reader_class(), _stream_reader_class()
    writer_class = _writer_class()

    class Source(DataSource):
        """culm's archive files."""

        @classmethod
        def name(cls) -> str:
            return "culm"

        def schema(self) -> str:
            return ", ".join(f"{name} {kind}" for name, kind in ROWS)

        def reader(self, schema: Any) -> DataSourceReader:
            return reader_class(self._option("path"), *self._reading())

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            files_max = int(self.options.get("files_max", FILES_MAX))
            if files_max < 1:
                raise ValueError(f"files_max is 1 or more, not {files_max}")
            return stream_reader_class(Growing(self._option("path"), *self._reading()), files_max)

        def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
            kind = self._option("kind")
            Header(kind, bytes(16))  # raises if that is no kind
            return writer_class(self._option("path"), kind, overwrite)

        def _reading(self) -> tuple[int, str]:
            size = int(self.options.get("split_size", SPLIT_SIZE))
            return size, str(self.options.get("column", "entry"))

        def _option(self, name: str) -> str:
            value = self.options.get(name)
            if not value:
                raise ValueError(f"the format culm needs the option {name}")
            return str(value)

    return Source


def write_partition(folder: str, kind: str, batches: Iterator[pyarrow.RecordBatch]) -> str:
    """Write the batches of a partition to a file in `folder`; returns its name."""
    import pyarrow

    system, inside = open_system(folder)
    system.create_dir(inside)
    name = f"part-{secrets.token_hex(8)}{SUFFIX}"
    marker = secrets.token_bytes(16)
    with system.open_output_stream(f"{inside}/{name}") as file:
        file.write(Header(kind, marker).encode())
        for batch in batches:
            entries = batch.column("entry")
            absent = pyarrow.nulls(len(entries), pyarrow.binary())
            has_payloads = "payload" in batch.schema.names
            payloads = batch.column("payload") if has_payloads else absent
            file.write(encode_batch(marker, entries, payloads))
    return name


def commit_partitions(path: str, folder: str, names: Set[str], *, overwrite: bool) -> None:
    """Make the files with these names, in the hidden twin of `folder`, visible.

    Other files there, from tasks that failed or ran twice, are removed.  With `overwrite`, so is
    everything else that a reader of `path` would read.
    """
    from pyarrow import fs

    def inside_of(where: str) -> list[Any]:
        found = system.get_file_info(fs.FileSelector(where, allow_not_found=True))
        return [each for each in found if where != inside or not is_hidden(each.base_name)]

    system, inside = open_system(path)
    hidden, target = f"{inside}/.{folder}", f"{inside}/{folder}"
    old = inside_of(inside) if overwrite else []
    for each in inside_of(hidden):
        if each.base_name not in names:
            system.delete_file(each.path)
    if not names:
        system.create_dir(inside)
    elif system.type_name in _RENAMED_WHOLE:
        system.move(hidden, target)
    else:
        system.create_dir(target)
        for name in sorted(names):
            system.move(f"{hidden}/{name}", f"{target}/{name}")
        system.delete_dir(hidden)
    for each in old:
        remove(f"{path}/{each.base_name}")
