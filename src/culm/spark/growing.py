"""Files that grow, read as a stream: how far each has been read, and what is to be read next.

An offset of the stream maps each file to the number of bytes that have been read.  An archive is
read up to its last complete block, lines up to the last line feed: what follows may still be being
written, and is read once it is complete.  A table has to be complete when it gets its name, and so
does a compressed file; a table that is not is waited for.  What lies between readable blocks is
damage, and is reported.  A file that is shorter than what has been read of it, or a complete one of
another size, must be another one in its place: that is reported, too, and it is read from its
beginning.

Nobody knows the size of what cannot be read, so nothing of it counts as read: it is told once
(``WAITING``), and read when it can be.  An offset notes that as ``[read, told]``.

A file that has not changed since it was last looked at is not opened again: behind what is damaged
there may be gigabytes without a marker.

Files stand in an offset as in a queue: new ones join at the end, and so does a file of which
something is read in a batch.  So each has its turn, whatever the others do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from culm.spark.archive import Fault, whole_until
from culm.spark.errors import OnError
from culm.spark.files import Found, WatchedFile, absolute, open_file
from culm.spark.lines import lines_until
from culm.spark.options import Reading
from culm.spark.splits import Form, Split, cut, form_of

__all__ = ["Growing", "Offset"]

#: Of each file how many bytes have been read; if it is waited for, also what was told of it.
Offset = Mapping[str, int | Sequence[int]]

_TABLE_END = (b"PAR1", b"PARE")


class Growing:
    """The files at some paths, as they grow.  Raises `FileNotFoundError` if nothing is there."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._pinned: Mapping[str, int | None] | None = None
        self._looked: dict[str, tuple[int, Found]] = {}
        self._find()

    def pin(self) -> None:
        """From now on, ignore what arrives later."""
        self._pinned = {file: found.size for file, found in self._find().items()}

    def after(self, start: Offset, files_max: int | None = None) -> Offset:
        """The next offset, further in at most `files_max` files; `start` if nothing is new.

        Raises `OSError` if the file system fails, unless that is to be waited for.
        """
        there = self._find()
        start = _from_root(start)
        queue = {**start, **{file: 0 for file in there if file not in start}}
        moved: dict[str, int | Sequence[int]] = {}
        for file in queue:
            if len(moved) == files_max:
                break
            if file in there and (now := self._now(start.get(file), there[file])) is not None:
                moved[file] = now
        if not moved:
            return start
        return {**{file: each for file, each in queue.items() if file not in moved}, **moved}

    def between(self, start: Offset, end: Offset) -> list[Split]:
        """The parts in which what lies between two offsets is read."""
        splits: list[Split] = []
        start, end = _from_root(start), _from_root(end)
        for file, value in end.items():
            before = start.get(file, 0)
            if value == before:
                continue
            done, stop = _read(before), _read(value)
            if stop < done or (0 < done != stop and not form_of(file).grows):
                splits.append(Split(file, done, done, fault=Fault.REPLACED))
                done = 0
            if done < stop:
                reading = self._reading
                splits += cut(file, done, stop, reading.split_size, reading.column)
            if not isinstance(value, int):
                splits.append(Split(file, stop, max(value), fault=Fault.WAITING))
        return sorted(splits, key=lambda split: split.path)

    def _find(self) -> dict[str, Found]:
        """The files that are there, no longer than they may be."""
        found = {each.path: each for each in self._reading.find()}
        pinned = self._pinned
        if pinned is None:
            return found
        return {
            file: each
            if each.size is None
            else each._replace(size=min(each.size, pinned[file] or 0))
            for file, each in found.items()
            if file in pinned
        }

    def _now(self, before: int | Sequence[int] | None, found: Found) -> int | Sequence[int] | None:
        """What the next offset says of a file; ``None`` if nothing is new."""
        file, size = found.path, found.size
        done = _read(before or 0)
        waiting = None if isinstance(before, Sequence) else [done, max(done, size or 0)]
        if size is None:
            return waiting
        if size == done or self._looked.get(file) == (done, found):
            return None
        try:
            with open_file(file) as opened:
                end = _end(form_of(file), opened, done if done < size else 0, size)
        except FileNotFoundError:
            return None  # it has gone in between
        except OSError:
            if self._reading.on_io_error is OnError.FAIL:
                raise
            return waiting
        if end not in (None, done):
            return end
        if end is None and waiting is not None:
            return waiting
        self._looked[file] = (done, found)
        return None


def _from_root(offset: Offset) -> Offset:
    """An offset in which files have the names that are found; older ones had those given."""
    return {absolute(file): value for file, value in offset.items()}


def _read(value: int | Sequence[int]) -> int:
    return value if isinstance(value, int) else value[0]


def _end(form: Form, file: WatchedFile, start: int, size: int) -> int | None:
    """How far a file of that size can be read, of which all before `start` has been.

    ``None`` if it has to be complete, and is not.
    """
    if form is Form.TABLE:
        file.seek(max(size - 4, 0))
        return size if file.read(4) in _TABLE_END else None
    if form is Form.GZIP_LINES:
        return size
    look = lines_until if form is Form.LINES else whole_until
    return look(file, start=start, size=size)
