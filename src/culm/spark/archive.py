"""culm's archive files: any number of entries and payloads, in a form that is read in parallel.

Nothing here needs Spark or Arrow: a node can write an archive, and any program can read one.  All
numbers are little-endian.  A file is a header of 64 bytes

| At | Bytes | |
| --- | --- | --- |
| 0 | 8 | ``culmarch`` |
| 8 | 2 | the version of the format, 1 |
| 16 | 16 | the kind of its records, ASCII: ``bamboo/YAMF``, ``bamboo/YASMF``, ... |
| 32 | 16 | the marker: random bytes, different in each file |

and then blocks, one after the other:

| At | Bytes | |
| --- | --- | --- |
| 0 | 16 | the marker |
| 16 | 4 | the number of records, n |
| 24 | 8 | the size of all entries |
| 32 | 8 | the size of all payloads |
| 40 | 8 | XXH3-64 of bytes 16 to 39 and of all that follows |
| 48 | 4 n | the size of each entry |
| | 4 n | the size of each payload; 2**32 - 1 if it is absent |
| | | the entries |
| | | the payloads |

Bytes that are not mentioned are zero.  A reader that starts in the middle of a file looks for the
marker.  It was unknown when the payloads were made, so no payload can hold a forged block; a block
that contains the marker a second time is damaged.

The header has no checksum, but all blocks repeat its marker, and the first of them begins at its
end.  So the two are compared, and if they differ the second block decides (`find_header`).

A reader trusts nothing: bytes that are not a sound block are skipped up to the next beginning of
one and reported as `Damage`.  A marker that recurs within 48 bytes begins no block, so that bare
markers are one damage, however many there are.  A declared size costs nothing until the file is
known to have that many bytes before the next marker, and a block of more than `size_max` bytes (by
default `READ_SIZE_MAX`) is skipped as well, without being held in memory: reading takes time in
proportion to the file, whatever its blocks claim, and in how many parts it is read.
"""

from __future__ import annotations

import os
import secrets
import sys
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from struct import Struct
from typing import IO, NamedTuple, Protocol, Self

import xxhash

from culm.arguments import check_bytes, check_int, check_type

HEADER_SIZE = 64
#: Stands for the size of a payload that is absent.
ABSENT = 2**32 - 1
#: Limit in bytes for a block's entries, for its payloads, and for the sizes of both: as much as
#: Arrow's 32-bit offsets can address.
BLOCK_SIZE_MAX = 2**30
#: Limit in bytes for a whole block that is read, unless another one is given.  Writers here end a
#: block at 4 MiB or one record.
READ_SIZE_MAX = 2**28

_VERSION = 1
_MAGIC = b"culmarch"
_MARKER_SIZE = 16
_KIND_SIZE = 16
_HEADER = Struct("<8sH6x16s16s16x")
_BLOCK = Struct("<16sI4xQQQ")
_SIZES = Struct("<I4xQQ")
# Sizes of reads in search of a marker: of the first, and of the largest, by doubling.
_NEAR, _FAR = 1 << 12, 1 << 20
# A block is closed once it has this many bytes.
_BLOCK_SIZE = 4 << 20
# Within this many bytes from its beginning a block does not repeat its marker.
_BEGINNING_SIZE = _BLOCK.size + _MARKER_SIZE - 1
# Limit for a first block that proves the header damaged without a second one.
_SHARED_SIZE = 2 * _BLOCK_SIZE
_RECORDS_MAX = 1 << 16


class ArchiveFault(StrEnum):
    """Why a part of a file cannot be read."""

    UNREADABLE = "UNREADABLE"
    """The file system fails, or the name leads to no file."""
    WAITING = "WAITING"
    """Only of streams: after the part already read nothing can be read, or nothing that is whole.
    The stream reads it as soon as it can; nothing else has to be done."""
    REPLACED = "REPLACED"
    """The file is shorter than the part that a stream had read: it is another one, read anew."""
    NO_ARCHIVE = "NO_ARCHIVE"
    """It does not begin as an archive does, or its version or kind is unknown."""
    DAMAGED_HEADER = "DAMAGED_HEADER"
    """The header is damaged; blocks are found by the marker that they share."""
    NO_BLOCK = "NO_BLOCK"
    """There is no block where one should begin."""
    TRUNCATED_BLOCK = "TRUNCATED_BLOCK"
    """The file ends before the block does."""
    DAMAGED_BLOCK = "DAMAGED_BLOCK"
    """The block contradicts itself, or its checksum is wrong."""
    LARGE_BLOCK = "LARGE_BLOCK"
    """The block is larger than a reader allows (`READ_SIZE_MAX`): it was not read."""


