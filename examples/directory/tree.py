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

__all__ = ["Place", "Tree", "order", "read_record", "read_tree"]

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


def read_tree(store: LogStore, log: LogKey) -> Tree:
    """Replay the records of `log`.

    Raises `RecordError`, with the number of the entry, for a log that is not one of a
    directory: everything has to be in directories, and nothing under links or files.
    """
    places: dict[bytes, Place] = {}
    first: Place | None = None  # of a file of which chunks are still to come
    last: File | None = None
    for entry in _entries(store, log):
        try:
            record, _ = read_record(store, log, entry)
            if isinstance(record, File):
                if record.chunk == 0:
                    first = Place(record, entry.seqnum)
                elif last is None or replace(last, chunk=last.chunk + 1) != record:
                    raise RecordError("a chunk that does not continue the one before")
                last = record
                if record.chunk + 1 < record.chunks:
                    continue
                assert first is not None
                places[record.path] = first
            else:
                places[record.path] = Place(record, entry.seqnum)
            last = None
        except RecordError as error:
            raise RecordError(f"entry {entry.seqnum}: {error}") from None
    for place in places.values():
        _check_parent(places, place)
    return Tree(places)


def _check_parent(places: dict[bytes, Place], place: Place) -> None:
    parent = place.record.path.rpartition(b"/")[0]
    if not parent or isinstance(place.record, Removed):
        return
    if parent not in places or not isinstance(places[parent].record, Directory):
        raise RecordError(
            f"entry {place.seqnum}: {place.record.path[:100]!r} is not in a directory"
        )


def _entries(store: LogStore, log: LogKey) -> Iterator[StoredEntry]:
    """The entries of the unbroken log, with the payloads that are small."""
    head = store.head(log)
    seqnum, end = 1, 0 if head is None else head.seqnum
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
