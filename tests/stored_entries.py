"""The heads and entries that a store should give."""

from __future__ import annotations

from culm.bamboo.records import Head, NewEntry, StoredEntry


def head_of(new: NewEntry) -> Head:
    """The head of a log that ends with `new`."""
    return Head(new.entry.seqnum, new.entry.hash(), new.entry.end_of_log)


def stored_form(new: NewEntry, staged: int | None = None) -> StoredEntry:
    """The stored form of `new`, or of its entry with `staged` bytes of payload staged."""
    entry = new.entry
    complete = staged is None and new.payload is not None
    size = entry.payload_size if complete else staged or 0
    return StoredEntry(
        entry.seqnum,
        entry.encode(),
        entry.hash(),
        entry.payload_size,
        size,
        complete,
        payload_begun=staged is not None,
    )
