"""Stores of feeds: the interface, and a store in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import Any, Final

from culm.arguments import check_int
from culm.machine import Effect
from culm.ssb.ebt.effects import AppendMessages, LoadClock, MarkForked, ReadMessages, SaveClock
from culm.ssb.ebt.model import Head, Message, PeerClock, StoredFeeds

CLOCKS_MAX: Final = 10_000  # peers: anybody may connect under any number of names, once each


class FeedStore(ABC):
    """Performs the effects of a replicator, and loads the feeds that it starts with.

    A method that writes returns when its data would survive a crash.
    """

    @abstractmethod
    def load(self) -> StoredFeeds:
        """The stored feeds, to make a replicator with."""

    @abstractmethod
    def append(self, messages: Sequence[Message]) -> None:
        """See `AppendMessages`.  Raises `ValueError`, and appends none, unless each is the next."""

    @abstractmethod
    def read(self, feed: str, *, first: int, count_max: int, size_max: int) -> tuple[bytes, ...]:
        """See `ReadMessages`.  Raises `LookupError` if the first one is not there."""

    @abstractmethod
    def mark_forked(self, feed: str, *, ours: bytes, theirs: bytes) -> None:
        """See `MarkForked`."""

    @abstractmethod
    def load_clock(self, peer: str) -> PeerClock:
        """See `LoadClock`."""

    @abstractmethod
    def save_clock(self, peer: str, clock: PeerClock) -> None:
        """See `SaveClock`."""

    def perform(self, effect: Effect[Any]) -> object:
        """Perform an effect; returns the result for `complete`.

        Raises `TypeError` for something that is not an effect of a replicator.
        """
        method = _METHODS.get(type(effect))
        if method is None:
            raise TypeError(f"not an effect of a replicator: {effect}")
        return method(self, effect)


_METHODS: Final[Mapping[type[Effect[Any]], Callable[[FeedStore, Any], object]]] = {
    AppendMessages: lambda store, effect: store.append(effect.messages),
    ReadMessages: lambda store, effect: store.read(
        effect.feed, first=effect.first, count_max=effect.count_max, size_max=effect.size_max
    ),
    MarkForked: lambda store, effect: store.mark_forked(
        effect.feed, ours=effect.ours, theirs=effect.theirs
    ),
    LoadClock: lambda store, effect: store.load_clock(effect.peer),
    SaveClock: lambda store, effect: store.save_clock(effect.peer, effect.clock),
}


class MemoryStore(FeedStore):
    """Keeps everything in memory: for tests, and for peers that may forget.

    clocks_max: number of peers whose clocks are remembered: those saved last.
    """

    def __init__(self, *, clocks_max: int = CLOCKS_MAX) -> None:
        check_int("clocks_max", clocks_max, 1)
        self._clocks_max = clocks_max
        self._feeds: dict[str, list[Message]] = {}
        self._clocks: dict[str, PeerClock] = {}
        self._proofs: dict[str, tuple[bytes, bytes]] = {}

    def load(self) -> StoredFeeds:
        heads = {
            feed: Head(messages[-1].sequence, messages[-1].id)
            for feed, messages in self._feeds.items()
        }
        return StoredFeeds(heads=heads, forked=frozenset(self._proofs))

    def messages(self, feed: str) -> list[bytes]:
        """All messages of a feed, as they are stored."""
        return [message.data for message in self._feeds.get(feed, ())]

    def proof(self, feed: str) -> tuple[bytes, bytes] | None:
        """Two messages that prove that a feed has forked."""
        return self._proofs.get(feed)

    def append(self, messages: Sequence[Message]) -> None:
        last: dict[str, int] = {}
        for message in messages:
            before = last.get(message.author) or len(self._feeds.get(message.author, ()))
            if message.sequence != before + 1:
                raise ValueError(f"{message.author}: {message.sequence} after {before}")
            last[message.author] = message.sequence
        for message in messages:
            self._feeds.setdefault(message.author, []).append(message)

    def read(self, feed: str, *, first: int, count_max: int, size_max: int) -> tuple[bytes, ...]:
        messages = self._feeds.get(feed, [])[first - 1 : first - 1 + count_max]
        if not messages:
            raise LookupError(f"{feed} has no message {first}")
        sizes = accumulate(len(message.data) for message in messages)
        count = sum(1 for _ in takewhile(size_max.__ge__, sizes))
        return tuple(message.data for message in messages[: max(1, count)])

    def mark_forked(self, feed: str, *, ours: bytes, theirs: bytes) -> None:
        self._proofs[feed] = ours, theirs

    def load_clock(self, peer: str) -> PeerClock:
        return self._clocks.get(peer, PeerClock())

    def save_clock(self, peer: str, clock: PeerClock) -> None:
        self._clocks.pop(peer, None)
        self._clocks[peer] = clock
        if len(self._clocks) > self._clocks_max:
            del self._clocks[next(iter(self._clocks))]
