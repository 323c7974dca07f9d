"""Growing archives, whose records are verified as they arrive, each once, in spite of crashes.

As a stream, the format ``culm`` notes its position in each file in the checkpoint.  A batch is
written to a directory named by its number, in place of an earlier one: a batch that is repeated
after a crash has the same rows, so that in the end each is there once.  Verification looks at each
record by itself and needs no state: the order, repetition or delay of records does not matter, nor
does it to an audit of everything so far (`culm.spark.audits`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from culm.spark.files import escaped, list_files, open_system, read_table, remove

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Spark's mark of a complete table.
_WHOLE = "_SUCCESS"


def write_batches(
    stream: DataFrame,
    output: str,
    checkpoint: str,
    *,
    until_all: bool = False,
    then: Callable[[DataFrame, int], None] | None = None,
) -> Any:
    """Start to write `stream` to Parquet below `output`; returns the ``StreamingQuery``.

    Progress is noted in `checkpoint`: a query with the same checkpoint continues where the last one
    stopped, however that ended.  With `until_all` it ends when it has written all present records,
    otherwise it waits for more.  `then` is called with the rows that each batch has written, and
    its number; after a crash it may be called again for the same batch.

    Raises ``FileExistsError`` if `output` has batches that `checkpoint` does not know: their rows
    would be written once more, beside them and in their place.
    """
    if _has_files(output) and not _has_files(f"{checkpoint}/offsets"):
        raise FileExistsError(f"the batches at {output} are not of the checkpoint {checkpoint}")
    writer = stream.writeStream.option("checkpointLocation", checkpoint)
    if until_all:
        writer = writer.trigger(availableNow=True)
    return writer.foreachBatch(partial(_write, output=output, then=then)).start()


def _has_files(path: str) -> bool:
    try:
        return bool(list_files(path))
    except FileNotFoundError:
        return False


def _write(
    batch: DataFrame, number: int, *, output: str, then: Callable[[DataFrame, int], None] | None
) -> None:
    path = f"{output}/batch={number}"
    remove(f"{path}/{_WHOLE}")
    batch.write.mode("overwrite").parquet(path)
    if then is not None:
        then(read_table(batch.sparkSession, path), number)


def read_batches(spark: SparkSession, output: str) -> DataFrame:
    """All rows that `write_batches` has written so far, with the ``batch`` (bigint) of each.

    A batch that is still being written, or whose writer was killed, is left out: Spark marks a
    complete table by a file ``_SUCCESS``.  Raises `FileNotFoundError` if no batch is complete.
    """
    from pyarrow import fs

    system, inside = open_system(output)
    found = system.get_file_info(fs.FileSelector(inside, allow_not_found=True))
    names = [each.base_name for each in found if each.base_name.startswith("batch=")]
    notes = system.get_file_info([f"{inside}/{name}/{_WHOLE}" for name in names])
    whole = [name for name, note in zip(names, notes, strict=True) if note.is_file]
    if not whole:
        raise FileNotFoundError(f"there is no batch at {output} yet")
    paths = [f"{escaped(output)}/{name}" for name in sorted(whole)]
    rows = spark.read.option("basePath", output).parquet(*paths)
    # A session may leave such columns as the text in the path.
    return rows.withColumn("batch", rows["batch"].cast("bigint"))
