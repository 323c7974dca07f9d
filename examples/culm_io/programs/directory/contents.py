"""The contents of files, in a log and on disk: pieces of bytes, and holes.

A piece is ``bytes`` or, for a hole, its size: that number of bytes are zero, and take no room
in a log nor on a disk that can have holes.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from itertools import chain

from culm.bamboo import LogKey, LogStore
from culm.bamboo.entry import decode
from culm.bamboo.verify import PayloadVerifier
from culm_io.programs.directory.records import PACK_SIZE_MAX, File, RecordError
from culm_io.programs.directory.tree import Place, read_records
from culm_io.programs.ending import need

need("pyfastcdc")  # loaded by what cuts files

__all__ = [
    "CUT_SIZE_MAX",
    "FIRST_SIZE",
    "WHOLE_SIZE_MAX",
    "Chunk",
    "Contents",
    "Extent",
    "cut",
    "digest_of",
    "extents",
    "is_content",
    "read_at",
    "write_content",
]

_READ_SIZE = 1 << 18
# Smaller ones are not worth an entry, and travel as the zeros that they are.
_HOLE_SIZE_MIN = 1 << 16
_PACKS_MAX = 8

WHOLE_SIZE_MAX = 1 << 15
"""Files of no more bytes are one chunk."""

CUT_SIZE_MAX = 3 << 17
"""Others are cut into chunks of at most that size: a changed byte costs one or two."""

FIRST_SIZE = 1 << 12
"""The size of the first chunk of such a file."""

# To cut otherwise is to send all files again.
_CUT_SIZE = 1 << 17
_WINDOW_SIZE = 1 << 22

Extent = tuple[int, int, int]
"""Offset and size of data, and the size of the hole after it."""

Chunk = tuple[int, int, int, bytes]
"""An extent, and the digest of its content."""


class Contents:
    """Reads the contents of files out of the payloads of `log`.

    Files that follow each other in a directory are mostly in one pack: the last few payloads
    of that size are kept.

    verified: payloads are hashed again before anything of them is read.
    """

    def __init__(self, store: LogStore, log: LogKey, *, verified: bool = False) -> None:
        self._store = store
        self._log = log
        self._packs: dict[int, bytes] = {}
        self._verifies = verified
        self._sound: int | None = None  # the last entry whose payload was right

    def pieces(self, place: Place) -> Iterable[bytes | int]:
        """The content of the file at `place`.

        Raises `OSError` for a payload that a disk has damaged, if that is looked at.
        """
        record = place.record
        assert isinstance(record, File)
        if self._verifies:
            for seqnum in [place.seqnum] if place.offset else _entries_of(place):
                self._verify(seqnum)
        size = place.size - record.zeros
        if not place.offset:
            return chain.from_iterable(map(self._in_entry, _entries_of(place)))
        if 0 < size < PACK_SIZE_MAX and not record.zeros:
            data = self._pack(place.seqnum)[place.offset : place.offset + size]
            if len(data) == size:
                return (data,)
        return self._extent(place.seqnum, (place.offset, size, record.zeros))

    def _verify(self, seqnum: int) -> None:
        if seqnum == self._sound:  # files that follow each other are mostly in one pack
            return
        stored = self._store.entry(self._log, seqnum)
        assert stored is not None
        verifier = PayloadVerifier(decode(stored.encoded, family=self._store.family))
        while data := self._store.read_payload(self._log, seqnum, verifier.size, _READ_SIZE):
            verifier.update(data)
        if verifier.fault() is not None:
            raise OSError(f"the payload of entry {seqnum} is damaged")
        self._sound = seqnum

    def digests(self, place: Place) -> Iterator[tuple[int, bytes]]:
        """The entries that hold a file, in their order, and the digest of each one's content."""
        for seqnum in _entries_of(place):
            extent = self._chunk(seqnum)
            yield seqnum, digest_of(self._extent(seqnum, extent))

    def _in_entry(self, seqnum: int) -> Iterator[bytes | int]:
        return self._extent(seqnum, self._chunk(seqnum))

    def _extent(self, seqnum: int, extent: Extent) -> Iterator[bytes | int]:
        """The content of a payload from that offset on, and the hole after it."""
        offset, size, zeros = extent
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


def _entries_of(place: Place) -> Iterator[int]:
    for first, last in place.ranges:
        yield from range(first, last + 1)


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


def cut(file: int, there: Iterable[Extent]) -> Iterator[Chunk]:
    """The same data in chunks, which end where their content says so.

    An insertion or a deletion moves the ends of the chunks around it, and no others.  The first
    one is small: it comes early and names the file of the large ones that follow.
    """
    first_size = FIRST_SIZE
    for begin, size, zeros in there:
        for offset, data in _cut_extent(file, begin, begin + size, first_size):
            hole = zeros if offset + len(data) == begin + size else 0
            yield offset, len(data), hole, digest_of((data, hole))
        first_size = 0


def _cut_extent(
    file: int, begin: int, end: int, first_size: int
) -> Iterator[tuple[int, bytes | memoryview]]:
    """Offsets and contents of chunks, the first one of at most `first_size` bytes, if any."""
    first = read_at(file, begin, min(first_size, end - begin)) if first_size else b""
    if first or begin == end:
        yield begin, first
        begin += len(first)
    from pyfastcdc import FastCDC

    cutter = FastCDC(_CUT_SIZE, max_size=CUT_SIZE_MAX, normalized_chunking=2)
    while begin < end:
        window = memoryview(read_at(file, begin, min(_WINDOW_SIZE, end - begin)))
        if not window:  # cut short meanwhile
            return
        left = len(window)
        is_last = begin + left == end
        for chunk in cutter.cut_buf(window):
            # Without the bytes after the window, a chunk at its end may be too short.
            if left < CUT_SIZE_MAX and not is_last:
                break
            yield begin, chunk.data
            begin += chunk.length
            left -= chunk.length


def digest_of(pieces: Iterable[bytes | memoryview | int]) -> bytes:
    """The digest of a chunk: of its content, and of the size of the hole after it."""
    digest, zeros = hashlib.blake2b(digest_size=32), 0
    for piece in pieces:
        if isinstance(piece, int):
            zeros = piece
        else:
            digest.update(piece)
    digest.update(zeros.to_bytes(8))
    return digest.digest()


def _seek(file: int, offset: int, whence: int, size: int) -> int:
    """Where the next data or hole begins, at most at `size`."""
    try:
        return min(os.lseek(file, offset, whence), size)
    except OSError as error:
        # After the last data there is none; where holes cannot be told, all is data.
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