class ArchiveError(ValueError):
    """This is not an archive; `fault` says why."""

    def __init__(self, fault: ArchiveFault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


class Readable(Protocol):
    """A file whose reads are complete unless the file ends."""

    def read(self, size: int = -1, /) -> bytes:
        """Return the next bytes."""
        ...

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Continue at another position."""
        ...


@dataclass(frozen=True, slots=True)
class ArchiveHeader:
    """The header of a file: the kind of its entries, and its marker (16 bytes)."""

    kind: str
    marker: bytes

    def __post_init__(self) -> None:
        check_type("kind", self.kind, str)
        check_bytes("marker", self.marker, _MARKER_SIZE)
        if not (
            self.kind.isascii() and self.kind.isprintable() and 0 < len(self.kind) <= _KIND_SIZE
        ):
            raise ValueError(f"a kind has 1 to {_KIND_SIZE} printable ASCII characters")

    def encode(self) -> bytes:
        """Encode into 64 bytes."""
        return _HEADER.pack(_MAGIC, _VERSION, self.kind.encode("ascii"), self.marker)

    @classmethod
    def decode(cls, data: bytes) -> ArchiveHeader:
        """Decode a header; raises `ArchiveError` with ``NO_ARCHIVE`` for anything else."""
        if len(data) < HEADER_SIZE or not data.startswith(_MAGIC):
            raise ArchiveError(ArchiveFault.NO_ARCHIVE, "this is no archive")
        _, version, padded, marker = _HEADER.unpack_from(data)
        if version != _VERSION:
            raise ArchiveError(ArchiveFault.NO_ARCHIVE, f"version {version} of archives is unknown")
        try:
            header = cls(padded.rstrip(b"\0").decode("ascii"), marker)
        except ValueError as error:
            raise ArchiveError(ArchiveFault.NO_ARCHIVE, f"an archive of no kind: {error}") from None
        if header.encode() != data[:HEADER_SIZE]:
            raise ArchiveError(ArchiveFault.NO_ARCHIVE, "bytes that should be zero")
        return header


@dataclass(frozen=True, slots=True)
class Block:
    """A sound block that begins at `offset` of its file; sizes are arrays of 32-bit numbers."""

    offset: int
    count: int
    entry_sizes: memoryview
    payload_sizes: memoryview
    entries: memoryview
    payloads: memoryview

    @property
    def size(self) -> int:
        """Its length in the file, in bytes."""
        return _BLOCK.size + 8 * self.count + len(self.entries) + len(self.payloads)

    def records(self) -> Iterator[tuple[bytes, bytes | None]]:
        """The entries, each with its payload, or ``None`` where that is absent."""
        at = payload_at = 0
        for index in range(self.count):
            size = _number(self.entry_sizes, index)
            payload_size = _number(self.payload_sizes, index)
            entry = bytes(self.entries[at : at + size])
            at += size
            if payload_size == ABSENT:
                yield entry, None
            else:
                yield entry, bytes(self.payloads[payload_at : payload_at + payload_size])
                payload_at += payload_size


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a file, from `offset` on, that cannot be read."""

    offset: int
    size: int
    fault: ArchiveFault


def _number(sizes: memoryview, index: int) -> int:
    return int.from_bytes(sizes[4 * index : 4 * index + 4], "little")


def encode_block(
    marker: bytes,
    count: int,
    entry_sizes: bytes,
    payload_sizes: bytes,
    entries: bytes,
    payloads: bytes,
) -> bytes:
    """Encode a block; sizes are 32 bits each, little-endian.

    Raises `ValueError` if entries, payloads or sizes have more than `BLOCK_SIZE_MAX` bytes.
    """
    if max(8 * count, len(entries), len(payloads)) > BLOCK_SIZE_MAX:
        raise ValueError(
            f"a block has at most {BLOCK_SIZE_MAX} bytes of entries, of payloads, and of sizes"
        )
    sizes = _SIZES.pack(count, len(entries), len(payloads))
    body = b"".join((entry_sizes, payload_sizes, entries, payloads))
    checksum = xxhash.xxh3_64(sizes)
    checksum.update(body)
    return b"".join((marker, sizes, checksum.intdigest().to_bytes(8, "little"), body))


class ArchiveWriter:
    """Writes an archive to `file`, which stays open; a context manager that ends with `flush`.

    `marker` is for tests that compare bytes; by default it is random.
    """

    def __init__(self, file: IO[bytes], kind: str, *, marker: bytes | None = None) -> None:
        self._file = file
        self._marker = secrets.token_bytes(_MARKER_SIZE) if marker is None else marker
        header = ArchiveHeader(kind, self._marker).encode()
        self._entries: list[bytes] = []
        self._payloads: list[bytes | None] = []
        self._size = 0
        file.write(header)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.flush()

    def append(self, entry: bytes, payload: bytes | None = None) -> None:
        """Add a record.  Raises `ValueError` if it is larger than a block can be."""
        check_type("entry", entry, bytes)
        check_type("payload", payload, bytes, type(None))
        size = len(entry) + len(payload or b"")
        if size > BLOCK_SIZE_MAX:
            raise ValueError(f"a record has at most {BLOCK_SIZE_MAX} bytes")
        if self._entries and self._size + size > _BLOCK_SIZE:
            self.flush()
        self._entries.append(entry)
        self._payloads.append(payload)
        self._size += size
        if len(self._entries) >= _RECORDS_MAX:
            self.flush()

    def flush(self) -> None:
        """Write the appended records as a block, so that a reader of the file can see them."""
        if not self._entries:
            return
        entry_sizes, payload_sizes = bytearray(), bytearray()
        for entry, payload in zip(self._entries, self._payloads, strict=True):
            entry_sizes += len(entry).to_bytes(4, "little")
            size = ABSENT if payload is None else len(payload)
            payload_sizes += size.to_bytes(4, "little")
        self._file.write(
            encode_block(
                self._marker,
                len(self._entries),
                bytes(entry_sizes),
                bytes(payload_sizes),
                b"".join(self._entries),
                b"".join(payload for payload in self._payloads if payload is not None),
            )
        )
        self._entries, self._payloads, self._size = [], [], 0


def read_header(file: Readable) -> ArchiveHeader:
    """The header of `file`; raises `ArchiveError` if there is none."""
    file.seek(0)
    return ArchiveHeader.decode(file.read(HEADER_SIZE))


class Beginning(NamedTuple):
    """The header as the beginning of a file shows it; a damaged kind is ``None``."""

    kind: str | None
    marker: bytes
    damage: Damage | None = None


def find_header(file: Readable, size: int | None = None) -> Beginning:
    """The header of `file`, and its damage if the first blocks show any.

    With `size` the file is read as if it ended there.  Raises `ArchiveError` if nothing shows that
    this is an archive.
    """
    there = file.seek(0, os.SEEK_END)
    size = there if size is None else min(size, there)
    file.seek(0)
    data = file.read(min(HEADER_SIZE + _MARKER_SIZE, size))
    first = data[HEADER_SIZE:]
    damage = Damage(0, HEADER_SIZE, ArchiveFault.DAMAGED_HEADER)
    try:
        header = ArchiveHeader.decode(data)
    except ArchiveError:
        _, version, kind, marker = _HEADER.unpack(data[:HEADER_SIZE].ljust(HEADER_SIZE, b"\0"))
        if not any(first) or not (
            (version == _VERSION and marker == first) or _is_first(file, first, marker, size)
        ):
            raise
        return Beginning(_kind_of(kind), first, damage)
    # Zeros, with which a system fills files after a crash, are no marker either.
    is_right = header.marker.startswith(first) or not any(first)
    if is_right or not _is_first(file, first, header.marker, size):
        return Beginning(header.kind, header.marker)
    return Beginning(header.kind, first, damage)


def _kind_of(padded: bytes) -> str | None:
    try:
        return ArchiveHeader(padded.rstrip(b"\0").decode("ascii"), bytes(_MARKER_SIZE)).kind
    except ValueError:
        return None


def _is_first(file: Readable, marker: bytes, other: bytes, size: int) -> bool:
    """Whether `marker`, at the place of the first block, is the file's, and not the `other` one.

    The second block decides; if there is none, a sound first one does.
    """
    file.seek(HEADER_SIZE)
    head = file.read(_BLOCK.size)
    if len(head) < _BLOCK.size:
        return False
    _, count, entries_size, payloads_size, _ = _BLOCK.unpack(head)
    end = HEADER_SIZE + _BLOCK.size + 8 * count + entries_size + payloads_size
    if end + _MARKER_SIZE <= size:
        file.seek(end)
        following = file.read(_MARKER_SIZE)
        if following in (marker, other):
            return following == marker
    size = min(size, HEADER_SIZE + _SHARED_SIZE)
    return isinstance(_block_at(file, marker, HEADER_SIZE, size, _SHARED_SIZE), Block)


def read_blocks(
    file: Readable,
    header: ArchiveHeader | Beginning,
    *,
    start: int = 0,
    stop: int | None = None,
    size: int | None = None,
    is_end: bool = False,
    size_max: int = READ_SIZE_MAX,
) -> Iterator[Block | Damage]:
    """The blocks that begin from byte `start` up to `stop` (by default all), and the damage.

    A file that is read in adjacent parts gives every block and every damaged stretch exactly once:
    damage belongs to the part in which the block before it begins.  With `size` the file is read as
    if it ended there; with `is_end` a block is known to have ended at `start`, and damage found
    there belongs to this part.  A block of more than `size_max` bytes is damage (``LARGE_BLOCK``).
    """
    check_int("start", start)
    there = file.seek(0, os.SEEK_END)
    size = there if size is None else min(size, there)
    end = size if stop is None else min(stop, size)
    at = max(start, HEADER_SIZE)
    is_end = is_end or not start
    if not is_end:
        at = _find(file, header.marker, at, min(size, end + _BEGINNING_SIZE - 1))
    elif (found := _damage_at(file, header.marker, at, size)) is not None:
        yield found
        at += found.size
    while at < end:
        block = _block_at(file, header.marker, at, size, size_max)
        yield block
        at += block.size
        if isinstance(block, Damage):
            continue
        if (found := _damage_at(file, header.marker, at, size)) is not None:
            yield found
            at += found.size


def whole_until(file: Readable, *, start: int, size: int, size_max: int = READ_SIZE_MAX) -> int:
    """The end of the readable part of an archive that is still being written.

    `start` is 0 or an earlier result; `size` is the present size of the file.  The result is the
    end of the last complete block, or `size` if this is not an archive and cannot become one.
    Without damage only the beginning of each block is read, except for the last one.
    """
    file.seek(0)
    begins = file.read(min(size, HEADER_SIZE))
    if len(begins) < HEADER_SIZE and _MAGIC.startswith(begins[: len(_MAGIC)]):
        return start
    try:
        marker = find_header(file, size).marker
    except ArchiveError:
        return size
    whole = at = max(start, HEADER_SIZE)
    while at < size:
        file.seek(at)
        head = file.read(min(_BLOCK.size, size - at))
        if not head.startswith(marker):
            at = _find(file, marker, at, size)
            continue
        if len(head) < _BLOCK.size:
            break
        _, count, entries_size, payloads_size, _ = _BLOCK.unpack(head)
        end = at + _BLOCK.size + 8 * count + entries_size + payloads_size
        if end <= size and _is_whole(file, marker, at, end, size, size_max):
            whole = at = end
        else:  # unfinished, or broken off and followed by another one
            at = _find(file, marker, at + _MARKER_SIZE, size)
    return whole


def _is_whole(file: Readable, marker: bytes, at: int, end: int, size: int, size_max: int) -> bool:
    """Whether the block from `at` to `end` is complete.

    If another one follows, it is, sound or not.  The last one has to be sound, or too large to be
    read: part of the next one may lie in it if a writer was broken off.
    """
    file.seek(end)
    behind = file.read(min(_MARKER_SIZE, size - end))
    if behind == marker:
        return True
    if not marker.startswith(behind):
        return False
    last = _block_at(file, marker, at, end, size_max)
    return isinstance(last, Block) or (
        last.fault is ArchiveFault.LARGE_BLOCK and last.size == end - at
    )


def read_archive(file: Readable) -> Iterator[tuple[bytes, bytes | None]]:
    """All records of an archive; raises `ArchiveError` if any of it is damaged."""
    for part in read_blocks(file, read_header(file)):
        if isinstance(part, Damage):
            raise ArchiveError(part.fault, f"{part.size} bytes at {part.offset} are no blocks")
        yield from part.records()


def _damage_at(file: Readable, marker: bytes, at: int, size: int) -> Damage | None:
    """The damage at `at`; ``None`` for the beginning of a block or the end of the file."""
    file.seek(at)
    head = file.read(min(_BEGINNING_SIZE, max(size - at, 0)))
    if not head or (head.startswith(marker) and head.find(marker, _MARKER_SIZE) < 0):
        return None
    return Damage(at, _find(file, marker, at, size) - at, ArchiveFault.NO_BLOCK)


def _find(file: Readable, marker: bytes, at: int, size: int) -> int:
    """The place of the first beginning of a block from `at` up to `size`; `size` if there is none.

    That is a marker which does not recur within `_BEGINNING_SIZE` bytes.
    """
    step = _NEAR
    while at < size:
        file.seek(at)
        window = file.read(min(step, size - at))
        is_last = len(window) < min(step, size - at) or at + len(window) >= size
        step = min(2 * step, _FAR)
        found = window.find(marker)
        if found < 0:
            at = size if is_last else at + len(window) - (_MARKER_SIZE - 1)
            continue
        while is_last or found + _BEGINNING_SIZE <= len(window):
            again = window.find(marker, found + _MARKER_SIZE, found + _BEGINNING_SIZE)
            if again < 0:
                return at + found
            found = again
        at += found
    return size


def _block_at(file: Readable, marker: bytes, at: int, size: int, size_max: int) -> Block | Damage:
    """The block whose marker is at `at`, or its damage."""

    def damage(fault: ArchiveFault) -> Damage:
        return Damage(at, _find(file, marker, at + _MARKER_SIZE, size) - at, fault)

    file.seek(at)
    head = file.read(_BLOCK.size)
    if len(head) < _BLOCK.size:
        return damage(ArchiveFault.TRUNCATED_BLOCK)
    _, count, entries_size, payloads_size, checksum = _BLOCK.unpack(head)
    if max(8 * count, entries_size, payloads_size) > BLOCK_SIZE_MAX:
        return damage(ArchiveFault.DAMAGED_BLOCK)
    body_size = 8 * count + entries_size + payloads_size
    if body_size > size - at - _BLOCK.size:
        return damage(ArchiveFault.TRUNCATED_BLOCK)
    if _BLOCK.size + body_size > size_max:
        return damage(ArchiveFault.LARGE_BLOCK)
    body = _read_up_to(file, marker, body_size)
    if body is None:
        return damage(ArchiveFault.DAMAGED_BLOCK)
    if len(body) < body_size:
        return damage(ArchiveFault.TRUNCATED_BLOCK)
    computed = xxhash.xxh3_64(head[_MARKER_SIZE : _MARKER_SIZE + _SIZES.size])
    computed.update(body)
    view = memoryview(body)
    entries_at = 8 * count
    block = Block(
        at,
        count,
        view[: 4 * count],
        view[4 * count : entries_at],
        view[entries_at : entries_at + entries_size],
        view[entries_at + entries_size :],
    )
    if computed.intdigest() != checksum or not _adds_up(block):
        return damage(ArchiveFault.DAMAGED_BLOCK)
    return block


def _read_up_to(file: Readable, marker: bytes, size: int) -> bytearray | None:
    """The next `size` bytes, or as many as there are; ``None`` if the marker is among them."""
    data = bytearray()
    step = _NEAR
    while len(data) < size and (part := file.read(min(step, size - len(data)))):
        # The marker may lie across two parts.
        seam = data[1 - _MARKER_SIZE :] + part[: _MARKER_SIZE - 1]
        if part.find(marker) >= 0 or seam.find(marker) >= 0:
            return None
        data += part
        step = min(2 * step, _FAR)
    return data


def _adds_up(block: Block) -> bool:
    """Whether the sizes of records add up to those of the block."""
    entry_sizes, payload_sizes = _numbers(block.entry_sizes), _numbers(block.payload_sizes)
    absent = payload_sizes.count(ABSENT)
    return sum(entry_sizes) == len(block.entries) and sum(payload_sizes) - absent * ABSENT == len(
        block.payloads
    )


def _numbers(sizes: memoryview) -> array[int]:
    numbers = array("I", bytes(sizes))
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def write_archive(
    file: IO[bytes], kind: str, records: Iterable[tuple[bytes, bytes | None]]
) -> None:
    """Write all `records`, entries with their payloads or ``None``, to a new archive."""
    with ArchiveWriter(file, kind) as writer:
        for entry, payload in records:
            writer.append(entry, payload)
