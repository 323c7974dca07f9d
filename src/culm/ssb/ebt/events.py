"""What happened to sessions and feeds.  The last event is always `culm.machine.Closed`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from culm.machine import Closed, Event, RemoteProtocolError, StoreFailed
from culm.ssb.ebt.states import EndReason

__all__ = [
    "FeedExtended",
    "FeedForked",
    "MessageRefused",
    "ReplicatorEvent",
    "SessionEnded",
    "SessionOpened",
    "SourceChanged",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened(Event):
    """Feeds are being exchanged with a peer: its notes, or ours, were the first."""

    session: int
    peer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded(Event):
    """A session is over; what the peer has told is on its way to the store.

    error: what the peer has done wrong, if that was why.
    """

    session: int
    peer: str
    reason: EndReason
    error: RemoteProtocolError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedExtended(Event):
    """Messages are stored, from sequence `first` to `last`, whoever they came from."""

    feed: str
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForked(Event):
    """A feed has two messages that contradict each other, both signed by its author.

    It is stopped: nothing of it is taken or sent any more.  `ours` and `theirs` prove it (see
    `culm.ssb.ebt.MarkForked`), and the store has them.
    """

    feed: str
    ours: bytes
    theirs: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRefused(Event):
    """A peer has sent a message that is not valid; the feed is not taken from it any more.

    session: ``None`` if it has not sent that in a session.
    """

    session: int | None
    peer: str
    feed: str
    sequence: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChanged(Event):
    """A feed is received from another peer; `stalled` names the one that had promised more.

    It has not kept its promise in time, was slow, or has taken it back.  `peer` is ``None`` if
    nobody else has promised anything.
    """

    feed: str
    peer: str | None
    stalled: str


ReplicatorEvent: TypeAlias = (
    SessionOpened
    | SessionEnded
    | FeedExtended
    | FeedForked
    | MessageRefused
    | SourceChanged
    | StoreFailed
    | Closed
)
