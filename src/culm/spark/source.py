"""Files as a data source of Spark: ``spark.read.format("culm")``, and ``write``.

`register` makes the name known to a session.  Reading gives one row for each record, and one for
each part of a file that cannot be read, so that nothing is dropped silently (`ROWS`).  A path is
a file, or a directory with everything in it except hidden names, on the local file system or on
one that pyarrow knows by its URL, or a pattern (`culm.spark.paths`); there may be several.  The
suffix of a file's name tells its form:

- ``.jsonl``, ``.ndjson``: a file of lines, each of which is a record; followed by ``.gz`` a
  compressed one;
- ``.parquet``: a table with a column of records (option ``column``, by default ``entry``) and,
  if there, one named ``payload``;
- ``.culmcap``: a capture, each block of which is a record (`culm.spark.captures`);
- anything else: an archive of `culm.spark.archive`.

All but compressed ones are read in parts of `split_size` bytes, cut where blocks, lines or row
groups begin (in captures, of which the heads of all blocks are read for that, before any task
begins); many small parts make one task.  If the file system fails, so does the
task, or (``on_io_error=quarantine``) a row names the part that could not be read; `read_again`
reads it.

Writing takes the columns ``entry`` and, if present, ``payload``, and makes one archive of each
partition, all in a directory of their own.  That is hidden until all are written; on file systems
that can rename directories (the local one, ``hdfs://``) they then appear all at once.  With
``overwrite`` earlier files are removed after that: a job that is killed in between leaves both, and
can be run again.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from culm.spark.archive import ArchiveFault
from culm.spark.columns import check_columns, schema_text
from culm.spark.errors import ColumnError
from culm.spark.files import absolute, exists, remove
from culm.spark.growing import Growing, Offset
from culm.spark.kinds import KINDS, Kind
from culm.spark.options import FILES_MAX, READ, STREAMED, WRITTEN, Reading, check_known, plan
from culm.spark.partitions import names_in, values_of
from culm.spark.reading import ROWS, read_split, rest_of
from culm.spark.splits import Split, pack
from culm.spark.verifying import SIZES, verified, verified_columns
from culm.spark.workers import Batches, freeze, settled
from culm.spark.writing import commit_partitions, write_partition
from culm.wire.json import read_json

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

#: Spark's names for the treatment of earlier files.
SAVE_MODES = ("append", "overwrite", "error", "errorifexists", "default", "ignore")
# The columns that name an unread part of a file.
_UNREAD = (("file", "string"), ("block", "bigint"), ("row", "int"), ("block_end", "bigint"))


def register(spark: SparkSession) -> None:
    """Make the format ``culm`` known to `spark`; its options are in `culm.spark.options`."""
    spark.dataSource.register(_data_source())


def read_again(rows: DataFrame, *, column: str = "entry", on_io_error: str = "fail") -> DataFrame:
    """Read the parts of files that are named by rows with the fault ``UNREADABLE``.

    `rows` are those of the format ``culm``, or of a table of quarantine; those with other faults,
    or none, are passed over.  Together with the earlier rows the result has each record once.  The
    rows are collected.

    Raises `ColumnError` if a column that names the parts is missing.
    """
    fault = "reason" if "reason" in rows.columns else "fault"
    check_columns(rows, [*_UNREAD, (fault, "string")])
    named = rows.filter(f"{fault} = '{ArchiveFault.UNREADABLE}'")
    found = named.select(*(name for name, _ in _UNREAD)).distinct().collect()
    rests = [
        rest_of(each.file, each.block, each.row, each.block_end, column)
        for each in sorted(found, key=lambda each: (each.file, each.block))
        if each.block_end
    ]
    # Not even the size of these files was known.
    paths = sorted(each.file for each in found if not each.block_end)
    register(rows.sparkSession)
    reader = rows.sparkSession.read.format("culm").option("on_io_error", on_io_error)
    options = {"column": column, "rests": json.dumps(rests), "paths": json.dumps(paths)}
    return reader.options(**options).load()


def write(
    frame: DataFrame, path: str, *, kind: str, mode: str = "error", partition_by: Sequence[str] = ()
) -> None:
    """Write archives of `kind`; `mode` is one of `SAVE_MODES`.

    Spark itself gives a format in Python no other modes than ``append`` and ``overwrite``, and no
    ``partitionBy``.  Raises `FileExistsError` in the mode ``error`` if there is something, and
    `ColumnError` if a column is missing.
    """
    if mode not in SAVE_MODES:
        raise ValueError(f"a mode is one of {', '.join(SAVE_MODES)}, not {mode}")
    if mode not in ("append", "overwrite"):
        if exists(path):
            if mode == "ignore":
                return
            raise FileExistsError(f"there is something at {path} already")
        mode = "append"
    register(frame.sparkSession)
    kinds = dict(frame.dtypes)
    check_columns(frame, [(name, kinds.get(name, "any type")) for name in partition_by])
    if partition_by:
        frame = frame.sortWithinPartitions(*partition_by)
    writer = frame.write.format("culm").option("kind", kind)
    writer = writer.option("partition_by", json.dumps(list(partition_by)))
    writer.mode(mode).save(absolute(path))


def _read_packed(value: Any, reading: Reading, names: Sequence[str]) -> Batches:
    """The columns with these `names` for the splits of a task; without a task there are none."""
    kind = _kind_of(reading)
    if kind is None:
        return settled(_batches(value, reading, names))
    taken = dict.fromkeys((*dict(ROWS), *names))
    for name in (*dict(SIZES), *(name for name, _ in kind.made if name != "fault")):
        taken.pop(name, None)
    return verified(_batches(value, reading, list(taken)), kind, names)


def _batches(value: Any, reading: Reading, names: Sequence[str]) -> Batches:
    import pyarrow

    for split in (Split(*each) for each in value or ()):
        said = values_of(split.path, reading.paths)
        for batch in read_split(split, reading.on_io_error):
            columns = [
                batch.column(name)
                if name in batch.schema.names
                else pyarrow.repeat(pyarrow.scalar(said.get(name), pyarrow.string()), len(batch))
                for name in names
            ]
            yield pyarrow.RecordBatch.from_arrays(columns, names=list(names))


def _kind_of(reading: Reading) -> Kind | None:
    """The kind as which records are verified.  Raises `ValueError` for an unknown one."""
    if reading.verify is None:
        return None
    if reading.verify not in KINDS:
        raise ValueError(f"the format culm verifies {', '.join(KINDS)}, and not {reading.verify}")
    return KINDS[reading.verify]


def _columns(reading: Reading, added: Sequence[str] = ()) -> list[tuple[str, str]]:
    """The columns of the rows, those `added` by the names of directories among them."""
    columns = [*ROWS, *((name, "string") for name in added)]
    kind = _kind_of(reading)
    return columns if kind is None else verified_columns(columns, kind)


def names_of(schema: Any, reading: Reading) -> list[str]:
    """The names of the wanted columns.  Raises `ColumnError` for another type."""
    kinds = dict(ROWS) | dict(_columns(reading))
    for field in schema.fields:
        wanted, found = kinds.get(field.name, "string"), field.dataType.simpleString()
        if found != wanted:
            raise ColumnError(field.name, wanted, found)
    return [field.name for field in schema.fields]


def _reader_class() -> Any:
    """The class that reads archives in splits; made in a function because its base is Spark's."""
    from pyspark.sql.datasource import DataSourceReader, InputPartition

    class SplitReader(DataSourceReader):
        def __init__(self, reading: Reading, names: Sequence[str]) -> None:
            self._reading = reading
            self._names = names

        def partitions(self) -> list[InputPartition]:
            # A reader is sent to each task, so it does not hold the splits of all.
            packed = pack(plan(self._reading))
            return [InputPartition(tuple(map(tuple, each))) for each in packed]

        def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
            return _read_packed(partition.value, self._reading, self._names)

    return SplitReader


