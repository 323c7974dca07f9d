"""The directory that a log describes."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from culm.bamboo import LogKey, LogStore, StoredEntry
from culm_io.programs.directory.records import (
    PACK_SIZE_MAX,
    PREFIX_SIZE,
    Directory,
    File,
    Piece,
    Range,
    Record,
    RecordError,
    Removed,
    decode,
)

__all__ = [
    "RANGES_MAX",
    "Place",
    "Tree",
    "TreeReader",
    "order",
    "read_records",
    "read_tree",
]

RANGES_MAX: Final = 1024
"""A version of a file is in no more ranges of entries: reading a log stays a matter of its size."""

_READ_SIZE_MAX = 1 << 20
_FILE_SIZE_MAX = (1 << 63) - 1
_MODULUS: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Place:
    """A place at a path, and the entry that describes it: of a file, that of its first chunk.

    ranges: the entries that hold the content of a file, one chunk each; none of a file that is
    in a pack.
    offset: of a file that is in one entry, where in its payload the content begins; else 0.
    size: of the whole file, with its holes (bytes).
    """

    record: Record
    seqnum: int
    offset: int = 0
    size: int = 0
    ranges: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class Tree:
    """Places by path: the newest of each, a file as soon as all its chunks are there.

    They are in order, directories before their content.
    """

    places: dict[bytes, Place]

    def in_order(self) -> list[Place]:
        """All places, directories before their content."""
        return list(self.places.values())

    def of(self, chosen: Callable[[bytes], bool]) -> Tree:
        """The chosen places, and the directories above."""
        paths = {path for path in self.places if chosen(path)}
        if len(paths) == len(self.places):
            return self
        paths.update(above for path in list(paths) for above in _above(path))
        return Tree({path: p for path, p in self.places.items() if path in paths})


def _above(path: bytes) -> Iterator[bytes]:
    """The directories above, from the top."""
    at = path.find(b"/")
    while at >= 0:
        yield path[:at]
        at = path.find(b"/", at + 1)


def order(path: bytes) -> bytes:
    """The key that sorts paths by names, so that a directory is followed by its content."""
    return path.replace(b"/", b"\0")


class _Making:
    """A file of which chunks are still to come: it may come to nothing."""

    def __init__(self, first: File, seqnum: int) -> None:
        self.first = first
        self.chunk = 0  # the next
        self._seqnum = seqnum
        self._size = 0
        self._ranges: list[Range] = []

    def is_next(self, record: File) -> bool:
        """Whether a record is about the chunk that comes next."""
        return record == replace(self.first, chunk=self.chunk, zeros=record.zeros, kept=record.kept)

    def add(self, there: Range, size: int) -> None:
        """The next chunk is in these entries."""
        self.chunk += 1
        self._size = _file_size(self._size + size)
        ranges = self._ranges
        if any(first <= there.last and there.first <= last for first, last in ranges):
            raise RecordError("a file that has a chunk twice")
        if ranges and ranges[-1].last + 1 == there.first:
            ranges[-1] = Range(ranges[-1].first, there.last)
        else:
            ranges.append(there)
        if len(ranges) > RANGES_MAX:
            raise RecordError(f"a file in more than {RANGES_MAX} ranges of entries")

    def place(self) -> Place | None:
        """The file, if all of it is there."""
        if self.chunk < self.first.chunks:
            return None
        return Place(self.first, self._seqnum, 0, self._size, tuple(self._ranges))


class TreeReader:
    """Replays the records of `log`, from where it stopped the last time.

    Payloads of more than `payload_size_max` bytes may be missing: their records are left out,
    and earlier ones stand.  At any other incomplete payload, reading stops.

    last: the entry after which nothing is read.
    position: the last entry that was read; missing: how many were left out.
    unclaimed: those of them that belong to no known file.
    """

    def __init__(
        self,
        store: LogStore,
        log: LogKey,
        *,
        payload_size_max: int | None = None,
        last: int | None = None,
    ) -> None:
        self.position = 0
        self.missing = 0
        self.unclaimed: list[int] = []
        self._store = store
        self._log = log
        self._payload_size_max = payload_size_max
        self._last = last
        self._places: dict[bytes, Place] = {}
        # The newest versions of files of which payloads are missing: later ones may keep of them.
        self._lacking: dict[bytes, Place] = {}
        # While this is followed: the paths of records since then, and whether each was an open
        # directory; the places that are in no directory; and, by path, those in the one there.
        self._news: dict[bytes, bool] | None = None
        self._hidden: set[bytes] = set()
        self._below: defaultdict[bytes, list[bytes]] = defaultdict(list)
        self._making: _Making | None = None
        self._in_gap = False  # chunks without their first one may follow
        # Up to each entry, modulo 2^64: how many bytes of files are in entries of their own, and
        # how many payloads are missing.  A difference of two is about a range of entries.
        self._sizes = array("Q", [0])
        self._gaps = array("Q", [0])

    def read(self) -> Tree:
        """Read on; the directory as it is now.

        Raises `RecordError`, with the number of the entry, for a log that is not one of a
        directory: everything has to be in directories, and nothing under links or files.
        """
        self._places = dict(self._places)  # earlier results do not change
        self._read_on()
        return self._checked()

    def follow(self, again: Collection[bytes] = ()) -> Tree:
        """Read on; the places that have changed since the last time, and those to see `again`.

        The directories above are there, too.  The first time, that is the whole directory; after
        that, the work is in proportion to the change.  Raises as `read`.
        """
        if self._news is None:
            tree = self.read()
            self._hidden.update(self._places.keys() - tree.places.keys())
            for path in self._places:
                self._below[path.rpartition(b"/")[0]].append(path)
            self._news = {}
            return tree
        self._read_on()
        paths = self._look_at(self._news)
        self._news = {}
        paths.update(path for path in again if self._is_shown(path))
        paths.update(
            above for path in list(paths) for above in _above(path) if self._is_open(above)
        )
        return Tree({path: self._places[path] for path in sorted(paths, key=order)})

    def _look_at(self, news: Mapping[bytes, bool]) -> set[bytes]:
        """See which places are in directories, of those and of their content."""
        shown: set[bytes] = set()
        was_open = dict(news)
        waiting = sorted(news, key=order)
        for path in waiting:  # which may become longer
            before = was_open.get(path, self._is_open(path))
            place, above = self._places[path], path.rpartition(b"/")[0]
            if not above or isinstance(place.record, Removed) or self._is_open(above):
                self._hidden.discard(path)
                shown.add(path)
            elif self.missing:
                self._hidden.add(path)
                shown.discard(path)
            else:
                raise _outside(place)
            was_open[path] = self._is_open(path)
            if was_open[path] is not before:
                waiting += self._below[path]
        return shown

    def _is_shown(self, path: bytes) -> bool:
        return path in self._places and path not in self._hidden

    def _is_open(self, path: bytes) -> bool:
        """Whether other places can be in this one."""
        return self._is_shown(path) and isinstance(self._places[path].record, Directory)

    def _read_on(self) -> None:
        for entry in _entries(self._store, self._log, self.position + 1, self._last):
            if not entry.payload_complete and not self._may_be_missing(entry):
                break
            try:
                if entry.payload_complete:
                    self._read(entry)
                else:
                    self._pass_over(entry.seqnum)
            except RecordError as error:
                raise RecordError(f"entry {entry.seqnum}: {error}") from None
            self.position = entry.seqnum

    def lacking(self) -> list[Place]:
        """Files with an incomplete newest version: the entries that hold it."""
        return list(self._lacking.values())

    def _may_be_missing(self, entry: StoredEntry) -> bool:
        return self._payload_size_max is not None and entry.payload_size > self._payload_size_max

    def _pass_over(self, seqnum: int) -> None:
        self.missing += 1
        self._count(0, missing=1)
        if self._making is None:
            self._in_gap = True
            self.unclaimed.append(seqnum)
        else:
            self._making.add(Range(seqnum, seqnum), 0)
            self._finish()

    def _read(self, entry: StoredEntry) -> None:
        pieces = read_records(self._store, self._log, entry)
        is_alone = len(pieces) == 1
        record = pieces[0].record if is_alone else None
        # Before the record is taken: it is about a range that ends here.
        is_chunk = isinstance(record, File) and record.kept is None
        self._count(pieces[0].size + record.zeros if is_chunk else 0)  # type: ignore[union-attr]
        for piece in pieces:
            self._take(piece, entry.seqnum, is_alone=is_alone)

    def _count(self, size: int, *, missing: int = 0) -> None:
        self._sizes.append((self._sizes[-1] + size) % _MODULUS)
        self._gaps.append(self._gaps[-1] + missing)

    def _take(self, piece: Piece, seqnum: int, *, is_alone: bool) -> None:
        record = piece.record
        if not isinstance(record, File):
            self._put(Place(record, seqnum))
        elif record.chunks == 1 and record.kept is None:
            ranges = (Range(seqnum, seqnum),) if is_alone else ()
            size = _file_size(piece.size + record.zeros)
            self._put(Place(record, seqnum, piece.offset, size, ranges))
        else:
            self._take_chunk(record, seqnum)

    def _take_chunk(self, record: File, seqnum: int) -> None:
        if record.chunk == 0:
            self._making, self._in_gap = _Making(record, seqnum), False
        if self._making is None or not self._making.is_next(record):
            if not self._in_gap and not self.missing:
                raise RecordError("a chunk that does not continue the one before")
            self._making, self._in_gap = None, True
        elif record.kept is None or self._is_of_version_before(record):
            there = record.kept or Range(seqnum, seqnum)
            size = (self._sizes[there.last] - self._sizes[there.first - 1]) % _MODULUS
            self._making.add(there, size)
            self._finish()
        elif self.missing:
            self._making, self._in_gap = None, True
        else:
            raise RecordError("a chunk that the version before does not have")

    def _is_of_version_before(self, record: File) -> bool:
        assert record.kept is not None
        first, last = record.kept
        before = self._lacking.get(record.path) or self._places.get(record.path)
        return before is not None and any(a <= first and last <= b for a, b in before.ranges)

    def _finish(self) -> None:
        assert self._making is not None
        place = self._making.place()
        if place is None:
            return
        if any(self._gaps[last] != self._gaps[first - 1] for first, last in place.ranges):
            self._making = None
            self._lacking[place.record.path] = place
        else:
            self._put(place)

    def _put(self, place: Place) -> None:
        path = place.record.path
        if self._news is not None:
            self._news.setdefault(path, self._is_open(path))
            if path not in self._places:
                self._below[path.rpartition(b"/")[0]].append(path)
        self._places[path] = place
        self._lacking.pop(path, None)
        self._making, self._in_gap = None, False

    def _checked(self) -> Tree:
        """The places in directories; not those without one for want of a payload."""
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
                    raise _outside(place)
                del places[path]
        return Tree(places)


def _outside(place: Place) -> RecordError:
    path = place.record.path
    return RecordError(f"entry {place.seqnum}: {path[:100]!r} is not in a directory")


def _file_size(size: int) -> int:
    if size > _FILE_SIZE_MAX:
        raise RecordError(f"a file of {size} bytes")
    return size


def read_tree(store: LogStore, log: LogKey, *, payload_size_max: int | None = None) -> Tree:
    """The tree of the records of `log`; see `TreeReader`.

    Raises `RecordError`, also if a payload is missing that must not be.
    """
    reader = TreeReader(store, log, payload_size_max=payload_size_max)
    tree = reader.read()
    head = store.head(log)
    if head is not None and reader.position < head.seqnum:
        raise RecordError(f"entry {reader.position + 1}: the payload is missing")
    return tree


def _entries(store: LogStore, log: LogKey, seqnum: int, last: int | None) -> Iterator[StoredEntry]:
    """The entries of the unbroken log from `seqnum` on, with the payloads that are small.

    last: the last of them, if not the last of all.
    """
    head = store.head(log)
    end = 0 if head is None else head.seqnum
    end = end if last is None else min(end, last)
    while seqnum <= end:
        entries = store.entries(
            log, seqnum, end, size_max=_READ_SIZE_MAX, payload_size_max=PACK_SIZE_MAX
        )
        yield from entries
        seqnum += len(entries)


def read_records(store: LogStore, log: LogKey, entry: StoredEntry) -> list[Piece]:
    """The records of `entry`, and where in its payload their contents are.

    Raises `RecordError`, also if the payload is incomplete.
    """
    if not entry.payload_complete:
        raise RecordError("the payload is missing")
    prefix = entry.payload
    if prefix is None:
        size = PREFIX_SIZE if entry.payload_size > PACK_SIZE_MAX else PACK_SIZE_MAX
        prefix = store.read_payload(log, entry.seqnum, 0, size)
    return decode(prefix, entry.payload_size)
