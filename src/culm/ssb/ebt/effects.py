"""Work that a replicator leaves to the store of feeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from culm.arguments import is_tuple
from culm.machine import Effect
from culm.ssb.ebt.model import Message, PeerClock
from culm.ssb.ebt.notes import REFUSAL, SEQUENCE_MAX
from culm.ssb.feed_id import is_feed_id

__all__ = [
    "AppendMessages",
    "LoadClock",
    "MarkForked",
    "ReadMessages",
    "ReplicatorEffect",
    "SaveClock",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendMessages(Effect[None]):
    """Write messages, each of which is the next one of its feed, in that order.

    Complete when all of them would survive a crash.  After a crash on the way any prefix of
    them may be there.
    """

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMessages(Effect[tuple[bytes, ...]]):
    """Read messages of a feed from sequence `first` on, as they are stored.

    Complete with at least one, the first whatever its size, and at most `count_max`; no more of
    them than have `size_max` bytes together.  The feed has the first one.
    """

    feed: str
    first: int
    count_max: int
    size_max: int

    def accepts(self, result: object) -> TypeGuard[tuple[bytes, ...]]:
        if not is_tuple(result) or not 0 < len(result) <= self.count_max:
            return False
        return all(type(data) is bytes and data for data in result)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkForked(Effect[None]):
    """Keep the proof that a feed has forked: two messages which contradict each other.

    ours: the last message of the feed.
    theirs: the one that should follow it, and does not.

    From now on the feed is in `culm.ssb.ebt.Stored.forked`.
    """

    feed: str
    ours: bytes
    theirs: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadClock(Effect[PeerClock]):
    """Complete with what `SaveClock` has kept of that peer, or with an empty clock."""

    peer: str

    def accepts(self, result: object) -> TypeGuard[PeerClock]:
        if type(result) is not PeerClock or type(result.refused) is not frozenset:
            return False
        if not isinstance(result.told, dict) or not all(map(_is_feed, result.refused)):
            return False
        return all(
            _is_feed(feed) and type(sequence) is int and REFUSAL <= sequence <= SEQUENCE_MAX
            for feed, sequence in result.told.items()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveClock(Effect[None]):
    """Keep what a peer has told, for the next session with it.

    It may be forgotten at any time, or be an older one: then more is told than would have been
    necessary.
    """

    peer: str
    clock: PeerClock


ReplicatorEffect: TypeAlias = AppendMessages | ReadMessages | MarkForked | LoadClock | SaveClock


def _is_feed(name: object) -> bool:
    return type(name) is str and is_feed_id(name)