def _stream_reader_class() -> Any:
    """The class that reads archives as they grow."""
    from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
    from pyspark.sql.streaming.datasource import ReadMaxFiles, SupportsTriggerAvailableNow

    class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self, reading: Reading, names: Sequence[str], files_max: int) -> None:
            self._reading = reading
            self._names = names
            self._growing = Growing(reading)
            self._limit = ReadMaxFiles(files_max)

        def initialOffset(self) -> Offset:  # noqa: N802
            return {}

        def latestOffset(self, start: Offset, limit: Any) -> Offset:  # noqa: N802
            files_max = limit.max_files if isinstance(limit, ReadMaxFiles) else None
            return self._growing.after(start, files_max)

        def getDefaultReadLimit(self) -> Any:  # noqa: N802
            return self._limit

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            self._growing.pin()

        def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
            packed = pack(self._growing.between(start, end))
            return [InputPartition(tuple(map(tuple, each))) for each in packed]

        def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
            return _read_packed(partition.value, self._reading, self._names)

    return StreamReader


def _writer_class() -> Any:
    """The class that writes hidden files for each partition, and makes all visible in the end."""
    from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

    class Written(WriterCommitMessage):
        """Files that are complete, by their names."""

        def __init__(self, names: Sequence[str]) -> None:
            self.names = names

    class PartWriter(DataSourceArrowWriter):
        def __init__(self, path: str, kind: str, by: Sequence[str], overwrite: bool) -> None:
            self._path = path
            self._kind = kind
            self._by = by
            self._overwrite = overwrite
            self._folder = f"part-{secrets.token_hex(8)}"

        def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
            hidden = f"{self._path}/.{self._folder}"
            return Written(write_partition(hidden, self._kind, iterator, self._by))

        def commit(self, messages: list[Any]) -> None:
            names = {name for each in messages if each is not None for name in each.names}
            commit_partitions(self._path, self._folder, names, overwrite=self._overwrite)

        def abort(self, messages: list[Any]) -> None:
            remove(f"{self._path}/.{self._folder}")

    return PartWriter


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

        def __init__(self, options: dict[str, str]) -> None:
            super().__init__(options)
            freeze()

        @classmethod
        def name(cls) -> str:
            return "culm"

        def schema(self) -> str:
            check_known(self.options, (*READ, *STREAMED), "reading")
            reading = Reading.of(self.options)
            files = (each.path for each in reading.find())
            added = names_in(files, reading.paths, dict(ROWS) | dict(_columns(reading)))
            return schema_text(_columns(reading, added))

        def reader(self, schema: Any) -> DataSourceReader:
            check_known(self.options, READ, "reading")
            reading = Reading.of(self.options)
            return reader_class(reading, names_of(schema, reading))

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
            check_known(self.options, STREAMED, "a stream")
            files_max = int(self.options.get("files_max", FILES_MAX))
            if files_max < 1:
                raise ValueError(f"files_max is 1 or more, not {files_max}")
            reading = Reading.of(self.options)
            return stream_reader_class(reading, names_of(schema, reading), files_max)

        def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
            check_known(self.options, WRITTEN, "writing")
            kind = self._option("kind")
            if kind not in KINDS:
                raise ValueError(f"the format culm writes {', '.join(KINDS)}, and no kind {kind}")
            by = read_json(self.options.get("partition_by", "[]"))
            for name in by:
                if name not in schema.names or name in ("entry", "payload"):
                    raise ColumnError(name, "any type", None)
            return writer_class(absolute(self._option("path")), kind, by, overwrite)

        def _option(self, name: str) -> str:
            value = self.options.get(name)
            if not value:
                raise ValueError(f"the format culm needs the option {name}")
            return str(value)

    return Source
