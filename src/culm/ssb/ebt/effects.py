"""Work that a replicator leaves to the store of feeds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from culm.arguments import is_dict, is_tuple
from culm.machine import Effect
from culm.signatures import Verify
from culm.ssb.ebt.model import Message, PeerClock
from culm.ssb.ebt.notes import REFUSAL, SEQUENCE_MAX
from culm.ssb.feed_id import are_feed_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendMessages(Effect[None]):
    """Write messages in this order; each is the next one of its feed.

    Complete it when all of them would survive a crash.  A crash before that may leave any prefix
    of them.
    """

    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadMessages(Effect[tuple[bytes, ...]]):
    """Read messages of a feed from sequence `first` on, as they are stored.

    Complete it with at most `count_max` messages of at most `size_max` bytes together, but with at
    least one, whatever its size.  The first one is there.
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
    """Keep the proof that a feed has forked: two messages that contradict each other.

    ours: the last message of the feed.
    theirs: a message that should follow it, but does not.

    From now on the feed is in `culm.ssb.ebt.StoredFeeds.forked`.
    """

    feed: str
    ours: bytes
    theirs: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadClock(Effect[PeerClock]):
    """Complete it with the clock that `SaveClock` has kept for that peer, or an empty one."""

    peer: str

    def accepts(self, result: object) -> TypeGuard[PeerClock]:
        if type(result) is not PeerClock:
            return False
        sets = (result.refused, result.distrusted)
        if not all(type(each) is frozenset and are_feed_ids(each) for each in sets):
            return False
        if not all(
            type(number) is int and number >= 0 for number in (result.stored, result.sessions)
        ):
            return False
        return _are_sequences(result.told, REFUSAL) and _are_sequences(result.held, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveClock(Effect[None]):
    """Keep a peer's clock for the next session with it.

    It may be forgotten at any time: then more notes are sent than necessary.  If an older clock is
    returned, or one that is newer than the feeds, a feed that ought to be exchanged may be left out
    of sessions, but of no more than `culm.ssb.ebt.TURNS` - 1.
    """

    peer: str
    clock: PeerClock


ReplicatorEffect: TypeAlias = (
    AppendMessages | ReadMessages | MarkForked | LoadClock | SaveClock | Verify
)


def _are_sequences(found: object, least: int) -> bool:
    if not is_dict(found):
        return False
    sequences = found.values()
    return (
        set(map(type, sequences)) <= {int}
        and min(sequences, default=least) >= least
        and max(sequences, default=0) <= SEQUENCE_MAX
        and are_feed_ids(found)
    )
