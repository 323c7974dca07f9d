"""Records of stores of logs, and the writes that these refuse."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from culm.bamboo.entry import Entry, LogKey


class StoreErrorCode(IntEnum):
    """The writes that a store refuses."""

    WRONG_LOG = 1
    """The entry or proof is of another log, or of another hash family."""
    CONFLICT = 2
    """Another entry of the same sequence number is stored, or beside it one of another branch."""
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
    staged, whether or not it is still on hand, and it is not complete; a payload that was left
    out has not begun.
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

    If `staged`, the payload is only the part that has arrived so far, unverified;
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
