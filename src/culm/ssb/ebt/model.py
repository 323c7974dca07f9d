"""What feeds are made of, as far as replication looks into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

__all__ = [
    "ForkedFeedError",
    "Format",
    "Head",
    "InvalidMessageError",
    "Message",
    "PeerClock",
    "Progress",
    "Stored",
]


class Head(NamedTuple):
    """The last message of a feed."""

    sequence: int
    id: str


class Message(NamedTuple):
    """A valid message; `data` is how it is sent and stored."""

    author: str
    sequence: int
    id: str
    data: bytes


class InvalidMessageError(Exception):
    """A message that is none, or that its author has not signed; ``args[0]`` says why."""


class ForkedFeedError(Exception):
    """A message that its author has signed, and that does not continue the feed as we have it.

    data: how that message is stored.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__("the feed has forked")
        self.data = data


class Format(Protocol):
    """What a replicator has to know of the feeds' format."""

    def check(self, previous: str | None, received: Any) -> Message:
        """The message that was received, if it is valid and the next one of its feed.

        previous: the id of the last one, ``None`` for the first.

        That the author is the feed's and the sequence the next one has been seen already.
        Raises `InvalidMessageError` and `ForkedFeedError`, and nothing else.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What the store knows of feeds when a replicator is made.

    heads: the last message of each feed that has any.
    forked: the feeds with a proof that they have forked.
    """

    heads: Mapping[str, Head] = field(default_factory=dict[str, Head])
    forked: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerClock:
    """What is remembered of a peer from one session to the next (request skipping).

    told: the sequence that the peer has told last of a feed, by a note or a message; -1 if it
        does not want the feed.
    refused: the feeds that we have told it we do not want, and nothing else since that we know
        to have arrived.
    """

    told: Mapping[str, int] = field(default_factory=dict[str, int])
    refused: frozenset[str] = frozenset()


class Progress(NamedTuple):
    """How far replication has come, in messages, over all sessions.

    It has come to rest where `current` is `target`; both may fall when sessions end.
    """

    current: int
    """Messages that have come, and that were sent, since they were asked for."""
    target: int
    """The same, and those that are still to come, and to be sent."""
