"""Archives that grow: files are verified as they come, each once, whatever happens on the way.

Spark's own file source notes which files it has seen, in the checkpoint; what is in them is read as
`culm.spark.source` does.  A batch is written to a directory of its number, in place of what may
be there: a batch that is done again after a crash has the same files, so that in the end each row
is there once.  Verification looks at each record by itself, and so needs no state: order,
repetition and delay of files make no difference to it, nor to an audit of all that has come.

A file has to be there as a whole when it gets its name: write it elsewhere, or under a hidden
name, and move it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from culm.spark.columns import schema_text
from culm.spark.source import ROWS, Split, read_split

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["follow_files", "read_batches", "write_batches"]

_FILES = "path string, modificationTime timestamp, length bigint, content binary"


def follow_files(
    spark: SparkSession, path: str, *, column: str = "entry", files_max: int = 100
) -> DataFrame:
    """The rows of all files below `path`, and of those to come: a streaming DataFrame of `ROWS`.

    At most `files_max` files make a batch; each file is read by one task.  What cannot be read is
    a row with a ``fault``, as always.
    """
    files = (
        spark.readStream.format("binaryFile")
        .schema(_FILES)
        .option("recursiveFileLookup", "true")
        .option("maxFilesPerTrigger", str(files_max))
        .load(path)
    )
    # Names and sizes are all that is asked for: Spark does not read the contents then.
    work = partial(_rows, column=column)
    return files.select("path", "length").mapInArrow(work, schema_text(ROWS))


def _rows(batches: Iterator[pyarrow.RecordBatch], *, column: str) -> Iterator[pyarrow.RecordBatch]:
    for batch in batches:
        for path, size in zip(*(each.to_pylist() for each in batch.columns), strict=True):
            # Spark writes file:/here where others write /here.
            local = path.removeprefix("file:")
            yield from read_split(Split(local, 0, size, column))


def write_batches(
    stream: DataFrame,
    output: str,
    checkpoint: str,
    *,
    until_all: bool = False,
    then: Callable[[DataFrame, int], None] | None = None,
) -> Any:
    """Start to write `stream` to Parquet below `output`; the ``StreamingQuery`` that does it.

    What has been done is noted in `checkpoint`: a query with the same one goes on where the last
    one was, however that has ended.  With `until_all` it ends when it has written all that
    is there, else it waits for more.  `then` is called with what each batch has written, and its
    number; it may be called again for the same one after a crash.
    """
    writer = stream.writeStream.option("checkpointLocation", checkpoint)
    if until_all:
        writer = writer.trigger(availableNow=True)
    return writer.foreachBatch(partial(_write, output=output, then=then)).start()


def _write(
    batch: DataFrame,
    number: int,
    *,
    output: str,
    then: Callable[[DataFrame, int], None] | None,
) -> None:
    path = f"{output}/batch={number}"
    batch.write.mode("overwrite").parquet(path)
    if then is not None:
        then(batch.sparkSession.read.parquet(path), number)


def read_batches(spark: SparkSession, output: str) -> DataFrame:
    """All that `write_batches` has written so far, with the number of the ``batch``."""
    return spark.read.option("basePath", output).parquet(f"{output}/batch=*")
