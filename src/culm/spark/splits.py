"""The parts in which files are read: each is one task's part of one file."""

from __future__ import annotations

from typing import NamedTuple

from culm.spark.files import list_files

__all__ = ["LINES", "SPLIT_SIZE", "TABLES", "Split", "check_split_size", "cut", "plan"]

#: How many bytes of a file one task reads, unless the option ``split_size`` is given.
SPLIT_SIZE = 64 << 20
#: The suffixes of files of lines, and of tables.
LINES = frozenset({".jsonl", ".ndjson"})
TABLES = frozenset({".parquet"})


class Split(NamedTuple):
    """The part of a file that one task reads: all blocks that begin from `start` up to `stop`.

    The file is taken to have `size` bytes, if that is given: it may have grown since.  `is_end`
    says that everything before `start` has been read, and that a block ended there.  A `stop`
    before `start` means that there is nothing to read: up to `start`, another file of the same
    name has been read.
    """

    path: str
    start: int
    stop: int
    column: str = "entry"
    size: int | None = None
    is_end: bool = False


def plan(path: str, split_size: int = SPLIT_SIZE, column: str = "entry") -> list[Split]:
    """The parts in which the files at `path` are read; none of them is opened.

    `column` names the records of tables.

    Raises `FileNotFoundError` if there is nothing, `ValueError` if `split_size` is not positive.
    """
    check_split_size(split_size)
    return [
        split
        for file, size in list_files(path)
        for split in cut(file, 0, max(size, 1), split_size, column)
    ]


def cut(path: str, start: int, stop: int, split_size: int, column: str) -> list[Split]:
    """Cut a file into parts, from `start` up to `stop`, where it ends."""
    return [
        Split(path, at, min(at + split_size, stop), column, stop, at == start)
        for at in range(start, stop, split_size)
    ]


def check_split_size(split_size: int) -> None:
    """Raise `ValueError` unless `split_size` is a positive number of bytes."""
    if split_size < 1:
        raise ValueError(f"split_size is 1 or more bytes, not {split_size}")
