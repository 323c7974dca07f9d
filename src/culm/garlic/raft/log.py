"""The log in memory: entries since the last compaction."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Protocol

from culm.garlic.raft.model import Entry, Snapshot, Stored

_term, data_of = itemgetter(0), itemgetter(1)  # of an entry
_VALUES = frozenset((bytes,))


def size_of(entries: Iterable[Entry]) -> int:
    """Bytes of the values of `entries`."""
    values = [*map(data_of, entries)]
    if not are_values(values):
        values = [data for data in values if type(data) is bytes]
    return sum(map(len, values))


def are_values(data: Iterable[object]) -> bool:
    """Whether all of `data`, of entries, are values: none is a configuration."""
    return _VALUES.issuperset(map(type, data))


class LogView(Protocol):
    """A read-only view of a log (`Raft.log`); entries up to `base_index` are gone."""

    @property
    def snapshot(self) -> Snapshot: ...
    @property
    def base_index(self) -> int: ...
    @property
    def last_index(self) -> int: ...
    @property
    def last_term(self) -> int: ...

    def term_at(self, index: int) -> int | None:
        """Term of the entry at `index`; ``None`` if it is not here."""
        ...

    def slice(self, first: int, last: int) -> list[Entry]:
        """Entries from `first` to `last`, both included."""
        ...


class RaftLog:
    """Entries after `base_index`; those up to it live in snapshots only.

    Owns the entries and the latest snapshot's description.  ``base_index`` is at most
    ``snapshot.index``: entries before a snapshot may be kept for slow followers.
    """

    def __init__(self, stored: Stored) -> None:
        self.snapshot = stored.snapshot
        self.base_index = stored.snapshot.index
        self._base_term = stored.snapshot.term
        self._entries: list[Entry] = []
        self._load(stored.first_index, stored.entries)
        self.last_index = self.base_index + len(self._entries)

    def _load(self, first: int, entries: Sequence[Entry]) -> None:
        """Take stored entries, which begin right after the snapshot, or before it.

        Raises `ValueError` for a store that lacks entries it once had: a server that went on
        without them would vote for leaders that lack them, too.
        """
        snapshot = self.snapshot
        if first > snapshot.index + 1:
            raise ValueError(
                f"a hole in the store: the snapshot ends at {snapshot.index},"
                f" and the log begins at {first}"
            )
        if first == snapshot.index + 1:
            self._entries = list(entries)
        elif entries:
            position = snapshot.index - first
            if position >= len(entries):
                raise ValueError(
                    f"the store's snapshot, at {snapshot.index}, is beyond its log, which ends at"
                    f" {first + len(entries) - 1}"
                )
            if entries[position].term != snapshot.term:
                raise ValueError(
                    f"the store's log has an entry of term {entries[position].term} at"
                    f" {snapshot.index}, and its snapshot is of term {snapshot.term}"
                )
            # The first entry serves as the base: the term before it is unknown.
            self.base_index = first
            self._base_term = entries[0].term
            self._entries = list(entries[1:])

    @property
    def last_term(self) -> int:
        return self._entries[-1].term if self._entries else self._base_term

    def term_at(self, index: int) -> int | None:
        """Term of the entry at `index`; ``None`` if it is not here."""
        position = index - self.base_index
        if position == 0:
            return self._base_term
        if 0 < position <= len(self._entries):
            return self._entries[position - 1].term
        return None

    def slice(self, first: int, last: int) -> list[Entry]:
        """Entries from `first` to `last`, both included."""
        return self._entries[first - self.base_index - 1 : last - self.base_index]

    def batch(self, first: int, count_max: int, size_max: int) -> list[Entry]:
        """At most `count_max` entries from `first` on, of at most `size_max` bytes.

        A first entry that exceeds the size comes alone.
        """
        entries = self.slice(first, min(self.last_index, first + count_max - 1))
        if len(entries) == 1 or size_of(entries) <= size_max:
            return entries
        size = 0
        for position, entry in enumerate(entries):
            data = entry[1]
            if type(data) is bytes:
                size += len(data)
                if size > size_max and position:
                    del entries[position:]
                    break
        return entries

    def append(self, entries: Sequence[Entry]) -> None:
        self._entries.extend(entries)
        self.last_index += len(entries)

    def truncate(self, first: int) -> None:
        """Drop the entries from `first` on."""
        del self._entries[first - self.base_index - 1 :]
        self.last_index = first - 1

    def first_conflict(self, previous_index: int, entries: Sequence[Entry]) -> int:
        """The number of `entries`, which follow `previous_index`, that are already here."""
        if previous_index == self.last_index:
            return 0
        start = previous_index - self.base_index
        ours = self._entries[start : start + len(entries)]
        for position, (entry, mine) in enumerate(zip(entries, ours, strict=False)):
            if entry[0] != mine[0]:
                return position
        return min(len(ours), len(entries))

    def retry_index(self, previous_index: int, previous_term: int) -> int:
        """The next index to try for a leader whose entry at `previous_index` is not ours.

        Paper, 5.3: a refusal passes whole terms, not an entry.  Entries of ours above
        `previous_term` cannot agree with the leader's at or before `previous_index`, so all
        of them are skipped.
        """
        end = min(previous_index - 1, self.last_index) - self.base_index
        return (
            self.base_index
            + 1
            + bisect_right(self._entries, previous_term, 0, max(0, end), key=_term)
        )

    def compact(self, snapshot: Snapshot, trailing: int) -> int:
        """Remember `snapshot`; keep `trailing` entries before it.  Returns the new base."""
        self.snapshot = snapshot
        base = max(self.base_index, snapshot.index - trailing)
        term = self.term_at(base)
        assert term is not None
        del self._entries[: base - self.base_index]
        self.base_index, self._base_term = base, term
        return base

    def reset(self, snapshot: Snapshot) -> None:
        """Start anew after `snapshot`."""
        self.snapshot = snapshot
        self.base_index = self.last_index = snapshot.index
        self._base_term = snapshot.term
        self._entries.clear()
