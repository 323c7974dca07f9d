"""Where logs are kept: the interface of a store, and one in memory.

A store holds verified entries only: it trusts its user for that, and by itself refuses only what
would make it contradict itself.  Entries of a log may be sparse.  The payload of an entry is
absent, staged (a prefix is on hand, unverified) or complete; deleting it leaves the entry.

All numbers of bytes are those of the encodings and payloads themselves.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol, runtime_checkable

from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.forks import ForkProof
from culm.wire.multihash import HashFamily

__all__ = [
    "Head",
    "LogStore",
    "MemoryStore",
    "NewEntry",
    "StoreError",
    "StoreErrorCode",
    "StoredEntry",
]


class StoreErrorCode(IntEnum):
    """The writes that a store refuses."""

    WRONG_LOG = 1
    """The entry or proof is of another log, or of another hash family."""
    CONFLICT = 2
    """Another entry of the same sequence number is stored."""
    FORKED = 3
    """The log is forked at or before this entry."""
    UNKNOWN_ENTRY = 4
    """No such entry is stored."""
    WRONG_OFFSET = 5
    """The offset is not where the stored payload ends."""
    PAYLOAD_SIZE = 6
    """The payload is, or would become, of another size than its entry says."""


class StoreError(Exception):
    """An operation that a store refuses; nothing has changed."""

    def __init__(self, code: StoreErrorCode, log: LogKey, seqnum: int) -> None:
        super().__init__(code, log, seqnum)
        self.code = code
        self.log = log
        self.seqnum = seqnum

    def __str__(self) -> str:
        name = self.code.name.lower().replace("_", " ")
        return f"{name}: entry {self.seqnum} of log {self.log.author.hex()}/{self.log.log_id}"


class StoredEntry(NamedTuple):
    """An entry as it is kept.

    `payload_stored` is the number of bytes of the payload on hand, from its beginning.
    An empty payload is complete only once it was given or finished.  `payload` is there
    only if it was asked for (see `LogStore.entries`).  `payload_begun`: some of it has been
    staged, whether or not it is still on hand, and it is not complete; what was left out
    has not begun.
    """

    seqnum: int
    encoded: bytes
    hash: bytes
    payload_size: int
    payload_stored: int
    payload_complete: bool
    payload: bytes | None = None
    payload_begun: bool = False


class NewEntry(NamedTuple):
    """A verified entry to keep, with its whole verified payload or without one.

    If `staged`, the payload is only what has arrived of it so far, unverified;
    `LogStore.write_payload` goes on from there.
    """

    entry: Entry
    payload: bytes | None = None
    staged: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """The entry up to which something is known of a log."""

    seqnum: int
    hash: bytes
    end_of_log: bool = False


@runtime_checkable
class LogStore(Protocol):
    """A synchronous store of logs, all of one hash family.

    Reading what is not there gives ``None`` or nothing; writing what is not allowed raises
    `StoreError` and changes nothing.
    """

    @property
    def family(self) -> HashFamily:
        """The family of every hash in the store."""
        ...

    def logs(self, after: LogKey | None = None, *, count_max: int | None = None) -> list[LogKey]:
        """The logs with an entry or a fork, ascending by author and log id, past `after`."""
        ...

    def head(self, log: LogKey) -> Head | None:
        """The end of the unbroken run of entries from entry 1 on; ``None`` without entry 1."""
        ...

    def newest(self, log: LogKey) -> Head | None:
        """The entry with the greatest sequence number, whatever is missing before it."""
        ...

    def entry(self, log: LogKey, seqnum: int) -> StoredEntry | None:
        """One entry."""
        ...

    def entries(
        self,
        log: LogKey,
        start: int = 1,
        end: int | None = None,
        *,
        count_max: int | None = None,
        size_max: int | None = None,
        payload_size_max: int | None = None,
    ) -> list[StoredEntry]:
        """The stored entries from `start` to `end`, both included, ascending.

        Complete payloads of at most `payload_size_max` bytes come along (none if that is
        ``None``).  Stops before exceeding `count_max` entries or `size_max` bytes of
        encodings and payloads together, but gives at least one entry if there is any.
        """
        ...

    def hashes(self, log: LogKey, seqnums: Iterable[int]) -> dict[int, bytes]:
        """The hashes of those of the entries that are stored, by sequence number."""
        ...

    def read_payload(self, log: LogKey, seqnum: int, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset` on of what is on hand, staged or complete."""
        ...

    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        """Add verified entries of `log`, in any order: all of them or none.

        An entry that is stored already is left as it is, except that a whole payload
        completes one that is not complete; a staged one counts only where nothing is on
        hand.

        Raises `StoreError`: ``WRONG_LOG``, ``CONFLICT``, ``FORKED``, ``PAYLOAD_SIZE``.
        """
        ...

    def write_payload(self, log: LogKey, seqnum: int, offset: int, data: bytes) -> None:
        """Append to the staged payload; `offset` is the number of bytes on hand.

        Raises `StoreError`: ``UNKNOWN_ENTRY``, ``WRONG_OFFSET``, ``PAYLOAD_SIZE`` (past
        the size of the payload; a complete one takes no more than nothing).
        """
        ...

    def finish_payload(self, log: LogKey, seqnum: int) -> None:
        """The staged payload is all there and was verified.  Again: no effect.

        Raises `StoreError`: ``UNKNOWN_ENTRY``, ``PAYLOAD_SIZE`` (bytes are missing).
        """
        ...

    def discard_payload(self, log: LogKey, seqnum: int) -> None:
        """Drop what is on hand of the payload, staged or complete; the entry stays.

        A payload that was not complete has still begun, and is to be had from somebody.  A
        complete one is left out from now on.

        Raises `StoreError`: ``UNKNOWN_ENTRY``.
        """
        ...

    def discard_staged(self, log: LogKey, seqnum: int) -> None:
        """Drop what is staged of the payload: it turned out to be wrong.

        It has still begun, and is to be had from somebody else.  A complete payload stays:
        somebody has seen it all, and found it right.

        Raises `StoreError`: ``UNKNOWN_ENTRY``.
        """
        ...

    def add_fork(self, log: LogKey, proof: ForkProof) -> None:
        """Keep the (verified) proof and drop the entries from the fork on.

        They are no longer valid, and all peers who know the fork end up with the same
        log.  Only the earliest fork of a log is kept; one of the same or a later
        entry has no effect.

        Raises `StoreError`: ``WRONG_LOG``.
        """
        ...

    def fork(self, log: LogKey) -> ForkProof | None:
        """The proof of the earliest fork known."""
        ...


