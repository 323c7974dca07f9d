"""Files of lines, as programs export them: each line is a record, mostly JSON.

Lines end with a line feed, before which a carriage return is dropped; bytes after the last line
feed are a line, too.  Empty lines are skipped, and so is the mark that some programs put in front
of UTF-8.  The content of a line is not looked at here: its decoder reports errors, also in a last
line that was cut short.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from enum import StrEnum
from typing import IO, Any, NamedTuple, cast

from culm.spark.archive import Readable

#: Errors of a compressed file that is damaged or cut short.
GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)

_UTF8, _UTF16 = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")

_SEARCH_SIZE = 1 << 16

#: Limit in bytes for a line.
LINE_SIZE_MAX = 1 << 24


class LineFault(StrEnum):
    """A reason why a line cannot be read."""

    LONG_LINE = "LONG_LINE"
    """It has more than `LINE_SIZE_MAX` bytes."""
    UTF_16 = "UTF_16"
    """The file is text in UTF-16, by its first two bytes; lines are UTF-8."""
    DAMAGED_GZIP = "DAMAGED_GZIP"
    """The compressed file ends too early, or is damaged: the rest cannot be read."""


class Line(NamedTuple):
    """A line from byte `offset` to `end` of its file; `data` is ``None`` if it is too long."""

    offset: int
    data: bytes | None
    end: int


class GzipText(io.RawIOBase):
    """The text of a compressed file, as far as it can be read; then one of `GZIP_ERRORS`."""

    def __init__(self, file: Readable) -> None:
        super().__init__()
        self._file = gzip.GzipFile(fileobj=cast(IO[bytes], file), mode="rb")

    def readinto(self, buffer: Any) -> int:
        """Read some text into `buffer`; less than fits, perhaps, before the end."""
        data = self._file.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Continue at another position, in time proportional to `offset`."""
        return self._file.seek(offset, whence)

    def readable(self) -> bool:
        """Always true."""
        return True

    def seekable(self) -> bool:
        """Always true."""
        return True


def is_utf16(file: Readable) -> bool:
    """Whether the file begins with the mark of UTF-16."""
    file.seek(0)
    return file.read(2) in _UTF16


def read_lines(file: Readable, *, start: int = 0, stop: int | None = None) -> Iterator[Line]:
    """The lines that begin from byte `start` up to `stop` (by default all).

    A file that is read in adjacent parts gives each line once.
    """
    file.seek(max(start - 1, 0))
    # Files of pyarrow are raw, and their reads are complete.
    reader = io.BufferedReader(cast(io.RawIOBase, file), 1 << 16)
    at = start
    if start:
        at += _skip_line(reader) - 1
    while stop is None or at < stop:
        data = reader.readline(LINE_SIZE_MAX + 2)
        if not data:
            return
        end, whole = at + len(data), data.removesuffix(b"\n").removesuffix(b"\r")
        if not at:
            whole = whole.removeprefix(_UTF8)
        if len(whole) > LINE_SIZE_MAX:
            if not data.endswith(b"\n"):
                end += _skip_line(reader)
            yield Line(at, None, end)
        elif whole:
            yield Line(at, whole, end)
        at = end


def lines_until(file: Readable, *, start: int, size: int) -> int:
    """The end of the readable part of a growing file of lines, after its last line feed.

    `start` is 0 or an earlier result; `size` is the present size of the file.
    """
    at = size
    while at > start:
        before = max(at - _SEARCH_SIZE, start)
        file.seek(before)
        found = file.read(at - before).rfind(b"\n")
        if found >= 0:
            return before + found + 1
        at = before
    return start


def _skip_line(reader: IO[bytes]) -> int:
    """Read up to the end of the line; returns the number of bytes."""
    size = 0
    while data := reader.readline(1 << 16):
        size += len(data)
        if data.endswith(b"\n"):
            break
    return size
