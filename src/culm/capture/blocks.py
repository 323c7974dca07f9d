"""The container: records in blocks that are complete or not there.

A capture is the eight bytes `MAGIC`, of which the last one is the version, and blocks.  In version
2 a byte more says how blocks are compressed (`Compression`); in version 1 it is LZFoo::

    stored size       4 bytes, big-endian, above 0
    original size     4 bytes, big-endian; the same if it is not compressed
    CRC-32            4 bytes, big-endian, of the stored bytes
    stored bytes      the records, compressed if that makes them smaller

It grows at its end only.  An incomplete last block, as a killed process or a full disk leaves
it, is dropped and told (`BlockReader.torn`).  Compressed blocks stand alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count, groupby
from struct import Struct
from typing import NamedTuple, NoReturn

import xxhash

from culm.capture.compression import Compression, compress, decompress
from culm.capture.errors import CaptureError, ErrorCode

_NAME = b"culmcap"
MAGIC = _NAME + b"\1"
_MAGIC_OF_ANY = _NAME + b"\2"
FRONT_SIZE_MAX = len(MAGIC) + 1
"""Bytes in front of the first block, at most."""
BLOCK_SIZE_MAX = 1 << 26
"""The default limit, in bytes: a block holds at least one record, whatever its size."""

_HEAD = Struct(">III")
HEAD_SIZE = _HEAD.size
_COMPRESSED_MIN = 64  # smaller blocks gain nothing
PIECE_MIN = 1 << 14
"""Pieces of that size are written without a copy, if they do not shrink."""
_SAMPLE = 1 << 12


def front_of(compression: Compression) -> bytes:
    """The first bytes of a capture."""
    if compression is Compression.LZFOO:
        return MAGIC
    return _MAGIC_OF_ANY + bytes([compression])


def compression_of(front: bytes) -> tuple[Compression, int] | None:
    """The compression that the first bytes name, and their number; ``None`` for too few.

    Raises `CaptureError`: ``NO_CAPTURE``, ``UNKNOWN_VERSION``, ``UNKNOWN_COMPRESSION``.
    """
    if front[: len(_NAME)] != _NAME[: len(front)]:
        raise CaptureError(ErrorCode.NO_CAPTURE, "wrong first bytes", offset=0)
    magic, more = front[: len(MAGIC)], front[len(MAGIC) : FRONT_SIZE_MAX]
    if magic == MAGIC:
        return Compression.LZFOO, len(MAGIC)
    if len(magic) == len(MAGIC) and magic != _MAGIC_OF_ANY:
        at = len(_NAME)
        raise CaptureError(ErrorCode.UNKNOWN_VERSION, f"version {front[at]}", offset=at)
    if not more:
        return None
    try:
        return Compression(more[0]), FRONT_SIZE_MAX
    except ValueError:
        at = len(MAGIC)
        raise CaptureError(ErrorCode.UNKNOWN_COMPRESSION, f"number {more[0]}", offset=at) from None


def write_block(records: bytes) -> bytes:
    """A block of these records."""
    return b"".join(block_of([records]))


def block_of(records: Sequence[bytes], compression: Compression = Compression.LZFOO) -> list[bytes]:
    """A block of records that are in pieces, in pieces: large ones are not copied.

    Raises `CaptureError` (``UNKNOWN_COMPRESSION``) if nothing here compresses so.
    """
    size = sum(map(len, records))
    if size >= _COMPRESSED_MIN and _is_worth_it(records, size):
        stored = compress(compression, b"".join(records), size - 1)
        if stored is not None:
            return [_HEAD.pack(len(stored), size, checksum_of(stored)) + stored]
    pieces = [b"".join(run) for _, run in groupby(records, _which_run())]
    return [_HEAD.pack(size, size, checksum_of(*pieces)) + pieces[0], *pieces[1:]]


def checksum_of(*pieces: bytes) -> int:
    """The low 32 bits of XXH3-64: a twentieth of the time of a CRC."""
    state = xxhash.xxh3_64()
    for piece in pieces:
        state.update(piece)
    return state.intdigest() & 0xFFFFFFFF


class BlockHead(NamedTuple):
    """The numbers in front of a block."""

    stored_size: int
    size: int
    checksum: int

    @classmethod
    def at(cls, data: bytes | bytearray, at: int = 0) -> BlockHead | None:
        """The head at a byte; ``None`` if it is incomplete."""
        return None if len(data) - at < HEAD_SIZE else cls(*_HEAD.unpack_from(data, at))

    @property
    def is_possible(self) -> bool:
        """Whether a block can have these sizes."""
        return 0 < self.stored_size <= self.size


def open_block(head: BlockHead, stored: bytes, compression: Compression) -> bytes:
    """The records of a block.

    Raises `ValueError` if it is not as it was written, and `CaptureError`
    (``UNKNOWN_COMPRESSION``) if nothing here can decompress it.
    """
    if checksum_of(stored) != head.checksum:
        raise ValueError("a block with a wrong checksum")
    if head.stored_size == head.size:
        return stored
    records = decompress(compression, stored, head.size)
    if len(records) != head.size:
        raise ValueError("a block of another size than declared")
    return records


def _is_worth_it(records: Sequence[bytes], size: int) -> bool:
    """Whether the largest piece, if large ones are most of a block, seems compressible."""
    if sum(filter(PIECE_MIN.__le__, map(len, records))) < size * 3 // 4:
        return True
    sample = max(records, key=len)[:_SAMPLE]
    return compress(Compression.LZFOO, sample, len(sample) * 15 // 16) is not None


def _which_run() -> Callable[[bytes], int]:
    """Tells pieces to be joined from large ones, each of which stays alone."""
    numbers = count(1)
    last = 0

    def run_of(piece: bytes) -> int:
        nonlocal last
        if len(piece) >= PIECE_MIN:
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
        self._at = 0  # everything before it in the buffer has been taken
        self._compression: Compression | None = None  # nothing has come yet
        self.torn = 0
        """Bytes of an incomplete last block; meaningful after `finish`."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The records of the blocks that are complete with `data`; take all of them.

        A block is decompressed when it is taken: a few bytes may be many blocks of the greatest
        size.  Raises `CaptureError`.
        """
        del self._buffer[: self._at]
        self._offset += self._at
        self._at = 0
        self._buffer += data
        if self._compression is None:
            begun = compression_of(bytes(self._buffer[:FRONT_SIZE_MAX]))
            if begun is None:
                return
            self._compression, self._at = begun
        while (head := BlockHead.at(self._buffer, self._at)) is not None:
            self._check(head)
            end = self._at + HEAD_SIZE + head.stored_size
            if end > len(self._buffer):
                return
            stored = bytes(self._buffer[self._at + HEAD_SIZE : end])
            try:
                records = open_block(head, stored, self._compression)
            except ValueError as error:
                self._fail(ErrorCode.DAMAGED, str(error))
            self._at = end
            yield records

    def finish(self) -> None:
        """There are no more bytes.  Raises `CaptureError` if they were no capture at all."""
        if self._compression is None:
            self._fail(ErrorCode.NO_CAPTURE, "it ends before it has begun")
        self.torn = len(self._buffer) - self._at

    def _check(self, head: BlockHead) -> None:
        if max(head.stored_size, head.size) > self._size_max:
            size = max(head.stored_size, head.size)
            self._fail(ErrorCode.TOO_LARGE, f"a block of {size} bytes")
        if not head.is_possible:
            self._fail(ErrorCode.DAMAGED, "a block of impossible size")

    def _fail(self, code: ErrorCode, message: str) -> NoReturn:
        raise CaptureError(code, message, offset=self._offset + self._at)
