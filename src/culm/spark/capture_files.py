"""The blocks of captures in files.

Blocks have no mark by which they are found from the middle of a file: a capture of a program that
copies captures has blocks in its payloads.  So they are found from the beginning, from head to
head, and the planner of its parts cuts a large capture between blocks (`block_starts`).  A
block that is not as it was written is passed over by the size in its head; where no head can
be, the rest of the file is one damage.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from culm.capture.blocks import (
    BLOCK_SIZE_MAX,
    FRONT_SIZE_MAX,
    HEAD_SIZE,
    BlockHead,
    compression_of,
    open_block,
)
from culm.capture.compression import Compression
from culm.capture.errors import CaptureError
from culm.spark.archive import Readable

#: The ``kind`` of rows of captures.
KIND = "capture"


class CaptureFault(StrEnum):
    """A reason why a part of a capture cannot be read."""

    NO_CAPTURE = "NO_CAPTURE"
    """The file does not begin as a capture does."""
    UNKNOWN_VERSION = "UNKNOWN_VERSION"
    """It is of a version that is not known here."""
    UNKNOWN_COMPRESSION = "UNKNOWN_COMPRESSION"
    """Its blocks are compressed in a way that is not known, or not installed, here."""
    DAMAGED_BLOCK = "DAMAGED_BLOCK"
    """A block is not as it was written, or there is none where one should be."""
    TRUNCATED_BLOCK = "TRUNCATED_BLOCK"
    """The file ends before the block does, as when a process was killed while it wrote."""
    LARGE_BLOCK = "LARGE_BLOCK"
    """The block is larger than a reader allows (`block_size_max`): it was not read."""
    BAD_RECORD = "BAD_RECORD"
    """A record is no step, or names something that does not exist."""


class CapturePart(NamedTuple):
    """Bytes of a file from `offset` to `end`: a block with its `records`, or a `fault`."""

    offset: int
    end: int
    records: bytes | None
    fault: CaptureFault | None = None


def read_capture(
    file: Readable,
    *,
    start: int,
    size: int,
    stop: int | None = None,
    size_max: int = BLOCK_SIZE_MAX,
) -> Iterator[CapturePart]:
    """The blocks that begin from `start`, where one does, or 0, up to `stop`, or the file's end.

    `size` is that of the file.

    Takes the memory of one block, of at most `size_max` bytes, as stored and as it was.
    """
    begun = _beginning(file, size)
    if isinstance(begun, CaptureFault):
        if not start:
            yield CapturePart(0, size, None, begun)
        return
    compression, front = begun
    at = max(start, front)
    while at < (size if stop is None else min(stop, size)):
        part = _part_at(file, at, size, size_max, compression)
        yield part
        at = part.end


def _beginning(file: Readable, size: int) -> tuple[Compression, int] | CaptureFault:
    file.seek(0)
    try:
        begun = compression_of(file.read(min(FRONT_SIZE_MAX, size)))
    except CaptureError as error:
        return CaptureFault[error.code.name]
    return begun or CaptureFault.NO_CAPTURE


def _part_at(
    file: Readable, at: int, size: int, size_max: int, compression: Compression
) -> CapturePart:
    file.seek(at)
    head = BlockHead.at(file.read(min(HEAD_SIZE, size - at)))
    if head is None:
        return CapturePart(at, size, None, CaptureFault.TRUNCATED_BLOCK)
    if not head.is_possible:
        return CapturePart(at, size, None, CaptureFault.DAMAGED_BLOCK)
    end = at + HEAD_SIZE + head.stored_size
    if end > size:
        return CapturePart(at, size, None, CaptureFault.TRUNCATED_BLOCK)
    if head.size > size_max:
        return CapturePart(at, end, None, CaptureFault.LARGE_BLOCK)
    try:
        records = open_block(head, file.read(head.stored_size), compression)
    except ValueError:
        return CapturePart(at, end, None, CaptureFault.DAMAGED_BLOCK)
    except CaptureError as error:
        return CapturePart(at, size, None, CaptureFault[error.code.name])
    return CapturePart(at, end, records)


def block_starts(file: Readable, *, start: int, size: int) -> Iterator[int]:
    """`start`, which is 0 or where a block begins, and where all others begin after it.

    No block is read.  The place of a damage is among them; blocks after it there are not.
    """
    yield start
    begun = _beginning(file, size)
    if isinstance(begun, CaptureFault):
        return
    at = max(start, begun[1])
    while (end := _end_of(file, at, size)) is not None and end < size:
        at = end
        yield at


def _end_of(file: Readable, at: int, size: int) -> int | None:
    """The end of the block that begins at a byte, by its head; ``None`` if none can."""
    if at + HEAD_SIZE > size:
        return None
    file.seek(at)
    head = BlockHead.at(file.read(HEAD_SIZE))
    return at + HEAD_SIZE + head.stored_size if head is not None and head.is_possible else None


def captured_until(file: Readable, *, start: int, size: int) -> int:
    """The end of the last complete block of a capture that grows; no block is read.

    `start` is 0 or an earlier result.  Bytes that are no block are read, and reported, too.
    """
    begun = _beginning(file, size)
    if isinstance(begun, CaptureFault):
        return size if size >= FRONT_SIZE_MAX else start
    at = max(start, begun[1])
    while at + HEAD_SIZE <= size:
        end = _end_of(file, at, size)
        if end is None:
            return size
        if end > size:
            break
        at = end
    return at if at > begun[1] else start
