"""Where logs are kept: the interface of a store, and one in memory.

A store holds verified entries only; it trusts its user in that, and itself guards what
would make it contradict itself.  Entries of a log may be sparse.  The payload of an
entry is absent, staged (a prefix is on hand, unverified) or complete; deleting it leaves
the entry.

All numbers of bytes are those of the encodings and payloads themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, runtime_checkable

from culm.bamboo.entry import Entry, LogKey
from culm.bamboo.forks import ForkProof
from culm.wire.multihash import HashFamily

__all__ = [
    "Head",
    "LogStore",
    "NewEntry",
    "StoreError",
    "StoreErrorCode",
    "StoredEntry",
]


class StoreErrorCode(IntEnum):
    """What a store refuses."""

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


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry as it is kept.

    `payload_stored` is the number of bytes of the payload on hand, from its beginning.
    An empty payload is complete only once it was given or finished.
    """

    seqnum: int
    encoded: bytes
    hash: bytes
    payload_size: int
    payload_stored: int
    payload_complete: bool


@dataclass(frozen=True, slots=True)
class NewEntry:
    """A verified entry to keep, with its whole verified payload or without one."""

    entry: Entry
    payload: bytes | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """The entry up to which something is known of a log."""

    seqnum: int
    hash: bytes
    end_of_log: bool = False


@runtime_checkable
class LogStore(Protocol):
    """A synchronous store of logs, all of one hash family.

    Reading what is not there gives ``None`` or nothing; writing what must not be raises
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
    ) -> list[StoredEntry]:
        """The stored entries from `start` to `end`, both included, ascending.

        Stops before exceeding `count_max` entries or `size_max` bytes of encodings, but
        gives at least one entry if there is any.
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

        An entry that is stored already is left as it is, except that a payload given
        completes one that is not complete.

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

        Raises `StoreError`: ``UNKNOWN_ENTRY``.
        """
        ...

    def add_fork(self, log: LogKey, proof: ForkProof) -> None:
        """Keep the (verified) proof and drop the entries from the fork on.

        They are no longer valid, and all peers who know the fork end up with the same
        log.  Only the earliest fork of a log is kept; a later one has no effect.

        Raises `StoreError`: ``WRONG_LOG``.
        """
        ...

    def fork(self, log: LogKey) -> ForkProof | None:
        """The proof of the earliest fork known."""
        ...
