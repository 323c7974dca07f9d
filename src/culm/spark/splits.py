"""The parts in which files are read, and their distribution to tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto
from itertools import pairwise
from pathlib import PurePosixPath
from typing import NamedTuple

from culm.spark.archive import READ_SIZE_MAX
from culm.spark.capture_files import block_starts
from culm.spark.files import open_file

#: Bytes of a file that one task reads, unless the option ``split_size`` is given.
SPLIT_SIZE = 64 << 20
# The cost of opening a file, in bytes that could be read at the same cost.
_OPEN_SIZE = 64 << 10
# The least number of tasks to aim at when files are packed.
_TASKS = 64


class FileForm(Enum):
    """The forms of files, as their names tell."""

    ARCHIVE = auto()
    """`culm.spark.archive`."""
    LINES = auto()
    """A record on each line."""
    GZIP_LINES = auto()
    """The same, compressed."""
    TABLE = auto()
    """Parquet."""
    CAPTURE = auto()
    """`culm.capture`."""

    @property
    def grows(self) -> bool:
        """Whether appended bytes can be read by themselves; other files have to be whole."""
        return self in (FileForm.ARCHIVE, FileForm.LINES, FileForm.CAPTURE)

    @property
    def is_cut(self) -> bool:
        """Whether it can be read from the middle on."""
        return self is not FileForm.GZIP_LINES


_FORMS = {
    (".jsonl",): FileForm.LINES,
    (".ndjson",): FileForm.LINES,
    (".jsonl", ".gz"): FileForm.GZIP_LINES,
    (".ndjson", ".gz"): FileForm.GZIP_LINES,
    (".parquet",): FileForm.TABLE,
    (".culmcap",): FileForm.CAPTURE,
}


def form_of(path: str) -> FileForm:
    """The form of a file, by the end of its name in upper or lower case."""
    suffixes = tuple(PurePosixPath(path.lower()).suffixes[-2:])
    return _FORMS.get(suffixes) or _FORMS.get(suffixes[-1:]) or FileForm.ARCHIVE


class Split(NamedTuple):
    """The part of a file that a task reads: all blocks that begin from `start` up to `stop`.

    The file is read as if it had `size` bytes, if that is given: it may have grown since.  With
    `is_end` a block is known to have ended at `start`, and the first `row` rows after it have been
    read.  With a `fault` nothing is read, and the bytes from `start` up to `stop` are reported.
    Blocks larger than `block_size_max` are skipped.
    """

    path: str
    start: int
    stop: int
    column: str = "entry"
    size: int | None = None
    is_end: bool = False
    row: int = 0
    fault: str | None = None
    block_size_max: int = READ_SIZE_MAX


def cut(path: str, start: int, stop: int, split_size: int, column: str) -> list[Split]:
    """Cut a file into at least one part, from `start` up to `stop`, its end."""
    form = form_of(path)
    if form is FileForm.CAPTURE and stop - start > split_size:
        return _cut_capture(path, start, stop, split_size, column)
    if not form.is_cut:
        split_size = max(stop - start, 1)
    return [
        Split(path, at, min(at + split_size, stop), column, stop, at == start)
        for at in range(start, max(stop, start + 1), split_size)
    ]


def _cut_capture(path: str, start: int, stop: int, split_size: int, column: str) -> list[Split]:
    """Cut a capture between blocks, by their heads."""
    cuts: list[int] = []
    try:
        with open_file(path) as file:
            for at in block_starts(file, start=start, size=stop):
                if not cuts or at - cuts[-1] >= split_size:
                    cuts.append(at)
    except OSError:
        cuts = [start]  # its reader reports the fault, or finds that it is gone
    return [
        Split(path, begin, end, column, stop, is_end=True) for begin, end in pairwise([*cuts, stop])
    ]


def pack(splits: Iterable[Split]) -> Iterator[tuple[Split, ...]]:
    """Distribute parts of files to tasks, several small ones to one.

    Small parts that go to one task cost together no more than `SPLIT_SIZE`, nor more than the share
    of each of `_TASKS` tasks.
    """
    given = list(splits)
    most = min(sum(map(_cost, given)) // _TASKS, SPLIT_SIZE)
    packed: list[Split] = []
    size = 0
    for split in given:
        if packed and size + _cost(split) > most:
            yield tuple(packed)
            packed, size = [], 0
        packed.append(split)
        size += _cost(split)
    if packed:
        yield tuple(packed)


def _cost(split: Split) -> int:
    return _OPEN_SIZE + max(split.stop - split.start, 0)


def check_size(name: str, size: int) -> None:
    """Raise `ValueError` unless a size is a positive number of bytes."""
    if size < 1:
        raise ValueError(f"{name} is 1 or more bytes, not {size}")
