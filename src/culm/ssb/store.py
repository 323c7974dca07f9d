"""Stores of feeds: the interface, and a store in memory."""

from __future__ import annotations

from typing import Any, Final, Protocol, runtime_checkable

from culm.arguments import check_int
from culm.machine import Effect
from culm.ssb.ebt.effects import AppendMessages, LoadClock, MarkForked, ReadMessages, SaveClock
from culm.ssb.ebt.model import Head, Message, PeerClock, Stored

__all__ = ["CLOCKS_MAX", "FeedStore", "MemoryStore"]

CLOCKS_MAX: Final = 10_000  # peers: anybody may connect under any number of names, once each


@runtime_checkable
class FeedStore(Protocol):
    """Performs the effects of a replicator, and loads the feeds that it starts with."""

    def load(self) -> Stored:
        """The stored feeds, to make a replicator with."""
        ...

    def perform(self, effect: Effect[Any]) -> object:
        """Perform an effect; returns the result for `complete`."""
        ...


class MemoryStore:
    """Keeps everything in memory: for tests, and for peers that may forget.

    clocks_max: number of peers whose clocks are remembered: those saved last.
    """

    def __init__(self, *, clocks_max: int = CLOCKS_MAX) -> None:
        check_int("clocks_max", clocks_max, 1)
        self._clocks_max = clocks_max
        self._feeds: dict[str, list[Message]] = {}
        self._clocks: dict[str, PeerClock] = {}
        self._proofs: dict[str, tuple[bytes, bytes]] = {}

    def load(self) -> Stored:
        heads = {
            feed: Head(messages[-1].sequence, messages[-1].id)
            for feed, messages in self._feeds.items()
        }
        return Stored(heads=heads, forked=frozenset(self._proofs))

    def messages(self, feed: str) -> list[bytes]:
        """All messages of a feed, as they are stored."""
        return [message.data for message in self._feeds.get(feed, ())]

    def proof(self, feed: str) -> tuple[bytes, bytes] | None:
        """Two messages that prove that a feed has forked."""
        return self._proofs.get(feed)

    def perform(self, effect: Effect[Any]) -> object:
        """Raises `TypeError` for something that is not an effect of a replicator, `LookupError` for
        messages that are not there, `ValueError` for one that is not the next of its feed.
        """
        match effect:
            case AppendMessages():
                self._append(effect)
            case ReadMessages():
                return self._read(effect)
            case LoadClock():
                return self._clocks.get(effect.peer, PeerClock())
            case SaveClock():
                self._clocks.pop(effect.peer, None)
                self._clocks[effect.peer] = effect.clock
                if len(self._clocks) > self._clocks_max:
                    del self._clocks[next(iter(self._clocks))]
            case MarkForked():
                self._proofs[effect.feed] = effect.ours, effect.theirs
            case _:
                raise TypeError(f"not an effect of a replicator: {effect}")
        return None

    def _append(self, effect: AppendMessages) -> None:
        last: dict[str, int] = {}
        for message in effect.messages:
            before = last.get(message.author) or len(self._feeds.get(message.author, ()))
            if message.sequence != before + 1:
                raise ValueError(f"{message.author}: {message.sequence} after {before}")
            last[message.author] = message.sequence
        for message in effect.messages:
            self._feeds.setdefault(message.author, []).append(message)

    def _read(self, effect: ReadMessages) -> tuple[bytes, ...]:
        start = effect.first - 1
        messages = self._feeds.get(effect.feed, [])[start : start + effect.count_max]
        if not messages:
            raise LookupError(f"{effect.feed} has no message {effect.first}")
        found: list[bytes] = []
        size = 0
        for message in messages:
            size += len(message.data)
            if found and size > effect.size_max:
                break
            found.append(message.data)
        return tuple(found)
