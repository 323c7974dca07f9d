"""Archives written by many tasks at once, all of them hidden until the last is complete."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence, Set
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from culm.spark.archive import ABSENT, BLOCK_SIZE_MAX, ArchiveHeader, encode_block
from culm.spark.columns import cuts_of, messages, parts_of
from culm.spark.files import is_hidden, open_system, remove
from culm.spark.partitions import folder_of

if TYPE_CHECKING:
    import pyarrow

#: The suffix of files that are written.
SUFFIX = ".culm"

# File systems that rename a directory in one step.
_RENAMED_WHOLE = frozenset({"local", "hdfs"})


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


def write_partition(
    folder: str, kind: str, batches: Iterator[pyarrow.RecordBatch], by: Sequence[str] = ()
) -> list[str]:
    """Write the batches of a task to files in `folder`; returns their names in there.

    That is one file, or, if directories are named by the values of columns, one for each change of
    these.
    """
    system, inside = open_system(folder)
    system.create_dir(inside)
    names: list[str] = []
    for below, group in groupby(_by_values(batches, by), key=itemgetter(0)):
        name = f"{below}part-{secrets.token_hex(8)}{SUFFIX}"
        system.create_dir(f"{inside}/{below}")
        with system.open_output_stream(f"{inside}/{name}") as file:
            _write_archive(file, kind, (batch for _, batch in group))
        names.append(name)
    return names


def _by_values(
    batches: Iterator[pyarrow.RecordBatch], by: Sequence[str]
) -> Iterator[tuple[str, pyarrow.RecordBatch]]:
    """The batches, cut at changes of the columns' values, each with its directory."""
    for batch in batches:
        if not by:
            yield "", batch
            continue
        columns = [batch.column(name).to_pylist() for name in by]
        values = [
            tuple(None if v is None else str(v) for v in row) for row in zip(*columns, strict=True)
        ]
        at = 0
        for row, same in groupby(values):
            size = sum(1 for _ in same)
            yield f"{folder_of(dict(zip(by, row, strict=True)))}/", batch.slice(at, size)
            at += size


def _write_archive(file: Any, kind: str, batches: Iterator[pyarrow.RecordBatch]) -> None:
    import pyarrow

    marker = secrets.token_bytes(16)
    file.write(ArchiveHeader(kind, marker).encode())
    for batch in batches:
        entries = batch.column("entry")
        absent = pyarrow.nulls(len(entries), pyarrow.binary())
        has_payloads = "payload" in batch.schema.names
        file.write(
            encode_batch(marker, entries, batch.column("payload") if has_payloads else absent)
        )


def commit_partitions(path: str, folder: str, names: Set[str], *, overwrite: bool) -> None:
    """Make the files with these names, in the hidden twin of `folder`, visible.

    Other files there, from tasks that failed or ran twice, are removed.  With `overwrite`, so is
    everything else that a reader of `path` would read.
    """
    from pyarrow import fs

    def inside_of(where: str) -> list[Any]:
        deep = where != inside
        found = system.get_file_info(fs.FileSelector(where, allow_not_found=True, recursive=deep))
        return [each for each in found if deep or not is_hidden(each.base_name)]

    system, inside = open_system(path)
    hidden, target = f"{inside}/.{folder}", f"{inside}/{folder}"
    old = inside_of(inside) if overwrite else []
    for each in inside_of(hidden):
        is_file = each.type == fs.FileType.File
        if is_file and each.path.removeprefix(f"{hidden}/") not in names:
            system.delete_file(each.path)
    if not names:
        system.create_dir(inside)
    elif system.type_name in _RENAMED_WHOLE:
        system.move(hidden, target)
    else:
        system.create_dir(target)
        for name in sorted(names):
            system.create_dir(f"{target}/{name}".rpartition("/")[0])
            system.move(f"{hidden}/{name}", f"{target}/{name}")
        system.delete_dir(hidden)
    for each in old:
        remove(f"{path}/{each.base_name}")