@dataclass(slots=True)
class _Pieces:
    """A payload that came piece by piece: all of it, once it is complete."""

    pieces: list[bytes]
    size: int
    complete: bool = False

    def add(self, data: bytes) -> None:
        self.pieces.append(data)
        self.size += len(data)

    def finish(self) -> None:
        """That was all of it."""
        self.complete = True

    def read(self, offset: int, size: int) -> bytes:
        parts: list[bytes] = []
        for piece in self.pieces:
            if offset < len(piece):
                parts.append(piece[offset : offset + size])
                size -= len(parts[-1])
                if not size:
                    break
            offset = max(0, offset - len(piece))
        return b"".join(parts)


@dataclass(slots=True)
class _Log:
    kept: dict[int, NewEntry] = field(
        default_factory=dict[int, NewEntry]
    )  # with payloads that came whole
    pieces: dict[int, _Pieces] = field(default_factory=dict[int, _Pieces])  # of other payloads
    seqnums: list[int] = field(default_factory=list[int])  # of what is kept, ascending
    head: int = 0
    fork: ForkProof | None = None

    def end_at(self, fork: ForkProof) -> None:
        """The log has forked there: nothing from there on is kept."""
        self.fork = fork
        self.truncate(fork.seqnum)

    def add(self, new: NewEntry) -> None:
        entry, payload, staged = new
        seqnum = entry.seqnum
        kept = self.kept.get(seqnum)
        if kept is None:
            kept = self.kept[seqnum] = NewEntry(entry) if staged else new
            if self.seqnums and seqnum < self.seqnums[-1]:
                insort(self.seqnums, seqnum)
            else:
                self.seqnums.append(seqnum)
            while self.head + 1 in self.kept:
                self.head += 1
        if payload is None or kept.payload is not None:
            return
        pieces = self.pieces.get(seqnum)
        if pieces is not None and (pieces.complete or (staged and pieces.size)):
            return
        if staged:
            self.pieces[seqnum] = _Pieces([payload], len(payload))
        else:
            self.kept[seqnum] = NewEntry(kept.entry, payload)
            self.pieces.pop(seqnum, None)

    def read(self, seqnum: int, offset: int, size: int) -> bytes:
        """The stored part of a payload."""
        payload = self.kept[seqnum].payload
        if payload is not None:
            return payload[offset : offset + size]
        pieces = self.pieces.get(seqnum)
        return b"" if pieces is None else pieces.read(offset, size)

    def on_hand(self, seqnum: int) -> tuple[int, bool]:
        """How much of a payload is there, and whether that is known to be all."""
        payload, pieces = self.kept[seqnum].payload, self.pieces.get(seqnum)
        if payload is not None:
            return len(payload), True
        return (0, False) if pieces is None else (pieces.size, pieces.complete)

    def stored(self, seqnum: int, payload_size_max: int | None = None) -> StoredEntry:
        entry, payload, _ = self.kept[seqnum]
        size, complete = (len(payload), True) if payload is not None else self.on_hand(seqnum)
        if not complete or payload_size_max is None or size > payload_size_max:
            payload = None
        elif payload is None:
            payload = self.read(seqnum, 0, size)
        begun = not complete and seqnum in self.pieces
        return StoredEntry(
            seqnum, entry.encode(), entry.hash(), entry.payload_size, size, complete, payload, begun
        )

    def head_at(self, seqnum: int) -> Head:
        entry = self.kept[seqnum].entry
        return Head(seqnum, entry.hash(), entry.end_of_log)

    def truncate(self, seqnum: int) -> None:
        """Drop the entries from `seqnum` on."""
        start = bisect_left(self.seqnums, seqnum)
        for dropped in self.seqnums[start:]:
            del self.kept[dropped]
            self.pieces.pop(dropped, None)
        del self.seqnums[start:]
        self.head = min(self.head, seqnum - 1)


