"""The parts in which files are read: each is what one task reads of one file."""

from __future__ import annotations

from typing import NamedTuple

from culm.spark.files import list_files

__all__ = ["LINES", "SPLIT_SIZE", "TABLES", "Split", "check_split_size", "cut", "plan"]

#: How many bytes of a file one task reads, if the option ``split_size`` says nothing else.
SPLIT_SIZE = 64 << 20
#: How the names of files of lines end, and those of tables.
LINES = frozenset({".jsonl", ".ndjson"})
TABLES = frozenset({".parquet"})


class Split(NamedTuple):
    """The part of a file that one task reads: all blocks that begin from `start` up to `stop`.

    The file is taken to have `size` bytes, if that is given: it may have grown since.  `is_end`
    says that all before `start` has been read, up to where a block ended.  With a `stop` before its
    `start` there is nothing to read: up to `start` another file was read that had this one's name.
    """

    path: str
    start: int
    stop: int
    column: str = "entry"
    size: int | None = None
    is_end: bool = False


def plan(path: str, split_size: int = SPLIT_SIZE, column: str = "entry") -> list[Split]:
    """The parts in which what is at `path` is read; none of the files is opened.

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
    """A file from `start` up to `stop`, where it ends, in parts."""
    return [
        Split(path, at, min(at + split_size, stop), column, stop, at == start)
        for at in range(start, stop, split_size)
    ]


def check_split_size(split_size: int) -> None:
    """Raise `ValueError` unless parts have so many bytes, one or more."""
    if split_size < 1:
        raise ValueError(f"split_size is 1 or more bytes, not {split_size}")
