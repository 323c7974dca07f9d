"""The store in memory has the duties of every store of feeds."""

from __future__ import annotations

from collections.abc import Sequence

from culm.machine import Ticket
from culm.ssb.ebt import Head, LoadClock, Message, PeerClock, SaveClock, StoredFeeds
from culm.ssb.store import FeedStore, MemoryStore
from culm.testing.ssb_stores import FeedStoreSuite


class PlainStore(FeedStore):
    """The plainest store: every message in one list, searched for each question."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._clocks: dict[str, PeerClock] = {}
        self._forked: set[str] = set()

    def _of(self, feed: str) -> list[Message]:
        return [each for each in self._messages if each.author == feed]

    def load(self) -> StoredFeeds:
        heads = {each.author: Head(each.sequence, each.id) for each in self._messages}
        return StoredFeeds(heads=heads, forked=frozenset(self._forked))

    def append(self, messages: Sequence[Message]) -> None:
        self._messages += messages

    def read(self, feed: str, *, first: int, count_max: int, size_max: int) -> tuple[bytes, ...]:
        found: list[bytes] = []
        for message in self._of(feed)[first - 1 :][:count_max]:
            if found and sum(map(len, found)) + len(message.data) > size_max:
                break
            found.append(message.data)
        return tuple(found)

    def mark_forked(self, feed: str, *, ours: bytes, theirs: bytes) -> None:
        self._forked.add(feed)

    def load_clock(self, peer: str) -> PeerClock:
        return self._clocks.get(peer, PeerClock())

    def save_clock(self, peer: str, clock: PeerClock) -> None:
        self._clocks[peer] = clock


class TestMemoryStore(FeedStoreSuite):
    def make_store(self) -> MemoryStore:
        return MemoryStore()

    def make_model(self) -> PlainStore:
        return PlainStore()

    def test_who_was_not_here_for_long_is_forgotten(self) -> None:
        store = MemoryStore(clocks_max=3)
        for number, peer in enumerate(["alice", "bob", "carol", "alice", "dave"]):
            clock = PeerClock(told={"a feed": number})
            store.perform(SaveClock(ticket=Ticket(1), peer=peer, clock=clock))
        found = {
            peer: store.perform(LoadClock(ticket=Ticket(1), peer=peer)).told.get("a feed")
            for peer in ("alice", "bob", "carol", "dave")
        }
        assert found == {"alice": 3, "bob": None, "carol": 2, "dave": 4}
