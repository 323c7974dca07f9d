"""The messages of the protocol, one class for each message of the specification.

The seven messages of set reconciliation are those of `culm.reconcile.messages`, except that
fingerprints are bytes here; on the wire each also has a session id.  Their items and bounds are
heights of logs (`culm.p2panda.heights`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

from culm.arguments import check_type
from culm.p2panda.heights import Height, check_item
from culm.reconcile.messages import Done, EmptyPayload, EmptySet, LowerBound, Payload, Terminal

__all__ = [
    "LIFT_SIZE_MAX",
    "VERSION",
    "Announce",
    "Done",
    "EmptyPayload",
    "EmptySet",
    "Fingerprint",
    "Have",
    "LowerBound",
    "Message",
    "MessageType",
    "Mode",
    "Payload",
    "RangeMessage",
    "Reconcile",
    "SendEntry",
    "SessionMessage",
    "SyncDone",
    "SyncRequest",
    "Terminal",
    "check_range_message",
]

#: The version of the protocol.
VERSION = 1
#: Bytes of an encoded fingerprint of any monoid, at most.
LIFT_SIZE_MAX = 64


class Mode(IntEnum):
    """The way in which two peers find the entries that each of them lacks."""

    LOG_HEIGHT = 0
    """Both tell the heights of all their logs."""
    SET_RECONCILIATION = 1
    """They compare fingerprints of ranges."""


class MessageType(IntEnum):
    """The number that a message begins with."""

    ANNOUNCE = 0
    SYNC_REQUEST = 1
    ENTRY = 2
    SYNC_DONE = 3
    HAVE = 10
    EMPTY_SET = 20
    LOWER_BOUND = 21
    PAYLOAD = 22
    EMPTY_PAYLOAD = 23
    DONE = 24
    FINGERPRINT = 25
    TERMINAL = 26


@dataclass(frozen=True, slots=True)
class Announce:
    """The sender is interested in these schemas; this replaces its earlier announcements."""

    timestamp: int
    schema_ids: tuple[str, ...]
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class SyncRequest:
    """A request to replicate the documents of these schemas, in a session with this id.

    mode: a `Mode`, or an unknown number.
    """

    session_id: int
    mode: int
    schema_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SendEntry:
    """``Entry``: an entry and its operation, encoded.

    operation: ``None`` if it is missing, as it may be in aquadoggo's dialect, or too large.
    """

    session_id: int
    entry: bytes
    operation: bytes | None


@dataclass(frozen=True, slots=True)
class SyncDone:
    """Everything was sent; with `live_mode`, new entries may follow.  In live mode: it ends."""

    session_id: int
    live_mode: bool


@dataclass(frozen=True, slots=True)
class Have:
    """The heights of all logs of the sender.

    heights: ``None`` if they were more than we take.
    """

    session_id: int
    heights: tuple[Height, ...] | None


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """``lift_type``: the encoded fingerprint of the sender's items in a range."""

    lift: bytes
    upper_bound: bytes


RangeMessage: TypeAlias = (
    EmptySet | LowerBound | Payload | EmptyPayload | Done | Fingerprint | Terminal
)


@dataclass(frozen=True, slots=True)
class Reconcile:
    """One of the seven messages of set reconciliation."""

    session_id: int
    message: RangeMessage


SessionMessage: TypeAlias = SendEntry | SyncDone | Have | Reconcile
Message: TypeAlias = Announce | SyncRequest | SessionMessage


def check_range_message(message: RangeMessage) -> None:
    """Raise `TypeError` or `ValueError` unless `message` is one of the seven, with valid parts."""
    match message:
        case EmptySet(can_respond):
            check_type("can_respond", can_respond, bool)
        case LowerBound(bound) | EmptyPayload(bound) | Done(bound):
            check_item("bound", bound)
        case Payload(item, upper_bound, can_respond):
            check_item("item", item)
            check_type("can_respond", can_respond, bool)
            if upper_bound is not None:
                check_item("upper bound", upper_bound)
        case Fingerprint(lift, upper_bound):
            check_type("lift", lift, bytes)
            if len(lift) > LIFT_SIZE_MAX:
                raise ValueError(f"a fingerprint of {len(lift)} bytes")
            check_item("upper bound", upper_bound)
        case Terminal():
            pass
        case _:
            raise TypeError(f"{type(message).__name__} is no message of set reconciliation")
