"""What a log says that its directory is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from culm.bamboo import LogKey, LogStore, StoredEntry
from directory.records import (
    PREFIX_SIZE,
    Directory,
    File,
    Record,
    RecordError,
    Removed,
    decode_prefix,
)

__all__ = ["Place", "Tree", "TreeReader", "order", "read_record", "read_tree"]

_READ_SIZE_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """What is at a path, and the entry that says so: of a file, that of its first chunk."""

    record: Record
    seqnum: int


@dataclass(frozen=True, slots=True)
class Tree:
    """Places by path: the newest of each, a file as soon as all its chunks are there."""

    places: dict[bytes, Place]

    def in_order(self) -> list[Place]:
        """All places, directories before what is in them."""
        return sorted(self.places.values(), key=lambda place: order(place.record.path))


def order(path: bytes) -> list[bytes]:
    """The key that sorts paths by names, so that a directory is followed by what is in it."""
    return path.split(b"/")


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
        for entry in _entries(self._store, self._log, self.position + 1):
            if not entry.payload_complete:
                if not self._may_be_missing(entry):
                    break
                self.missing += 1
                self._first, self._last, self._in_gap = None, None, True
            else:
                try:
                    self._take(entry)
                except RecordError as error:
                    raise RecordError(f"entry {entry.seqnum}: {error}") from None
            self.position = entry.seqnum
        return Tree(self._checked())

    def _may_be_missing(self, entry: StoredEntry) -> bool:
        return self._payload_size_max is not None and entry.payload_size > self._payload_size_max

    def _take(self, entry: StoredEntry) -> None:
        record, _ = read_record(self._store, self._log, entry)
        if not isinstance(record, File):
            self._places[record.path] = Place(record, entry.seqnum)
            self._last, self._in_gap = None, False
            return
        if record.chunk == 0:
            self._first, self._in_gap = Place(record, entry.seqnum), False
        elif self._in_gap:
            return  # of a file of which something is missing
        elif self._last is None or replace(self._last, chunk=self._last.chunk + 1) != record:
            raise RecordError("a chunk that does not continue the one before")
        self._last = record
        if record.chunk + 1 == record.chunks:
            assert self._first is not None
            self._places[record.path] = self._first
            self._last = None

    def _checked(self) -> dict[bytes, Place]:
        """The places, all of them in directories; what has none for want of a payload is not."""
        places: dict[bytes, Place] = {}
        for place in sorted(self._places.values(), key=lambda place: order(place.record.path)):
            path = place.record.path
            parent = path.rpartition(b"/")[0]
            above = places.get(parent)
            if (
                not parent
                or isinstance(place.record, Removed)
                or (above is not None and isinstance(above.record, Directory))
            ):
                places[path] = place
            elif not self.missing:
                raise RecordError(f"entry {place.seqnum}: {path[:100]!r} is not in a directory")
        return places


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
            log, seqnum, end, size_max=_READ_SIZE_MAX, payload_size_max=PREFIX_SIZE
        )
        yield from entries
        seqnum += len(entries)


def read_record(store: LogStore, log: LogKey, entry: StoredEntry) -> tuple[Record, int]:
    """The record of `entry`, and where in its payload the content begins.

    Raises `RecordError`, also if the payload is not all there.
    """
    if not entry.payload_complete:
        raise RecordError("the payload is missing")
    prefix = entry.payload
    if prefix is None:
        prefix = store.read_payload(log, entry.seqnum, 0, PREFIX_SIZE)
    return decode_prefix(prefix, entry.payload_size)
