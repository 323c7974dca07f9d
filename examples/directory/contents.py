"""The contents of files, in a log and on disk: pieces of bytes, and holes.

A piece is ``bytes`` or, for a hole, its size: so many bytes that are zero, and that take
no room in a log nor on a disk that can have holes.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Sequence

from culm.bamboo import LogKey, LogStore
from directory.records import CHUNK_SIZE, PACK_SIZE_MAX, File, RecordError
from directory.tree import Place, read_records

__all__ = [
    "Contents",
    "Extent",
    "chunk_count",
    "chunks",
    "extents",
    "is_content",
    "read_at",
    "write_content",
]

_READ_SIZE = 1 << 18
# Smaller ones are not worth an entry, and travel as the zeros that they are.
_HOLE_SIZE_MIN = 1 << 16
_PACKS_MAX = 8


Extent = tuple[int, int, int]
"""Offset and size of data, and the size of the hole behind it."""


class Contents:
    """Reads the contents of files out of the payloads of `log`.

    Files that follow each other in a directory are mostly in one pack: the last few payloads
    of that size are kept.
    """

    def __init__(self, store: LogStore, log: LogKey) -> None:
        self._store = store
        self._log = log
        self._packs: dict[int, bytes] = {}

    def pieces(self, place: Place) -> Iterable[bytes | int]:
        """What the file at `place` contains."""
        record = place.record
        assert isinstance(record, File)
        size = place.size - record.zeros
        if record.chunks == 1 and 0 < size < PACK_SIZE_MAX and not record.zeros:
            data = self._pack(place.seqnum)[place.offset : place.offset + size]
            if len(data) == size:
                return (data,)
        return self._pieces(place, record)

    def _pieces(self, place: Place, record: File) -> Iterator[bytes | int]:
        for seqnum in range(place.seqnum, place.seqnum + record.chunks):
            offset, size, zeros = place.offset, place.size - record.zeros, record.zeros
            if record.chunks > 1:
                offset, size, zeros = self._chunk(seqnum)
            end = offset + size
            while offset < end:
                data = self._store.read_payload(
                    self._log, seqnum, offset, min(_READ_SIZE, end - offset)
                )
                if not data:
                    raise RecordError(f"entry {seqnum}: the payload is no longer there")
                yield data
                offset += len(data)
            if zeros:
                yield zeros

    def _chunk(self, seqnum: int) -> Extent:
        entry = self._store.entry(self._log, seqnum)
        assert entry is not None
        (piece,) = read_records(self._store, self._log, entry)
        assert isinstance(piece.record, File)
        return piece.offset, piece.size, piece.record.zeros

    def _pack(self, seqnum: int) -> bytes:
        pack = self._packs.get(seqnum)
        if pack is None:
            pack = self._store.read_payload(self._log, seqnum, 0, PACK_SIZE_MAX)
            while len(self._packs) >= _PACKS_MAX:
                del self._packs[next(iter(self._packs))]
            self._packs[seqnum] = pack
        return pack


def extents(file: int, found: os.stat_result) -> list[Extent]:
    """Where an open file has data; all data and holes are as large as `found` says.

    There is at least one.  Where the system does not tell of holes, there are none.
    """
    size, begin = found.st_size, 0
    there: list[Extent] = []
    if found.st_blocks * 512 < size and hasattr(os, "SEEK_HOLE"):
        hole = _seek(file, 0, os.SEEK_HOLE, size)
        while hole < size:
            data = _seek(file, hole, os.SEEK_DATA, size)
            if data - hole >= _HOLE_SIZE_MIN:
                there.append((begin, hole - begin, data - hole))
                begin = data
            hole = _seek(file, data, os.SEEK_HOLE, size)
    if begin < size or not there:
        there.append((begin, size - begin, 0))
    return there


def chunk_count(there: Sequence[Extent]) -> int:
    """How many chunks `chunks` makes of these extents."""
    return sum(max(1, -(-size // CHUNK_SIZE)) for _, size, _ in there)


def chunks(there: Iterable[Extent]) -> Iterator[Extent]:
    """The same data in pieces that are no larger than a chunk."""
    for begin, size, zeros in there:
        end = begin + size
        while end - begin > CHUNK_SIZE:
            yield begin, CHUNK_SIZE, 0
            begin += CHUNK_SIZE
        yield begin, end - begin, zeros


def _seek(file: int, offset: int, whence: int, size: int) -> int:
    """Where the next data or hole begins, at most at `size`."""
    try:
        return min(os.lseek(file, offset, whence), size)
    except OSError as error:
        # Behind the last data there is none; where nobody can tell, all is data.
        nothing = error.errno == errno.ENXIO or whence == os.SEEK_HOLE
        return size if nothing else offset


def read_at(file: int, offset: int, size: int) -> bytes:
    """So many bytes of an open file, or as many as there are."""
    data = os.pread(file, size, offset)
    while 0 < len(data) < size and (more := os.pread(file, size - len(data), offset + len(data))):
        data += more
    return data


def is_content(file: int, size: int, pieces: Iterable[bytes | int]) -> bool:
    """Whether an open file is of that size and has this content.

    Holes are compared where the file has data: a hole of any size costs nothing.
    """
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode) or found.st_size != size:
        return False
    offset = 0
    for piece in pieces:
        if isinstance(piece, int):
            if not _is_zero(file, offset, offset + piece):
                return False
            offset += piece
        else:
            if read_at(file, offset, len(piece)) != piece:
                return False
            offset += len(piece)
    return offset == size


def _is_zero(file: int, offset: int, end: int) -> bool:
    while offset < end:
        if hasattr(os, "SEEK_DATA"):
            offset = _seek(file, offset, os.SEEK_DATA, end)
        data = os.pread(file, min(_READ_SIZE, end - offset), offset)
        if data.count(0) != len(data):
            return False
        offset += len(data) or end - offset
    return True


def write_content(file: int, pieces: Iterable[bytes | int]) -> None:
    """Write the content of a new file; holes stay holes."""
    size, is_hole = 0, False
    for piece in pieces:
        is_hole = isinstance(piece, int)
        if isinstance(piece, int):
            size = os.lseek(file, piece, os.SEEK_CUR)
        else:
            size += len(piece)
            written = os.write(file, piece)
            while written < len(piece):
                written += os.write(file, memoryview(piece)[written:])
    if is_hole:
        os.ftruncate(file, size)
