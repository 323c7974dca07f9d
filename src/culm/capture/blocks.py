"""The container: records in blocks that are complete or not there.

A capture is the eight bytes `MAGIC`, of which the last one is the version, and blocks::

    size of what is stored     4 bytes, big-endian, above 0
    size of what that is of    4 bytes, big-endian; the same if it is not compressed
    CRC-32 of what is stored   4 bytes, big-endian
    what is stored             the records, compressed with LZFoo if that makes them smaller

It grows at its end only.  A last block that is not all there, as a killed process or a full disk
leaves it, is dropped and told (`BlockReader.torn`).  Compressed blocks stand alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count, groupby
from struct import Struct
from typing import NoReturn
from zlib import crc32

from culm.capture.errors import CaptureError, ErrorCode
from culm.wire import lzfoo
from culm.wire.errors import DecodeError

__all__ = ["BLOCK_SIZE_MAX", "MAGIC", "BlockReader", "block_of", "write_block"]

VERSION = 1
MAGIC = b"culmcap" + bytes([VERSION])
BLOCK_SIZE_MAX = 1 << 26
"""The default limit, in bytes: a block holds at least one record, whatever its size."""

_HEAD = Struct(">III")
_WINDOW = (1 << 16) - 1
_COMPRESSED_MIN = 64  # what is smaller gains nothing
_LARGE, _SAMPLE = 1 << 14, 1 << 12


def write_block(records: bytes) -> bytes:
    """A block of these records."""
    return b"".join(block_of([records]))


def block_of(records: Sequence[bytes]) -> list[bytes]:
    """A block of records that are in pieces, in pieces: large ones are not copied."""
    size = sum(map(len, records))
    if size >= _COMPRESSED_MIN and _is_worth_it(records, size):
        stored = lzfoo.Compressor(_WINDOW).compress(b"".join(records), size - 1)
        if stored is not None:
            return [_HEAD.pack(len(stored), size, crc32(stored)) + stored]
    pieces = [b"".join(run) for _, run in groupby(records, _which_run())]
    checksum = 0
    for piece in pieces:
        checksum = crc32(piece, checksum)
    return [_HEAD.pack(size, size, checksum) + pieces[0], *pieces[1:]]


def _is_worth_it(records: Sequence[bytes], size: int) -> bool:
    """Whether the largest piece, if large ones are most of a block, begins with what shrinks."""
    large = [each for each in records if len(each) >= _LARGE]
    if sum(map(len, large)) < size * 3 // 4:
        return True
    sample = max(large, key=len)[:_SAMPLE]
    return lzfoo.Compressor(_WINDOW).compress(sample, len(sample) * 15 // 16) is not None


def _which_run() -> Callable[[bytes], int]:
    """Tells pieces apart that are to be joined from large ones, each of which stays alone."""
    numbers = count(1)
    last = 0

    def run_of(piece: bytes) -> int:
        nonlocal last
        if len(piece) >= _LARGE:
            last = next(numbers)
            return -last
        return last

    return run_of


class BlockReader:
    """Finds the blocks in a capture that comes in pieces.

    size_max: bytes of a block, as stored and as it was; a larger one is ``TOO_LARGE``.
    """

    def __init__(self, *, size_max: int = BLOCK_SIZE_MAX) -> None:
        self._size_max = size_max
        self._buffer = bytearray()
        self._offset = 0  # of the buffer in the capture
        self._begun = False
        self.torn = 0
        """Bytes of a last block that is not all there; of meaning after `finish`."""

    def feed(self, data: bytes) -> list[bytes]:
        """The records of the blocks that are complete with `data`.  Raises `CaptureError`."""
        self._buffer += data
        found: list[bytes] = []
        at = 0
        if not self._begun:
            if len(self._buffer) < len(MAGIC):
                return found
            self._check_magic()
            at = len(MAGIC)
        while (end := self._end_of_block(at)) is not None:
            found.append(self._records(at, end))
            at = end
        del self._buffer[:at]
        self._offset += at
        return found

    def finish(self) -> None:
        """There are no more bytes.  Raises `CaptureError` if they were no capture at all."""
        if not self._begun:
            self._fail(ErrorCode.NO_CAPTURE, "it ends before it has begun", 0)
        self.torn = len(self._buffer)

    def _check_magic(self) -> None:
        if self._buffer[: len(MAGIC) - 1] != MAGIC[:-1]:
            self._fail(ErrorCode.NO_CAPTURE, "it begins otherwise", 0)
        version = self._buffer[len(MAGIC) - 1]
        if version != VERSION:
            self._fail(ErrorCode.UNKNOWN_VERSION, f"version {version}", len(MAGIC) - 1)
        self._begun = True

    def _end_of_block(self, at: int) -> int | None:
        """The end of the block that begins at `at`; ``None`` if it is not all there."""
        if len(self._buffer) - at < _HEAD.size:
            return None
        stored_size, size, _ = _HEAD.unpack_from(self._buffer, at)
        if max(stored_size, size) > self._size_max:
            self._fail(ErrorCode.TOO_LARGE, f"a block of {max(stored_size, size)} bytes", at)
        if not 0 < stored_size <= size:
            self._fail(ErrorCode.DAMAGED, "a block of impossible size", at)
        end = at + _HEAD.size + stored_size
        return end if end <= len(self._buffer) else None

    def _records(self, at: int, end: int) -> bytes:
        stored_size, size, checksum = _HEAD.unpack_from(self._buffer, at)
        stored = bytes(self._buffer[at + _HEAD.size : end])
        if crc32(stored) != checksum:
            self._fail(ErrorCode.DAMAGED, "a block with a wrong checksum", at)
        if stored_size == size:
            return stored
        try:
            records = lzfoo.decompress(stored, size, _WINDOW)
        except DecodeError as error:
            self._fail(ErrorCode.DAMAGED, str(error), at)
        if len(records) != size:
            self._fail(ErrorCode.DAMAGED, "a block of another size than it says", at)
        return records

    def _fail(self, code: ErrorCode, message: str, at: int) -> NoReturn:
        raise CaptureError(code, message, offset=self._offset + at)
