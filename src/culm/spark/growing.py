"""Files that grow, read as a stream: how far each has been read, and what is to be read next.

An offset of the stream maps each file to the number of bytes that have been read.  An archive is
read up to its last complete block, lines up to the last line feed: what follows may still be being
written, and is read once it is complete.  A table has to be complete when it gets its name, and so
does a file of any other kind.  What lies between readable blocks is damage, and is reported.  A
file that is shorter than what has been read of it must be another one in its place: that is
reported, too, and it is read from its beginning.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from culm.spark.archive import whole_until
from culm.spark.files import list_files, open_file
from culm.spark.lines import lines_until
from culm.spark.splits import LINES, TABLES, Split, check_split_size, cut

__all__ = ["Growing"]


class Growing:
    """The files at a path, as they grow.

    Raises `FileNotFoundError` if nothing is there yet, `ValueError` unless `split_size` > 0.
    """

    def __init__(self, path: str, split_size: int, column: str) -> None:
        check_split_size(split_size)
        list_files(path)
        self._path = path
        self._split_size = split_size
        self._column = column
        self._pinned: Mapping[str, int] | None = None

    def pin(self) -> None:
        """From now on, ignore what arrives later."""
        self._pinned = dict(list_files(self._path))

    def after(self, start: Mapping[str, int], files_max: int | None = None) -> dict[str, int]:
        """The next offset, further in at most `files_max` files; `start` if nothing is new."""
        found = dict(start)
        moved = 0
        for file, size in list_files(self._path):
            if moved == files_max:
                break
            if self._pinned is not None:
                if file not in self._pinned:
                    continue
                size = min(size, self._pinned[file])
            done = start.get(file, 0)
            if size != done and (end := _end(file, done if done < size else 0, size)) != done:
                found[file] = end
                moved += 1
        return found

    def between(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[Split]:
        """The parts in which what lies between two offsets is read."""
        splits: list[Split] = []
        for file, stop in sorted(end.items()):
            done = start.get(file, 0)
            if stop < done:
                splits.append(Split(file, done, stop, self._column))
                done = 0
            splits += cut(file, done, stop, self._split_size, self._column)
        return splits


def _end(path: str, start: int, size: int) -> int:
    """Up to where a file of that size can be read, of which all before `start` has been."""
    suffix = PurePosixPath(path).suffix
    if suffix in TABLES:
        return size
    look = lines_until if suffix in LINES else whole_until
    try:
        with open_file(path) as file:
            return look(file, start=start, size=size)
    except OSError:
        return size  # whoever reads it reports the error
