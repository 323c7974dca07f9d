"""The parts of feeds that matter to replication."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol
from zlib import crc32

TURNS: Final = 16
"""Each feed is mentioned in one of this number of sessions in a row, whatever is remembered."""


def turn_of(feed_id: str) -> int:
    """The session, of `TURNS` in a row, in which a feed is mentioned."""
    return crc32(feed_id.encode()) % TURNS


class Head(NamedTuple):
    """The last message of a feed."""

    sequence: int
    id: str


class Message(NamedTuple):
    """A valid message; `data` is its form on the wire and in the store."""

    author: str
    sequence: int
    id: str
    data: bytes


class InvalidMessageError(Exception):
    """Data that is not a message, or not signed by its author; ``args[0]`` says why."""


class ForkedFeedError(Exception):
    """A message that its author has signed, but that does not continue our copy of the feed.

    data: the message as it is stored.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__("the feed has forked")
        self.data = data


class Format(Protocol):
    """A format of feeds, as far as a replicator has to know it."""

    def check(self, previous: str | None, received: Any) -> Message:
        """The received message, if it is valid and the next one of its feed.

        previous: the id of the last one, ``None`` for the first, which cannot fork a feed.

        The author and the sequence have been compared already.  Raises only `InvalidMessageError`
        and `ForkedFeedError`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFeeds:
    """The feeds in the store when a replicator is made.

    heads: the last message of each feed that has messages.
    forked: the feeds that are proved to have forked.
    """

    heads: Mapping[str, Head] = field(default_factory=dict[str, Head])
    forked: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerClock:
    """The memory of a peer from one session to the next (request skipping).

    It is a hint: it may be older or newer than the feeds beside it.

    told: for each feed the last sequence that the peer has told, by a note or a message; -1 if it
        does not want the feed.
    refused: the feeds that we have told it we do not want, with no later note known to have
        arrived.
    held: the last sequence that we had of a feed then, where that is not the one in `told`.
    stored: the number of messages that our store had then, of all feeds.  A store that has fewer is
        older than this memory, which then counts for nothing.
    distrusted: the feeds of which it has sent an invalid message, and no valid one since.
    sessions: the number of sessions with the peer that began with such a memory: it tells which
        feeds have their turn to be mentioned again.
    """

    told: Mapping[str, int] = field(default_factory=dict[str, int])
    refused: frozenset[str] = frozenset()
    held: Mapping[str, int] = field(default_factory=dict[str, int])
    stored: int = 0
    sessions: int = 0
    distrusted: frozenset[str] = frozenset()


class SyncProgress(NamedTuple):
    """The progress of replication, in messages, over all sessions.

    Replication is at rest when `current` equals `target`; both may fall when sessions end.
    """

    current: int
    """Messages received and sent, since they were asked for."""
    target: int
    """The same, and the messages yet to be received and sent."""
