"""Growing files, read as a stream: the position in each, and the parts to be read next.

An offset of the stream maps each file to the number of bytes that have been read.  An archive
or a capture is read up to its last complete block, lines up to the last line feed: the rest may be
unfinished, and is read once it is complete.  A table has to be complete when it gets its name, and
so does a compressed file; the stream waits for a table that is not.  Bytes between readable blocks
are damage, and are reported.  A file that has become shorter than the part already read, or a
complete one of another size, must be another one in its place: that is reported, too, and it is
read from its beginning.

An unreadable file has no known size, so nothing of it counts as read: it is reported once
(``WAITING``), and read when that is possible.  An offset notes this as ``[read, told]``.

A file that has not changed since it was last looked at is not opened again: damage in it may be
followed by gigabytes without a marker.

Files stand in an offset as in a queue: new ones join at the end, and so does a file that is read in
a batch.  So each has its turn, whatever the others do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from culm.spark.archive import ArchiveFault, whole_until
from culm.spark.capture_files import captured_until
from culm.spark.errors import OnError
from culm.spark.files import Found, WatchedFile, canonical, open_file
from culm.spark.lines import lines_until
from culm.spark.options import Reading
from culm.spark.splits import FileForm, Split, form_of

#: The bytes read of each file; for one that is waited for, also the size that was told of it.
Offset = Mapping[str, int | Sequence[int]]

_TABLE_END = (b"PAR1", b"PARE")


class Growing:
    """The files at some paths, as they grow.

    A pattern waits for files that match it.  Raises `FileNotFoundError` if there is nothing at
    another path.
    """

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._pinned: Mapping[str, int | None] | None = None
        self._looked: dict[str, tuple[int, Found]] = {}
        self._find()

    def pin(self) -> None:
        """From now on, ignore files and bytes that arrive later."""
        self._pinned = {file: found.size for file, found in self._find().items()}

    def after(self, start: Offset, files_max: int | None = None) -> Offset:
        """The next offset, further in at most `files_max` files; `start` if nothing is new.

        Raises `OSError` if the file system fails, unless the policy is to wait.
        """
        there = self._find()
        names = {canonical(file): file for file in there}
        start = {names.get(file, file): value for file, value in _canonical(start).items()}
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
        """The parts to be read between two offsets."""
        splits: list[Split] = []
        start = _canonical(start)
        for file, value in end.items():
            before = start.get(canonical(file), 0)
            if value == before:
                continue
            done, stop = _read(before), _read(value)
            if stop < done or (0 < done != stop and not form_of(file).grows):
                splits.append(Split(file, done, done, fault=ArchiveFault.REPLACED))
                done = 0
            if done < stop:
                splits += self._reading.cut(file, done, stop)
            if not isinstance(value, int):
                splits.append(Split(file, stop, max(value), fault=ArchiveFault.WAITING))
        return sorted(splits, key=lambda split: split.path)

    def _find(self) -> dict[str, Found]:
        """The files, with sizes as pinned."""
        found = {each.path: each for each in self._reading.find(empty_allowed=True)}
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
        """The value of a file in the next offset; ``None`` if nothing is new."""
        file, size = found.path, found.size
        done = _read(before or 0)
        waiting = None if isinstance(before, Sequence) else [done, max(done, size or 0)]
        if size is None:
            return waiting
        if size == done or self._looked.get(file) == (done, found):
            return None
        try:
            with open_file(file) as opened:
                end = self._end(form_of(file), opened, done if done < size else 0, size)
        except FileNotFoundError:
            return None  # removed in the meantime
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

    def _end(self, form: FileForm, file: WatchedFile, start: int, size: int) -> int | None:
        """The end of the readable part of a file, of which all before `start` has been read.

        ``None`` if it has to be complete, and is not.
        """
        if form is FileForm.TABLE:
            file.seek(max(size - 4, 0))
            return size if file.read(4) in _TABLE_END else None
        if form is FileForm.GZIP_LINES:
            return size
        if form is FileForm.LINES:
            return lines_until(file, start=start, size=size)
        if form is FileForm.CAPTURE:
            return captured_until(file, start=start, size=size)
        return whole_until(file, start=start, size=size, size_max=self._reading.block_size_max)


def _canonical(offset: Offset) -> Offset:
    """An offset with each path in its one form: a query may spell it otherwise than an earlier one.

    Older offsets have paths as they were given.
    """
    return {canonical(file): value for file, value in offset.items()}


def _read(value: int | Sequence[int]) -> int:
    return value if isinstance(value, int) else value[0]