class MemoryStore:
    """A `LogStore` in memory."""

    def __init__(self, *, family: HashFamily) -> None:
        self._family = family
        self._logs: dict[LogKey, _Log] = {}

    @property
    def family(self) -> HashFamily:
        return self._family

    def logs(self, after: LogKey | None = None, *, count_max: int | None = None) -> list[LogKey]:
        logs = sorted(self._logs)
        start = 0 if after is None else bisect_right(logs, after)
        return logs[start:] if count_max is None else logs[start : start + count_max]

    def head(self, log: LogKey) -> Head | None:
        found = self._logs.get(log)
        return found.head_at(found.head) if found is not None and found.head else None

    def newest(self, log: LogKey) -> Head | None:
        found = self._logs.get(log)
        return found.head_at(found.seqnums[-1]) if found is not None and found.seqnums else None

    def entry(self, log: LogKey, seqnum: int) -> StoredEntry | None:
        found = self._find(log, seqnum)
        return None if found is None else found.stored(seqnum)

    def entries(
        self,
        log: LogKey,
        start: int = 1,
        end: int | None = None,
        *,
        count_max: int | None = None,
        size_max: int | None = None,
        payload_size_max: int | None = None,
    ) -> list[StoredEntry]:
        found = self._logs.get(log)
        if found is None:
            return []
        first = bisect_left(found.seqnums, start)
        behind = len(found.seqnums) if end is None else bisect_right(found.seqnums, end)
        if count_max is not None:
            behind = min(behind, first + max(count_max, 1))
        entries: list[StoredEntry] = []
        size = 0
        for index in range(first, behind):
            entry = found.stored(found.seqnums[index], payload_size_max)
            size += len(entry.encoded) + len(entry.payload or b"")
            if size_max is not None and size > size_max and entries:
                break
            entries.append(entry)
        return entries

    def hashes(self, log: LogKey, seqnums: Iterable[int]) -> dict[int, bytes]:
        found = self._logs.get(log)
        if found is None:
            return {}
        return {n: found.kept[n].entry.hash() for n in seqnums if n in found.kept}

    def read_payload(self, log: LogKey, seqnum: int, offset: int, size: int) -> bytes:
        found = self._find(log, seqnum)
        return b"" if found is None else found.read(seqnum, offset, size)

    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        found = self._logs.get(log, _Log())
        batch: dict[int, Entry] = {}
        for new in entries:
            self._check_new(log, found, new, batch)
        if entries:
            self._logs[log] = found
        for new in entries:
            found.add(new)

    def write_payload(self, log: LogKey, seqnum: int, offset: int, data: bytes) -> None:
        found = self._require(log, seqnum)
        if offset != found.on_hand(seqnum)[0]:
            raise StoreError(StoreErrorCode.WRONG_OFFSET, log, seqnum)
        if offset + len(data) > found.kept[seqnum].entry.payload_size:
            raise StoreError(StoreErrorCode.PAYLOAD_SIZE, log, seqnum)
        if data:
            found.pieces.setdefault(seqnum, _Pieces([], 0)).add(bytes(data))

    def finish_payload(self, log: LogKey, seqnum: int) -> None:
        found = self._require(log, seqnum)
        size, complete = found.on_hand(seqnum)
        if size != found.kept[seqnum].entry.payload_size:
            raise StoreError(StoreErrorCode.PAYLOAD_SIZE, log, seqnum)
        if not complete:
            found.pieces.setdefault(seqnum, _Pieces([], 0)).finish()

    def discard_payload(self, log: LogKey, seqnum: int) -> None:
        found = self._require(log, seqnum)
        complete = found.on_hand(seqnum)[1]
        found.kept[seqnum] = NewEntry(found.kept[seqnum].entry)
        if found.pieces.pop(seqnum, None) is not None and not complete:
            found.pieces[seqnum] = _Pieces([], 0)

    def discard_staged(self, log: LogKey, seqnum: int) -> None:
        if not self._require(log, seqnum).on_hand(seqnum)[1]:
            self.discard_payload(log, seqnum)

    def add_fork(self, log: LogKey, proof: ForkProof) -> None:
        if proof.log != log or proof.first.family is not self._family:
            raise StoreError(StoreErrorCode.WRONG_LOG, log, proof.seqnum)
        found = self._logs.setdefault(log, _Log())
        if found.fork is None or proof.seqnum < found.fork.seqnum:
            found.end_at(proof)

    def fork(self, log: LogKey) -> ForkProof | None:
        found = self._logs.get(log)
        return None if found is None else found.fork

    def _find(self, log: LogKey, seqnum: int) -> _Log | None:
        """The log, if it has that entry."""
        found = self._logs.get(log)
        return found if found is not None and seqnum in found.kept else None

    def _require(self, log: LogKey, seqnum: int) -> _Log:
        found = self._find(log, seqnum)
        if found is None:
            raise StoreError(StoreErrorCode.UNKNOWN_ENTRY, log, seqnum)
        return found

    def _check_new(self, log: LogKey, found: _Log, new: NewEntry, batch: dict[int, Entry]) -> None:
        entry, payload, staged = new
        seqnum, (author, log_id) = entry.seqnum, log
        kept = found.kept.get(seqnum)
        present = batch.setdefault(seqnum, entry) if kept is None else kept.entry
        if entry.author != author or entry.log_id != log_id or entry.family is not self._family:
            raise StoreError(StoreErrorCode.WRONG_LOG, log, seqnum)
        if found.fork is not None and seqnum >= found.fork.seqnum:
            raise StoreError(StoreErrorCode.FORKED, log, seqnum)
        if present is not entry and present.encode() != entry.encode():
            raise StoreError(StoreErrorCode.CONFLICT, log, seqnum)
        if payload is not None:
            missing = entry.payload_size - len(payload)
            if missing < 0 or (missing and not staged):
                raise StoreError(StoreErrorCode.PAYLOAD_SIZE, log, seqnum)
