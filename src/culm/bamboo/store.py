"""Where logs are kept: the interface of a store, and one in memory.

A store holds verified entries only: it trusts its user for that, and by itself refuses only
contradictions.  Entries of a log may be sparse.  The payload of an entry is absent, staged (a
prefix is on hand, unverified) or complete; deleting it leaves the entry.

All numbers of bytes are those of the encodings and payloads themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from culm.bamboo import effects
from culm.bamboo.effects import LogStatus
from culm.bamboo.entry import Entry, LogKey, decode
from culm.bamboo.forks import ForkProof
from culm.bamboo.records import Head, NewEntry, StoredEntry, StoreError, StoreErrorCode
from culm.machine import Effect
from culm.wire.multihash import HashFamily
from culm.wire.varu64 import MAX

__all__ = [
    "Head",
    "LogStore",
    "MemoryStore",
    "NewEntry",
    "StoreError",
    "StoreErrorCode",
    "StoredEntry",
]


class LogStore(ABC):
    """A synchronous store of logs, all of one hash family.

    Reading a missing entry gives ``None`` or nothing; a write that is not allowed raises
    `StoreError` and changes nothing.  Machines reach a store through `perform`.
    """

    def perform(self, effect: Effect[Any]) -> Any:
        """Carry out an effect (`culm.bamboo.effects`); returns the result for `complete`.

        A refusal (`StoreError`) is a result, too, if the effect accepts it.  Raises all other
        errors of the store, and `TypeError` for an effect that is not one for a log store.
        """
        operation = _OPERATIONS.get(type(effect))
        if operation is None:
            raise TypeError(f"{type(effect).__name__} is not an effect for a log store")
        try:
            return operation(self, effect)
        except StoreError as refusal:
            if effect.accepts(refusal):
                return refusal
            raise

    @property
    @abstractmethod
    def family(self) -> HashFamily:
        """The family of every hash in the store."""

    @abstractmethod
    def logs(self, after: LogKey | None = None, *, count_max: int | None = None) -> list[LogKey]:
        """The logs with an entry or a fork, ascending by author and log id, past `after`."""

    @abstractmethod
    def head(self, log: LogKey) -> Head | None:
        """The end of the unbroken run of entries from entry 1 on; ``None`` without entry 1."""

    @abstractmethod
    def newest(self, log: LogKey) -> Head | None:
        """The entry with the greatest sequence number, with or without gaps before it."""

    @abstractmethod
    def entry(self, log: LogKey, seqnum: int) -> StoredEntry | None:
        """One entry."""

    @abstractmethod
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

    @abstractmethod
    def hashes(self, log: LogKey, seqnums: Iterable[int]) -> dict[int, bytes]:
        """The hashes of those of the entries that are stored, by sequence number."""

    @abstractmethod
    def read_payload(self, log: LogKey, seqnum: int, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset` on of the part on hand, staged or complete."""

    @abstractmethod
    def append(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        """Add verified entries of `log`, in any order: all of them or none.

        An entry that is stored already is left as it is, except that a whole payload
        completes one that is not complete; a staged one counts only where nothing is on
        hand.

        Raises `StoreError`: ``WRONG_LOG``, ``CONFLICT`` (see `check_links`), ``FORKED``,
        ``PAYLOAD_SIZE``.
        """

    def check_links(self, log: LogKey, entries: Sequence[NewEntry]) -> None:
        """Refuse entries that are of another branch than those beside them, stored or given.

        For `append`: each may have come with links to others, and only a store sees all at once.
        Raises `StoreError`: ``CONFLICT``.
        """
        ours = {new.entry.seqnum: new.entry for new in entries}
        firsts = ours.keys() - {seqnum + 1 for seqnum in ours}
        hashes = self.hashes(log, (seqnum - 1 for seqnum in firsts if seqnum > 1))
        for seqnum, entry in ours.items():
            hashes[seqnum] = entry.hash()
        for seqnum, entry in ours.items():
            if hashes.get(seqnum - 1, entry.backlink) != entry.backlink:
                raise StoreError(StoreErrorCode.CONFLICT, log, seqnum)
        for seqnum in ours.keys() - {seqnum - 1 for seqnum in ours} - {MAX}:
            after = self.entry(log, seqnum + 1)
            link = None if after is None else decode(after.encoded, family=self.family).backlink
            if link not in (None, hashes[seqnum]):
                raise StoreError(StoreErrorCode.CONFLICT, log, seqnum)

    @abstractmethod
    def write_payload(self, log: LogKey, seqnum: int, offset: int, data: bytes) -> None:
        """Append to the staged payload; `offset` is the number of bytes on hand.

        Raises `StoreError`: ``UNKNOWN_ENTRY``, ``WRONG_OFFSET``, ``PAYLOAD_SIZE`` (past
        the size of the payload; a complete one takes no more than nothing).
        """

    @abstractmethod
    def finish_payload(self, log: LogKey, seqnum: int) -> None:
        """Mark the staged payload as complete and verified.  Again: no effect.

        Raises `StoreError`: ``UNKNOWN_ENTRY``, ``PAYLOAD_SIZE`` (bytes are missing).
        """

    @abstractmethod
    def discard_payload(self, log: LogKey, seqnum: int) -> None:
        """Drop the part of the payload on hand, staged or complete; the entry stays.

        A payload that was not complete has still begun, and can be fetched from a peer.  A complete
        one is left out from now on.

        Raises `StoreError`: ``UNKNOWN_ENTRY``.
        """

    @abstractmethod
    def discard_staged(self, log: LogKey, seqnum: int) -> None:
        """Drop the staged part of the payload: it turned out to be wrong.

        It has still begun, and can be fetched from another peer.  A complete payload stays: it has
        been seen as a whole, and found right.

        Raises `StoreError`: ``UNKNOWN_ENTRY``.
        """

    @abstractmethod
    def add_fork(self, log: LogKey, proof: ForkProof) -> None:
        """Keep the (verified) proof and drop the entries from the fork on.

        They are no longer valid, and all peers who know the fork end up with the same
        log.  Only the earliest fork of a log is kept; one of the same or a later
        entry has no effect.

        Raises `StoreError`: ``WRONG_LOG``.
        """

    @abstractmethod
    def fork(self, log: LogKey) -> ForkProof | None:
        """The proof of the earliest fork known."""


def _read_log(store: LogStore, effect: effects.ReadLog) -> LogStatus:
    log, head = effect.log, store.head(effect.log)
    return LogStatus(
        fork=store.fork(log),
        head=head,
        newest=store.newest(log),
        last=None if head is None else store.entry(log, head.seqnum),
        entry=None if effect.entry is None else store.entry(log, effect.entry),
        hashes=store.hashes(log, effect.hashes) if effect.hashes else {},
    )


_OPERATIONS: dict[type[Effect[Any]], Callable[[LogStore, Any], object]] = {
    effects.ReadLogs: lambda store, e: store.logs(e.after, count_max=e.count_max),
    effects.ReadLog: _read_log,
    effects.ReadEntry: lambda store, e: store.entry(e.log, e.seqnum),
    effects.ReadEntries: lambda store, e: store.entries(
        e.log,
        e.start,
        e.end,
        count_max=e.count_max,
        size_max=e.size_max,
        payload_size_max=e.payload_size_max,
    ),
    effects.ReadHashes: lambda store, e: store.hashes(e.log, e.seqnums),
    effects.ReadPayload: lambda store, e: store.read_payload(e.log, e.seqnum, e.offset, e.size),
    effects.AppendEntries: lambda store, e: store.append(e.log, e.entries),
    effects.WritePayload: lambda store, e: store.write_payload(e.log, e.seqnum, e.offset, e.data),
    effects.FinishPayload: lambda store, e: store.finish_payload(e.log, e.seqnum),
    effects.DiscardStaged: lambda store, e: store.discard_staged(e.log, e.seqnum),
    effects.AddFork: lambda store, e: store.add_fork(e.log, e.proof),
}


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
        """Mark it as complete."""
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
class KeptLog:
    """One log of a `MemoryStore`."""

    kept: dict[int, NewEntry] = field(
        default_factory=dict[int, NewEntry]
    )  # with payloads that came whole
    pieces: dict[int, _Pieces] = field(default_factory=dict[int, _Pieces])  # of other payloads
    seqnums: list[int] = field(default_factory=list[int])  # of stored entries, ascending
    head: int = 0
    fork: ForkProof | None = None

    def end_at(self, fork: ForkProof) -> None:
        """The place of a fork: nothing from there on is kept."""
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


class MemoryStore(LogStore):
    """A `LogStore` in memory."""

    def __init__(self, *, family: HashFamily) -> None:
        self._family = family
        self._logs: dict[LogKey, KeptLog] = {}

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
        until = len(found.seqnums) if end is None else bisect_right(found.seqnums, end)
        if count_max is not None:
            until = min(until, first + max(count_max, 1))
        entries: list[StoredEntry] = []
        size = 0
        for index in range(first, until):
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
        found = self._logs.get(log, KeptLog())
        batch: dict[int, Entry] = {}
        for new in entries:
            self._check_new(log, found, new, batch)
        self.check_links(log, entries)
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
        found = self._logs.setdefault(log, KeptLog())
        if found.fork is None or proof.seqnum < found.fork.seqnum:
            found.end_at(proof)

    def fork(self, log: LogKey) -> ForkProof | None:
        found = self._logs.get(log)
        return None if found is None else found.fork

    def _find(self, log: LogKey, seqnum: int) -> KeptLog | None:
        """The log, if it has that entry."""
        found = self._logs.get(log)
        return found if found is not None and seqnum in found.kept else None

    def _require(self, log: LogKey, seqnum: int) -> KeptLog:
        found = self._find(log, seqnum)
        if found is None:
            raise StoreError(StoreErrorCode.UNKNOWN_ENTRY, log, seqnum)
        return found

    def _check_new(
        self, log: LogKey, found: KeptLog, new: NewEntry, batch: dict[int, Entry]
    ) -> None:
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
