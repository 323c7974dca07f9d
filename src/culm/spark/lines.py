"""Files of lines, as programs export them: each line is a record, mostly JSON.

Lines end with a line feed, before which a carriage return is dropped; what follows the last line
feed is a line, too.  Empty lines are skipped.  The content of a line is not looked at here: whoever
decodes it reports what is wrong, also with a last line that was cut short.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from enum import StrEnum
from typing import IO, NamedTuple, cast

__all__ = ["LINE_SIZE_MAX", "Line", "LineFault", "lines_until", "read_lines"]

_SEARCH_SIZE = 1 << 16

#: How many bytes a line may have.
LINE_SIZE_MAX = 1 << 24


class LineFault(StrEnum):
    """Why a line cannot be read."""

    LONG_LINE = "LONG_LINE"
    """It has more than `LINE_SIZE_MAX` bytes."""


class Line(NamedTuple):
    """A line that begins at byte `offset` of its file; ``None`` stands for one that is too long."""

    offset: int
    data: bytes | None


def read_lines(file: IO[bytes], *, start: int = 0, stop: int | None = None) -> Iterator[Line]:
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
        size, whole = len(data), data.removesuffix(b"\n").removesuffix(b"\r")
        if len(whole) > LINE_SIZE_MAX:
            if not data.endswith(b"\n"):
                size += _skip_line(reader)
            yield Line(at, None)
        elif whole:
            yield Line(at, whole)
        at += size


def lines_until(file: IO[bytes], *, start: int, size: int) -> int:
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
