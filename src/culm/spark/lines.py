"""Files of lines, as programs export them: each line is a record, mostly JSON.

Lines end with a line feed, before which a carriage return is dropped; what follows the last line
feed is a line, too.  Empty lines are skipped, and so is the mark that some programs put in front of
UTF-8.  The content of a line is not looked at here: whoever decodes it reports what is wrong, also
with a last line that was cut short.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from enum import StrEnum
from typing import IO, Any, NamedTuple, cast

from culm.spark.archive import Readable

__all__ = [
    "GZIP_ERRORS",
    "LINE_SIZE_MAX",
    "GzipText",
    "Line",
    "LineFault",
    "is_utf16",
    "lines_until",
    "read_lines",
]

#: What is raised where a compressed file is damaged or cut short.
GZIP_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)

_UTF8, _UTF16 = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")

_SEARCH_SIZE = 1 << 16

#: How many bytes a line may have.
LINE_SIZE_MAX = 1 << 24


class LineFault(StrEnum):
    """Why a line cannot be read."""

    LONG_LINE = "LONG_LINE"
    """It has more than `LINE_SIZE_MAX` bytes."""
    UTF_16 = "UTF_16"
    """The file is text in UTF-16, by the mark in front of it; lines are UTF-8."""
    DAMAGED_GZIP = "DAMAGED_GZIP"
    """The compressed file ends too early, or is damaged: what follows cannot be read."""


class Line(NamedTuple):
    """A line from byte `offset` to `end` of its file; ``None`` stands for one that is too long."""

    offset: int
    data: bytes | None
    end: int


class GzipText(io.RawIOBase):
    """The text of a compressed file, as far as it can be had; then one of `GZIP_ERRORS`."""

    def __init__(self, file: Readable) -> None:
        super().__init__()
        self._file = gzip.GzipFile(fileobj=cast(IO[bytes], file), mode="rb")

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` with what there is already."""
        data = self._file.read1(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go on from there, which takes time in proportion to `offset`."""
        return self._file.seek(offset, whence)

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True


def is_utf16(file: Readable) -> bool:
    """Whether the file says to be text in UTF-16."""
    file.seek(0)
    return file.read(2) in _UTF16


def read_lines(file: Readable, *, start: int = 0, stop: int | None = None) -> Iterator[Line]:
    """The lines that begin from byte `start` up to `stop` (by default all).

    A file that is read in parts, each up to where the next one starts, gives each line once.
    """
    file.seek(max(start - 1, 0))
    # Files of pyarrow are raw, and read all of what they are asked for.
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
    """How far a file of lines that is still being written can be read: to its last line feed.

    `start` is 0 or an earlier result; `size` is how many bytes there are.
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
