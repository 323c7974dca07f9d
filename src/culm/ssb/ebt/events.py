"""Events of sessions and feeds.  The last event is always `culm.machine.Closed`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from culm.machine import Closed, Event, RemoteProtocolError, StoreFailed
from culm.ssb.ebt.states import EndReason


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened(Event):
    """A session with a peer has begun, by the first notes of either side."""

    session: int
    peer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded(Event):
    """A session is over; the peer's clock is on its way to the store.

    error: the peer's fault, if that was the reason.
    """

    session: int
    peer: str
    reason: EndReason
    error: RemoteProtocolError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSynced(Event):
    """The store has everything that a peer has told of, of the feeds exchanged with it.

    It comes after the peer's first notes, and again each time after notes of more.
    """

    session: int
    peer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedExtended(Event):
    """Messages from sequence `first` to `last` are stored, wherever they came from."""

    feed: str
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForked(Event):
    """A feed has two messages that contradict each other, both signed by its author.

    It is frozen: none of its messages are taken or sent any more.  `ours` and `theirs` prove the
    fork (see `culm.ssb.ebt.MarkForked`), and the store has them.
    """

    feed: str
    ours: bytes
    theirs: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRefused(Event):
    """A peer has sent an invalid message; the feed is no longer taken from it.

    session: ``None`` if the message did not come in a session.
    """

    session: int | None
    peer: str
    feed: str
    sequence: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedsLeftOut(Event):
    """A peer has told of more than `culm.ssb.ebt.Limits.feeds_max` feeds that we do not follow.

    The rest of these are not answered in this session.  Feeds that we follow are exchanged all the
    same, even if we follow them only later.
    """

    session: int
    peer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceChanged(Event):
    """A feed is now received from `peer`; `stalled` names the peer that had promised more.

    The latter has not kept its promise in time, was slow, or has taken it back.  `peer` is ``None``
    if no other peer has promised anything.
    """

    feed: str
    peer: str | None
    stalled: str


ReplicatorEvent: TypeAlias = (
    SessionOpened
    | SessionSynced
    | SessionEnded
    | FeedExtended
    | FeedForked
    | FeedsLeftOut
    | MessageRefused
    | SourceChanged
    | StoreFailed
    | Closed
)
