"""The store in memory does what every store of feeds has to do."""

from __future__ import annotations

from culm.machine import Ticket
from culm.ssb.ebt import LoadClock, PeerClock, SaveClock
from culm.ssb.store import MemoryStore
from culm.testing.ssb_stores import FeedStoreSuite


class TestMemoryStore(FeedStoreSuite):
    def make_store(self) -> MemoryStore:
        return MemoryStore()

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
