"""What a log says that its directory is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from culm.bamboo import LogKey, LogStore, StoredEntry
from directory.records import (
    PACK_SIZE_MAX,
    PREFIX_SIZE,
    Directory,
    File,
    Piece,
    Record,
    RecordError,
    Removed,
    decode,
)

__all__ = ["Place", "Tree", "TreeReader", "order", "read_records", "read_tree"]

_READ_SIZE_MAX = 1 << 20
_FILE_SIZE_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Place:
    """What is at a path, and the entry that says so: of a file, that of its first chunk.

    offset: where in the payload of that entry the content begins; size: of the whole file,
    with its holes (bytes).
    """

    record: Record
    seqnum: int
    offset: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True)
class Tree:
    """Places by path: the newest of each, a file as soon as all its chunks are there.

    They are in order, directories before what is in them.
    """

    places: dict[bytes, Place]

    def in_order(self) -> list[Place]:
        """All places, directories before what is in them."""
        return list(self.places.values())


def order(path: bytes) -> bytes:
    """The key that sorts paths by names, so that a directory is followed by what is in it."""
    return path.replace(b"/", b"\0")


class TreeReader:
    """Replays the records of `log`, from where it stopped the last time.

    Payloads of more than `payload_size_max` bytes may be missing: what they say is left
    out, and what was said before stands.  At any other payload that is not all there,
    reading stops.

    position: the last entry that was read; missing: how many were left out.
    """

    def __init__(
        self, store: LogStore, log: LogKey, *, payload_size_max: int | None = None
    ) -> None:
        self.position = 0
        self.missing = 0
        self._store = store
        self._log = log
        self._payload_size_max = payload_size_max
        self._places: dict[bytes, Place] = {}
        self._first: Place | None = None  # of a file of which chunks are still to come
        self._last: File | None = None
        self._in_gap = False  # chunks without their first one may follow

    def read(self) -> Tree:
        """Read on; what the directory is now.

        Raises `RecordError`, with the number of the entry, for a log that is not one of a
        directory: everything has to be in directories, and nothing under links or files.
        """
        self._places = dict(self._places)  # of what was returned before, nothing changes
        for entry in _entries(self._store, self._log, self.position + 1):
            if not entry.payload_complete:
                if not self._may_be_missing(entry):
                    break
                self.missing += 1
                self._first, self._last, self._in_gap = None, None, True
            else:
                try:
                    for piece in read_records(self._store, self._log, entry):
                        self._take(piece, entry.seqnum)
                except RecordError as error:
                    raise RecordError(f"entry {entry.seqnum}: {error}") from None
            self.position = entry.seqnum
        return self._checked()

    def _may_be_missing(self, entry: StoredEntry) -> bool:
        return self._payload_size_max is not None and entry.payload_size > self._payload_size_max

    def _take(self, piece: Piece, seqnum: int) -> None:
        record = piece.record
        if not isinstance(record, File):
            self._places[record.path] = Place(record, seqnum)
            self._last, self._in_gap = None, False
            return
        if record.chunks == 1:
            size = _file_size(piece.size + record.zeros)
            self._places[record.path] = Place(record, seqnum, piece.offset, size)
            self._last, self._in_gap = None, False
            return
        if record.chunk == 0:
            self._first, self._in_gap = Place(record, seqnum, piece.offset), False
        elif self._in_gap:
            return  # of a file of which something is missing
        elif self._last is None or not _continues(self._last, record):
            raise RecordError("a chunk that does not continue the one before")
        assert self._first is not None
        size = _file_size(self._first.size + piece.size + record.zeros)
        self._first = replace(self._first, size=size)
        self._last = record
        if record.chunk + 1 == record.chunks:
            self._places[record.path] = self._first
            self._last = None

    def _checked(self) -> Tree:
        """The places, all of them in directories; what has none for want of a payload is not."""
        paths = list(self._places)
        if any(order(path) > order(after) for path, after in pairwise(paths)):
            paths.sort(key=order)
            self._places = {path: self._places[path] for path in paths}
        places = dict(self._places) if self.missing else self._places
        for path in paths:
            place, parent = places[path], path.rpartition(b"/")[0]
            if not parent or isinstance(place.record, Removed):
                continue
            above = places.get(parent)
            if above is None or not isinstance(above.record, Directory):
                if not self.missing:
                    message = f"{path[:100]!r} is not in a directory"
                    raise RecordError(f"entry {place.seqnum}: {message}")
                del places[path]
        return Tree(places)


def _file_size(size: int) -> int:
    if size > _FILE_SIZE_MAX:
        raise RecordError(f"a file of {size} bytes")
    return size


def _continues(last: File, record: File) -> bool:
    return record == replace(last, chunk=last.chunk + 1, zeros=record.zeros)


def read_tree(store: LogStore, log: LogKey, *, payload_size_max: int | None = None) -> Tree:
    """What the records of `log` say; see `TreeReader`.

    Raises `RecordError`, also if a payload is missing that must not be.
    """
    reader = TreeReader(store, log, payload_size_max=payload_size_max)
    tree = reader.read()
    head = store.head(log)
    if head is not None and reader.position < head.seqnum:
        raise RecordError(f"entry {reader.position + 1}: the payload is missing")
    return tree


def _entries(store: LogStore, log: LogKey, seqnum: int) -> Iterator[StoredEntry]:
    """The entries of the unbroken log from `seqnum` on, with the payloads that are small."""
    head = store.head(log)
    end = 0 if head is None else head.seqnum
    while seqnum <= end:
        entries = store.entries(
            log, seqnum, end, size_max=_READ_SIZE_MAX, payload_size_max=PACK_SIZE_MAX
        )
        yield from entries
        seqnum += len(entries)


def read_records(store: LogStore, log: LogKey, entry: StoredEntry) -> list[Piece]:
    """The records of `entry`, and where in its payload their contents are.

    Raises `RecordError`, also if the payload is not all there.
    """
    if not entry.payload_complete:
        raise RecordError("the payload is missing")
    prefix = entry.payload
    if prefix is None:
        size = PREFIX_SIZE if entry.payload_size > PACK_SIZE_MAX else PACK_SIZE_MAX
        prefix = store.read_payload(log, entry.seqnum, 0, size)
    return decode(prefix, entry.payload_size)
